//! The first bytes of a connection: a connect request, or a four-letter word in its place.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::connect::ConnectRequest;
use ironkeeper_proto::four_letter::FourLetterWord;
use ironkeeper_proto::{Reader, SessionId, Xid, Zxid};

use super::frames::next_frame;
use super::serve::Turn;
use super::turnstile::{Admission, Arrival, Demand};
use super::{CloseReason, Conn, Next, Phase, Submit, SubmitKind};
use crate::database::Serving;
use crate::stats::FRAME_HEAD_BYTES;

/// The longest connect request. It has 45 bytes and a password of 16 bytes; a client without a
/// session gets no memory for more.
const CONNECT_BYTES_MAX: usize = 4 << 10;

/// The first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting<'a> {
    Incomplete,
    FourLetter { word: FourLetterWord, argument: i64 },
    Connect { request: ConnectRequest<'a>, bytes: usize },
}

impl Greeting<'_> {
    fn decode(input: &[u8], frame_bytes_max: usize) -> Result<Greeting<'_>, CloseReason> {
        let Some(word) = input.first_chunk::<4>() else { return Ok(Greeting::Incomplete) };
        if let Some(word) = FourLetterWord::from_bytes(word) {
            // The mask of `stmk` is the only argument.
            let argument = match word {
                FourLetterWord::Stmk => Reader::new(&input[4..]).i64(),
                _ => Ok(0),
            };
            return Ok(match argument {
                Ok(argument) => Greeting::FourLetter { word, argument },
                Err(_) => Greeting::Incomplete,
            });
        }
        let frame = next_frame(input, frame_bytes_max)?;
        if i32::from_be_bytes(*word) as usize > CONNECT_BYTES_MAX {
            return Err(CloseReason::BadConnect);
        }
        let Some(frame) = frame else { return Ok(Greeting::Incomplete) };
        let request = ConnectRequest::decode(frame).map_err(|_| CloseReason::BadConnect)?;
        Ok(Greeting::Connect { request, bytes: FRAME_HEAD_BYTES + frame.len() })
    }
}

/// Returns an error if this server cannot serve the client now. `reached` is evaluated only if the
/// server has a leader or the client accepts a read-only server.
fn check_serving(
    request: &ConnectRequest<'_>,
    serving: Serving,
    reached: impl FnOnce() -> Zxid,
) -> Result<(), CloseReason> {
    match serving {
        Serving::No => return Err(CloseReason::NotServing),
        Serving::ReadOnly if request.read_only != Some(true) => {
            return Err(CloseReason::OnlyReads);
        }
        Serving::ReadOnly | Serving::Yes => {}
    }
    let reached = reached();
    if request.last_zxid_seen > reached {
        return Err(CloseReason::ClientAhead(request.last_zxid_seen, reached));
    }
    Ok(())
}

impl Conn {
    /// Processes the first bytes. Returns `None` after a connect request was submitted to the
    /// engine.
    pub(super) fn greet(
        self: &Arc<Conn>,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Next>, CloseReason> {
        let input = turn.frames.rest();
        match Greeting::decode(input, turn.db.config.frame_bytes_max)? {
            Greeting::Incomplete => Ok(Some(Next::Read)),
            Greeting::FourLetter { word, argument } => {
                turn.frames.skip(input.len());
                Ok(Some(Next::FourLetter { word, argument }))
            }
            Greeting::Connect { request, bytes } => self.request_session(turn, &request, bytes),
        }
    }

    fn request_session(
        self: &Arc<Conn>,
        turn: &mut Turn<'_>,
        request: &ConnectRequest<'_>,
        bytes: usize,
    ) -> Result<Option<Next>, CloseReason> {
        let (now, db) = (turn.now, turn.db);
        let is_new = request.session == SessionId::NONE;
        // A connection that waits for the request throttle has already passed the connection
        // throttle.
        let waits = self.lock().turnstile.is_waiting();
        if !waits && !db.admits_session(now, !is_new) {
            db.stats.connections_rejected.fetch_add(1, Relaxed);
            return Err(CloseReason::ConnectionThrottled);
        }
        check_serving(request, db.serving(), || db.reached())?;
        let config = &db.config;
        let timeout_ms =
            request.timeout_ms.clamp(config.session_timeout_min_ms, config.session_timeout_max_ms);
        let mut inner = self.lock();
        inner.timeout_ms = timeout_ms;
        if is_new && let Some(throttle) = &db.request_throttle {
            let arrival = Arrival {
                demand: Demand::OpenSession,
                now_ms: now.mono_ms,
                timeout_ms,
                bytes,
                bytes_waiting: turn.frames.rest().len(),
            };
            let admission = inner.turnstile.enter(throttle, &db.stats.throttle, self, arrival)?;
            if admission == Admission::Wait {
                return Ok(Some(Next::Wait));
            }
        }
        let kind = if is_new {
            SubmitKind::OpenSession { timeout_ms }
        } else {
            // A password of another length matches no session, and neither do zeros.
            let password = request.password.try_into().unwrap_or_default();
            SubmitKind::AttachSession { session: request.session, password, timeout_ms }
        };
        inner.phase = Phase::Opening;
        inner.sent_read_only = request.read_only.is_some();
        inner.allows_read_only = request.read_only == Some(true);
        inner.stats.packets_received += 1;
        inner.lane.push_write(Xid(0));
        drop(inner);
        turn.frames.skip(bytes);
        db.stats.packets_received.fetch_add(1, Relaxed);
        db.stats.bytes_received.fetch_add(bytes as u64, Relaxed);
        db.stats.connect_requests.fetch_add(1, Relaxed);
        db.outstanding.fetch_add(1, Relaxed);
        turn.submits.push(Submit { conn: Arc::clone(self), received_ms: now.mono_ms, kind });
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES_MAX: usize = 1 << 20;

    fn request(read_only: Option<bool>) -> ConnectRequest<'static> {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid(5),
            timeout_ms: 4000,
            session: SessionId::NONE,
            password: &[7; 16],
            read_only,
        }
    }

    fn frame(request: &ConnectRequest<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        request.encode(&mut body);
        let len = i32::try_from(body.len()).unwrap();
        [&len.to_be_bytes()[..], &body].concat()
    }

    fn decode(input: &[u8]) -> Result<Greeting<'_>, CloseReason> {
        Greeting::decode(input, FRAME_BYTES_MAX)
    }

    #[test]
    fn a_connect_request_is_decoded_when_its_last_byte_has_arrived() {
        for read_only in [None, Some(false), Some(true)] {
            let request = request(read_only);
            let input = frame(&request);
            for end in 0..input.len() {
                assert_eq!(decode(&input[..end]), Ok(Greeting::Incomplete), "{end} bytes");
            }
            let bytes = input.len();
            assert_eq!(decode(&input), Ok(Greeting::Connect { request, bytes }));
        }
    }

    #[test]
    fn a_long_or_malformed_connect_request_is_rejected_by_its_length() {
        let longest = CONNECT_BYTES_MAX as i32;
        assert_eq!(decode(&longest.to_be_bytes()), Ok(Greeting::Incomplete));
        assert_eq!(decode(&(longest + 1).to_be_bytes()), Err(CloseReason::BadConnect));
        assert_eq!(decode(&[0, 0, 0, 3, 1, 2, 3]), Err(CloseReason::BadConnect));
        let len = CloseReason::FrameLength(-1, FRAME_BYTES_MAX);
        assert_eq!(decode(&(-1i32).to_be_bytes()), Err(len));
    }

    #[test]
    fn a_four_letter_word_is_recognized_and_stmk_waits_for_its_mask() {
        let word = |word, argument| Ok(Greeting::FourLetter { word, argument });
        assert_eq!(decode(b"ruo"), Ok(Greeting::Incomplete));
        assert_eq!(decode(b"ruok"), word(FourLetterWord::Ruok, 0));
        assert_eq!(decode(b"mntr\n"), word(FourLetterWord::Mntr, 0));
        let input = [b"stmk", &9i64.to_be_bytes()[..]].concat();
        assert_eq!(decode(&input[..11]), Ok(Greeting::Incomplete));
        assert_eq!(decode(&input), word(FourLetterWord::Stmk, 9));
    }

    #[test]
    fn a_client_is_rejected_by_a_server_that_cannot_serve_it() {
        let check = |read_only, serving, reached| {
            check_serving(&request(read_only), serving, || Zxid(reached))
        };
        assert_eq!(check(None, Serving::Yes, 5), Ok(()));
        assert_eq!(check(None, Serving::Yes, 4), Err(CloseReason::ClientAhead(Zxid(5), Zxid(4))));
        assert_eq!(check(Some(true), Serving::No, 5), Err(CloseReason::NotServing));
        for read_only in [None, Some(false)] {
            let reason = check(read_only, Serving::ReadOnly, 5);
            assert_eq!(reason, Err(CloseReason::OnlyReads));
        }
        assert_eq!(check(Some(true), Serving::ReadOnly, 5), Ok(()));
    }
}
