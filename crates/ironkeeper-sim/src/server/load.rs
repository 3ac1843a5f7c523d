//! The workload of clients.

use ironkeeper_proto::Zxid;
use ironkeeper_zab::LinkId;

use super::client::{LastWords, Stage};
use super::history::{Ephemeral, Standing};
use super::plan::{ClientBug, member_line};
use super::requests::{EPHEMERALS, Request, register_path};
use super::world::{Event, Phase, World};

/// The maximal number of outstanding requests of a client.
const PENDING_MAX: usize = 6;

impl World {
    /// Lets a client take its next action.
    pub(super) fn on_look(&mut self, client: usize) {
        let (low, high) = self.plan.load_us;
        let in_us = self.random.between(low, high);
        self.after(in_us, Event::Look { client });
        let now_us = self.now_us();
        let this = &self.clients[client];
        let timeout_us = this.timeout_ms as u64 * 1000;
        match this.stage {
            Stage::Away => {
                self.give_up_session(client);
                self.dial_server(client);
            }
            Stage::Dialing => {}
            Stage::Greeting(_) => {
                if now_us - this.sent_us > timeout_us {
                    self.leave_server(client);
                }
            }
            Stage::Open(_) => {
                let oldest_us = this.pending.front().map(|asked| asked.at_us.max(this.heard_us));
                if oldest_us.is_some_and(|oldest_us| now_us - oldest_us > timeout_us * 2 / 3) {
                    self.leave_server(client);
                } else if now_us - this.sent_us > timeout_us / 3 {
                    self.ask(client, Request::Ping);
                } else {
                    self.do_something(client);
                }
            }
        }
    }

    fn do_something(&mut self, client: usize) {
        match self.phase {
            Phase::Rest => {}
            Phase::LastWords => self.say_last_words(client),
            Phase::Load if self.random.chance(self.plan.silence_per_mille) => {
                let timeout_us = self.clients[client].timeout_ms as u64 * 1000;
                let silent_us = self.random.between(timeout_us / 2, timeout_us * 3);
                self.clients[client].paused_until_us = self.now_us() + silent_us;
            }
            Phase::Load if self.random.chance(self.plan.move_per_mille) => {
                self.leave_server(client);
            }
            Phase::Load => {
                if self.clients[client].pending.len() >= PENDING_MAX {
                    return;
                }
                match self.clients[client].is_read_only {
                    true => self.ask_cut_off_server(client),
                    false => self.ask_something(client),
                }
            }
        }
    }

    fn ask_something(&mut self, client: usize) {
        let register = self.random.below(self.plan.registers as u64) as usize;
        let session = self.clients[client].session;
        if client < self.plan.readers {
            return self.ask_behind_sync(client, &[register]);
        }
        if self.random.chance(self.plan.reconfig_per_mille) {
            return self.ask_for_members(client);
        }
        match self.random.below(100) {
            0..40 => {
                let value = self.history.begin_write(session, &[register]);
                let seen = self.clients[client].seen[register];
                let version = if self.random.chance(200) { seen } else { -1 };
                self.ask(client, Request::Set { register, value, version });
            }
            40..48 => {
                let registers: Vec<usize> = (0..self.plan.registers).collect();
                let value = self.history.begin_write(session, &registers);
                self.ask(client, Request::SetAll { registers, value });
            }
            48..78 => {
                let watch = self.random.chance(500);
                self.ask(client, Request::Get { register, watch, floor: None });
            }
            78..88 => self.ask_behind_sync(client, &[register]),
            88..94 => {
                let this = &mut self.clients[client];
                this.ephemerals += 1;
                let path = format!("{EPHEMERALS}/c{}-{}", this.number, this.ephemerals);
                let ephemeral = Ephemeral { session, standing: Standing::Asked };
                self.history.ephemerals.insert(path.clone(), ephemeral);
                self.ask(client, Request::CreateEphemeral(path));
            }
            94..99 => {
                let own: Vec<&String> = self
                    .history
                    .ephemerals
                    .iter()
                    .filter(|(_, node)| node.session == session && node.standing == Standing::Made)
                    .map(|(path, _)| path)
                    .collect();
                let Some(path) = self.random.pick(&own).cloned() else { return };
                if self.random.chance(500) {
                    return self.ask(client, Request::FindEphemeral(path));
                }
                if let Some(node) = self.history.ephemerals.get_mut(&path) {
                    node.standing = Standing::Going;
                }
                self.ask(client, Request::DeleteEphemeral(path));
            }
            _ => {
                if self.random.chance(300) {
                    self.ask(client, Request::Close);
                }
            }
        }
    }

    fn ask_behind_sync(&mut self, client: usize, registers: &[usize]) {
        if self.plan.client_bug != Some(ClientBug::SkipSync) {
            self.ask(client, Request::Sync { floor: self.history.told() });
        }
        for register in registers {
            let register = *register;
            let floor = Some(self.history.newest(register));
            self.ask(client, Request::Get { register, watch: false, floor });
        }
    }

    /// Requests to add a server, to remove one, or to change the role of one.
    fn ask_for_members(&mut self, client: usize) {
        let id = self.random.between(1, self.plan.servers as u64);
        let part = self.random.pick(&[None, Some("participant"), Some("observer")]).flatten();
        let joining = part.map(|role| format!("server.{id}={}", member_line(id, role)));
        let leaving = part.is_none().then(|| id.to_string());
        self.ask(client, Request::Reconfig { joining, leaving });
    }

    fn say_last_words(&mut self, client: usize) {
        let this = &mut self.clients[client];
        if this.last_words != LastWords::Unsaid || !this.is_at_rest() {
            return;
        }
        this.last_words = LastWords::Said;
        let session = this.session;
        // The client that should have created the nodes may have lost its connection.
        self.prepare_nodes(client);
        let registers: Vec<usize> = (0..self.plan.registers).collect();
        let register = self.random.below(self.plan.registers as u64) as usize;
        let value = self.history.begin_write(session, &[register]);
        self.ask(client, Request::Set { register, value, version: -1 });
        self.ask_behind_sync(client, &registers);
    }

    pub(super) fn ask(&mut self, client: usize, request: Request) {
        let now_us = self.now_us();
        let Stage::Open(link) = self.clients[client].stage else { return };
        let reign = self.reign_at(client, link);
        let this = &mut self.clients[client];
        let bytes = this.ask(request, reign, now_us);
        let (end, asked) = (this.end(), this.pending.back().cloned());
        self.say(|| format!("client {client} asks {asked:?}"));
        self.transmit(end, link, bytes);
    }

    // Connections.

    fn dial_server(&mut self, client: usize) {
        let to = self.random.below(self.nodes.len() as u64) as usize;
        let in_us = self.network.latency(&mut self.random);
        let this = &mut self.clients[client];
        this.stage = Stage::Dialing;
        this.attempt += 1;
        let attempt = this.attempt;
        self.after(in_us, Event::ClientDial { client, attempt, to });
    }

    pub(super) fn on_client_dialed(&mut self, client: usize, attempt: u64, link: Option<LinkId>) {
        let now_us = self.now_us();
        let end = self.clients[client].end();
        let link = link.filter(|link| self.network.side(*link, end.0, end.1).is_some());
        if !self.clients[client].is_dialing(attempt) {
            return;
        }
        let Some(link) = link else {
            self.clients[client].stage = Stage::Away;
            return;
        };
        let this = &mut self.clients[client];
        this.stage = Stage::Greeting(link);
        (this.sent_us, this.heard_us) = (now_us, now_us);
        let hides_zxid = self.plan.client_bug == Some(ClientBug::HideZxid);
        let greeting = this.greeting(if hides_zxid { Zxid::ZERO } else { this.last_zxid });
        self.transmit(end, link, greeting);
    }

    /// Closes the connection to a server, after a timeout or at the end of a session.
    pub(super) fn leave_server(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let (end, link) = (this.end(), this.link());
        this.forget_connection();
        if let Some(link) = link {
            self.close(end, link);
        }
    }

    pub(super) fn on_connection_lost(&mut self, client: usize, link: LinkId) {
        if self.clients[client].link() == Some(link) {
            self.say(|| format!("client {client} has lost link {}", link.0));
            self.clients[client].forget_connection();
        }
    }

    fn prepare_nodes(&mut self, client: usize) {
        self.ask(client, Request::Prepare(EPHEMERALS.to_owned()));
        for register in 0..self.plan.registers {
            self.ask(client, Request::Prepare(register_path(register)));
        }
    }

    /// Sends the first requests of a connection.
    pub(super) fn settle_in(&mut self, client: usize, is_new: bool) {
        // Watches are set first: the reply to any other request could show a later state than the
        // one they were set with.
        let this = &self.clients[client];
        let forgets_watches = self.plan.client_bug == Some(ClientBug::ForgetWatches);
        if !this.watches.is_empty() && !forgets_watches {
            let registers = this.watches.keys().copied().collect();
            self.ask(client, Request::SetWatches { seen: this.last_zxid, registers });
        }
        if is_new && !self.clients[client].is_read_only {
            self.prepare_nodes(client);
        }
    }
}
