//! Replies to clients, checked against the rules.

use ironkeeper_engine::config::LocalSessions;
use ironkeeper_proto::connect::ConnectResponse;
use ironkeeper_proto::jute::{DecodeError, Reader};
use ironkeeper_proto::reply::{MultiHeader, ReplyHeader};
use ironkeeper_proto::watch_event::WatcherEvent;
use ironkeeper_proto::{ErrorCode, OpCode, SessionId, Stat, Xid, Zxid};
use ironkeeper_zab::LinkId;

use super::client::{Asked, LastWords, Stage};
use super::early_ends::SignOfLife;
use super::history::{Seen, Standing};
use super::requests::{Request, register_of};
use super::world::World;

const NO_NODE: i32 = ErrorCode::NoNode as i32;

impl World {
    /// Handles bytes from a server at a client.
    pub(super) fn on_answer(&mut self, client: usize, link: LinkId, bytes: &[u8]) {
        if self.clients[client].link() != Some(link) {
            return;
        }
        self.clients[client].heard_us = self.now_us();
        self.clients[client].unread.extend_from_slice(bytes);
        while self.clients[client].link() == Some(link)
            && let Some(frame) = self.clients[client].next_frame()
        {
            let taken = match self.clients[client].stage {
                Stage::Greeting(_) => self.on_greeted(client, link, &frame),
                _ => self.on_frame(client, &frame),
            };
            let broken = |error| format!("answers: client {client} does not understand: {error}");
            match taken.map_err(broken) {
                Ok(judged) => self.fail(judged),
                Err(what) => self.fail(Err(what)),
            }
        }
    }

    fn on_greeted(
        &mut self,
        client: usize,
        link: LinkId,
        frame: &[u8],
    ) -> Result<Result<(), String>, DecodeError> {
        let response = ConnectResponse::decode(frame)?;
        let this = &mut self.clients[client];
        let asked = this.session;
        if response.timeout_ms == 0 {
            let judged = self.judge_end(client);
            self.clients[client].forget_session();
            self.report.expired += 1;
            self.say(|| format!("client {client} is told that session {:x} is gone", asked.0));
            self.leave_server(client);
            return Ok(judged);
        }
        this.stage = Stage::Open(link);
        this.floor_zxid = this.told_zxid;
        (this.session, this.password) = (response.session, response.password);
        self.say(|| format!("client {client} has session {:x}", response.session.0));
        let is_new = asked == SessionId::NONE;
        // A committed transaction has made the session known to the leader.
        if is_new && response.read_only != Some(true) && self.are_sessions_global() {
            let this = &mut self.clients[client];
            this.alive = Some(SignOfLife { at_us: this.sent_us, reign: None });
        }
        if response.read_only == Some(true) {
            let begun = self.begin_read_only(client, is_new);
            self.fail(begun);
        }
        self.settle_in(client, is_new);
        Ok(match is_new || response.session == asked {
            true => Ok(()),
            false => Err(format!("sessions: client {client} got another one than its own")),
        })
    }

    fn on_frame(&mut self, client: usize, frame: &[u8]) -> Result<Result<(), String>, DecodeError> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader)?;
        let this = &mut self.clients[client];
        if header.zxid > Zxid::ZERO {
            if header.zxid < this.floor_zxid {
                let (floor, zxid) = (this.floor_zxid, header.zxid);
                return Ok(Err(format!("order: client {client} went back from {floor} to {zxid}")));
            }
            this.floor_zxid = header.zxid;
            // An event does not advance `last_zxid`: another event of the same transaction may
            // follow.
            let is_event = header.xid == Xid::NOTIFICATION;
            if !is_event {
                this.last_zxid = header.zxid;
            }
            // The state of a server without a leader may be undone.
            if !this.is_read_only {
                this.told_zxid = if is_event { this.told_zxid } else { header.zxid };
                self.history.tell(header.zxid);
            }
        }
        if header.xid == Xid::NOTIFICATION {
            let event = WatcherEvent::decode(&mut reader)?;
            return Ok(self.on_watch_event(client, &event));
        }
        let Some(asked) = this.pending.pop_front() else {
            return Ok(Err(format!("answers: client {client} asked for nothing: {header:?}")));
        };
        if this.pending.is_empty() && this.last_words == LastWords::Said {
            this.last_words = LastWords::Answered;
        }
        self.report.answers += 1;
        self.say(|| format!("client {client} hears {header:?} to {asked:?}"));
        if asked.xid != header.xid {
            return Ok(Err(format!("order: client {client} got {header:?} to {asked:?}")));
        }
        if self.clients[client].is_read_only {
            return self.judge_cut_off_answer(client, &asked.request, header, &mut reader);
        }
        if header.err == 0
            && let Some(link) = self.clients[client].link()
        {
            self.note_sign_of_life(client, link, asked.at_us, asked.reign);
        }
        self.judge_answer(client, &asked, header, &mut reader)
    }

    fn judge_answer(
        &mut self,
        client: usize,
        asked: &Asked,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Result<Result<(), String>, DecodeError> {
        let is_done = header.err == 0;
        Ok(match &asked.request {
            Request::Set { value, .. } | Request::SetAll { value, .. } if !is_done => {
                self.history.refuse(*value)
            }
            Request::Set { register, value, .. } => {
                let stat = Stat::decode(reader)?;
                self.judge_write(client, *register, *value, header.zxid, &stat)
            }
            Request::SetAll { registers, value } => {
                let mut judged = Ok(());
                for register in registers {
                    // A failed multi has no error in the reply header, but an error for each
                    // operation.
                    if MultiHeader::decode(reader)?.kind == OpCode::Error.code() {
                        return Ok(self.history.refuse(*value));
                    }
                    let stat = Stat::decode(reader)?;
                    let next = self.judge_write(client, *register, *value, header.zxid, &stat);
                    judged = judged.and(next);
                }
                judged
            }
            Request::Get { register, floor, .. } if header.err == NO_NODE => {
                let floor = floor.unwrap_or(-1);
                let known = self.clients[client].seen[*register].max(floor);
                match known < 0 {
                    true => Ok(()),
                    false => Err(format!("durability: register {register} is gone")),
                }
            }
            Request::Get { register, watch, floor } if is_done => {
                let data = reader.buf()?.unwrap_or_default();
                let value = data.try_into().map_or(u64::MAX, u64::from_be_bytes);
                let stat = Stat::decode(reader)?;
                let seen = Seen { version: stat.version, zxid: stat.mzxid, value };
                if let Some(floor) = floor
                    && seen.version < *floor
                {
                    return Ok(Err(format!(
                        "synced reads: client {client} saw {seen:?} of register {register}, \
                         version {floor} was known before"
                    )));
                }
                let judged = self.judge_seen(client, *register, seen);
                if *watch {
                    self.clients[client].watches.entry(*register).or_insert(seen.version);
                }
                judged
            }
            Request::Sync { floor } if is_done && header.zxid < *floor => Err(format!(
                "synced reads: client {client} was synced with {}, {floor} was known before",
                header.zxid
            )),
            Request::CreateEphemeral(path) => {
                let standing = if is_done { Standing::Made } else { Standing::Gone };
                let was_local = self.plan.engine.local_sessions == LocalSessions::Upgrading;
                self.report.upgrades += u64::from(is_done && was_local);
                self.note_ephemeral(path, standing);
                Ok(())
            }
            Request::DeleteEphemeral(path) if is_done => {
                self.note_ephemeral(path, Standing::Gone);
                Ok(())
            }
            Request::DeleteEphemeral(path) | Request::FindEphemeral(path)
                if header.err == NO_NODE =>
            {
                Err(format!("ephemerals: client {client} lives, but its node {path} is gone"))
            }
            Request::Close if is_done => {
                self.leave_server(client);
                self.clients[client].forget_session();
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn note_ephemeral(&mut self, path: &str, standing: Standing) {
        if let Some(node) = self.history.ephemerals.get_mut(path) {
            node.standing = standing;
        }
    }

    fn judge_write(
        &mut self,
        client: usize,
        register: usize,
        value: u64,
        zxid: Zxid,
        stat: &Stat,
    ) -> Result<(), String> {
        if stat.mzxid != zxid {
            return Err(format!("answers: {stat:?} was told to be of {zxid}"));
        }
        self.judge_seen(client, register, Seen { version: stat.version, zxid, value })
    }

    /// Checks a version of a register that a client has read.
    fn judge_seen(&mut self, client: usize, register: usize, seen: Seen) -> Result<(), String> {
        let this = &mut self.clients[client];
        if seen.version < this.seen[register] {
            return Err(format!(
                "order: client {client} saw version {} of register {register}, then {seen:?}",
                this.seen[register]
            ));
        }
        this.seen[register] = seen.version;
        if let Some(watched) = this.watches.get(&register)
            && *watched < seen.version
        {
            return Err(format!(
                "watches: client {client} saw {seen:?} of register {register} before the event \
                 that version {watched} is no more"
            ));
        }
        self.history.observe(register, seen)
    }

    fn on_watch_event(&mut self, client: usize, event: &WatcherEvent) -> Result<(), String> {
        self.report.watch_events += 1;
        self.say(|| format!("client {client} hears {event:?}"));
        let watched = register_of(&event.path)
            .and_then(|register| self.clients[client].watches.remove(&register));
        match watched {
            Some(_) => Ok(()),
            None => Err(format!("watches: client {client} had none for {event:?}")),
        }
    }
}
