//! Replies and events as text that is equal for two servers with equal behaviour.
//!
//! Values that a server chooses freely become symbols: zxids count from the start of the run,
//! session ids are numbered in the order of their appearance, a time is named by its transaction.
//! All other fields are printed one by one, including bytes after the last field.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ironkeeper_proto::error_code::ErrorCode;
use ironkeeper_proto::jute::{DecodeError, Reader};
use ironkeeper_proto::op::OpCode;
use ironkeeper_proto::reply::{MultiHeader, ReplyHeader};
use ironkeeper_proto::stat::Stat;
use ironkeeper_proto::watch_event::{EventType, STATE_SYNC_CONNECTED};
use ironkeeper_proto::{SessionId, Xid};

use super::exceptions;
use super::script::{Label, Zxids, quoted};

/// The largest difference between a transaction's time and our clock; both servers run on this
/// machine.
const CLOCK_SKEW_MS_MAX: i64 = 600_000;

/// The symbols of one run on one server.
#[derive(Debug)]
pub struct Names {
    base: i64,
    sessions: HashMap<i64, Label>,
    times: HashMap<i64, i64>,
    purpose: Purpose,
    zxids: Zxids,
}

/// The purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To compare two servers: listed exceptions are neither sent nor recorded.
    Compare,
    /// To check what Ironkeeper does with an exception.
    Rule,
}

impl Names {
    /// Creates the symbols; zxids count from `base`, the last zxid before the run.
    pub fn new(base: i64, purpose: Purpose, zxids: Zxids) -> Self {
        Self { base, sessions: HashMap::new(), times: HashMap::new(), purpose, zxids }
    }

    pub fn name_session(&mut self, id: SessionId, label: Label) {
        self.sessions.entry(id.0).or_insert(label);
    }

    pub fn zxid(&self, zxid: i64) -> String {
        match zxid {
            -1 | 0 => zxid.to_string(),
            _ if self.zxids == Zxids::Hidden => "z".to_owned(),
            _ => format!("{:+}", zxid - self.base),
        }
    }

    pub fn session(&self, id: i64) -> String {
        match self.sessions.get(&id) {
            _ if id == 0 => "0".to_owned(),
            Some(label) => format!("s{label}"),
            None => format!("an unknown session 0x{id:x}"),
        }
    }

    /// Returns the symbol of a time. A time is valid if it is near now and equal in all nodes that
    /// carry the transaction's zxid.
    fn time(&mut self, zxid: i64, time: i64) -> String {
        if zxid == 0 {
            return time.to_string();
        }
        let first = *self.times.entry(zxid).or_insert(time);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        if first != time {
            format!("{}ms off the time of {}", time - first, self.zxid(zxid))
        } else if (time - now).abs() > CLOCK_SKEW_MS_MAX {
            format!("{time}, which is not now")
        } else {
            format!("t{}", self.zxid(zxid))
        }
    }

    fn stat(&mut self, stat: &Stat) -> String {
        let ctime = self.time(stat.czxid.0, stat.ctime);
        let mtime = self.time(stat.mzxid.0, stat.mtime);
        format!(
            "{{c {} {ctime}, m {} {mtime}, p {}, v {} {} {}, owner {}, {} bytes, {} children}}",
            self.zxid(stat.czxid.0),
            self.zxid(stat.mzxid.0),
            self.zxid(stat.pzxid.0),
            stat.version,
            stat.cversion,
            stat.aversion,
            self.session(stat.ephemeral_owner),
            stat.data_length,
            stat.num_children,
        )
    }

    /// Formats the reply to a request with operation `op`, header first.
    pub fn reply(&mut self, op: i32, header: ReplyHeader, body: &[u8]) -> String {
        let head = format!("xid {} zxid {}", header.xid.0, self.zxid(header.zxid.0));
        if header.err != 0 {
            let ignored = self.purpose == Purpose::Compare && exceptions::ignores_error_body(op);
            let body = if body.is_empty() || ignored {
                String::new()
            } else {
                format!(" with body {}", hex(body))
            };
            return format!("{head} {}{body}", error(header.err));
        }
        let mut reader = Reader::new(body);
        match self.body(op, &mut reader) {
            Ok(text) if reader.is_empty() => format!("{head} ok{text}"),
            Ok(text) => format!("{head} ok{text}, then {}", hex(reader.rest())),
            Err(why) => format!("{head} ok, body unreadable ({why}): {}", hex(body)),
        }
    }

    fn body(&mut self, op: i32, reader: &mut Reader<'_>) -> Result<String, DecodeError> {
        let Some(op) = OpCode::from_code(op) else { return Ok(String::new()) };
        Ok(match op {
            OpCode::Create | OpCode::Sync => format!(" {}", text(reader)?),
            OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                format!(" {} {}", text(reader)?, self.stat(&Stat::decode(reader)?))
            }
            OpCode::Exists | OpCode::SetData | OpCode::SetAcl => {
                format!(" {}", self.stat(&Stat::decode(reader)?))
            }
            OpCode::GetData | OpCode::Reconfig => {
                format!(" {} {}", text(reader)?, self.stat(&Stat::decode(reader)?))
            }
            OpCode::GetAcl => {
                format!(" {} {}", acl(reader)?, self.stat(&Stat::decode(reader)?))
            }
            OpCode::GetChildren | OpCode::GetEphemerals => format!(" {}", sorted(reader, text)?),
            OpCode::GetChildren2 => {
                format!(" {} {}", sorted(reader, text)?, self.stat(&Stat::decode(reader)?))
            }
            OpCode::WhoAmI => {
                let row =
                    |reader: &mut Reader<'_>| Ok(format!("{}:{}", text(reader)?, text(reader)?));
                format!(" {}", sorted(reader, row)?)
            }
            OpCode::Sasl => format!(" token {}", text(reader)?),
            OpCode::GetAllChildrenNumber | OpCode::AddWatch => format!(" {}", reader.i32()?),
            OpCode::Multi | OpCode::MultiRead => self.multi(reader)?,
            OpCode::Delete
            | OpCode::Ping
            | OpCode::Check
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::DeleteContainer
            | OpCode::Auth
            | OpCode::SetWatches
            | OpCode::SetWatches2
            | OpCode::Error
            | OpCode::CreateSession
            | OpCode::CloseSession => String::new(),
        })
    }

    fn multi(&mut self, reader: &mut Reader<'_>) -> Result<String, DecodeError> {
        let mut results = String::new();
        loop {
            let header = MultiHeader::decode(reader)?;
            if header.done {
                if header != MultiHeader::END {
                    results.push_str(&format!("; ended by {header:?}"));
                }
                return Ok(results);
            }
            results.push_str(&format!("; type {}", header.kind));
            if header.kind == OpCode::Error.code() {
                let repeated = reader.i32()?;
                results.push_str(&format!(" {}", error(header.err)));
                if repeated != header.err {
                    results.push_str(&format!(" but {repeated} in the body"));
                }
                continue;
            }
            if header.err != 0 {
                results.push_str(&format!(" {}", error(header.err)));
            }
            results.push_str(&self.body(header.kind, reader)?);
        }
    }

    /// Formats a watch event with its header.
    pub fn event(&self, header: ReplyHeader, body: &[u8]) -> String {
        let mut reader = Reader::new(body);
        let decoded =
            (|| Ok::<_, DecodeError>((reader.i32()?, reader.i32()?, text(&mut reader)?)))();
        let Ok((kind, state, path)) = decoded else {
            return format!("event unreadable: {}", hex(body));
        };
        let kind = EventType::from_code(kind).map_or(kind.to_string(), |kind| format!("{kind:?}"));
        let mut line = format!("event {kind} {path} zxid {}", self.zxid(header.zxid.0));
        if state != STATE_SYNC_CONNECTED || header.err != 0 || header.xid != Xid::NOTIFICATION {
            line.push_str(&format!(" state {state} err {}", header.err));
        }
        if !reader.is_empty() {
            line.push_str(&format!(", then {}", hex(reader.rest())));
        }
        line
    }
}

fn error(code: i32) -> String {
    match ErrorCode::from_code(code) {
        _ if code == 0 => "no error".to_owned(),
        Some(known) => format!("{known:?} ({code})"),
        None => format!("error {code}"),
    }
}

/// Formats a string or buffer byte by byte: a lossy decoder would hide differences that a client
/// can see.
fn text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    Ok(reader.buf()?.map_or("null".to_owned(), quoted))
}

/// Formats a vector whose order the server chooses freely.
fn sorted(
    reader: &mut Reader<'_>,
    mut element: impl FnMut(&mut Reader<'_>) -> Result<String, DecodeError>,
) -> Result<String, DecodeError> {
    let Some(count) = reader.count(4)? else { return Ok("null".to_owned()) };
    let mut elements = (0..count).map(|_| element(reader)).collect::<Result<Vec<_>, _>>()?;
    elements.sort();
    Ok(format!("[{}]", elements.join(", ")))
}

fn acl(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let Some(count) = reader.count(12)? else { return Ok("null".to_owned()) };
    let mut entries = Vec::new();
    for _ in 0..count {
        let perms = reader.i32()?;
        entries.push((perms, text(reader)?, text(reader)?));
    }
    exceptions::settle_expanded_entries(&mut entries);
    let entries: Vec<String> =
        entries.iter().map(|(perms, scheme, id)| format!("{scheme}:{id}:{perms}")).collect();
    Ok(format!("acl [{}]", entries.join(", ")))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
