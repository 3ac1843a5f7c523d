//! The world: one queue of events, the nodes, the network between them, and what happens to them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;

use bytes::Bytes;
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::membership::Member;
use ironkeeper_proto::quorum_packet::{ForwardedRequest, Touches};
use ironkeeper_proto::txn::encode::set_data;
use ironkeeper_proto::{Membership, OpCode, Packet, ServerId, SessionId, TxnHeader, Zxid};
use ironkeeper_zab::{Ensemble, Input, LinkId, Output, Port, Settings, Status};

use crate::checkers::{Agreement, Leadership};
use crate::disk::{Command, Disk, Stop};
use crate::faults::{Fault, Faults};
use crate::network::{Message, Network};
use crate::node::{Clock, Node};
use crate::random::{Random, mix};

/// `sync` among the op codes; everything else this world asks for is a write.
const OP_SYNC: i32 = 9;
const OP_WRITE: i32 = 5;
/// How long a healed cluster may take until everybody has the same history.
const RECOVERY_US_MAX: u64 = 120_000_000;
/// How many transactions are read from a log for a learner.
const READ_LOG_MAX: usize = 200;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub membership: Membership,
    pub settings: Settings,
    pub faults: Faults,
    /// Pause between two requests, in microseconds.
    pub load_us: (u64, u64),
    pub latency_us: (u64, u64),
    pub disk_us: (u64, u64),
    /// For how long things go wrong.
    pub trouble_us: u64,
    /// How many in a thousand requests are followed by a snapshot.
    pub snapshot_per_mille: u64,
    /// How many servers there are, members or not.
    pub servers: u64,
    /// How many in a thousand requests are followed by a change of the members.
    pub reconfig_per_mille: u64,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let random = &mut Random::new(mix(seed ^ 0x51a1));
        let voters = random.pick(&[3, 3, 3, 5, 5, 4, 2, 7, 1]).unwrap_or(3);
        let observers = random.pick(&[0, 0, 0, 1, 2]).unwrap_or(0);
        let hierarchical = voters >= 5 && random.chance(200);
        let settings = Settings {
            tick_ms: 200,
            init_limit: random.between(5, 15),
            sync_limit: random.between(3, 6),
            notification_max_ms: 3000,
            history_count_max: random.pick(&[3, 10, 50, 500]).unwrap_or(50) as usize,
            counter_max: random.pick(&[30, 200, u64::from(u32::MAX - 1)]).unwrap_or(200) as u32,
            ..Settings::default()
        };
        let slow_load = random.chance(300);
        let reconfig = !hierarchical && random.chance(300);
        let settings = Settings { reconfig_enabled: reconfig, ..settings };
        let strangers = if reconfig { random.below(3) } else { 0 };
        Plan {
            servers: voters + observers + strangers,
            reconfig_per_mille: if reconfig { random.between(2, 20) } else { 0 },
            membership: membership(voters, observers, hierarchical),
            settings,
            faults: Faults::draw(random),
            load_us: if slow_load { (10_000, 300_000) } else { (1_000, 20_000) },
            latency_us: random
                .pick(&[(100, 2_000), (500, 30_000), (50, 300)])
                .unwrap_or((100, 500)),
            disk_us: random.pick(&[(100, 3_000), (1_000, 30_000)]).unwrap_or((100, 3_000)),
            trouble_us: random.between(5_000_000, 30_000_000),
            snapshot_per_mille: random.pick(&[0, 5, 30]).unwrap_or(5),
        }
    }
}

/// Voters 1 to `voters`, observers behind them.
pub fn membership(voters: u64, observers: u64, hierarchical: bool) -> Membership {
    let mut text = String::new();
    for id in 1..=voters + observers {
        let role = if id <= voters { "participant" } else { "observer" };
        text.push_str(&format!("server.{id}=h{id}:2888:3888:{role}\n"));
        if hierarchical && id <= voters {
            let weight = if id == voters { 0 } else { 1 };
            text.push_str(&format!("weight.{id}={weight}\n"));
        }
    }
    if hierarchical {
        let group = |which: u64| {
            let ids = (1..=voters).filter(|id| id % 2 == which);
            ids.map(|id| id.to_string()).collect::<Vec<_>>().join(":")
        };
        text.push_str(&format!("group.1={}\ngroup.2={}\n", group(0), group(1)));
    }
    Membership::parse(&text).expect("a text of our own making")
}

/// A rule was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub at_us: u64,
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} at {:.3} s: {}\n  {}",
            self.seed,
            self.at_us as f64 / 1e6,
            self.what,
            crate::reproduction(self.seed)
        )
    }
}

/// What a seed was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub simulated_us: u64,
    pub events: u64,
    pub committed: u64,
    pub leaders: u64,
    pub truncations: u64,
    pub snapshots: u64,
    pub faults: u64,
    pub reconfigurations: u64,
    /// Everything that happened, in one number.
    pub trace: u64,
}

#[derive(Debug)]
enum Event {
    Wake {
        node: usize,
        boot: u64,
    },
    Arrive {
        link: LinkId,
        side: usize,
        number: u64,
        message: Message,
    },
    /// Somebody's connection attempt reaches its target.
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
    /// Nobody has heard from the other side of a cut link for too long.
    Impatience {
        link: LinkId,
        side: usize,
    },
    Load,
    Fault,
    Start {
        node: usize,
    },
}

struct Scheduled {
    at_us: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.order == other.order
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> std::cmp::Ordering {
        (self.at_us, self.order).cmp(&(other.at_us, other.order))
    }
}

pub struct World {
    seed: u64,
    plan: Plan,
    random: Random,
    now_us: u64,
    order: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    pub nodes: Vec<Node>,
    pub network: Network,
    agreement: Agreement,
    leadership: Leadership,
    report: Report,
    /// Numbers requests.
    requests: u64,
    /// Load and faults go on.
    in_trouble: bool,
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
            now_us: 0,
            order: 0,
            events: BinaryHeap::new(),
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

    /// Trouble, then peace, then judgement.
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
            simulated_us: self.now_us,
            committed: self.agreement.len(),
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

    /// Lets so much time pass.
    pub fn run_for(&mut self, us: u64) -> Result<(), Failure> {
        let until = self.now_us + us;
        while let Some(Reverse(next)) = self.events.peek() {
            if next.at_us > until {
                break;
            }
            self.step()?;
        }
        self.now_us = until;
        Ok(())
    }

    /// Lets time pass until something is so, but not for ever.
    pub fn run_until(
        &mut self,
        us_max: u64,
        mut is_so: impl FnMut(&World) -> bool,
    ) -> Result<bool, Failure> {
        let until = self.now_us + us_max;
        while !is_so(self) {
            match self.events.peek() {
                Some(Reverse(next)) if next.at_us <= until => self.step()?,
                _ => {
                    self.now_us = until;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn step(&mut self) -> Result<(), Failure> {
        if let Some(Reverse(next)) = self.events.pop() {
            self.now_us = self.now_us.max(next.at_us);
            self.report.events += 1;
            self.report.trace = mix(self.report.trace ^ self.now_us ^ (next.order << 40));
            self.on_event(next);
        }
        match self.failure.take() {
            None => Ok(()),
            Some(what) => Err(Failure { seed: self.seed, at_us: self.now_us, what }),
        }
    }

    fn after(&mut self, in_us: u64, event: Event) {
        self.order += 1;
        let scheduled = Scheduled { at_us: self.now_us + in_us, order: self.order, event };
        self.events.push(Reverse(scheduled));
    }

    fn fail(&mut self, outcome: Result<(), String>) {
        if let Err(what) = outcome
            && self.failure.is_none()
        {
            self.failure = Some(what);
        }
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10.3}  {}", self.now_us as f64 / 1e3, what());
        }
    }

    fn is_alive(&self, node: usize, boot: u64) -> bool {
        self.nodes[node].boot == boot && self.nodes[node].process.is_some()
    }

    fn on_event(&mut self, next: Scheduled) {
        let node = match &next.event {
            Event::Wake { node, .. } | Event::Dialed { node, .. } | Event::LogRead { node, .. } => {
                Some(*node)
            }
            Event::DiskDone { node, .. } => Some(*node),
            Event::Arrive { link, side, .. } => {
                self.network.links.get(link).map(|link| link.ends[*side].node)
            }
            _ => None,
        };
        // A frozen process does everything later, in the same order.
        if let Some(node) = node
            && self.nodes[node].paused_until_us > self.now_us
        {
            let in_us = self.nodes[node].paused_until_us - self.now_us;
            return self.after(in_us, next.event);
        }
        match next.event {
            Event::Wake { node, boot } => {
                if self.is_alive(node, boot) {
                    if let Some(process) = &mut self.nodes[node].process {
                        process.wake_us = u64::MAX;
                    }
                    self.input(node, Input::Timer);
                }
            }
            Event::Arrive { link, side, number, message } => {
                self.on_arrive(link, side, number, message);
            }
            Event::Dial { from, boot, to, port } => self.on_dial(from, boot, to, port),
            Event::Dialed { node, boot, peer, port, link } => {
                if self.is_alive(node, boot) {
                    // A connection that was reset meanwhile is none.
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
            Event::Impatience { link, side } => self.on_impatience(link, side),
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
        let links: Vec<LinkId> = self.network.links.keys().copied().collect();
        for link in links {
            let Some(side) = self.network.side(link, node, boot) else { continue };
            match how {
                // The kernel says good-bye for the process.
                Stop::Kill => self.close(link, side),
                Stop::PowerLoss => {
                    if let Some(link) = self.network.links.get_mut(&link) {
                        link.ends[side].open = false;
                    }
                    self.network.sweep(link);
                }
            }
        }
        let epochs = self.nodes[node].disk.epochs();
        let promised = self.leadership.promised(self.nodes[node].id, epochs);
        self.fail(promised);
    }

    /// Gives an input to a node and does what it wants done.
    fn input(&mut self, node: usize, input: Input) {
        let local_ms = self.nodes[node].clock.local_ms(self.now_us);
        let Some(process) = &mut self.nodes[node].process else { return };
        let mut out = Vec::new();
        process.zab.step(local_ms, input, &mut out);
        self.perform(node, out);
    }

    fn perform(&mut self, node: usize, out: Vec<Output>) {
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
        let now_us = self.now_us;
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
            Output::Append { zxid, txn } => {
                self.nodes[node].disk.submit(Command::Append(zxid, txn));
            }
            Output::Commit { zxid, txn } => self.deliver(node, zxid, &txn, true),
            Output::FastForward { zxid, txn } => self.deliver(node, zxid, &txn, false),
            Output::WriteAcceptedEpoch(epoch) => {
                self.nodes[node].disk.submit(Command::Accepted(epoch));
            }
            Output::WriteCurrentEpoch(epoch) => {
                self.nodes[node].disk.submit(Command::Current(epoch));
            }
            Output::Truncate(zxid) => {
                self.say(|| format!("{who} truncates to {zxid}"));
                self.report.truncations += 1;
                self.nodes[node].disk.submit(Command::Truncate(zxid));
            }
            Output::InstallSnapshot { link, zxid } => {
                self.say(|| format!("{who} installs a snapshot of {zxid}"));
                self.report.snapshots += 1;
                let Some(process) = &mut self.nodes[node].process else { return };
                match process.received.take() {
                    Some((from, state)) if from == link && state.last == zxid => {
                        self.nodes[node].disk.submit(Command::Install(link, state));
                    }
                    other => self.fail(Err(format!("{who} installs {other:?} as {zxid}"))),
                }
            }
            Output::ReadLog { link, after } => {
                let in_us = self.random.between(100, 20_000);
                self.after(in_us, Event::LogRead { node, boot, link, after });
            }
            Output::Dial { peer, port, .. } => self.dial(node, peer, port),
            Output::Hangup { link, reason } => {
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
            Output::Notify { link, notification } => {
                self.transmit(node, link, Message::Notification(*notification));
            }
            Output::Send { link, packet } => self.transmit(node, link, Message::Packet(packet)),
            Output::SendSnapshot { link, zxid } => {
                let state = self.nodes[node].process.as_ref().map(|process| process.state);
                match state {
                    Some(state) if state.last == zxid => {
                        self.transmit(node, link, Message::Snapshot(state));
                    }
                    other => self.fail(Err(format!("{who} sends {other:?} as {zxid}"))),
                }
            }
            Output::ReceiveSnapshot { .. } => {}
            Output::Pong { link, zxid } => {
                let touches = Touches::new([(SessionId(who.0), 4000)]);
                self.transmit(node, link, Message::Packet(Packet::Pong { zxid, touches }));
            }
            Output::Request { link, request, .. } => self.on_request(node, link, &request, more),
            Output::Revalidate { link, session, .. } => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.zab.revalidated(link, session, true, more);
                }
            }
            Output::Touched { .. } | Output::Revalidated { .. } => {}
            Output::SyncDone => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.syncs = process.syncs.saturating_sub(1);
                }
            }
            Output::Became { status, reason } => self.on_became(node, status, reason),
            Output::ConfigProposed(next) => {
                let ensemble = &mut self.nodes[node].ensemble;
                ensemble.propose(*next);
            }
            Output::ConfigCommitted(next) => {
                self.say(|| format!("{who} has members in force of {:x}", next.version));
                let ensemble = &mut self.nodes[node].ensemble;
                ensemble.commit(*next);
            }
            Output::ConfigWithdrawn => {
                let committed = self.nodes[node].ensemble.committed().clone();
                self.nodes[node].ensemble = Ensemble::new(committed, None);
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

    // The network.

    fn dial(&mut self, from: usize, peer: ServerId, port: Port) {
        let boot = self.nodes[from].boot;
        let in_us = self.latency();
        match self.nodes.iter().position(|node| node.id == peer) {
            Some(to) => self.after(in_us, Event::Dial { from, boot, to, port }),
            None => {
                self.after(in_us, Event::Dialed { node: from, boot, peer, port, link: None });
            }
        }
    }

    fn on_dial(&mut self, from: usize, boot: u64, to: usize, port: Port) {
        let peer = self.nodes[to].id;
        let cut = self.network.is_cut(from, to) || self.network.is_cut(to, from);
        let up = self.nodes[to].process.is_some();
        let mut in_us = self.latency();
        let mut link = None;
        if cut {
            // Nobody answers: it takes a while to give up.
            in_us += self.random.between(200_000, 1_500_000);
        } else if up && self.is_alive(from, boot) {
            let target = (to, self.nodes[to].boot);
            let id = self.network.open(port, (from, boot), target, self.now_us);
            link = Some(id);
            // The one who dialled knows of the connection before anything comes from it.
            if let Some(link) = self.network.links.get_mut(&id) {
                link.ends[0].last_us = self.now_us + in_us;
            }
        }
        self.after(in_us, Event::Dialed { node: from, boot, peer, port, link });
        if port == Port::Quorum
            && let Some(link) = link
        {
            self.input(to, Input::Accepted { link });
        }
    }

    fn latency(&mut self) -> u64 {
        let (low, high) = self.network.latency_us;
        self.random.between(low, high)
    }

    fn transmit(&mut self, node: usize, link: LinkId, message: Message) {
        let boot = self.nodes[node].boot;
        let Some(side) = self.network.side(link, node, boot) else { return };
        self.send_to(link, 1 - side, message);
    }

    fn send_to(&mut self, id: LinkId, side: usize, message: Message) {
        let Some(link) = self.network.links.get_mut(&id) else { return };
        link.ends[side].sent += 1;
        let number = link.ends[side].sent;
        self.carry(id, side, number, message);
    }

    /// Puts a message on its way to one end of a link, or keeps it until a cut ends.
    fn carry(&mut self, id: LinkId, side: usize, number: u64, message: Message) {
        let latency = self.latency();
        let now_us = self.now_us;
        let Some(link) = self.network.links.get(&id) else { return };
        let (to, from) = (link.ends[side].node, link.ends[1 - side].node);
        let cut = self.network.is_cut(from, to);
        let Some(link) = self.network.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        if cut {
            end.held.insert(number, message);
            if end.held.len() == 1 {
                let in_us = self.random.between(500_000, 20_000_000);
                self.after(in_us, Event::Impatience { link: id, side: 1 - side });
            }
            return;
        }
        let extra = if matches!(message, Message::Snapshot(_)) { latency * 20 } else { 0 };
        let at_us = (now_us + latency + extra).max(end.last_us);
        end.last_us = at_us;
        self.after(at_us - now_us, Event::Arrive { link: id, side, number, message });
    }

    fn on_arrive(&mut self, id: LinkId, side: usize, number: u64, message: Message) {
        let Some(link) = self.network.links.get(&id) else { return };
        let (node, sender) = (link.ends[side].node, link.ends[1 - side].node);
        // What is on its way when the cut comes waits, too.
        if self.network.is_cut(sender, node) {
            return self.carry(id, side, number, message);
        }
        let Some(link) = self.network.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        end.early.insert(number, message);
        let mut ready = Vec::new();
        while let Some(message) = end.early.remove(&(end.taken + 1)) {
            end.taken += 1;
            ready.push(message);
        }
        for message in ready {
            self.take_in(id, side, message);
        }
    }

    fn take_in(&mut self, id: LinkId, side: usize, message: Message) {
        let Some(link) = self.network.links.get(&id) else { return };
        let (node, boot, open) = (link.ends[side].node, link.ends[side].boot, link.ends[side].open);
        if !open || !self.is_alive(node, boot) {
            // A living machine that does not know the connection says so.
            let up = self.nodes[node].process.is_some();
            if up && !matches!(message, Message::End) {
                self.send_to(id, 1 - side, Message::End);
            }
            return;
        }
        match message {
            Message::Opening(opening) => self.input(node, Input::Opened { link: id, opening }),
            Message::Notification(notification) => {
                self.input(node, Input::Notification { link: id, notification });
            }
            Message::Packet(packet) => {
                self.say(|| format!("link {} to {}: {packet:?}", id.0, node + 1));
                self.input(node, Input::Packet { link: id, packet });
            }
            Message::Snapshot(state) => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.received = Some((id, state));
                }
                self.input(node, Input::SnapshotReceived { link: id });
            }
            Message::End => {
                if let Some(link) = self.network.links.get_mut(&id) {
                    link.ends[side].open = false;
                }
                self.network.sweep(id);
                self.lost(node, id);
            }
        }
    }

    /// A node learns that a connection is gone.
    fn lost(&mut self, node: usize, link: LinkId) {
        if let Some(process) = &mut self.nodes[node].process
            && process.received.is_some_and(|(from, _)| from == link)
        {
            process.received = None;
        }
        self.input(node, Input::Closed { link });
    }

    /// One side closes: the other one hears of it behind what was sent before.
    fn close(&mut self, id: LinkId, side: usize) {
        if let Some(link) = self.network.links.get_mut(&id) {
            link.ends[side].open = false;
        }
        self.send_to(id, 1 - side, Message::End);
        self.network.sweep(id);
    }

    fn on_impatience(&mut self, id: LinkId, side: usize) {
        let Some(link) = self.network.links.get(&id) else { return };
        let (node, other) = (link.ends[side].node, link.ends[1 - side].node);
        if !self.network.is_cut(node, other) || !link.ends[side].open {
            return;
        }
        self.close(id, side);
        self.lost(node, id);
    }

    /// What waited for the end of a cut goes on its way.
    fn release_held(&mut self) {
        let links: Vec<LinkId> = self.network.links.keys().copied().collect();
        for id in links {
            for side in 0..2 {
                let Some(link) = self.network.links.get(&id) else { continue };
                if self.network.is_cut(link.ends[1 - side].node, link.ends[side].node) {
                    continue;
                }
                let Some(link) = self.network.links.get_mut(&id) else { continue };
                for (number, message) in std::mem::take(&mut link.ends[side].held) {
                    self.carry(id, side, number, message);
                }
            }
        }
    }

    // Load.

    fn on_load(&mut self) {
        if !self.in_trouble {
            return;
        }
        let (low, high) = self.plan.load_us;
        let in_us = self.random.between(low, high);
        self.after(in_us, Event::Load);
        let node = self.random.below(self.nodes.len() as u64) as usize;
        if self.nodes[node].paused_until_us > self.now_us {
            return;
        }
        for _ in 0..self.random.between(1, 4) {
            self.request(node);
        }
        if self.random.chance(self.plan.reconfig_per_mille) {
            self.change_members();
        }
        if self.random.chance(self.plan.snapshot_per_mille) {
            let purge = self.random.chance(500);
            let node = &mut self.nodes[node];
            if let Some(process) = &node.process
                && process.zab.may_snapshot()
            {
                node.disk.snapshot(process.state, purge);
            }
        }
    }

    /// A client of this node wants something.
    pub fn request(&mut self, node: usize) {
        self.requests += 1;
        let number = self.requests;
        let boot = self.nodes[node].boot;
        let wants_sync = self.random.chance(50);
        let Some(process) = &mut self.nodes[node].process else { return };
        let mut out = Vec::new();
        match process.zab.status() {
            Status::Looking => return,
            Status::Leading { .. } => {
                if wants_sync {
                    process.syncs += 1;
                    process.zab.sync(None, &mut out);
                } else if process.zab.accepts_proposals() {
                    let origin = (1 << 63) | ((node as u64) << 32) | boot;
                    let zxid = process.zab.next_zxid();
                    process.zab.propose(zxid, transaction(origin, number), &mut out);
                }
            }
            Status::Following { .. } | Status::Observing { .. } => {
                process.forwarded += 1;
                let request = ForwardedRequest {
                    session: SessionId(node as i64),
                    cxid: process.forwarded as i32,
                    op: if wants_sync { OP_SYNC } else { OP_WRITE },
                    body: Bytes::copy_from_slice(&number.to_be_bytes()),
                    auth: None,
                };
                if process.zab.forward(request, &mut out) && wants_sync {
                    process.syncs += 1;
                }
            }
        }
        self.perform(node, out);
    }

    /// An administrator adds a server, removes one, or changes the part one has.
    pub fn change_members(&mut self) {
        let Some(leader) = self.leader() else { return };
        if self.nodes[leader].paused_until_us > self.now_us {
            return;
        }
        let id = ServerId(self.random.between(1, self.plan.servers) as i64);
        let part =
            self.random.pick(&[None, Some("participant"), Some("observer"), Some("participant")]);
        self.requests += 1;
        let number = self.requests;
        let origin = (1 << 62) | ((leader as u64) << 32) | self.nodes[leader].boot;
        let Some(process) = &mut self.nodes[leader].process else { return };
        let Some(ensemble) = process.zab.ensemble() else { return };
        let mut next = ensemble.committed().clone();
        match part.flatten() {
            None => {
                next.members.remove(&id);
            }
            Some(role) => {
                let line = format!("h{id}:2888:3888:{role}");
                let member = Member::parse(&line).expect("a line of our own making");
                next.members.insert(id, member);
            }
        }
        if next.same_members(ensemble.committed()) || process.zab.may_reconfigure(&next).is_err() {
            return;
        }
        let zxid = process.zab.next_zxid();
        next.version = zxid.0;
        let mut txn = Vec::new();
        let session = SessionId(origin as i64);
        let header =
            TxnHeader { session, cxid: number as i32, zxid, time: 0, op: OpCode::Reconfig };
        header.encode(&mut txn);
        let text = next.to_string();
        set_data("/zookeeper/config", Some(text.as_bytes()), -1, &mut txn);
        let mut out = Vec::new();
        process.zab.propose(zxid, txn.into(), &mut out);
        self.report.reconfigurations += 1;
        self.say(|| format!("members are to be\n{text}"));
        self.perform(leader, out);
    }

    /// A request of a learner's client, at the leader.
    fn on_request(
        &mut self,
        node: usize,
        link: LinkId,
        request: &ForwardedRequest,
        out: &mut Vec<Output>,
    ) {
        let Some(process) = &mut self.nodes[node].process else { return };
        if request.op == OP_SYNC {
            process.zab.sync(Some(link), out);
        } else if process.zab.accepts_proposals() {
            let number = request.body[..].try_into().map_or(0, u64::from_be_bytes);
            let zxid = process.zab.next_zxid();
            process.zab.propose(zxid, transaction(link.0, number), out);
        }
    }

    // Trouble.

    fn on_fault(&mut self) {
        if !self.in_trouble {
            return;
        }
        let (low, high) = self.plan.faults.pause_us;
        let in_us = self.random.between(low, high);
        self.after(in_us, Event::Fault);
        let mut random = self.random.clone();
        let fault = self.plan.faults.next(&mut random);
        self.random = random;
        self.report.faults += 1;
        self.say(|| format!("fault: {fault:?}"));
        let count = self.nodes.len() as u64;
        let node = self.random.below(count) as usize;
        let other = self.random.below(count) as usize;
        match fault {
            Fault::Kill => self.stop(node, Stop::Kill),
            Fault::PowerLoss => self.stop(node, Stop::PowerLoss),
            Fault::Blackout => {
                for node in 0..self.nodes.len() {
                    self.stop(node, Stop::PowerLoss);
                    let in_us = self.random.between(1_000, 2_000_000);
                    self.after(in_us, Event::Start { node });
                }
            }
            Fault::Restart => {
                let down: Vec<usize> = (0..self.nodes.len())
                    .filter(|node| self.nodes[*node].process.is_none())
                    .collect();
                if let Some(node) = self.random.pick(&down) {
                    self.start(node);
                }
            }
            Fault::CutOneWay => self.network.cut(node, other),
            Fault::Isolate => self.isolate(node),
            Fault::Split => {
                let mask = self.random.draw();
                for a in 0..self.nodes.len() {
                    for b in 0..self.nodes.len() {
                        if (mask >> a) & 1 != (mask >> b) & 1 {
                            self.network.cut(a, b);
                        }
                    }
                }
            }
            Fault::Heal => {
                self.network.heal_all();
                self.release_held();
            }
            Fault::Reset => {
                let boot = self.nodes[node].boot;
                for link in self.network.between(node, other) {
                    if let Some(side) = self.network.side(link, node, boot) {
                        self.close(link, side);
                        self.lost(node, link);
                    }
                }
            }
            Fault::Freeze => self.freeze(node),
            Fault::SlowDisk => {
                let (low, high) = self.plan.disk_us;
                let factor = self.random.pick(&[1, 10, 100]).unwrap_or(1);
                self.nodes[node].disk_us = (low, high * factor);
            }
            Fault::SlowNetwork => {
                let (low, high) = self.plan.latency_us;
                let factor = self.random.pick(&[1, 1, 10, 50]).unwrap_or(1);
                self.network.latency_us = (low, high * factor);
            }
            Fault::Leader => {
                let leader = (0..self.nodes.len()).find(|node| {
                    let process = self.nodes[*node].process.as_ref();
                    process.is_some_and(|process| {
                        matches!(process.zab.status(), Status::Leading { .. })
                    })
                });
                if let Some(leader) = leader {
                    match self.random.below(4) {
                        0 => self.stop(leader, Stop::Kill),
                        1 => self.stop(leader, Stop::PowerLoss),
                        2 => self.isolate(leader),
                        _ => self.freeze(leader),
                    }
                }
            }
        }
    }

    pub fn isolate(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            self.network.cut(node, other);
            self.network.cut(other, node);
        }
    }

    pub fn freeze(&mut self, node: usize) {
        let us = self.random.between(50_000, 4_000_000);
        // Never shorter than before: what was put off would be overtaken.
        let until_us = self.nodes[node].paused_until_us.max(self.now_us + us);
        self.nodes[node].paused_until_us = until_us;
    }

    /// Everything works again.
    pub fn heal(&mut self) {
        self.say(|| "everything works again".to_owned());
        self.in_trouble = false;
        self.network.heal_all();
        self.network.latency_us = self.plan.latency_us;
        self.release_held();
        for node in 0..self.nodes.len() {
            self.nodes[node].disk_us = self.plan.disk_us;
            self.start(node);
        }
    }

    fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|node| {
            let process = self.nodes[*node].process.as_ref();
            process.is_some_and(|process| process.zab.accepts_proposals())
        })
    }

    /// Everybody serves, and everybody has what is history.
    pub fn is_whole(&self) -> bool {
        let Some(leader) = self.leader().and_then(|node| self.nodes[node].process.as_ref()) else {
            return false;
        };
        leader.zab.outstanding() == 0
            && self.nodes.iter().all(|node| {
                node.process.as_ref().is_some_and(|process| {
                    process.zab.status() != Status::Looking && process.state == leader.state
                })
            })
    }

    /// After healing the cluster comes back by itself, and takes writes.
    pub fn converge(&mut self) -> Result<(), Failure> {
        let before = self.agreement.len();
        for _ in 0..3 {
            if !self.run_until(RECOVERY_US_MAX, World::is_whole)? {
                return Err(self.stuck("no agreement"));
            }
            if let Some(leader) = self.leader() {
                let count = self.agreement.len();
                for _ in 0..20 {
                    self.request(leader);
                }
                if self.run_until(RECOVERY_US_MAX, |world| {
                    world.agreement.len() > count && world.is_whole()
                })? {
                    debug_assert!(self.agreement.len() > before);
                    return Ok(());
                }
            }
        }
        Err(self.stuck("no new transaction"))
    }

    fn stuck(&self, what: &str) -> Failure {
        let mut lines = format!("progress: {what} within two minutes of peace");
        for node in &self.nodes {
            let status = node.process.as_ref().map(|process| {
                format!("{:?} {:?} {:?}", process.zab.status(), process.state, process.zab.epochs())
            });
            lines.push_str(&format!("\n  {}: {status:?}", node.id));
        }
        Failure { seed: self.seed, at_us: self.now_us, what: lines }
    }
}

/// A transaction that tells who asked for it, and as the how-manieth.
fn transaction(origin: u64, number: u64) -> Bytes {
    let mut bytes = origin.to_be_bytes().to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.into()
}
