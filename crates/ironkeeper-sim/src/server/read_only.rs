//! Clients at servers in read-only mode, which have no leader.
//!
//! Such a server may lose its latest transactions: the end of its log may exist on no other server.
//! So its replies are checked against weaker rules: it never accepts a write, not even for a
//! session that it created; it is not behind what the client has received from other servers; its
//! state does not go back; and every value that it returns was written by a client.

use ironkeeper_proto::jute::{DecodeError, Reader};
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::{ErrorCode, Stat, Zxid};

use super::history::{Ephemeral, Seen, Standing};
use super::requests::{EPHEMERALS, Request};
use super::world::World;

const NO_NODE: i32 = ErrorCode::NoNode as i32;
const NOT_READ_ONLY: i32 = ErrorCode::NotReadOnly as i32;

impl World {
    /// Abandons the session of a client that accepts read-only mode, after a time without a reply:
    /// a server without a leader does not know whether the session is alive.
    pub(super) fn give_up_session(&mut self, client: usize) {
        let now_us = self.now_us();
        let this = &mut self.clients[client];
        let patience_us = this.timeout_ms as u64 * 1000 * 4 / 3;
        if this.allows_read_only && now_us - this.heard_us > patience_us {
            this.forget_session();
        }
    }

    /// Records that a server in read-only mode has accepted a client.
    pub(super) fn begin_read_only(&mut self, client: usize, is_new: bool) -> Result<(), String> {
        let this = &mut self.clients[client];
        this.is_read_only = true;
        this.glimpsed.fill(-1);
        self.history.read_only_sessions.insert(this.session);
        match this.allows_read_only && is_new {
            true => Ok(()),
            false => Err(format!("read-only: client {client} did not ask for such a server")),
        }
    }

    /// Sends mostly reads. A write in read-only mode must never take effect, with or without a
    /// reply.
    pub(super) fn ask_cut_off_server(&mut self, client: usize) {
        let register = self.random.below(self.plan.registers as u64) as usize;
        let session = self.clients[client].session;
        match self.random.below(100) {
            0..70 => {
                let watch = self.random.chance(500);
                self.ask(client, Request::Get { register, watch, floor: None });
            }
            70..80 => {
                let value = self.history.begin_write(session, &[register]);
                let refused = self.history.refuse(value);
                self.fail(refused);
                self.ask(client, Request::Set { register, value, version: -1 });
            }
            80..85 => {
                let this = &mut self.clients[client];
                this.ephemerals += 1;
                let path = format!("{EPHEMERALS}/c{}-{}", this.number, this.ephemerals);
                let ephemeral = Ephemeral { session, standing: Standing::Gone };
                self.history.ephemerals.insert(path.clone(), ephemeral);
                self.ask(client, Request::CreateEphemeral(path));
            }
            85..90 => self.ask(client, Request::Sync { floor: Zxid::ZERO }),
            // Another server may have a leader.
            _ => self.leave_server(client),
        }
    }

    /// Checks a reply of a server in read-only mode.
    pub(super) fn judge_cut_off_answer(
        &mut self,
        client: usize,
        request: &Request,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Result<Result<(), String>, DecodeError> {
        self.report.read_only_answers += 1;
        Ok(match request {
            Request::Get { register, .. } if header.err == NO_NODE => {
                match self.clients[client].seen[*register] < 0 {
                    true => Ok(()),
                    false => Err(format!("order: register {register} is not there yet")),
                }
            }
            Request::Get { register, watch, .. } if header.err == 0 => {
                let data = reader.buf()?.unwrap_or_default();
                let value = data.try_into().map_or(u64::MAX, u64::from_be_bytes);
                let stat = Stat::decode(reader)?;
                let seen = Seen { version: stat.version, zxid: stat.mzxid, value };
                let judged = self.judge_glimpse(client, *register, seen);
                if *watch {
                    self.clients[client].watches.entry(*register).or_insert(seen.version);
                }
                judged
            }
            Request::Get { .. } | Request::SetWatches { .. } | Request::Ping | Request::Close => {
                Ok(())
            }
            _ if header.err == NOT_READ_ONLY => Ok(()),
            request => Err(format!("read-only: a server without a leader took {request:?}")),
        })
    }

    fn judge_glimpse(&mut self, client: usize, register: usize, seen: Seen) -> Result<(), String> {
        let this = &mut self.clients[client];
        let known = this.seen[register].max(this.glimpsed[register]);
        if seen.version < known {
            return Err(format!(
                "order: client {client} saw version {known} of register {register}, then {seen:?}"
            ));
        }
        this.glimpsed[register] = seen.version;
        if this.watches.get(&register).is_some_and(|watched| *watched < seen.version) {
            return Err(format!(
                "watches: client {client} saw {seen:?} of register {register} before the event"
            ));
        }
        self.history.glimpse(register, seen)
    }
}
