//! The driver of the engine: passes inputs to it and performs its outputs.
//!
//! The engine has no thread of its own. A thread that enqueues inputs tries the combining lock
//! ([`Baton`]) and, if the lock is free, processes the whole queue. So the I/O thread that received
//! a write also prepares it, and the log thread that synced a batch also applies it, without waking
//! another thread. On a machine with few cores these wake-ups would cost more than the work.

use std::sync::{Arc, Weak};

use ironkeeper_engine::baton::Baton;
use ironkeeper_engine::conn::Conn;
use ironkeeper_engine::{Database, Engine, Input, Output};
use ironkeeper_node::LogItem;
use ironkeeper_zab::DurableStep;

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::engine_warnings;
use crate::io::IoHandle;
use crate::log_thread::LogQueue;
use crate::member::Member;
use crate::session_log::SessionLog;
use crate::shutdown::Shutdown;
use crate::snapshot_thread::SnapshotQueue;

/// The engine with its input queue and the handles of the threads that perform its outputs.
#[derive(Debug)]
pub struct EngineDriver {
    this: Weak<EngineDriver>,
    pub db: Arc<Database>,
    pub clock: Clock,
    baton: Baton<Owner, Input>,
    pub log: Arc<LogQueue>,
    pub snapshots: Arc<SnapshotQueue>,
    pub io: Vec<IoHandle>,
    pub shutdown: Arc<Shutdown>,
    /// `None` on a standalone server.
    pub member: Option<Member>,
    /// The next deadline of the timer thread.
    pub alarm: Alarm,
    pub session_log: SessionLog,
}

/// The state behind the combining lock: the engine, and buffers that each round reuses.
#[derive(Debug)]
struct Owner {
    engine: Engine,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    appends: Vec<LogItem>,
    /// Connections that have output, can serve reads or are to be closed.
    ready: Vec<Arc<Conn>>,
    woken: Vec<bool>,
}

/// Which thread sends watch events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventSender {
    /// The I/O thread of the connection, together with all other output.
    IoThread,
    /// The thread that runs the engine, if events are the only output of the connection.
    EngineThread,
}

/// The maximum number of ready connections to which [`EventSender::EngineThread`] applies. With
/// more of them the I/O threads share the work.
const DIRECT_SENDS_MAX: usize = 4;

impl EngineDriver {
    pub fn new(
        (engine, db): (Engine, Arc<Database>),
        clock: Clock,
        io: Vec<IoHandle>,
        member: Option<Member>,
    ) -> Arc<EngineDriver> {
        let owner = Owner {
            engine,
            inputs: Vec::new(),
            outputs: Vec::new(),
            appends: Vec::new(),
            ready: Vec::new(),
            woken: vec![false; io.len()],
        };
        Arc::new_cyclic(|this| EngineDriver {
            this: Weak::clone(this),
            db,
            clock,
            baton: Baton::new(owner),
            log: Arc::default(),
            snapshots: Arc::default(),
            io,
            shutdown: Arc::default(),
            member,
            alarm: Alarm::default(),
            session_log: SessionLog::default(),
        })
    }

    /// Returns a weak reference, for callbacks that must not keep the engine alive.
    pub fn this(&self) -> Weak<EngineDriver> {
        Weak::clone(&self.this)
    }

    /// Enqueues inputs and processes the queue, unless another thread is processing it.
    pub fn submit(&self, inputs: impl IntoIterator<Item = Input>) {
        self.enqueue(inputs);
        self.run();
    }

    /// Enqueues inputs without processing them: call [`EngineDriver::run`] afterwards on some
    /// thread.
    pub fn enqueue(&self, inputs: impl IntoIterator<Item = Input>) {
        self.baton.enqueue(inputs);
    }

    /// Processes the queue, unless another thread is processing it.
    pub fn run(&self) {
        self.baton.run(|owner| self.work(owner, false, EventSender::IoThread));
    }

    /// Does the same as [`EngineDriver::run`], on a thread that does not serve connections: it
    /// sends watch events itself if they are the only output of a connection.
    pub fn run_and_send_events(&self) {
        self.baton.run(|owner| self.work(owner, false, EventSender::EngineThread));
    }

    /// Runs the engine's timers and returns the next deadline, in milliseconds of the clock.
    pub fn on_timer(&self) -> u64 {
        let deadline_ms = self.baton.hold(|owner| {
            self.work(owner, true, EventSender::IoThread);
            owner.engine.deadline_ms()
        });
        self.run();
        deadline_ms
    }

    /// Calls `look` with the engine, for administrative commands. Waits for the combining lock.
    pub fn with_engine<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        let seen = self.baton.hold(|owner| look(&owner.engine));
        self.run();
        seen
    }

    fn work(&self, owner: &mut Owner, timer: bool, events: EventSender) {
        let mut timer = timer;
        loop {
            self.baton.fetch(&mut owner.inputs);
            if self.shutdown.is_halted() {
                // The inputs are dequeued nevertheless: `Baton::run` repeats until the queue is
                // empty.
                owner.inputs.clear();
                return;
            }
            if owner.inputs.is_empty() && !timer {
                return;
            }
            let now = self.clock.now();
            owner.engine.step(now, &mut owner.inputs, &mut owner.outputs);
            if std::mem::take(&mut timer) {
                owner.engine.on_timer(now, &mut owner.outputs);
            }
            owner.engine.settle(now, &mut owner.outputs);
            self.perform(owner, events);
            if self.member.is_some() {
                // The inputs may have changed the deadlines of ZAB.
                self.alarm.not_later_than(owner.engine.deadline_ms());
            }
        }
    }

    fn halt(&self, reason: String) {
        tracing::error!(error = reason, "server stops after a failure");
        self.shutdown.halt(reason);
    }

    /// Returns the item for the log thread, with the file of the snapshot to install. The file is
    /// taken now, because the links drop a received snapshot when its link is closed. A change of
    /// the membership is passed to the links before the log thread writes it to disk.
    fn to_log(&self, item: ironkeeper_engine::LogItem) -> Result<LogItem, String> {
        let member = self.member.as_ref();
        if let (Some(member), ironkeeper_engine::LogItem::Step(DurableStep::WriteMembers(change))) =
            (member, &item)
        {
            member.on_members(change);
        }
        item.with_snapshot(|link| {
            let received = member.and_then(|member| member.links.take_snapshot(link));
            let missing = || format!("the snapshot received on link {} is missing", link.0);
            Ok(Box::new(received.ok_or_else(missing)?.into_writer()))
        })
    }

    fn perform(&self, owner: &mut Owner, events: EventSender) {
        for output in owner.outputs.drain(..) {
            match output {
                Output::Log(item) => match self.to_log(item) {
                    Ok(item) => owner.appends.push(item),
                    Err(reason) => self.halt(reason),
                },
                Output::Snapshot(job) => self.snapshots.push(job),
                Output::Wake(conn) => owner.ready.push(conn),
                Output::Warn(warning) => engine_warnings::log(&warning),
                Output::SessionEnded(end) => self.session_log.ended(&end),
                Output::Halt(reason) => self.halt(reason),
                Output::Peers(asked) => {
                    if let Some(member) = &self.member {
                        member.perform(self, asked);
                    }
                }
            }
        }
        // Pushed while this thread holds the combining lock, so the log keeps the engine's order.
        if !owner.appends.is_empty() {
            self.log.push(&mut owner.appends);
        }
        // After the log thread was woken: the peers receive the proposals while it syncs.
        if let Some(member) = &self.member {
            member.links.flush();
        }
        let sends_events =
            events == EventSender::EngineThread && owner.ready.len() <= DIRECT_SENDS_MAX;
        for conn in owner.ready.drain(..) {
            let thread = IoHandle::thread_of(conn.tag);
            if !(sends_events && self.io[thread].send_events(&conn)) {
                self.io[thread].push_ready(conn);
                owner.woken[thread] = true;
            }
        }
        for (thread, woken) in owner.woken.iter_mut().enumerate() {
            if std::mem::take(woken) {
                self.io[thread].wake();
            }
        }
    }
}
