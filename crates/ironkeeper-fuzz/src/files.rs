//! Files of a data directory, which an operator may have copied from another server.
//!
//! Checksums stop a fuzzer: nearly every change makes one wrong. Each target therefore reads the
//! input as it is and once more with all checksums made right.

use std::path::Path;

use ironkeeper_proto::jute::{MAX_BUFFER_DEFAULT, Put, Reader};
use ironkeeper_proto::log_record::{FILE_HEADER_LEN, RECORD_HEADER_LEN, RecordHeader};
use ironkeeper_proto::snapshot_record::{self, END_PATH, SnapshotDigest, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_store::disk::{Disk, DiskFile};
use ironkeeper_store::{LogReader, Next, Visitor, read_snapshot, read_snapshot_file};
use ironkeeper_tree::{Loader, Tree, TreeConfig};

use crate::memory_disk::MemoryDisk;

/// A whole transaction log.
pub(crate) fn log_file(bytes: &[u8]) {
    read_log(bytes);
    read_log(&with_right_record_checksums(bytes));
}

fn read_log(bytes: &[u8]) {
    let disk = MemoryDisk(bytes.into());
    let path = Path::new("version-2/log.1");
    for live in [false, true] {
        let reader =
            if live { LogReader::open_live(&disk, path) } else { LogReader::open(&disk, path) };
        let mut reader = reader.expect("the file can be opened");
        let end = read_to_end(&mut reader, bytes);
        assert_eq!(read_to_end(&mut reader, bytes), end, "an end is final");
    }
}

/// Returns the offset and the kind of the end.
fn read_to_end<F: DiskFile>(reader: &mut LogReader<F>, bytes: &[u8]) -> (u64, String) {
    let mut behind = 0;
    loop {
        match reader.next().expect("reading from memory cannot fail") {
            Next::Record(record) => {
                assert!(record.offset >= behind, "records follow one another");
                let start = record.offset as usize + RECORD_HEADER_LEN;
                assert_eq!(bytes.get(start..start + record.body.len()), Some(record.body));
                behind = (start + record.body.len() + 1) as u64;
                let _ = FullTxn::decode(record.body);
            }
            Next::End { offset, end } => {
                assert!(offset <= bytes.len() as u64);
                return (offset, format!("{end:?}"));
            }
        }
    }
}

fn with_right_record_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = FILE_HEADER_LEN;
    while let Some(header) = bytes.get(at..).and_then(|rest| RecordHeader::decode(rest).ok()) {
        let body = at + RECORD_HEADER_LEN;
        let Some(end) = usize::try_from(header.len).ok().and_then(|len| body.checked_add(len))
        else {
            break;
        };
        if header.len == 0 || end >= bytes.len() {
            break;
        }
        let checksum = i64::from(simd_adler32::adler32(&&bytes[body..end]));
        bytes[at..at + 8].copy_from_slice(&checksum.to_be_bytes());
        at = end + 1;
    }
    bytes
}

/// A whole snapshot. The first byte selects the compression.
pub(crate) fn snapshot_file(bytes: &[u8]) {
    let Some((compression, file)) = bytes.split_first() else { return };
    let name = match compression % 4 {
        0 => "snapshot.7",
        1 => "snapshot.7.gz",
        2 => "snapshot.7.snappy",
        _ => return read_plain(&with_right_seals(file)),
    };
    let disk = MemoryDisk(file.into());
    let mut tree = Restored::default();
    let _ = read_snapshot_file(&disk, Path::new(name), MAX_BUFFER_DEFAULT, &mut tree);
    assert!(disk.exists(Path::new(name)).is_ok_and(|exists| exists));
}

fn read_plain(bytes: &[u8]) {
    let mut restored = Restored::default();
    let path = Path::new("snapshot.7");
    let read = read_snapshot(bytes, Zxid(7), path, MAX_BUFFER_DEFAULT, &mut restored);
    let Ok(summary) = read else { return };
    assert!(summary.bytes <= bytes.len() as u64);
    let tree = restored.tree.expect("a snapshot that was read completely has an end");
    // A snapshot of a version before 3.5 lacks `/zookeeper/config`, which the loader adds.
    assert!(tree.node_count() as u64 >= summary.nodes);
}

/// A visitor that builds the tree.
#[derive(Default)]
struct Restored {
    loader: Option<Loader>,
    tree: Option<Tree>,
}

impl Restored {
    fn loader(&mut self) -> &mut Loader {
        self.loader.as_mut().expect("a snapshot begins with its start")
    }
}

impl Visitor for Restored {
    fn snapshot_start(&mut self, _: Zxid, _: &Path) {
        self.loader = Some(Loader::new(TreeConfig::default()));
    }

    fn session(&mut self, _: SessionId, _: i32) {}

    fn acl(&mut self, id: i64, list: AclVec<'_>) {
        self.loader().add_acl(id, list);
    }

    fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), String> {
        self.loader().add_node(node).map_err(|error| error.to_string())
    }

    fn snapshot_end(&mut self, zxid: Zxid, _: Option<SnapshotDigest>) -> Result<(), String> {
        let loader = self.loader.take().expect("a snapshot begins with its start");
        self.tree = Some(loader.finish(zxid).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn txn(&mut self, _: &FullTxn<'_>, _: &[u8]) -> Result<(), String> {
        unreachable!("a snapshot contains no transactions")
    }
}

/// Returns the records at the start of `bytes`, with right seals and sections.
fn with_right_seals(bytes: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(bytes);
    let nodes =
        end_of_nodes(&mut reader).map_or(bytes.len(), |()| bytes.len() - reader.rest().len());
    let mut file = bytes[..nodes].to_vec();
    let mut rest = &bytes[nodes..];
    put_seal(&mut file);
    for section in [SnapshotDigest::ENCODED_LEN, size_of::<i64>()] {
        let Some((content, behind)) = rest.split_at_checked(section) else { break };
        file.extend_from_slice(content);
        put_seal(&mut file);
        rest = behind;
    }
    file
}

fn end_of_nodes(reader: &mut Reader<'_>) -> Option<()> {
    reader.bytes(snapshot_record::FILE_HEADER_LEN).ok()?;
    for _ in 0..reader.i32().ok()?.max(0) {
        reader.bytes(12).ok()?;
    }
    for _ in 0..reader.i32().ok()?.max(0) {
        reader.i64().ok()?;
        AclVec::decode(reader).ok()?;
    }
    loop {
        let path = reader.str().ok()?;
        if path == END_PATH {
            return Some(());
        }
        SnapshotNode::decode_body(path, reader).ok()?;
    }
}

fn put_seal(file: &mut Vec<u8>) {
    let sum = simd_adler32::adler32(&&file[..]);
    file.put_i64(i64::from(sum));
    file.put_str(END_PATH);
}
