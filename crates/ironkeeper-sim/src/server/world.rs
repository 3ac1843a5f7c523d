//! The world: one queue of events, the servers, their clients, and the network between them.

use std::fmt;

use ironkeeper_engine::{Database, Input};
use ironkeeper_proto::{ServerId, Zxid};
use ironkeeper_store::disk::sim::SimDisk;
use ironkeeper_zab::{LinkId, Port, Status};

use super::agreement::Agreement;
use super::client::Client;
use super::guests::Guests;
use super::history::History;
use super::links::Parcel;
use super::node::{MembersFile, Node};
use super::plan::Plan;
use crate::clock::Clock;
use crate::leadership::Leadership;
use crate::network::{Network, Transit};
use crate::outcome::{Failure, Layer, Report};
use crate::random::Random;
use crate::schedule::Schedule;

/// Within so much time all threads of a process that was frozen have come around.
pub(super) const WAKING_US_MAX: u64 = 2_000;

#[derive(Debug)]
pub(super) enum Event {
    /// A server has something to do by its clock.
    Wake {
        node: usize,
        boot: u64,
    },
    Transit(Transit<Parcel>),
    /// A connection attempt of a server reaches its target.
    Dial {
        from: usize,
        boot: u64,
        to: usize,
        port: Port,
    },
    Dialed {
        node: usize,
        boot: u64,
        peer: ServerId,
        port: Port,
        link: Option<LinkId>,
    },
    /// The batch that the log was given is through.
    DiskDone {
        node: usize,
        boot: u64,
    },
    LogRead {
        node: usize,
        boot: u64,
        link: LinkId,
        after: Zxid,
    },
    WriteSnapshot {
        node: usize,
        boot: u64,
    },
    SendTree {
        node: usize,
        boot: u64,
        link: LinkId,
    },
    /// A server looks after the connection of a client.
    Serve {
        node: usize,
        boot: u64,
        link: LinkId,
    },
    /// A client looks at what it could do.
    Look {
        client: usize,
    },
    ClientDial {
        client: usize,
        attempt: u64,
        to: usize,
    },
    ClientDialed {
        client: usize,
        attempt: u64,
        link: Option<LinkId>,
    },
    GuestDial {
        line: u64,
        to: usize,
    },
    GuestDialed {
        line: u64,
        link: Option<LinkId>,
    },
    Fault,
    RoomAgain {
        node: usize,
    },
    Start {
        node: usize,
    },
}

/// What clients are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// They do whatever comes to their minds.
    Load,
    /// They keep their sessions.
    Rest,
    /// They write once more, and read everything behind a sync.
    LastWords,
}

/// How a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The process dies; what it has written is still in the kernel's hands.
    Kill,
    /// The power goes: what was not synced is lost, or half of it.
    PowerLoss,
}

pub struct World {
    pub(super) seed: u64,
    pub(super) plan: Plan,
    pub(super) random: Random,
    schedule: Schedule<Event>,
    pub nodes: Vec<Node>,
    pub clients: Vec<Client>,
    pub(super) guests: Guests,
    pub(super) network: Network<Parcel>,
    pub(super) history: History,
    pub(super) agreement: Agreement,
    pub(super) leadership: Leadership,
    pub(super) report: Report,
    pub(super) phase: Phase,
    /// Faults go on.
    pub(super) in_trouble: bool,
    verbose: bool,
    failure: Option<String>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl World {
    pub fn new(seed: u64, plan: Plan, verbose: bool) -> World {
        let mut random = Random::new(seed);
        let mut node = |id: usize| Node {
            id: ServerId(id as i64),
            disk: SimDisk::new(random.draw()),
            members: MembersFile::new(&plan.membership),
            clock: Clock::new(&mut random),
            boot: 0,
            process: None,
            paused_until_us: 0,
            pauses_us: Vec::new(),
            hears_late_us: 0,
            disk_us: plan.disk_us,
            is_disk_full: false,
            is_call_broken: false,
        };
        let nodes: Vec<Node> = (1..=plan.servers).map(&mut node).collect();
        if plan.skips_equal_writes {
            nodes.iter().for_each(|node| node.disk.skip_equal_writes());
        }
        let (low, high) = plan.session_timeout_ms;
        let clients = (0..plan.clients)
            .map(|number| {
                let timeout_ms = random.between(low, high);
                let node = plan.servers + number;
                let mut client = Client::new(number, node, timeout_ms as i32, plan.registers);
                client.allows_read_only = number + plan.read_only_clients >= plan.clients;
                client
            })
            .collect();
        World {
            seed,
            random,
            schedule: Schedule::default(),
            nodes,
            clients,
            guests: Guests::default(),
            network: Network::new(plan.latency_us),
            history: History::new(plan.registers),
            agreement: Agreement::default(),
            leadership: Leadership::default(),
            report: Report::default(),
            phase: Phase::Load,
            in_trouble: true,
            verbose,
            failure: None,
            plan,
        }
    }

    /// Trouble, then peace, then judgement.
    pub fn run(&mut self) -> Result<Report, Failure> {
        self.begin();
        self.begin_trouble();
        self.run_for(self.plan.trouble_us)?;
        self.heal();
        self.converge()?;
        Ok(self.report())
    }

    /// Everybody is switched on.
    pub fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            let in_us = self.random.below(500_000);
            self.after(in_us, Event::Start { node });
        }
        for client in 0..self.clients.len() {
            let in_us = self.random.below(500_000);
            self.after(in_us, Event::Look { client });
        }
    }

    /// Things go wrong from here on, until everything is healed.
    pub fn begin_trouble(&mut self) {
        self.after(self.plan.faults.pause_us.1, Event::Fault);
    }

    pub fn report(&self) -> Report {
        Report {
            simulated_us: self.now_us(),
            events: self.schedule.count,
            trace: self.schedule.trace,
            leaders: self.leadership.count() as u64,
            committed: self.agreement.states(),
            ..self.report
        }
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, us: u64) -> Result<(), Failure> {
        self.run_until(us, |_| false).map(|_| ())
    }

    /// Lets time pass until something is so, but not for ever.
    pub fn run_until(
        &mut self,
        us_max: u64,
        mut is_so: impl FnMut(&World) -> bool,
    ) -> Result<bool, Failure> {
        let until_us = self.now_us() + us_max;
        while !is_so(self) {
            let Some(event) = self.schedule.next(until_us) else {
                self.schedule.rest_until(until_us);
                return Ok(false);
            };
            self.on_event(event);
            if let Some(what) = self.failure.take() {
                return Err(self.failed(what));
            }
        }
        Ok(true)
    }

    pub(super) fn failed(&self, what: String) -> Failure {
        Failure { layer: Layer::Server, seed: self.seed, at_us: self.now_us(), what }
    }

    pub fn now_us(&self) -> u64 {
        self.schedule.now_us()
    }

    /// When the next thing happens.
    pub fn next_us(&self) -> Option<u64> {
        self.schedule.next_us()
    }

    pub(super) fn after(&mut self, in_us: u64, event: Event) {
        self.schedule.after(in_us, event);
    }

    /// Notes that a rule was broken. The first one counts.
    pub(super) fn fail(&mut self, outcome: Result<(), String>) {
        if let Err(what) = outcome
            && self.failure.is_none()
        {
            self.failure = Some(what);
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10.3}  {}", self.now_us() as f64 / 1e3, what());
        }
    }

    pub(super) fn is_alive(&self, node: usize, boot: u64) -> bool {
        self.nodes[node].boot == boot && self.nodes[node].process.is_some()
    }

    /// Until when somebody does nothing, server or client.
    fn paused_until_us(&self, node: usize) -> u64 {
        match node.checked_sub(self.nodes.len()) {
            None => self.nodes[node].paused_until_us,
            Some(client) => self.clients.get(client).map_or(0, |client| client.paused_until_us),
        }
    }

    fn hears_late_us(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |node| node.hears_late_us)
    }

    fn on_event(&mut self, event: Event) {
        let node = match &event {
            Event::Wake { node, boot }
            | Event::Dialed { node, boot, .. }
            | Event::LogRead { node, boot, .. }
            | Event::DiskDone { node, boot }
            | Event::WriteSnapshot { node, boot }
            | Event::SendTree { node, boot, .. }
            | Event::Serve { node, boot, .. } => {
                if !self.is_alive(*node, *boot) {
                    return;
                }
                Some(*node)
            }
            Event::Look { client } | Event::ClientDialed { client, .. } => {
                Some(self.clients[*client].node)
            }
            Event::Transit(Transit::Arrive { link, side, .. }) => {
                self.network.links.get(link).map(|link| link.ends[*side].node)
            }
            _ => None,
        };
        // A frozen process does everything later, each of its threads in its own order: it may hear from
        // others before it looks at its clock, or write to its disk.
        if let Some(node) = node {
            let until_us = self.paused_until_us(node);
            // What was sent is heard in order, all of it before or after the clock was looked at.
            let (until_us, late_us) = match event {
                Event::Transit(_) => (until_us + self.hears_late_us(node), 0),
                _ => (until_us, WAKING_US_MAX),
            };
            if until_us > self.now_us() {
                let late_us = self.random.below(late_us.max(1));
                return self.after(until_us - self.now_us() + late_us, event);
            }
        }
        match event {
            Event::Wake { node, .. } => self.on_wake(node),
            Event::Transit(transit) => self.on_transit(transit),
            Event::Dial { from, boot, to, port } => self.on_dial(from, boot, to, port),
            Event::Dialed { node, peer, port, link, .. } => self.on_dialed(node, peer, port, link),
            Event::DiskDone { node, .. } => self.on_disk_done(node),
            Event::LogRead { node, link, after, .. } => self.on_log_read(node, link, after),
            Event::WriteSnapshot { node, .. } => self.on_write_snapshot(node),
            Event::SendTree { node, link, .. } => self.on_send_tree(node, link),
            Event::Serve { node, link, .. } => self.on_serve(node, link),
            Event::Look { client } => self.on_look(client),
            Event::ClientDial { client, attempt, to } => self.on_client_dial(client, attempt, to),
            Event::ClientDialed { client, attempt, link } => {
                self.on_client_dialed(client, attempt, link);
            }
            Event::GuestDial { line, to } => self.on_guest_dial(line, to),
            Event::GuestDialed { line, link } => self.on_guest_dialed(line, link),
            Event::Fault => self.on_fault(),
            Event::RoomAgain { node } => {
                self.nodes[node].disk.set_capacity(u64::MAX);
                self.nodes[node].is_disk_full = false;
            }
            Event::Start { node } => self.start(node),
        }
        // The power has gone in the middle of a call.
        if let Some(node) = node.filter(|node| *node < self.nodes.len())
            && self.nodes[node].disk.has_stopped()
        {
            self.stop(node, Stop::PowerLoss);
        }
    }

    // Servers.

    pub fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let seed = self.random.draw();
        let now_us = self.now_us();
        let started = self.nodes[node].start(&self.plan, seed, now_us);
        if self.nodes[node].disk.has_stopped() {
            return self.stop(node, Stop::PowerLoss);
        }
        match started {
            Ok(()) => {
                self.say(|| format!("{} starts", node + 1));
                self.note_epochs(node);
                self.on_wake(node);
            }
            // Somebody has to make room, or to look at the disk.
            Err(error) if self.nodes[node].disk_may_fail() => {
                self.say(|| format!("{} cannot start: {error}", node + 1));
                let how = self.end_of_failed_process();
                self.stop(node, how);
            }
            Err(error) => {
                let what = format!("recovery: server {} cannot start: {error}", node + 1);
                self.fail(Err(what));
            }
        }
    }

    pub fn stop(&mut self, node: usize, how: Stop) {
        let was_up = self.nodes[node].process.is_some();
        if was_up {
            self.say(|| format!("{} stops: {how:?}", node + 1));
            self.interrupt_disk(node);
        }
        self.nodes[node].process = None;
        match how {
            Stop::Kill => self.nodes[node].disk.restart(),
            Stop::PowerLoss => self.nodes[node].disk.crash(),
        }
        // Planned faults are forgotten with that.
        self.nodes[node].is_call_broken = false;
        self.nodes[node].paused_until_us = 0;
        self.nodes[node].pauses_us.clear();
        self.nodes[node].hears_late_us = 0;
        if was_up {
            let (now_us, boot) = (self.now_us(), self.nodes[node].boot);
            let says_good_bye = how == Stop::Kill;
            self.network.drop_node(&mut self.random, now_us, (node, boot), says_good_bye);
            self.plan_transits();
        }
    }

    /// Hands a server what has arrived for it, and does what it wants done.
    pub(super) fn input(&mut self, node: usize, inputs: impl IntoIterator<Item = Input>) {
        if let Some(process) = &mut self.nodes[node].process {
            process.inbox.extend(inputs);
            self.run_engine(node);
        }
    }

    fn on_wake(&mut self, node: usize) {
        let now = self.nodes[node].now(self.now_us());
        let Some(process) = &mut self.nodes[node].process else { return };
        process.wake_us = u64::MAX;
        let mut out = Vec::new();
        process.engine.on_timer(now, &mut out);
        process.engine.settle(now, &mut out);
        self.perform(node, out);
        self.run_engine(node);
    }

    pub(super) fn run_engine(&mut self, node: usize) {
        let now = self.nodes[node].now(self.now_us());
        loop {
            let Some(process) = &mut self.nodes[node].process else { return };
            if process.inbox.is_empty() || self.failure.is_some() {
                break;
            }
            let mut out = Vec::new();
            process.engine.step(now, &mut process.inbox, &mut out);
            process.engine.settle(now, &mut out);
            self.perform(node, out);
        }
        self.note_state(node);
        self.begin_batch(node);
        self.plan_wake(node);
    }

    fn plan_wake(&mut self, node: usize) {
        let (boot, clock, now_us) = (self.nodes[node].boot, self.nodes[node].clock, self.now_us());
        let Some(process) = &mut self.nodes[node].process else { return };
        let deadline_ms = process.engine.deadline_ms();
        if deadline_ms == u64::MAX {
            return;
        }
        // Not at once again: what is overdue has just been looked at.
        let at_us = clock.global_us(deadline_ms).max(now_us + 1000);
        if at_us < process.wake_us {
            process.wake_us = at_us;
            self.after(at_us - now_us, Event::Wake { node, boot });
        }
    }

    /// What a server has applied is compared with what the others have.
    fn note_state(&mut self, node: usize) {
        let id = self.nodes[node].id;
        let Some(process) = &self.nodes[node].process else { return };
        let noted = self.agreement.applied(id, &process.db);
        self.fail(noted);
    }

    /// The promises of a server never go back.
    pub(super) fn note_epochs(&mut self, node: usize) {
        if let Some(epochs) = self.nodes[node].epochs() {
            let noted = self.leadership.promised(self.nodes[node].id, epochs);
            self.fail(noted);
        }
    }

    /// The server that knows of everything anybody was ever told: the newest leader, if it is up and leads
    /// still.
    pub fn newest_leader(&self) -> Option<&Database> {
        let (epoch, who, boot) = self.leadership.newest()?;
        let node = self.nodes.iter().find(|node| node.id == who && node.boot == boot)?;
        let process = node.process.as_ref()?;
        let leads = process.engine.zab().status() == Status::Leading { epoch };
        leads.then_some(&*process.db)
    }

    /// Who leads and takes writes.
    pub fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|node| {
            let process = self.nodes[*node].process.as_ref();
            process.is_some_and(|process| {
                let zab = process.engine.zab();
                matches!(zab.status(), Status::Leading { .. }) && zab.accepts_proposals()
            })
        })
    }
}
