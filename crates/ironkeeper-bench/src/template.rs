//! Requests that are encoded once and then patched.
//!
//! Every node of a run has a number. Its path contains the number with a fixed count of digits, so
//! all paths of a run, and all its requests of one kind, have the same length and differ in a few
//! bytes.

use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::request::RequestHeader;
use ironkeeper_proto::{AclVec, CreateMode, OpCode, Put, Xid};

/// The number of nodes that a layout can address.
pub(crate) const NODES_MAX: u32 = 100_000_000;
const NAME_DIGITS: usize = 8;
/// Children per folder, if folders are used.
const FOLDER_NODES: u32 = 1000;
const FOLDER_DIGITS: usize = 5;

/// The paths of the nodes of a run.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    parent: String,
    folders: bool,
}

impl Layout {
    /// Creates a layout in which all nodes are children of `parent`.
    pub(crate) fn flat(parent: &str) -> Layout {
        Layout { parent: parent.to_owned(), folders: false }
    }

    /// Creates a layout of `nodes` nodes below `parent`; more than a thousand nodes are divided
    /// into folders of a thousand.
    pub(crate) fn over(parent: &str, nodes: u32) -> Layout {
        Layout { parent: parent.to_owned(), folders: nodes > FOLDER_NODES }
    }

    /// Returns the paths of the folders of `nodes` nodes.
    pub(crate) fn folders(&self, nodes: u32) -> impl Iterator<Item = String> + '_ {
        let count = if self.folders { nodes.div_ceil(FOLDER_NODES) } else { 0 };
        (0..count).map(|folder| format!("{}/{folder:0FOLDER_DIGITS$}", self.parent))
    }

    pub(crate) fn path(&self, node: u32) -> String {
        let parent = &self.parent;
        if self.folders {
            let folder = node / FOLDER_NODES;
            format!("{parent}/{folder:0FOLDER_DIGITS$}/{node:0NAME_DIGITS$}")
        } else {
            format!("{parent}/{node:0NAME_DIGITS$}")
        }
    }

    /// Returns the positions of the digits of name and folder, counted from the end of a path.
    fn digits_from_end(&self) -> (usize, Option<usize>) {
        (NAME_DIGITS, self.folders.then_some(NAME_DIGITS + 1 + FOLDER_DIGITS))
    }
}

/// Encoded bytes that contain one path of a layout.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    name_at: usize,
    folder_at: Option<usize>,
}

impl Template {
    pub(crate) fn get_data(layout: &Layout) -> Template {
        Template::request(OpCode::GetData, layout, |out| out.put_bool(false))
    }

    pub(crate) fn set_data(layout: &Layout, size: u32) -> Template {
        Template::request(OpCode::SetData, layout, |out| {
            out.put_buf(Some(&value(size)));
            out.put_i32(-1);
        })
    }

    pub(crate) fn create(layout: &Layout, size: u32) -> Template {
        Template::request(OpCode::Create, layout, |out| put_create_rest(out, size))
    }

    /// Encodes a create as an operation of a multi.
    pub(crate) fn create_in_multi(layout: &Layout, size: u32) -> Template {
        let mut bytes = Vec::new();
        MultiHeader { kind: OpCode::Create.code(), done: false, err: -1 }.encode(&mut bytes);
        Template::around_path(bytes, layout, |out| put_create_rest(out, size))
    }

    fn request(op: OpCode, layout: &Layout, rest: impl FnOnce(&mut Vec<u8>)) -> Template {
        let mut bytes = Vec::new();
        bytes.put_i32(0);
        RequestHeader { xid: Xid(0), op: op.code() }.encode(&mut bytes);
        let mut template = Template::around_path(bytes, layout, rest);
        patch_len(&mut template.bytes, 0);
        template
    }

    fn around_path(
        mut bytes: Vec<u8>,
        layout: &Layout,
        rest: impl FnOnce(&mut Vec<u8>),
    ) -> Template {
        bytes.put_str(&layout.path(0));
        let end = bytes.len();
        let (name, folder) = layout.digits_from_end();
        rest(&mut bytes);
        Template { bytes, name_at: end - name, folder_at: folder.map(|back| end - back) }
    }

    /// Returns the length of the encoded bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the template for `node`.
    #[inline]
    pub(crate) fn append(&self, node: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let name_at = start + self.name_at;
        put_digits(&mut out[name_at..name_at + NAME_DIGITS], node);
        if let Some(at) = self.folder_at {
            put_digits(&mut out[start + at..start + at + FOLDER_DIGITS], node / FOLDER_NODES);
        }
    }

    /// Appends the template, which is a whole request, for `node` and sets its xid.
    #[inline]
    pub(crate) fn append_request(&self, xid: i32, node: u32, out: &mut Vec<u8>) {
        let start = out.len();
        self.append(node, out);
        out[start + 4..start + 8].copy_from_slice(&xid.to_be_bytes());
    }
}

/// Encodes a whole request, with its length prefix.
pub(crate) fn request(xid: i32, op: OpCode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    append_request(xid, op, &mut out, body);
    out
}

/// Appends a whole request, with its length prefix.
pub(crate) fn append_request(
    xid: i32,
    op: OpCode,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.put_i32(0);
    RequestHeader { xid: Xid(xid), op: op.code() }.encode(out);
    body(out);
    patch_len(out, start);
}

/// Appends the fields of a create behind its path: data, open ACL, persistent.
pub(crate) fn put_create_rest(out: &mut Vec<u8>, size: u32) {
    out.put_buf(Some(&value(size)));
    AclVec::OPEN.encode(out);
    out.put_i32(CreateMode::Persistent.flags());
}

/// Returns the data of every node: printable, and not compressible to a single run of one byte.
pub(crate) fn value(size: u32) -> Vec<u8> {
    (0..size).map(|at| b'a' + (at.wrapping_mul(7) % 26) as u8).collect()
}

fn patch_len(bytes: &mut [u8], start: usize) {
    let len = i32::try_from(bytes.len() - start - 4).expect("requests are far below 2 GiB");
    bytes[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

#[inline]
fn put_digits(at: &mut [u8], mut number: u32) {
    for digit in at.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::{Reader, Request};

    /// The decoded form of a whole request.
    fn decoded(bytes: &[u8]) -> (i32, String) {
        let mut reader = Reader::new(bytes);
        assert_eq!(reader.i32().unwrap() as usize, bytes.len() - 4);
        let header = RequestHeader::decode(&mut reader).unwrap();
        let op = OpCode::from_code(header.op).unwrap();
        let text = match Request::decode(op, reader).unwrap() {
            Request::GetData { path, watch } => format!("get {path} {watch:?}"),
            Request::SetData { path, data, version } => {
                format!("set {path} {} {version}", data.unwrap().len())
            }
            Request::Create(create) => format!(
                "create {} {} {} {}",
                create.path,
                create.data.unwrap().len(),
                create.acl.unwrap().len(),
                create.flags
            ),
            other => format!("{other:?}"),
        };
        (header.xid.0, text)
    }

    fn patched(template: &Template, xid: i32, node: u32) -> (i32, String) {
        let mut out = vec![1, 2, 3];
        template.append_request(xid, node, &mut out);
        decoded(&out[3..])
    }

    #[test]
    fn patched_templates_decode_to_the_requests_they_stand_for() {
        let layout = Layout::over("/b", 1000);
        assert_eq!(
            patched(&Template::get_data(&layout), 7, 42),
            (7, "get /b/00000042 None".into())
        );
        let set = Template::set_data(&layout, 100);
        assert_eq!(patched(&set, 8, 999), (8, "set /b/00000999 100 -1".into()));
        let create = Template::create(&layout, 3);
        assert_eq!(patched(&create, i32::MAX, 0), (i32::MAX, "create /b/00000000 3 1 0".into()));
    }

    #[test]
    fn big_layouts_put_each_thousand_into_a_folder() {
        let layout = Layout::over("/b", 2001);
        assert_eq!(layout.folders(2001).collect::<Vec<_>>(), ["/b/00000", "/b/00001", "/b/00002"]);
        for node in [0, 999, 1000, 2000, NODES_MAX - 1] {
            let (_, text) = patched(&Template::get_data(&layout), 1, node);
            assert_eq!(text, format!("get {} None", layout.path(node)));
        }
        assert_eq!(layout.path(2000), "/b/00002/00002000");
    }

    #[test]
    fn small_and_flat_layouts_have_no_folders() {
        assert_eq!(Layout::over("/b", 1000).folders(1000).count(), 0);
        assert_eq!(Layout::flat("/b").folders(5000).count(), 0);
        assert_eq!(Layout::flat("/b").path(5000), "/b/00005000");
    }
}
