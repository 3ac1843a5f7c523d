//! The protocol between a leader and its learners, on the quorum port.
//!
//! Every packet has the same four fields, without a length before them:
//!
//! ```text
//! type i32 | zxid i64 | data buffer, may be null | auth vector of (scheme, id), may be null
//! ```
//! The meaning of the fields depends on the type, and for two types on the sender. [`packet_len`]
//! finds the end of a packet in a stream, [`Packet::decode`] decodes it. After a [`Packet::Snap`]
//! the stream continues with the bytes of the snapshot, which are not framed as packets.
//!
//! Data is never copied: the buffers of a packet point into the bytes that it was decoded from.

use std::borrow::Cow;

use bytes::Bytes;

use crate::ids::{Epoch, ServerId, SessionId, Zxid};
use crate::jute::{DecodeError, Put, Reader};

/// The version of the protocol since 3.4, in which epochs are agreed on before synchronization.
pub const PROTOCOL_VERSION: i32 = 0x10000;
/// The maximal number of identities in a forwarded request.
pub const AUTH_IDS_MAX: usize = 4096;
/// The maximal number of bytes of these identities.
pub const AUTH_BYTES_MAX: usize = 1 << 20;
/// The largest epoch that fits in the upper half of a zxid.
pub const EPOCH_MAX: Epoch = Epoch(i32::MAX as i64);

/// The smallest packet: type, zxid, length of the data, count of the identities.
const PACKET_MIN: usize = 20;

/// The sender of a packet. `PING` and `REVALIDATE` have different meanings in the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The leader.
    Leader,
    /// A follower or an observer.
    Learner,
}

/// The data of FOLLOWERINFO and OBSERVERINFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnerInfo {
    /// `None` from servers before 3.3.
    pub server: Option<ServerId>,
    /// The version of the protocol that the learner uses.
    pub protocol: i32,
    /// The version of the membership in force at the learner.
    pub config_version: i64,
}

/// A client's request that a learner forwards to the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedRequest {
    /// The session of the client.
    pub session: SessionId,
    /// The client's number of the request.
    pub cxid: i32,
    /// A number and not an [`OpCode`](crate::op::OpCode): the leader replies to an unknown one as
    /// it does to its own clients.
    pub op: i32,
    /// The body as the client sent it, without its header.
    pub body: Bytes,
    /// The identities of the client; `None` for a request that the server itself made.
    pub auth: Option<AuthIds>,
}

impl ForwardedRequest {
    /// The length of the fields before the body: session, cxid and operation code.
    const HEAD_LEN: usize = 16;

    /// Returns whether a leader that rejects fields longer than `field_max` can decode this
    /// request.
    pub fn is_readable(&self, field_max: usize) -> bool {
        let auth = self.auth.as_ref();
        ForwardedRequest::HEAD_LEN + self.body.len() <= field_max
            && auth.is_none_or(|ids| ids.count <= AUTH_IDS_MAX && ids.raw.len() < AUTH_BYTES_MAX)
    }
}

/// A list of identities. The encoding is checked on construction, and the entries are decoded by
/// `iter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthIds {
    count: usize,
    /// The encoded elements, without the count.
    raw: Bytes,
}

impl AuthIds {
    /// Encodes identities, each of a scheme and an id.
    pub fn new<'i>(ids: impl IntoIterator<Item = (&'i str, &'i str)>) -> AuthIds {
        let mut raw = Vec::new();
        let mut count = 0;
        for (scheme, id) in ids {
            raw.put_str(scheme);
            raw.put_str(id);
            count += 1;
        }
        AuthIds { count, raw: raw.into() }
    }

    /// Returns the number of identities.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no identities.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the scheme and the id of each identity. Null strings read as empty.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let mut reader = Reader::new(&self.raw);
        (0..self.count).map_while(move |_| {
            let scheme = reader.opt_str().ok()?.unwrap_or_default();
            Some((scheme, reader.opt_str().ok()?.unwrap_or_default()))
        })
    }
}

/// The sessions that were touched at a learner since its last report, with their timeouts in
/// milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Touches(Bytes);

impl Touches {
    const ENTRY_LEN: usize = 12;

    /// Encodes sessions and their timeouts.
    pub fn new(sessions: impl IntoIterator<Item = (SessionId, i32)>) -> Touches {
        let mut raw = Vec::new();
        for (session, timeout_ms) in sessions {
            raw.put_i64(session.0);
            raw.put_i32(timeout_ms);
        }
        Touches(raw.into())
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.0.len() / Touches::ENTRY_LEN
    }

    /// Returns whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sessions and their timeouts in milliseconds.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, i32)> {
        let mut reader = Reader::new(&self.0);
        std::iter::from_fn(move || Some((SessionId(reader.i64().ok()?), reader.i32().ok()?)))
    }
}

impl From<Touches> for Bytes {
    fn from(touches: Touches) -> Bytes {
        touches.0
    }
}

/// Reads a report; a rest that is shorter than an entry is ignored.
impl From<Bytes> for Touches {
    fn from(report: Bytes) -> Touches {
        Touches(report)
    }
}

/// A message of the layer above ZAB on a learner, for the layer above ZAB on the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the protocol's records")]
pub enum LearnerMessage {
    /// REQUEST: a client's write, or its `sync`.
    Request(Box<ForwardedRequest>),
    /// REVALIDATE from a learner: asks whether the session may continue on this learner.
    Revalidate { session: SessionId, timeout_ms: i32 },
}

/// A message of the layer above ZAB on the leader, for the layer above ZAB on a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the protocol's records")]
pub enum LeaderMessage {
    /// REVALIDATE from the leader: the reply.
    Revalidated { session: SessionId, valid: bool },
    /// SYNC: the leader has sent everything that precedes the learner's oldest outstanding `sync`.
    Synced,
}

/// A decoded packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the protocol's records")]
pub enum Packet {
    // Packets of a learner.
    /// FOLLOWERINFO: introduces a voter, or a server that is to become a voter.
    FollowerInfo { accepted: Epoch, info: LearnerInfo },
    /// OBSERVERINFO: introduces an observer.
    ObserverInfo { accepted: Epoch, info: LearnerInfo },
    /// ACKEPOCH: the learner accepts the epoch. `current` is `None` if it had already accepted this
    /// epoch; then the leader must not count the packet towards the quorum.
    AckEpoch { last: Zxid, current: Option<Epoch> },
    /// ACK: this transaction and all before it are durable. Counter 0 acknowledges NEWLEADER.
    Ack { zxid: Zxid },
    /// PING from a learner: the reply to a ping. The report is encoded [`Touches`].
    Pong { zxid: Zxid, report: Bytes },
    /// REQUEST or REVALIDATE.
    Learner(LearnerMessage),

    // Packets of the leader.
    /// LEADERINFO: the epoch that the learner is to accept.
    LeaderInfo { epoch: Epoch, protocol: i32 },
    /// DIFF: the learner's history is a prefix of the leader's. The remaining transactions follow.
    Diff { zxid: Zxid },
    /// TRUNC: the learner truncates its history after `zxid`.
    Trunc { zxid: Zxid },
    /// SNAP: the snapshot follows on the stream.
    Snap { zxid: Zxid },
    /// NEWLEADER: the end of the history. The learner acknowledges it when the history is durable.
    NewLeader { epoch: Epoch, config: Option<Bytes> },
    /// UPTODATE: a quorum has the history, so the learner may serve clients.
    UpToDate,
    /// PROPOSAL: a transaction to log and to acknowledge.
    Proposal { zxid: Zxid, txn: Bytes },
    /// COMMIT: the proposal with this zxid is committed.
    Commit { zxid: Zxid },
    /// INFORM: proposal and commit in one packet, for observers.
    Inform { zxid: Zxid, txn: Bytes },
    /// COMMITANDACTIVATE: commits a reconfiguration and names the leader after it.
    CommitAndActivate { zxid: Zxid, leader: ServerId },
    /// INFORMANDACTIVATE: the same for observers, with the transaction.
    InformAndActivate { zxid: Zxid, leader: ServerId, txn: Bytes },
    /// PING from the leader.
    Ping { zxid: Zxid },
    /// REVALIDATE or SYNC.
    Leader(LeaderMessage),
}

const REQUEST: i32 = 1;
const PROPOSAL: i32 = 2;
const ACK: i32 = 3;
const COMMIT: i32 = 4;
const PING: i32 = 5;
const REVALIDATE: i32 = 6;
const SYNC: i32 = 7;
const INFORM: i32 = 8;
const COMMIT_AND_ACTIVATE: i32 = 9;
const NEW_LEADER: i32 = 10;
const FOLLOWER_INFO: i32 = 11;
const UP_TO_DATE: i32 = 12;
const DIFF: i32 = 13;
const TRUNC: i32 = 14;
const SNAP: i32 = 15;
const OBSERVER_INFO: i32 = 16;
const LEADER_INFO: i32 = 17;
const ACK_EPOCH: i32 = 18;
const INFORM_AND_ACTIVATE: i32 = 19;

/// Returns the length of the packet at the start of `bytes`, or `None` if the packet is incomplete.
/// A length that no server sends is rejected at once, so that its bytes are not buffered.
pub fn packet_len(bytes: &[u8], field_max: usize) -> Result<Option<usize>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut scan = || -> Result<usize, DecodeError> {
        reader.i32()?;
        reader.i64()?;
        skip_buffer(&mut reader, field_max)?;
        let before = reader.rest().len();
        let count = reader.i32()?;
        if count > AUTH_IDS_MAX as i32 || count < -1 {
            return Err(DecodeError::BadLength(count));
        }
        for _ in 0..count.max(0) * 2 {
            let taken = before - reader.rest().len();
            skip_buffer(&mut reader, AUTH_BYTES_MAX.saturating_sub(taken))?;
        }
        Ok(bytes.len() - reader.rest().len())
    };
    match scan() {
        Ok(len) => Ok(Some(len)),
        Err(DecodeError::Truncated) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the maximal length of a packet that [`packet_len`] accepts.
pub fn packet_len_max(field_max: usize) -> usize {
    PACKET_MIN + field_max + AUTH_BYTES_MAX + 4
}

fn skip_buffer(reader: &mut Reader<'_>, max: usize) -> Result<(), DecodeError> {
    let len = reader.i32()?;
    if len == -1 {
        return Ok(());
    }
    let bytes = usize::try_from(len).ok().filter(|len| *len <= max);
    reader.bytes(bytes.ok_or(DecodeError::BadLength(len))?)?;
    Ok(())
}

impl Packet {
    /// Decodes one packet, delimited by [`packet_len`].
    pub fn decode(bytes: &Bytes, sender: Sender) -> Result<Packet, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.i32()?;
        let zxid = Zxid(reader.i64()?);
        let data = reader.buf()?.map(|data| bytes.slice_ref(data));
        let auth = decode_auth(&mut reader, bytes)?;
        match sender {
            Sender::Learner => decode_from_learner(kind, zxid, data, auth),
            Sender::Leader => decode_from_leader(kind, zxid, data),
        }
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        match self {
            Packet::FollowerInfo { accepted, info } => {
                put_info(FOLLOWER_INFO, *accepted, info, out);
            }
            Packet::ObserverInfo { accepted, info } => {
                put_info(OBSERVER_INFO, *accepted, info, out);
            }
            Packet::AckEpoch { last, current } => {
                let epoch = current.map_or(-1, |epoch| epoch.0 as i32);
                put(ACK_EPOCH, *last, &epoch.to_be_bytes(), out);
            }
            Packet::Ack { zxid } => put_bare(ACK, *zxid, out),
            Packet::Pong { zxid, report } => put(PING, *zxid, report, out),
            Packet::Learner(LearnerMessage::Request(request)) => put_request(request, out),
            Packet::Learner(LearnerMessage::Revalidate { session, timeout_ms }) => {
                put_head(REVALIDATE, Zxid(-1), 12, out);
                out.put_i64(session.0);
                out.put_i32(*timeout_ms);
                out.put_i32(-1);
            }
            Packet::LeaderInfo { epoch, protocol } => {
                put(LEADER_INFO, Zxid::new(*epoch, 0), &protocol.to_be_bytes(), out);
            }
            Packet::Diff { zxid } => put_bare(DIFF, *zxid, out),
            Packet::Trunc { zxid } => put_bare(TRUNC, *zxid, out),
            Packet::Snap { zxid } => put_bare(SNAP, *zxid, out),
            Packet::NewLeader { epoch, config } => match config {
                Some(config) => put(NEW_LEADER, Zxid::new(*epoch, 0), config, out),
                None => put_bare(NEW_LEADER, Zxid::new(*epoch, 0), out),
            },
            Packet::UpToDate => put_bare(UP_TO_DATE, Zxid(-1), out),
            Packet::Proposal { zxid, txn } => put(PROPOSAL, *zxid, txn, out),
            Packet::Commit { zxid } => put_bare(COMMIT, *zxid, out),
            Packet::Inform { zxid, txn } => put(INFORM, *zxid, txn, out),
            Packet::CommitAndActivate { zxid, leader } => {
                put(COMMIT_AND_ACTIVATE, *zxid, &leader.0.to_be_bytes(), out);
            }
            Packet::InformAndActivate { zxid, leader, txn } => {
                put_head(INFORM_AND_ACTIVATE, *zxid, 8 + txn.len(), out);
                out.put_i64(leader.0);
                out.put_raw(txn);
                out.put_i32(-1);
            }
            Packet::Ping { zxid } => put_bare(PING, *zxid, out),
            Packet::Leader(LeaderMessage::Revalidated { session, valid }) => {
                put_head(REVALIDATE, Zxid(-1), 9, out);
                out.put_i64(session.0);
                out.put_bool(*valid);
                out.put_i32(-1);
            }
            Packet::Leader(LeaderMessage::Synced) => put_bare(SYNC, Zxid::ZERO, out),
        }
    }
}

fn put_head(kind: i32, zxid: Zxid, data_len: usize, out: &mut impl Put) {
    out.put_i32(kind);
    out.put_i64(zxid.0);
    out.put_len(data_len);
}

fn put(kind: i32, zxid: Zxid, data: &[u8], out: &mut impl Put) {
    put_head(kind, zxid, data.len(), out);
    out.put_raw(data);
    out.put_i32(-1);
}

fn put_bare(kind: i32, zxid: Zxid, out: &mut impl Put) {
    out.put_i32(kind);
    out.put_i64(zxid.0);
    out.put_i32(-1);
    out.put_i32(-1);
}

fn put_info(kind: i32, accepted: Epoch, info: &LearnerInfo, out: &mut impl Put) {
    put_head(kind, Zxid::new(accepted, 0), 20, out);
    out.put_i64(info.server.unwrap_or(ServerId::ANONYMOUS).0);
    out.put_i32(info.protocol);
    out.put_i64(info.config_version);
    out.put_i32(-1);
}

fn put_request(request: &ForwardedRequest, out: &mut impl Put) {
    put_head(REQUEST, Zxid(-1), ForwardedRequest::HEAD_LEN + request.body.len(), out);
    out.put_i64(request.session.0);
    out.put_i32(request.cxid);
    out.put_i32(request.op);
    out.put_raw(&request.body);
    match &request.auth {
        None => out.put_i32(-1),
        Some(ids) => {
            out.put_len(ids.count);
            out.put_raw(&ids.raw);
        }
    }
}

fn decode_auth(reader: &mut Reader<'_>, bytes: &Bytes) -> Result<Option<AuthIds>, DecodeError> {
    let Some(count) = reader.count(8)? else { return Ok(None) };
    let before = reader.rest();
    for _ in 0..count {
        reader.buf()?;
        reader.buf()?;
    }
    let raw = &before[..before.len() - reader.rest().len()];
    Ok(Some(AuthIds { count, raw: bytes.slice_ref(raw) }))
}

fn decode_from_learner(
    kind: i32,
    zxid: Zxid,
    data: Option<Bytes>,
    auth: Option<AuthIds>,
) -> Result<Packet, DecodeError> {
    let body = data.as_deref().unwrap_or_default();
    let mut reader = Reader::new(body);
    Ok(match kind {
        FOLLOWER_INFO => Packet::FollowerInfo { accepted: zxid.epoch(), info: info(body)? },
        OBSERVER_INFO => Packet::ObserverInfo { accepted: zxid.epoch(), info: info(body)? },
        ACK_EPOCH => {
            let current = i64::from(reader.i32()?);
            Packet::AckEpoch { last: zxid, current: (current != -1).then_some(Epoch(current)) }
        }
        ACK => Packet::Ack { zxid },
        PING => {
            if !body.len().is_multiple_of(Touches::ENTRY_LEN) {
                return Err(DecodeError::Truncated);
            }
            Packet::Pong { zxid, report: data.unwrap_or_default() }
        }
        REQUEST => {
            let session = SessionId(reader.i64()?);
            let (cxid, op) = (reader.i32()?, reader.i32()?);
            let body = data.map(|data| data.slice(16..)).unwrap_or_default();
            let request = ForwardedRequest { session, cxid, op, body, auth };
            Packet::Learner(LearnerMessage::Request(Box::new(request)))
        }
        REVALIDATE => {
            let (session, timeout_ms) = (SessionId(reader.i64()?), reader.i32()?);
            Packet::Learner(LearnerMessage::Revalidate { session, timeout_ms })
        }
        _ => return Err(DecodeError::BadValue(kind, "a packet of a learner")),
    })
}

fn decode_from_leader(kind: i32, zxid: Zxid, data: Option<Bytes>) -> Result<Packet, DecodeError> {
    let body = data.as_deref().unwrap_or_default();
    let mut reader = Reader::new(body);
    Ok(match kind {
        LEADER_INFO => Packet::LeaderInfo { epoch: zxid.epoch(), protocol: reader.i32()? },
        DIFF => Packet::Diff { zxid },
        TRUNC => Packet::Trunc { zxid },
        // The zxid becomes the name of the snapshot, so it must not be negative.
        SNAP if zxid < Zxid::ZERO => return Err(DecodeError::BadValue(kind, "the id of a tree")),
        SNAP => Packet::Snap { zxid },
        NEW_LEADER => Packet::NewLeader { epoch: zxid.epoch(), config: data },
        UP_TO_DATE => Packet::UpToDate,
        PROPOSAL => Packet::Proposal { zxid, txn: txn(data)? },
        COMMIT => Packet::Commit { zxid },
        INFORM => Packet::Inform { zxid, txn: txn(data)? },
        COMMIT_AND_ACTIVATE => Packet::CommitAndActivate { zxid, leader: ServerId(reader.i64()?) },
        INFORM_AND_ACTIVATE => {
            let leader = ServerId(reader.i64()?);
            let txn = txn(data.map(|data| data.slice(8..)))?;
            Packet::InformAndActivate { zxid, leader, txn }
        }
        PING => Packet::Ping { zxid },
        REVALIDATE => {
            let (session, valid) = (SessionId(reader.i64()?), reader.bool()?);
            Packet::Leader(LeaderMessage::Revalidated { session, valid })
        }
        SYNC => Packet::Leader(LeaderMessage::Synced),
        _ => return Err(DecodeError::BadValue(kind, "a packet of a leader")),
    })
}

/// Returns the transaction. An empty one is rejected: in a log it would mark the end.
fn txn(data: Option<Bytes>) -> Result<Bytes, DecodeError> {
    data.filter(|txn| !txn.is_empty()).ok_or(DecodeError::Truncated)
}

/// Returns whether the type of a leader's packet is unknown to this version. The learner skips such
/// a packet, as Apache's learners do.
pub fn is_unknown_to_learners(packet: &[u8]) -> bool {
    let kind = packet.first_chunk().map(|kind| i32::from_be_bytes(*kind));
    !kind.is_some_and(|kind| (REQUEST..=INFORM_AND_ACTIVATE).contains(&kind))
}

/// Decodes the data by its length, as Apache does: each release has appended fields.
fn info(body: &[u8]) -> Result<LearnerInfo, DecodeError> {
    let mut reader = Reader::new(body);
    Ok(LearnerInfo {
        server: if body.len() >= 8 { Some(ServerId(reader.i64()?)) } else { None },
        protocol: if body.len() >= 12 { reader.i32()? } else { 0 },
        config_version: if body.len() >= 20 { reader.i64()? } else { 0 },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn from_hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// The membership of three servers as 3.9.5 sends it.
    pub(crate) const CONFIG: &str = "7365727665722e313d3132372e302e302e313a33313131313a333131
        32313a7061727469636970616e740a7365727665722e323d3132372e302e302e313a33313131323a3331313232
        3a7061727469636970616e740a7365727665722e333d3132372e302e302e313a33313131333a33313132333a70
        61727469636970616e740a76657273696f6e3d30";

    const FIELD_MAX: usize = 2_097_150;

    /// Checks encoding and decoding of a packet against bytes captured from Apache ZooKeeper.
    #[track_caller]
    fn check(sender: Sender, hex: &str, packet: &Packet) {
        let captured = from_hex(hex);
        assert_eq!(packet_len(&captured, FIELD_MAX), Ok(Some(captured.len())));
        let read = Packet::decode(&Bytes::from(captured.clone()), sender);
        assert_eq!(read.as_ref(), Ok(packet));
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        assert_eq!(bytes, captured);
        for cut in 0..captured.len() {
            assert_eq!(packet_len(&captured[..cut], FIELD_MAX), Ok(None), "{cut}");
            assert!(Packet::decode(&Bytes::from(captured[..cut].to_vec()), sender).is_err());
        }
    }

    #[test]
    fn a_join_by_difference_is_apaches_bytes() {
        let info = LearnerInfo {
            server: Some(ServerId(1)),
            protocol: PROTOCOL_VERSION,
            config_version: 0,
        };
        let epoch = Epoch(1);
        let zxid = Zxid(0x1_0000_0006);
        check(
            Sender::Learner,
            "0000000b 0000000100000000 00000014 0000000000000001 00010000 0000000000000000
             ffffffff",
            &Packet::FollowerInfo { accepted: epoch, info },
        );
        check(
            Sender::Leader,
            "00000011 0000000100000000 00000004 00010000 ffffffff",
            &Packet::LeaderInfo { epoch, protocol: PROTOCOL_VERSION },
        );
        check(
            Sender::Learner,
            "00000012 0000000100000004 00000004 ffffffff ffffffff",
            &Packet::AckEpoch { last: Zxid(0x1_0000_0004), current: None },
        );
        check(
            Sender::Leader,
            "0000000d 0000000100000006 ffffffff ffffffff",
            &Packet::Diff { zxid },
        );
        check(
            Sender::Leader,
            "00000004 0000000100000006 ffffffff ffffffff",
            &Packet::Commit { zxid },
        );
        check(
            Sender::Leader,
            &format!("0000000a 0000000100000000 0000008a {CONFIG} ffffffff"),
            &Packet::NewLeader { epoch, config: Some(from_hex(CONFIG).into()) },
        );
        check(
            Sender::Learner,
            "00000003 0000000100000000 ffffffff ffffffff",
            &Packet::Ack { zxid: Zxid::new(epoch, 0) },
        );
        check(Sender::Leader, "0000000c ffffffffffffffff ffffffff ffffffff", &Packet::UpToDate);
        check(
            Sender::Leader,
            "00000005 0000000100000006 ffffffff ffffffff",
            &Packet::Ping { zxid },
        );
        check(
            Sender::Learner,
            "00000005 0000000100000006 00000000 ffffffff",
            &Packet::Pong { zxid, report: Bytes::new() },
        );
    }

    #[test]
    fn a_write_through_a_follower_is_apaches_bytes() {
        let request = ForwardedRequest {
            session: SessionId(0x0100_000e_4e06_0000),
            cxid: 4,
            op: 5,
            body: from_hex("000000032f6130 000000027878 ffffffff").into(),
            auth: Some(AuthIds::new([("ip", "127.0.0.1")])),
        };
        check(
            Sender::Learner,
            "00000001 ffffffffffffffff 00000021 0100000e4e060000 00000004 00000005
             000000032f6130 000000027878 ffffffff 00000001 000000026970 000000093132372e302e302e31",
            &Packet::Learner(LearnerMessage::Request(Box::new(request.clone()))),
        );
        let ids: Vec<_> = request.auth.as_ref().unwrap().iter().collect();
        assert_eq!(ids, [("ip".into(), "127.0.0.1".into())]);
        let txn = "0100000e4e060000 00000004 0000000100000005 000001a1e057d53b 00000005
            000000032f6130 000000027878 00000001 00000002 000000011daeaddc";
        check(
            Sender::Leader,
            &format!("00000002 0000000100000005 0000003d {txn} ffffffff"),
            &Packet::Proposal { zxid: Zxid(0x1_0000_0005), txn: from_hex(txn).into() },
        );
        check(
            Sender::Learner,
            "00000001 ffffffffffffffff 00000014 0100000e4e060000 00000000 fffffff6 00002710
             ffffffff",
            &Packet::Learner(LearnerMessage::Request(Box::new(ForwardedRequest {
                cxid: 0,
                op: -10,
                body: from_hex("00002710").into(),
                auth: None,
                ..request
            }))),
        );
    }

    #[test]
    fn every_other_packet_comes_back_as_it_went() {
        let zxid = Zxid(0x3_0000_0009);
        let session = SessionId(0x0100_000e_4e06_0000);
        let touched = [(session, 10_000), (SessionId(2), 4)];
        for (sender, packet) in [
            (Sender::Leader, Packet::Trunc { zxid }),
            (Sender::Leader, Packet::Snap { zxid }),
            (Sender::Leader, Packet::NewLeader { epoch: Epoch(3), config: None }),
            (Sender::Leader, Packet::Inform { zxid, txn: Bytes::from_static(b"txn") }),
            (Sender::Leader, Packet::CommitAndActivate { zxid, leader: ServerId(2) }),
            (
                Sender::Leader,
                Packet::InformAndActivate {
                    zxid,
                    leader: ServerId(2),
                    txn: Bytes::from_static(b"txn"),
                },
            ),
            (Sender::Leader, Packet::Leader(LeaderMessage::Revalidated { session, valid: true })),
            (Sender::Leader, Packet::Leader(LeaderMessage::Synced)),
            (Sender::Learner, Packet::AckEpoch { last: zxid, current: Some(Epoch(2)) }),
            (Sender::Learner, Packet::Pong { zxid, report: Touches::new(touched).into() }),
            (
                Sender::Learner,
                Packet::Learner(LearnerMessage::Revalidate { session, timeout_ms: 10_000 }),
            ),
        ] {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            assert_eq!(packet_len(&bytes, FIELD_MAX), Ok(Some(bytes.len())), "{packet:?}");
            assert_eq!(Packet::decode(&bytes.into(), sender), Ok(packet));
        }
        assert_eq!(Touches::new(touched).iter().collect::<Vec<_>>(), touched);
    }

    #[test]
    fn learners_are_read_by_the_length_of_their_introduction() {
        for (body, expected) in [
            ("ffffffff", (None, 0, 0)),
            ("00000008 0000000000000007", (Some(ServerId(7)), 0, 0)),
            ("0000000c 0000000000000007 00010000", (Some(ServerId(7)), 0x10000, 0)),
        ] {
            let bytes = from_hex(&format!("0000000b 0000000200000000 {body} ffffffff"));
            let Ok(Packet::FollowerInfo { accepted, info }) =
                Packet::decode(&bytes.into(), Sender::Learner)
            else {
                panic!("{body}")
            };
            assert_eq!(accepted, Epoch(2));
            assert_eq!((info.server, info.protocol, info.config_version), expected);
        }
    }

    #[test]
    fn impossible_lengths_are_refused_before_their_end_is_awaited() {
        let head = "00000002 0000000100000005";
        for bad in [
            "7fffffff".to_owned(),
            "fffffffe".to_owned(),
            "001fffff".to_owned(),
            "ffffffff 00001001".to_owned(),
            "ffffffff fffffffe".to_owned(),
            "ffffffff 00000001 00100001".to_owned(),
            "ffffffff 00000001 fffffff0".to_owned(),
        ] {
            let bytes = from_hex(&format!("{head} {bad}"));
            assert!(packet_len(&bytes, FIELD_MAX).is_err(), "{bad}");
        }
    }

    #[test]
    fn packets_from_the_wrong_side_are_refused() {
        let mut bytes = Vec::new();
        Packet::UpToDate.encode(&mut bytes);
        assert!(Packet::decode(&bytes.clone().into(), Sender::Learner).is_err());
        bytes.clear();
        Packet::Ack { zxid: Zxid(1) }.encode(&mut bytes);
        assert!(Packet::decode(&bytes.into(), Sender::Leader).is_err());
        for bad in [
            "00000002 0000000100000006 ffffffff ffffffff",
            "00000002 0000000100000006 00000000 ffffffff",
            "00000008 0000000100000006 ffffffff ffffffff",
            "00000013 0000000100000006 00000008 0000000000000001 ffffffff",
            "0000000f ffffffffffffffff ffffffff ffffffff",
        ] {
            let bytes = from_hex(bad);
            assert!(!is_unknown_to_learners(&bytes));
            assert!(Packet::decode(&bytes.into(), Sender::Leader).is_err(), "{bad}");
        }
        let odd = from_hex("00000005 0000000100000006 0000000b 0000000000000001000000 ffffffff");
        assert!(Packet::decode(&odd.into(), Sender::Learner).is_err());
    }
}
