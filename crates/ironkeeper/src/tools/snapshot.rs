//! `ironkeeper snapshot`: prints a snapshot, one line for each session, ACL and node.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ironkeeper_proto::snapshot_record::{SnapshotDigest, SnapshotNode};
use ironkeeper_proto::stat::OwnerKind;
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{Visitor, read_snapshot_file};

use super::is_broken_pipe;
use super::notation::{Field, write_line};

/// A bound for memory, larger than any field that a server would store.
const FIELD_MAX: usize = 256 << 20;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The snapshot; its extension tells the compression (.gz, .snappy). For a directory (such as a
    /// dataDir), the newest snapshot in it
    #[arg(value_name = "FILE|DIR")]
    file: PathBuf,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Verify every checksum and print a summary only; exit code 1 if the file is damaged
    #[arg(long)]
    check: bool,
    /// Show the data of nodes, not only its length
    #[arg(long)]
    data: bool,
    /// Show only this node and its descendants
    #[arg(long, value_name = "PREFIX")]
    path: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = show(args, &mut out).and_then(|()| Ok(out.flush()?));
    match outcome {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

fn show(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    let file = snapshot_file(&args.file)?;
    let mut printer = Printer { args, out, data_bytes: 0, ephemerals: 0, failure: None };
    let read = read_snapshot_file(&RealDisk, &file, FIELD_MAX, &mut printer);
    let Printer { data_bytes, ephemerals, failure, out, .. } = printer;
    if let Some(error) = failure {
        return Err(error.into());
    }
    // Flush first, so that a message appears after the lines that it refers to, even if both
    // streams are the same file.
    out.flush()?;
    let summary = read?;
    let mut line = vec![
        Field::Bare("kind", "summary".into()),
        Field::Number("nodes", i64::try_from(summary.nodes)?),
        Field::Number("ephemerals", ephemerals),
        Field::Number("sessions", i64::try_from(summary.sessions)?),
        Field::Number("acls", i64::try_from(summary.acls)?),
        Field::Number("data_bytes", data_bytes),
        Field::Number("bytes", i64::try_from(summary.bytes)?),
    ];
    if let Some(digest) = summary.digest {
        line.push(Field::Hex("digest", digest.digest as i64));
        line.push(Field::Hex("digest_zxid", digest.zxid.0));
    }
    if let Some(zxid) = summary.last_zxid {
        line.push(Field::Hex("last_zxid", zxid.0));
    }
    Ok(write_line(&line, args.json, out)?)
}

/// Returns the file itself, or the newest snapshot of a directory, whose path is printed to
/// standard error.
fn snapshot_file(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let below = path.join("version-2");
    let dir = if below.is_dir() { &below } else { path };
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let newest = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name();
            let hex = name.to_str()?.strip_prefix("snapshot.")?.split('.').next()?;
            Some((i64::from_str_radix(hex, 16).ok()?, entry.path()))
        })
        .max();
    let Some((_, file)) = newest else {
        bail!("{}: no snapshots here (they are called snapshot.<zxid>)", dir.display());
    };
    eprintln!("{}", file.display());
    Ok(file)
}

/// Prints the records that the reader finds. A failure of the output is kept until the reader can
/// be stopped.
struct Printer<'a, W> {
    args: &'a Args,
    out: &'a mut W,
    data_bytes: i64,
    ephemerals: i64,
    failure: Option<io::Error>,
}

impl<W: Write> Printer<'_, W> {
    fn line(&mut self, fields: &[Field<'_>]) {
        if self.args.check || self.failure.is_some() {
            return;
        }
        self.failure = write_line(fields, self.args.json, self.out).err();
    }
}

impl<W: Write> Visitor for Printer<'_, W> {
    fn snapshot_start(&mut self, _: Zxid, _: &Path) {}

    fn session(&mut self, id: SessionId, timeout_ms: i32) {
        self.line(&[
            Field::Bare("kind", "session".into()),
            Field::Hex("id", id.0),
            Field::Number("timeout_ms", i64::from(timeout_ms)),
        ]);
    }

    fn acl(&mut self, id: i64, list: AclVec<'_>) {
        self.line(&[Field::Bare("kind", "acl".into()), Field::Number("id", id), Field::Acl(list)]);
    }

    fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), String> {
        let len = node.data.map_or(0, <[u8]>::len) as i64;
        let stat = &node.stat;
        let owner = OwnerKind::of(stat.ephemeral_owner, true, false);
        self.data_bytes += len;
        self.ephemerals += i64::from(owner == OwnerKind::Ephemeral);
        if self.args.path.as_deref().is_none_or(|prefix| is_below(&node.path, prefix)) {
            let path = if node.path.is_empty() { "/" } else { &*node.path };
            let mut line = vec![
                Field::Bare("kind", "node".into()),
                Field::Bare("path", path.into()),
                Field::Hex("czxid", stat.czxid.0),
                Field::Hex("mzxid", stat.mzxid.0),
                Field::Hex("pzxid", stat.pzxid.0),
                Field::Time("ctime", stat.ctime),
                Field::Time("mtime", stat.mtime),
                Field::Number("version", i64::from(stat.version)),
                Field::Number("cversion", i64::from(stat.cversion)),
                Field::Number("aversion", i64::from(stat.aversion)),
                Field::Number("acl", node.acl),
            ];
            match owner {
                OwnerKind::Persistent => {}
                OwnerKind::Ephemeral => line.push(Field::Hex("owner", stat.ephemeral_owner)),
                OwnerKind::Container => line.push(Field::Flag("container", true)),
                OwnerKind::Ttl(ttl_ms) => line.push(Field::Number("ttl_ms", ttl_ms)),
            }
            line.push(Field::Number("bytes", len));
            if self.args.data {
                line.push(Field::Data(node.data));
            }
            self.line(&line);
        }
        match self.failure {
            Some(_) => Err("the output cannot be written".to_owned()),
            None => Ok(()),
        }
    }

    fn snapshot_end(&mut self, _: Zxid, _: Option<SnapshotDigest>) -> Result<(), String> {
        Ok(())
    }

    fn txn(&mut self, _: &FullTxn<'_>, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// Returns whether a path is the prefix itself or below it.
fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const APACHE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ironkeeper-store/tests/data/apache-3.9.5");

    fn args(name: &str) -> Args {
        let file = Path::new(APACHE).join(name);
        Args { file, json: false, check: false, data: false, path: None }
    }

    #[test]
    fn of_a_directory_the_newest_snapshot_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("version-2");
        std::fs::create_dir(&below).unwrap();
        assert!(snapshot_file(dir.path()).is_err());
        for name in ["snapshot.9", "snapshot.1a", "snapshot.b.gz", "log.ff"] {
            std::fs::write(below.join(name), "").unwrap();
        }
        assert_eq!(snapshot_file(dir.path()).unwrap(), below.join("snapshot.1a"));
        assert_eq!(snapshot_file(&below).unwrap(), below.join("snapshot.1a"));
    }

    fn lines(args: &Args) -> Vec<String> {
        let mut out = Vec::new();
        show(args, &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn sessions_acls_and_nodes() {
        for name in ["snapshot.1a", "snapshot.1b.gz", "snapshot.1b.snappy"] {
            let shown = lines(&args(name));
            let count = |kind: &str| shown.iter().filter(|line| line.starts_with(kind)).count();
            assert_eq!((count("node "), count("acl "), count("summary ")), (16, 4, 1), "{name}");
            assert!(count("session ") >= 1);
            assert!(
                shown.iter().any(
                    |line| line.contains("node /container ") && line.contains("container=true")
                )
            );
            assert!(shown.last().unwrap().contains("nodes=16 ephemerals=1 "), "{shown:?}");
        }
    }

    #[test]
    fn a_part_of_the_tree_with_data() {
        let shown = lines(&Args { data: true, path: Some("/m".to_owned()), ..args("snapshot.1a") });
        let nodes: Vec<&String> = shown.iter().filter(|line| line.starts_with("node")).collect();
        assert_eq!(nodes.len(), 2, "{nodes:?}");
        assert!(nodes[1].starts_with("node /m/a ") && nodes[1].ends_with("data=\"2\""));
        assert!(is_below("/m", "/m/") && is_below("/m/a", "/m") && !is_below("/mm", "/m"));
        assert!(is_below("", "/") && is_below("/x", "/"));
    }

    #[test]
    fn json_and_check() {
        for line in lines(&Args { json: true, data: true, ..args("snapshot.1a") }) {
            serde_json::from_str::<serde_json::Value>(&line).unwrap();
        }
        assert_eq!(lines(&Args { check: true, ..args("snapshot.1a") }).len(), 1);
    }

    #[test]
    fn damage_is_an_error_with_an_offset() {
        let mut bytes = std::fs::read(Path::new(APACHE).join("snapshot.1a")).unwrap();
        bytes[700] ^= 1;
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("snapshot.1a");
        std::fs::write(&file, bytes).unwrap();
        let error = show(&Args { file, check: true, ..args("") }, &mut Vec::new()).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("damaged") && text.contains("offset"), "{text}");
    }
}
