//! Where the engine meets the threads.
//!
//! The engine has one owner at a time, but no thread of its own: whoever brings it work takes the
//! [`Baton`] if it is free, and works off everything that has arrived. So an I/O thread that received
//! a write judges it on the spot, and the log thread that made a batch durable applies it on the
//! spot, without a wake-up in between. On a machine with few cores those wake-ups would cost more
//! than the work.

use std::sync::{Arc, Weak};

use ironkeeper_engine::baton::Baton;
use ironkeeper_engine::conn::Conn;
use ironkeeper_engine::{Database, Engine, Input, Output};

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::io::IoHandle;
use crate::log_thread::LogQueue;
use crate::log_work::LogItem;
use crate::member::Member;
use crate::session_log::SessionLog;
use crate::shutdown::Shutdown;
use crate::snapshot_thread::SnapshotQueue;

/// The engine with its inbox and the ways to the rest of the server.
#[derive(Debug)]
pub struct Core {
    this: Weak<Core>,
    pub db: Arc<Database>,
    pub clock: Clock,
    baton: Baton<Owner, Input>,
    pub log: Arc<LogQueue>,
    pub snapshots: Arc<SnapshotQueue>,
    pub io: Vec<IoHandle>,
    pub shutdown: Arc<Shutdown>,
    /// What a member of an ensemble has besides.
    pub member: Option<Member>,
    /// When the timer thread comes next.
    pub alarm: Alarm,
    pub session_log: SessionLog,
}

/// The engine and the buffers that are reused from one round to the next.
#[derive(Debug)]
struct Owner {
    engine: Engine,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    appends: Vec<LogItem>,
    /// Connections with something to do.
    ready: Vec<Arc<Conn>>,
    woken: Vec<bool>,
}

/// What becomes of watch events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    /// The I/O threads send them, with everything else.
    Left,
    /// Lone ones are sent here and now.
    Sent,
}

/// Where more connections than this have something to do, the I/O threads do it: they share the work.
const TOLD_MAX: usize = 4;

impl Core {
    pub fn new(
        (engine, db): (Engine, Arc<Database>),
        clock: Clock,
        io: Vec<IoHandle>,
        member: Option<Member>,
    ) -> Arc<Core> {
        let owner = Owner {
            engine,
            inputs: Vec::new(),
            outputs: Vec::new(),
            appends: Vec::new(),
            ready: Vec::new(),
            woken: vec![false; io.len()],
        };
        Arc::new_cyclic(|this| Core {
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

    /// For those who come back to the engine and should not keep it alive until then.
    pub fn this(&self) -> Weak<Core> {
        Weak::clone(&self.this)
    }

    /// Hands work to the engine and, unless somebody else is at it, does it.
    pub fn submit(&self, inputs: impl IntoIterator<Item = Input>) {
        self.leave(inputs);
        self.run();
    }

    /// Hands work to the engine and lets somebody else do it: follow with [`Core::run`] on some
    /// thread.
    pub fn leave(&self, inputs: impl IntoIterator<Item = Input>) {
        self.baton.leave(inputs);
    }

    /// Works off the inbox unless somebody else is doing so.
    pub fn run(&self) {
        self.baton.run(|owner| self.work(owner, false, Events::Left));
    }

    /// The same on a thread that does not serve connections: it sends lone events itself.
    pub fn run_and_tell(&self) {
        self.baton.run(|owner| self.work(owner, false, Events::Sent));
    }

    /// Expires what is due and returns when to come again, in milliseconds of the clock.
    pub fn on_timer(&self) -> u64 {
        let deadline_ms = self.baton.hold(|owner| {
            self.work(owner, true, Events::Left);
            owner.engine.deadline_ms()
        });
        self.run();
        deadline_ms
    }

    /// Looks at the engine, for the administrator.
    pub fn with_engine<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        let seen = self.baton.hold(|owner| look(&owner.engine));
        self.run();
        seen
    }

    fn work(&self, owner: &mut Owner, timer: bool, events: Events) {
        let mut timer = timer;
        loop {
            self.baton.fetch(&mut owner.inputs);
            if self.shutdown.is_halted() {
                // Fetched nevertheless: who left it must not come back for it again and again.
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
                // What was heard, or was not, decides when an ensemble has to act.
                self.alarm.not_later_than(owner.engine.deadline_ms());
            }
        }
    }

    fn perform(&self, owner: &mut Owner, events: Events) {
        for output in owner.outputs.drain(..) {
            match output {
                Output::Append { zxid, txn } => owner.appends.push(LogItem::Append { zxid, txn }),
                Output::Roll => owner.appends.push(LogItem::Roll),
                Output::Snapshot(job) => self.snapshots.push(job),
                Output::Wake(conn) => owner.ready.push(conn),
                Output::Warn(warning) => tracing::warn!("{warning}"),
                Output::SessionEnded(end) => self.session_log.ended(&end),
                Output::Halt(reason) => {
                    tracing::error!("the server stops: {reason}");
                    self.shutdown.halt(reason);
                }
                Output::Peer(_)
                | Output::SendSnapshot { .. }
                | Output::Durable(_)
                | Output::ReadLog { .. }
                | Output::Role { .. } => {
                    let member = self.member.as_ref().expect("a server of its own has no peers");
                    owner.appends.extend(member.perform(self, output));
                }
            }
        }
        // In the engine's order, before anybody else can hold the engine.
        if !owner.appends.is_empty() {
            self.log.push(&mut owner.appends);
        }
        // The log thread is awake: while it syncs, the others get what it writes.
        if let Some(member) = &self.member {
            member.links.flush();
        }
        let sends = events == Events::Sent && owner.ready.len() <= TOLD_MAX;
        for conn in owner.ready.drain(..) {
            let thread = IoHandle::thread_of(conn.tag);
            if !(sends && self.io[thread].send_events(&conn)) {
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
