//! `ironkeeper log`: prints transaction logs, one line for each transaction.

use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ironkeeper_proto::op::OpCode;
use ironkeeper_proto::txn::{CreateKind, FullTxn, Txn};
use ironkeeper_proto::{ErrorCode, Zxid};
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{LogEnd, LogReader, LogRecord, Next};

use super::is_broken_pipe;
use super::notation::{Field, write_line};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Log files, or directories that contain log files (such as a dataDir)
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Verify every checksum and print a summary per file instead of the transactions; exit code 1
    /// if a file is damaged
    #[arg(long)]
    check: bool,
    /// Omit transactions before this one (hexadecimal with 0x, or decimal)
    #[arg(long, value_name = "ZXID", value_parser = parse_zxid)]
    from: Option<Zxid>,
    /// Omit transactions after this one
    #[arg(long, value_name = "ZXID", value_parser = parse_zxid)]
    to: Option<Zxid>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = show(args, &mut out).and_then(|damaged| {
        out.flush()?;
        match damaged {
            0 => Ok(()),
            1 => bail!("one file is damaged"),
            count => bail!("{count} files are damaged"),
        }
    });
    match outcome {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

/// Prints all files; returns the number of damaged files.
fn show(args: &Args, out: &mut impl Write) -> anyhow::Result<usize> {
    let mut damaged = 0;
    let mut before = None;
    for file in log_files(&args.paths)? {
        let found = show_file(args, &file, out)?;
        if args.check
            && let (Some(before), Some(first)) = (before, found.first)
            && !is_next(before, first)
        {
            // Harmless if the server was a learner that received a snapshot.
            let text =
                format!("note: zxid {first} follows {before}: not in these files in between");
            write_line(&[Field::Bare("note", text.into())], args.json, out)?;
        }
        before = found.last.or(before);
        damaged += usize::from(found.damaged);
    }
    Ok(damaged)
}

/// The content of a file.
#[derive(Debug, Default)]
struct Found {
    records: u64,
    first: Option<Zxid>,
    last: Option<Zxid>,
    damaged: bool,
}

/// The first bytes of every transaction log. A file whose header was not written yet begins with
/// zeros.
const MAGIC: &[u8; 4] = b"ZKLG";

/// Rejects a file that is not a log, as opposed to a damaged log.
fn refuse_other_files(path: &Path) -> anyhow::Result<()> {
    let mut start = [0; 4];
    let mut file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    match file.read_exact(&mut start) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read.with_context(|| path.display().to_string())?,
    }
    if start != *MAGIC && start != [0; 4] {
        bail!("{} is no transaction log: it does not begin with ZKLG", path.display());
    }
    Ok(())
}

fn show_file(args: &Args, path: &Path, out: &mut impl Write) -> anyhow::Result<Found> {
    let mut found = Found::default();
    refuse_other_files(path)?;
    let mut reader = LogReader::open(&RealDisk, path)?;
    let (end_offset, end) = loop {
        match reader.next()? {
            Next::Record(record) => {
                found.records += 1;
                found.first.get_or_insert(record.zxid);
                found.last = Some(record.zxid);
                let wanted = args.from.is_none_or(|from| record.zxid >= from)
                    && args.to.is_none_or(|to| record.zxid <= to);
                match FullTxn::decode(record.body) {
                    Ok(txn) if wanted && !args.check => {
                        write_line(&txn_line(&txn, record), args.json, out)?;
                    }
                    Ok(_) => {}
                    Err(error) => {
                        let what = format!("transaction {} makes no sense: {error}", record.zxid);
                        break (record.offset, LogEnd::Damaged { what });
                    }
                }
            }
            Next::End { offset, end } => break (offset, end),
        }
    };
    let (state, detail) = match end {
        LogEnd::Clean => ("good", String::new()),
        LogEnd::Torn { what, dropped_bytes } => (
            "torn",
            format!("an unfinished write of {dropped_bytes} bytes at offset {end_offset} ({what})"),
        ),
        LogEnd::Damaged { what } => {
            found.damaged = true;
            ("damaged", format!("at offset {end_offset}: {what}"))
        }
    };
    if args.check {
        let mut line = vec![
            Field::Bare("file", path.to_string_lossy()),
            Field::Bare("state", state.into()),
            Field::Number("records", i64::try_from(found.records)?),
        ];
        if let (Some(first), Some(last)) = (found.first, found.last) {
            line.extend([Field::Hex("first", first.0), Field::Hex("last", last.0)]);
        }
        line.push(Field::Number("end", i64::try_from(end_offset)?));
        if !detail.is_empty() {
            line.push(Field::Bare("detail", detail.into()));
        }
        write_line(&line, args.json, out)?;
    } else if !detail.is_empty() {
        // Flush first, so that the message appears after the lines that it refers to, even if both
        // streams are the same file.
        out.flush()?;
        eprintln!("{}: {detail}", path.display());
    }
    Ok(found)
}

fn is_next(before: Zxid, first: Zxid) -> bool {
    before.next() == Some(first) || (first.epoch() > before.epoch() && first.counter() <= 1)
}

/// Returns the files; a directory is replaced by its logs, oldest first.
fn log_files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let below = path.join("version-2");
        let dir = if below.is_dir() { &below } else { path };
        let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
        let mut found: Vec<(i64, PathBuf)> = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| dir.display().to_string())?;
            let name = entry.file_name();
            let hex = name.to_str().and_then(|name| name.strip_prefix("log."));
            if let Some(zxid) = hex.and_then(|hex| i64::from_str_radix(hex, 16).ok()) {
                found.push((zxid, entry.path()));
            }
        }
        if found.is_empty() {
            bail!("{}: no transaction logs here (they are called log.<zxid>)", dir.display());
        }
        found.sort();
        files.extend(found.into_iter().map(|(_, path)| path));
    }
    Ok(files)
}

fn txn_line<'a>(txn: &FullTxn<'a>, record: LogRecord<'_>) -> Vec<Field<'a>> {
    let header = &txn.header;
    let mut line = vec![
        Field::Time("time", header.time),
        Field::Hex("session", header.session.0),
        Field::Number("cxid", i64::from(header.cxid)),
        Field::Hex("zxid", header.zxid.0),
    ];
    put_txn(header.op, &txn.txn, &mut line);
    if let Some(digest) = txn.digest {
        line.push(Field::Hex("digest", digest.tree_digest as i64));
    }
    line.push(Field::Number("offset", record.offset as i64));
    line
}

fn put_txn<'a>(op: OpCode, txn: &Txn<'a>, line: &mut Vec<Field<'a>>) {
    line.push(Field::Bare("type", name(op).into()));
    match txn {
        Txn::CreateSession { timeout_ms } => {
            line.push(Field::Number("timeout_ms", i64::from(*timeout_ms)));
        }
        Txn::CloseSession { paths } => {
            if let Some(paths) = paths {
                line.push(Field::List("deletes", paths.iter().map(String::from).collect()));
            }
        }
        Txn::Error { code } => {
            line.push(Field::Number("code", i64::from(*code)));
            let known = ErrorCode::ALL.into_iter().find(|known| *known as i32 == *code);
            if let Some(known) = known {
                line.push(Field::Bare("error", format!("{known:?}").into()));
            }
        }
        Txn::Create(create) => {
            line.push(Field::Bare("path", create.path.clone()));
            line.push(Field::Data(create.data));
            line.push(Field::Acl(create.acl));
            match create.kind {
                CreateKind::Persistent => line.push(Field::Flag("ephemeral", false)),
                CreateKind::Ephemeral => line.push(Field::Flag("ephemeral", true)),
                CreateKind::Container => {}
                CreateKind::Ttl { ttl_ms } => line.push(Field::Number("ttl_ms", ttl_ms)),
            }
            line.push(Field::Number("parent_cversion", i64::from(create.parent_cversion)));
        }
        Txn::Delete { path } => line.push(Field::Bare("path", path.clone())),
        Txn::SetData { path, data, version } | Txn::Reconfig { path, data, version } => {
            line.push(Field::Bare("path", path.clone()));
            line.push(Field::Data(*data));
            line.push(Field::Number("version", i64::from(*version)));
        }
        Txn::SetAcl { path, acl, version } => {
            line.push(Field::Bare("path", path.clone()));
            line.push(Field::Acl(*acl));
            line.push(Field::Number("version", i64::from(*version)));
        }
        Txn::Check { path, version } => {
            line.push(Field::Bare("path", path.clone()));
            line.push(Field::Number("version", i64::from(*version)));
        }
        Txn::Multi(multi) => {
            let parts = multi.iter().map(|(op, txn)| {
                let mut part = Vec::new();
                put_txn(op, &txn, &mut part);
                part
            });
            line.push(Field::Lines("parts", parts.collect()));
        }
    }
}

/// Returns the name that ZooKeeper's own tools use.
fn name(op: OpCode) -> &'static str {
    match op {
        OpCode::Create => "create",
        OpCode::Create2 => "create2",
        OpCode::CreateContainer => "createContainer",
        OpCode::CreateTtl => "createTTL",
        OpCode::Delete => "delete",
        OpCode::DeleteContainer => "deleteContainer",
        OpCode::SetData => "setData",
        OpCode::SetAcl => "setACL",
        OpCode::Check => "check",
        OpCode::Multi => "multi",
        OpCode::Reconfig => "reconfig",
        OpCode::CreateSession => "createSession",
        OpCode::CloseSession => "closeSession",
        OpCode::Error => "error",
        _ => "other",
    }
}

fn parse_zxid(text: &str) -> Result<Zxid, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map(Zxid).map_err(|_| "expected a number such as 0x10000002a or 42".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const APACHE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ironkeeper-store/tests/data/apache-3.9.5");

    fn args(paths: Vec<PathBuf>) -> Args {
        Args { paths, json: false, check: false, from: None, to: None }
    }

    #[test]
    fn a_file_that_is_no_log_is_told_from_a_damaged_one() {
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(other.path(), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
        let error = show(&args(vec![other.path().to_owned()]), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("is no transaction log"), "{error}");
    }

    fn lines(args: &Args) -> (Vec<String>, usize) {
        let mut out = Vec::new();
        let damaged = show(args, &mut out).unwrap();
        (String::from_utf8(out).unwrap().lines().map(str::to_owned).collect(), damaged)
    }

    #[test]
    fn one_line_for_each_transaction() {
        let (shown, damaged) = lines(&args(vec![APACHE.into()]));
        assert_eq!((shown.len(), damaged), (0x1b, 0));
        let line = |part: &str| shown.iter().find(|line| line.contains(part)).unwrap().as_str();
        let create = line(" create /app ");
        assert!(create.starts_with("2026-"), "{create}");
        assert!(create.contains(" zxid=0x2 create /app data=\"hello\" acl=world:anyone:cdrwa "));
        assert!(line(" /app/bin data=0x000102").contains("2627 acl="));
        assert!(line(" multi ").contains("parts=[create /m data=\"1\""));
        assert!(line("NoNode").contains(" error code=-101 NoNode"));
        assert!(line(" createTTL /ttl ").contains(" ttl_ms=600000 "));
        assert!(line(" closeSession ").contains("deletes=["));
    }

    #[test]
    fn a_range_of_transactions_as_json() {
        let (from, to) = (Some(Zxid(3)), Some(parse_zxid("0x5").unwrap()));
        let (shown, _) = lines(&Args { json: true, from, to, ..args(vec![APACHE.into()]) });
        let zxids: Vec<String> = shown
            .iter()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|line| line["zxid"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(zxids, ["0x3", "0x4", "0x5"]);
    }

    #[test]
    fn a_check_finds_the_first_damage() {
        let whole = std::fs::read(Path::new(APACHE).join("log.1")).unwrap();
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log.1");
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let (shown, damaged) = lines(&Args { check: true, ..args(vec![path.clone()]) });
            (shown.concat(), damaged)
        };
        let (shown, damaged) = check(&whole);
        assert!(damaged == 0 && shown.contains("good records=26 first=0x1 last=0x1a"), "{shown}");
        let (shown, damaged) = check(&whole[..500]);
        assert!(damaged == 0 && shown.contains("torn"), "{shown}");
        let mut flipped = whole.clone();
        flipped[300] ^= 4;
        let (shown, damaged) = check(&flipped);
        assert!(damaged == 1 && shown.contains("damaged") && shown.contains("offset"), "{shown}");
    }

    #[test]
    fn a_directory_without_logs_is_an_error_that_helps() {
        let home = tempfile::tempdir().unwrap();
        let error = show(&args(vec![home.path().to_owned()]), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("log.<zxid>"), "{error}");
        assert!(parse_zxid("0xzz").is_err() && parse_zxid("").is_err());
    }
}
