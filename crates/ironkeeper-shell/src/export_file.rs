//! The JSON form of a subtree: written by `export`, read by `import`.
//!
//! ```json
//! {"format": "ironkeeper-export", "version": 1, "root": "/app", "nodes": [
//! {"path": "/app", "data": "text", "mode": "persistent", "acl": [{"scheme": "world", "id": "anyone", "perms": "cdrwa"}]},
//! {"path": "/app/key", "data_base64": "/wA=", "mode": "ephemeral", "owner": "0x1000b30ac0000", "acl": […]}
//! ]}
//! ```
//!
//! One node per line, parents before their children. `data` is text, `data_base64` is any bytes,
//! `"data": null` is null data. Servers do not report which nodes are containers or TTL nodes, so
//! an export never contains these modes; an import accepts `"mode": "container"` and
//! `"mode": "ttl"` with `ttl_ms`.

use std::collections::HashSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ironkeeper_client::{Acl, CreateMode, CreateOptions};
use serde::{Deserialize, Serialize};

use super::acl_text;
use super::failure::{Failure, Outcome};
use super::node_walk::Found;
use super::path_form;

pub const FORMAT: &str = "ironkeeper-export";
pub const VERSION: u32 = 1;

#[derive(Debug, Deserialize)]
pub struct ExportFile {
    format: String,
    version: u32,
    pub root: String,
    pub nodes: Vec<NodeRecord>,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRecord {
    pub path: String,
    /// `Some(None)` is null data; `None` is data in the other field.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    data: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
    #[serde(default)]
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    /// The session id of an ephemeral node, for information only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    acl: Vec<AclRecord>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Persistent,
    Ephemeral,
    Container,
    Ttl,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct AclRecord {
    scheme: String,
    id: String,
    perms: String,
}

/// Distinguishes `null` from a missing field.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

impl NodeRecord {
    pub fn new(found: &Found) -> NodeRecord {
        let data = found.data.clone().flatten();
        let text = data.as_ref().and_then(|data| std::str::from_utf8(data).ok());
        let (data, data_base64) = match (&data, text) {
            (None, _) => (Some(None), None),
            (Some(_), Some(text)) => (Some(Some(text.to_owned())), None),
            (Some(data), None) => (None, Some(BASE64_STANDARD.encode(data))),
        };
        let owner = found.stat.ephemeral_owner;
        let acl = found.acl.iter().map(|acl| AclRecord {
            scheme: acl.scheme.to_string(),
            id: acl.id.to_string(),
            perms: acl_text::letters(acl.perms),
        });
        NodeRecord {
            path: found.path.clone(),
            data,
            data_base64,
            mode: if found.is_ephemeral() { Mode::Ephemeral } else { Mode::Persistent },
            ttl_ms: None,
            owner: found.is_ephemeral().then(|| format!("0x{owner:x}")),
            acl: acl.collect(),
        }
    }

    /// Returns the data; `None` is null.
    pub fn data(&self) -> Outcome<Option<bytes::Bytes>> {
        let bytes = match (&self.data, &self.data_base64) {
            (Some(_), Some(_)) => return Err(self.wrong("has both data and data_base64")),
            (None, None) => return Err(self.wrong("has neither data nor data_base64")),
            (Some(text), None) => text.as_ref().map(|text| text.clone().into()),
            (None, Some(base64)) => {
                let bytes = BASE64_STANDARD.decode(base64);
                Some(bytes.map_err(|_| self.wrong("has data_base64 that is not base64"))?.into())
            }
        };
        Ok(bytes)
    }

    pub fn acl(&self) -> Outcome<Vec<Acl>> {
        let mut list = Vec::new();
        for record in &self.acl {
            let AclRecord { scheme, id, perms } = record;
            let perms = acl_text::perms(perms).ok_or_else(|| {
                self.wrong(&format!("has permissions that are not letters of cdrwa: {perms}"))
            })?;
            list.push(Acl::new(perms, scheme.as_str(), id.as_str()));
        }
        if list.is_empty() {
            return Err(self.wrong("has an empty ACL"));
        }
        Ok(list)
    }

    /// Returns the options to create the node. An ephemeral node becomes persistent.
    pub fn options(&self) -> Outcome<CreateOptions> {
        match (self.mode, self.ttl_ms) {
            (Mode::Ttl, Some(ms)) => Ok(CreateOptions::new(CreateMode::PersistentWithTtl)
                .ttl(std::time::Duration::from_millis(ms))),
            (Mode::Ttl, None) => Err(self.wrong("is a TTL node without ttl_ms")),
            (_, Some(_)) => Err(self.wrong("has a ttl_ms and is no TTL node")),
            (Mode::Container, None) => Ok(CreateOptions::new(CreateMode::Container)),
            (Mode::Persistent | Mode::Ephemeral, None) => {
                Ok(CreateOptions::new(CreateMode::Persistent))
            }
        }
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::message(format!("Node {} in the file {what}", self.path))
    }
}

impl ExportFile {
    /// Parses and checks a whole file. Afterwards no access to it can fail, and the parent of every
    /// node except the first precedes it.
    pub fn parse(text: &[u8]) -> Outcome<ExportFile> {
        let file: ExportFile = serde_json::from_slice(text)
            .map_err(|error| Failure::message(format!("This is not an export: {error}")))?;
        if file.format != FORMAT {
            return Err(Failure::message(format!("This is not an export but {}", file.format)));
        }
        if file.version != VERSION {
            return Err(Failure::message(format!(
                "This export has version {}; this program reads version {VERSION}",
                file.version
            )));
        }
        path_form::check(&file.root)?;
        let mut seen: HashSet<&str> = HashSet::new();
        for (at, node) in file.nodes.iter().enumerate() {
            path_form::check(&node.path)?;
            node.data()?;
            node.acl()?;
            node.options()?;
            let parent = match node.path.rsplit_once('/') {
                Some(("", _)) => "/",
                Some((parent, _)) => parent,
                None => "/",
            };
            if at == 0 && node.path != file.root {
                return Err(node.wrong("comes first and is not the root of the export"));
            }
            let has_parent = seen.contains(parent);
            if !seen.insert(&node.path) {
                return Err(node.wrong("is there twice"));
            }
            if at > 0 && !has_parent {
                return Err(node.wrong("comes before its parent"));
            }
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACL: &str = r#""acl":[{"scheme":"world","id":"anyone","perms":"cdrwa"}]"#;

    #[track_caller]
    fn check(nodes: &[&str], expected: Result<usize, &str>) {
        let nodes: Vec<String> = nodes.iter().map(|node| node.replace("ACL", ACL)).collect();
        let text = format!(
            r#"{{"format":"ironkeeper-export","version":1,"root":"/a","nodes":[{}]}}"#,
            nodes.join(",")
        );
        match (ExportFile::parse(text.as_bytes()), expected) {
            (Ok(file), Ok(count)) => assert_eq!(file.nodes.len(), count),
            (Err(failure), Err(part)) => {
                let said = failure.text("");
                assert!(said.contains(part), "{said}");
            }
            (result, _) => panic!("{result:?}"),
        }
    }

    #[test]
    fn whatever_is_wrong_with_a_file_is_said_before_anything_is_done() {
        let root = r#"{"path":"/a","data":"x",ACL}"#;
        check(&[root], Ok(1));
        check(&[root, r#"{"path":"/a/b","data":null,"mode":"container",ACL}"#], Ok(2));
        check(&[root, r#"{"path":"/a/b","data":"","mode":"ttl","ttl_ms":5,ACL}"#], Ok(2));
        check(&[root, r#"{"path":"/a/b","data":"","mode":"ttl",ACL}"#], Err("without ttl_ms"));
        check(&[root, root], Err("twice"));
        check(&[root, r#"{"path":"/a/b/c","data":"",ACL}"#], Err("before its parent"));
        check(&[root, r#"{"path":"/b","data":"",ACL}"#], Err("before its parent"));
        check(&[r#"{"path":"/b","data":"",ACL}"#], Err("not the root"));
        check(&[r#"{"path":"/a","data_base64":"!",ACL}"#], Err("not base64"));
        check(&[r#"{"path":"/a",ACL}"#], Err("neither"));
        check(&[r#"{"path":"/a","data":"x","acl":[]}"#], Err("empty ACL"));
        check(
            &[r#"{"path":"/a","data":"x","acl":[{"scheme":"w","id":"","perms":"z"}]}"#],
            Err("cdrwa"),
        );
        check(&[r#"{"path":"/a/","data":"x",ACL}"#], Err("must not end with /"));
        check(&[r#"{"path":"/a","data":"x","what":1,ACL}"#], Err("unknown field"));
        assert!(ExportFile::parse(b"[]").is_err());
        assert!(ExportFile::parse(br#"{"format":"x","version":1,"root":"/","nodes":[]}"#).is_err());
    }
}
