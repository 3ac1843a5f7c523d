//! The world: one queue of events, the nodes, the network between them, and the event handlers.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerMessage, Touches};
use ironkeeper_proto::{Packet, ServerId, SessionId, Zxid};
use ironkeeper_zab::{
    DurableStep, Ensemble, Input, LinkId, LinkOp, LogQuery, MembersChange, Output, Port, Status,
    Upcall,
};

use super::agreement::Agreement;
use super::disk::{Command, Disk, Step, Stop};
use super::links::Message;
use super::node::Node;
use super::plan::Plan;
use crate::clock::Clock;
use crate::leadership::Leadership;
use crate::network::{Network, Transit};
use crate::outcome::{Failure, Layer, Report};
use crate::random::Random;
use crate::schedule::Schedule;

/// The maximum number of transactions read from a log for a learner.
const READ_LOG_MAX: usize = 200;

#[derive(Debug)]
pub(super) enum Event {
    Wake {
        node: usize,
        boot: u64,
    },
    Transit(Transit<Message>),
    /// A connection attempt of `from` reaches its target.
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
    Load,
    Fault,
    Start {
        node: usize,
    },
}

pub struct World {
    pub(super) seed: u64,
    pub(super) plan: Plan,
    pub(super) random: Random,
    schedule: Schedule<Event>,
    pub nodes: Vec<Node>,
    pub network: Network<Message>,
    pub(super) agreement: Agreement,
    leadership: Leadership,
    pub(super) report: Report,
    /// The number of requests so far, which is also the id of the last one.
    pub(super) requests: u64,
    /// Whether the run is in its fault phase, with load and faults.
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
        let ids: Vec<ServerId> = (1..=plan.servers).map(|id| ServerId(id as i64)).collect();
        let ensemble = Ensemble::new(plan.membership.clone(), None);
        let nodes = ids
            .into_iter()
            .map(|id| Node {
                id,
                disk: Disk::new(),
                clock: Clock::new(&mut random),
                boot: 0,
                process: None,
                paused_until_us: 0,
                disk_us: plan.disk_us,
                ensemble: ensemble.clone(),
            })
            .collect();
        let network = Network::new(plan.latency_us);
        World {
            seed,
            plan,
            random,
            schedule: Schedule::default(),
            nodes,
            network,
            agreement: Agreement::default(),
            leadership: Leadership::default(),
            report: Report::default(),
            requests: 0,
            in_trouble: true,
            verbose,
            failure: None,
        }
    }

    /// Runs the fault phase, removes all faults and checks that the cluster recovers.
    pub fn run(&mut self) -> Result<Report, Failure> {
        self.start_all();
        self.after(1000, Event::Load);
        self.after(self.plan.faults.pause_us.1, Event::Fault);
        self.run_for(self.plan.trouble_us)?;
        self.heal();
        self.converge()?;
        Ok(self.report())
    }

    pub fn report(&self) -> Report {
        Report {
            simulated_us: self.now_us(),
            events: self.schedule.count,
            trace: self.schedule.trace,
            committed: self.agreement.count(),
            leaders: self.leadership.count() as u64,
            ..self.report
        }
    }

    pub fn start_all(&mut self) {
        for node in 0..self.nodes.len() {
            let in_us = self.random.below(500_000);
            self.after(in_us, Event::Start { node });
        }
    }

    /// Runs for `us` microseconds of simulated time.
    pub fn run_for(&mut self, us: u64) -> Result<(), Failure> {
        self.run_until(us, |_| false).map(|_| ())
    }

    /// Runs until `is_so` returns true, but at most for `us_max`. Returns whether it did.
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
                let at_us = self.now_us();
                return Err(Failure { layer: Layer::Zab, seed: self.seed, at_us, what });
            }
        }
        Ok(true)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.schedule.now_us()
    }

    pub(super) fn after(&mut self, in_us: u64, event: Event) {
        self.schedule.after(in_us, event);
    }

    pub(super) fn fail(&mut self, outcome: Result<(), String>) {
        if let Err(what) = outcome
            && self.failure.is_none()
        {
            self.failure = Some(what);
        }
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10.3}  {}", self.now_us() as f64 / 1e3, what());
        }
    }

    pub(super) fn is_alive(&self, node: usize, boot: u64) -> bool {
        self.nodes[node].boot == boot && self.nodes[node].process.is_some()
    }

    fn on_event(&mut self, event: Event) {
        let node = match &event {
            Event::Wake { node, .. } | Event::Dialed { node, .. } | Event::LogRead { node, .. } => {
                Some(*node)
            }
            Event::DiskDone { node, .. } => Some(*node),
            Event::Transit(Transit::Arrive { link, side, .. }) => {
                self.network.links.get(link).map(|link| link.ends[*side].node)
            }
            _ => None,
        };
        // A paused process handles its events later, in the same order.
        if let Some(node) = node
            && self.nodes[node].paused_until_us > self.now_us()
        {
            let in_us = self.nodes[node].paused_until_us - self.now_us();
            return self.after(in_us, event);
        }
        match event {
            Event::Wake { node, boot } => {
                if self.is_alive(node, boot) {
                    if let Some(process) = &mut self.nodes[node].process {
                        process.wake_us = u64::MAX;
                    }
                    self.input(node, Input::Timer);
                }
            }
            Event::Transit(transit) => self.on_transit(transit),
            Event::Dial { from, boot, to, port } => self.on_dial(from, boot, to, port),
            Event::Dialed { node, boot, peer, port, link } => {
                if self.is_alive(node, boot) {
                    // A connection that was reset meanwhile counts as a failed dial.
                    let link = link.filter(|link| self.network.side(*link, node, boot).is_some());
                    if port == Port::Election
                        && let Some(link) = link
                    {
                        let opening = Opening {
                            from: self.nodes[node].id,
                            addresses: vec![format!("h{}:3888", self.nodes[node].id)],
                        };
                        self.transmit(node, link, Message::Opening(opening));
                    }
                    self.input(node, Input::Dialed { peer, port, link });
                }
            }
            Event::DiskDone { node, boot } => {
                if self.is_alive(node, boot) {
                    self.on_disk_done(node);
                }
            }
            Event::LogRead { node, boot, link, after } => {
                if self.is_alive(node, boot) {
                    let read = self.nodes[node].disk.read_log(after, READ_LOG_MAX);
                    self.input(node, Input::LogRead { link, read });
                }
            }
            Event::Load => self.on_load(),
            Event::Fault => self.on_fault(),
            Event::Start { node } => self.start(node),
        }
    }

    // Nodes.

    pub fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let seed = self.random.draw();
        let settings = self.plan.settings.clone();
        self.nodes[node].start(&settings, seed);
        self.say(|| format!("{} starts", node + 1));
        self.input(node, Input::Timer);
    }

    pub fn stop(&mut self, node: usize, how: Stop) {
        if self.nodes[node].process.take().is_none() {
            return;
        }
        self.say(|| format!("{} stops: {how:?}", node + 1));
        let mut random = self.random.clone();
        self.nodes[node].disk.stop(how, &mut random);
        self.random = random;
        self.nodes[node].paused_until_us = 0;
        let boot = self.nodes[node].boot;
        let (now_us, says_good_bye) = (self.now_us(), how == Stop::Kill);
        self.network.drop_node(&mut self.random, now_us, (node, boot), says_good_bye);
        self.plan_transits();
        let epochs = self.nodes[node].disk.epochs();
        let promised = self.leadership.promised(self.nodes[node].id, epochs);
        self.fail(promised);
    }

    /// Passes an input to a node and performs its outputs.
    pub(super) fn input(&mut self, node: usize, input: Input) {
        let local_ms = self.nodes[node].clock.local_ms(self.now_us());
        let Some(process) = &mut self.nodes[node].process else { return };
        let mut out = Vec::new();
        process.zab.step(local_ms, input, &mut out);
        self.perform(node, out);
    }

    pub(super) fn perform(&mut self, node: usize, out: Vec<Output>) {
        let mut queue = VecDeque::from(out);
        while let Some(output) = queue.pop_front() {
            let mut more = Vec::new();
            self.perform_one(node, output, &mut more);
            queue.extend(more);
            if self.failure.is_some() {
                return;
            }
        }
        self.work_disk(node);
        self.plan_wake(node);
    }

    fn plan_wake(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        let clock = self.nodes[node].clock;
        let now_us = self.now_us();
        let Some(process) = &mut self.nodes[node].process else { return };
        let deadline_ms = process.zab.deadline_ms();
        if deadline_ms == u64::MAX {
            return;
        }
        let at_us = clock.global_us(deadline_ms).max(now_us);
        if at_us < process.wake_us {
            process.wake_us = at_us;
            self.after(at_us - now_us, Event::Wake { node, boot });
        }
    }

    fn perform_one(&mut self, node: usize, output: Output, more: &mut Vec<Output>) {
        let boot = self.nodes[node].boot;
        let who = self.nodes[node].id;
        match output {
            Output::Durable(DurableStep::Append { zxid, txn }) => {
                self.nodes[node].disk.submit(Command::Append(zxid, txn));
            }
            Output::Up(Upcall::Commit { zxid, txn }) => self.deliver(node, zxid, &txn, true),
            Output::Up(Upcall::FastForward { zxid, txn }) => self.deliver(node, zxid, &txn, false),
            Output::Durable(DurableStep::WriteAcceptedEpoch(epoch)) => {
                self.nodes[node].disk.submit(Command::Step(Step::Accepted(epoch)));
            }
            Output::Durable(DurableStep::WriteCurrentEpoch(epoch)) => {
                self.nodes[node].disk.submit(Command::Step(Step::Current(epoch)));
            }
            Output::Durable(DurableStep::Truncate(zxid)) => {
                self.say(|| format!("{who} truncates to {zxid}"));
                self.report.truncations += 1;
                self.nodes[node].disk.submit(Command::Step(Step::Truncate(zxid)));
            }
            Output::Durable(DurableStep::InstallSnapshot { zxid, snapshot: link }) => {
                self.say(|| format!("{who} installs a snapshot of {zxid}"));
                self.report.snapshots += 1;
                let Some(process) = &mut self.nodes[node].process else { return };
                match process.received.take() {
                    Some((from, state)) if from == link && state.last == zxid => {
                        self.nodes[node].disk.submit(Command::Step(Step::Install(link, state)));
                    }
                    other => self.fail(Err(format!("{who} installs {other:?} as {zxid}"))),
                }
            }
            Output::ReadLog(LogQuery { link, after }) => {
                let in_us = self.random.between(100, 20_000);
                self.after(in_us, Event::LogRead { node, boot, link, after });
            }
            Output::Link(LinkOp::Dial { peer, port, .. }) => self.dial(node, peer, port),
            Output::Link(LinkOp::Hangup { link, reason }) => {
                self.say(|| format!("{who} hangs up on link {}: {reason:?}", link.0));
                if let Some(side) = self.network.side(link, node, boot) {
                    self.close(link, side);
                }
                if let Some(process) = &mut self.nodes[node].process
                    && process.received.is_some_and(|(from, _)| from == link)
                {
                    process.received = None;
                }
            }
            Output::Link(LinkOp::Notify { link, notification }) => {
                self.transmit(node, link, Message::Notification(*notification));
            }
            Output::Link(LinkOp::Send { link, packet }) => {
                self.transmit(node, link, Message::Packet(packet));
            }
            Output::Up(Upcall::SendSnapshot { link, zxid }) => {
                let state = self.nodes[node].process.as_ref().map(|process| process.state);
                match state {
                    Some(state) if state.last == zxid => {
                        self.transmit(node, link, Message::Snapshot(state));
                    }
                    other => self.fail(Err(format!("{who} sends {other:?} as {zxid}"))),
                }
            }
            Output::Link(LinkOp::ReceiveSnapshot { .. }) => {}
            Output::Up(Upcall::Pong { link, zxid }) => {
                let report = Touches::new([(SessionId(who.0), 4000)]).into();
                self.transmit(node, link, Message::Packet(Packet::Pong { zxid, report }));
            }
            Output::Up(Upcall::FromLearner { link, message }) => match message {
                LearnerMessage::Request(request) => self.on_request(node, link, &request, more),
                LearnerMessage::Revalidate { session, .. } => {
                    if let Some(process) = &mut self.nodes[node].process {
                        let reply = LeaderMessage::Revalidated { session, valid: true };
                        process.zab.reply_delivered(link, reply, more);
                    }
                }
            },
            Output::Up(Upcall::Report(_)) => {}
            Output::Up(Upcall::FromLeader(LeaderMessage::Revalidated { .. })) => {}
            Output::Up(Upcall::FromLeader(LeaderMessage::Synced)) => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.syncs = process.syncs.saturating_sub(1);
                }
            }
            Output::Up(Upcall::Became { status, reason }) => self.on_became(node, status, reason),
            Output::Up(Upcall::MembersCommitted(_)) => {}
            Output::Durable(DurableStep::WriteMembers(change)) => {
                if let MembersChange::Committed(next) = &change {
                    self.say(|| format!("{who} has members in force of {:x}", next.version));
                }
                let ensemble = &mut self.nodes[node].ensemble;
                match change {
                    MembersChange::Proposed(next) => {
                        ensemble.propose(*next);
                    }
                    MembersChange::Committed(next) => {
                        ensemble.commit(*next);
                    }
                    MembersChange::Withdrawn => {
                        *ensemble = Ensemble::new(ensemble.committed().clone(), None);
                    }
                }
            }
        }
    }

    fn deliver(&mut self, node: usize, zxid: Zxid, txn: &Bytes, committed: bool) {
        let who = format!("server {}", self.nodes[node].id);
        let Some(process) = &mut self.nodes[node].process else { return };
        if zxid <= process.state.last {
            return self.fail(Err(format!("order: {who} delivers {zxid} again")));
        }
        process.state.apply(zxid, txn);
        process.applied.push((zxid, process.state.chain));
        if committed {
            let word = |at: usize| {
                txn.get(at..at + 8)
                    .map_or(0, |word| u64::from_be_bytes(word.try_into().expect("eight bytes")))
            };
            let state = process.state;
            let outcome = self.agreement.delivered(&who, &state, word(0), word(8));
            self.fail(outcome);
        }
    }

    fn on_became(&mut self, node: usize, status: Status, reason: Option<ironkeeper_zab::Reason>) {
        let (id, boot) = (self.nodes[node].id, self.nodes[node].boot);
        let who = format!("server {id}");
        self.say(|| match reason {
            Some(reason) => format!("{id} becomes {status:?}: {reason}"),
            None => format!("{id} becomes {status:?}"),
        });
        let Some(process) = &mut self.nodes[node].process else { return };
        let outcome = match status {
            Status::Leading { epoch } => self
                .leadership
                .established(epoch, id, boot)
                .and_then(|()| self.agreement.established(&who, epoch, process)),
            Status::Following { .. } | Status::Observing { .. } => {
                self.agreement.committed(&who, &process.state)
            }
            Status::Looking => {
                process.syncs = 0;
                Ok(())
            }
        };
        self.fail(outcome);
    }

    // Disks.

    fn work_disk(&mut self, node: usize) {
        if self.nodes[node].disk.begin() {
            let (low, high) = self.nodes[node].disk_us;
            let in_us = self.random.between(low, high);
            let boot = self.nodes[node].boot;
            self.after(in_us, Event::DiskDone { node, boot });
        }
    }

    fn on_disk_done(&mut self, node: usize) {
        let Some((durable, state)) = self.nodes[node].disk.finish() else { return };
        if let (Some(state), Some(process)) = (state, &mut self.nodes[node].process) {
            process.reset(state);
        }
        let epochs = self.nodes[node].disk.epochs();
        let promised = self.leadership.promised(self.nodes[node].id, epochs);
        self.fail(promised);
        self.input(node, Input::Done(durable));
    }
}
