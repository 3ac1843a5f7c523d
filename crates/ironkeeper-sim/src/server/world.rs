//! The world: one queue of events, the servers, their clients, and the network between them.

use std::fmt;

use ironkeeper_engine::{Database, Input};
use ironkeeper_proto::{ServerId, Zxid};
use ironkeeper_simdisk::SimDisk;
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

/// The maximal delay until all threads of a process run after a pause.
pub(super) const WAKING_US_MAX: u64 = 2_000;

#[derive(Debug)]
pub(super) enum Event {
    /// A deadline of a server.
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
    /// The current batch of the log is due.
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
    /// A server serves the connection of a client.
    Serve {
        node: usize,
        boot: u64,
        link: LinkId,
    },
    /// A client takes its next action.
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

/// The phase of the clients' load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Clients send random requests.
    Load,
    /// Clients only keep their sessions alive.
    Rest,
    /// The final check: clients write once more, and read all registers after a sync.
    LastWords,
}

/// How a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The process is killed; its writes are still in the kernel's cache.
    Kill,
    /// The power fails: unsynced writes are lost in full or in part.
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
    /// Whether faults are injected.
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

    /// Runs the fault phase, removes all faults, and makes the final check.
    pub fn run(&mut self) -> Result<Report, Failure> {
        self.begin();
        self.begin_trouble();
        self.run_for(self.plan.trouble_us)?;
        self.heal();
        self.converge()?;
        Ok(self.report())
    }

    /// Starts all servers and clients.
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

    /// Starts the injection of faults.
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

    /// Advances the time.
    pub fn run_for(&mut self, us: u64) -> Result<(), Failure> {
        self.run_until(us, |_| false).map(|_| ())
    }

    /// Advances the time until a condition holds, by at most `us_max`. Returns whether it holds.
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

    /// Returns the time of the next event.
    pub fn next_us(&self) -> Option<u64> {
        self.schedule.next_us()
    }

    pub(super) fn after(&mut self, in_us: u64, event: Event) {
        self.schedule.after(in_us, event);
    }

    /// Records a violation of a rule. Only the first one is kept.
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

    /// Returns the time until which a server or client is paused.
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
        // A paused process handles its events later, each thread in its own order: it may receive
        // messages before it checks its clock or completes disk writes.
        if let Some(node) = node {
            let until_us = self.paused_until_us(node);
            // Messages are received in order, all of them before or all of them after the clock is
            // read.
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
        // The power has failed during a disk call.
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
            // An operator has to free space or to check the disk.
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
        // The restart of the disk has removed the pending faults.
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

    /// Passes inputs to a server and performs its outputs.
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
        // Not immediately again: overdue deadlines have just been handled.
        let at_us = clock.global_us(deadline_ms).max(now_us + 1000);
        if at_us < process.wake_us {
            process.wake_us = at_us;
            self.after(at_us - now_us, Event::Wake { node, boot });
        }
    }

    /// Compares the applied state of a server with that of the others.
    fn note_state(&mut self, node: usize) {
        let id = self.nodes[node].id;
        let Some(process) = &self.nodes[node].process else { return };
        let noted = self.agreement.applied(id, &process.db);
        self.fail(noted);
    }

    /// Checks that the epochs of a server never decrease.
    pub(super) fn note_epochs(&mut self, node: usize) {
        if let Some(epochs) = self.nodes[node].epochs() {
            let noted = self.leadership.promised(self.nodes[node].id, epochs);
            self.fail(noted);
        }
    }

    /// Returns the database of the newest leader, if it is running and still leads. It contains
    /// everything that any client has received.
    pub fn newest_leader(&self) -> Option<&Database> {
        let (epoch, who, boot) = self.leadership.newest()?;
        let node = self.nodes.iter().find(|node| node.id == who && node.boot == boot)?;
        let process = node.process.as_ref()?;
        let leads = process.engine.zab().status() == Status::Leading { epoch };
        leads.then_some(&*process.db)
    }

    /// Returns the leader that accepts writes.
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
