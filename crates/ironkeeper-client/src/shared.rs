//! State that the handles of a client share with the driver of its session, and the send path of a
//! request.
//!
//! A caller encodes its request into the session's outgoing buffer under one short lock. The state
//! of the driver decides which task writes the buffer to the socket:
//!
//! - The driver is running: it checks the buffer before it becomes idle.
//! - The driver is idle and the last replies went to one task: the caller writes, which saves
//!   waking another thread. It writes at once if no reply is pending. Otherwise more requests may
//!   follow shortly, and the buffer stays *corked* until a task awaits a reply, the buffer reaches
//!   `CORKED_BYTES_MAX`, or the server's next reply wakes the driver. A caller that is a tokio
//!   task, or runs in a runtime of one thread, corks the buffer and wakes the driver as well. The
//!   driver is then scheduled after the current task on the same thread, so no thread is woken: it
//!   flushes the requests that the task left corked, before all other tasks have been polled.
//! - The driver is idle and several callers are active: the driver is woken and writes the requests
//!   of all callers.
//!
//! A caller writes with the driver's waker, so the transport notifies the driver of readiness, as
//! if the driver had written.
//!
//! Lock order: slot, pipe, session (`core`). Any of them may be skipped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Waker};

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::{OpCode, SessionId};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::lock;
use crate::pipe::Pipe;
use crate::random::{self, Random};
use crate::reply::{Completion, Decode, Reply, RequestContext, Slot, nothing};
use crate::session::machine::{Failure, Machine, WatchRequest};
use crate::session::watches::{WatchKind, WatcherId};
use crate::state::{ConnectionState, Subscribers};
use crate::watch::{WatchEnd, WatchHandle, WatchType};

pub(crate) type Token = Arc<dyn Completion>;

/// The bytes at which a caller writes a corked buffer although no reply is awaited.
const CORKED_BYTES_MAX: usize = 16 * 1024;

/// The state of a session that the handles and the driver share.
pub(crate) struct Shared {
    pub(crate) core: Mutex<Core>,
    pub(crate) pipe: Mutex<Pipe>,
    pub(crate) states: Mutex<Subscribers>,
    /// The outgoing buffer holds bytes, and no task has been notified to write them.
    corked: AtomicBool,
    next_watcher: AtomicU64,
    /// The source of randomness, if the client was given a seed.
    chance: Option<Mutex<Random>>,
    /// The runtime of the driver and of other background tasks of the session.
    pub(crate) runtime: Handle,
}

pub(crate) struct Core {
    pub(crate) machine: Machine<Token, WatchHandle>,
    /// The waker of the driver while the driver is idle and could write.
    pub(crate) sleeper: Option<Waker>,
    /// The last replies went to one task, so the next requests are probably from the same task.
    pub(crate) has_one_caller: bool,
}

/// The action that follows after bytes were added to the outgoing buffer.
enum Next {
    /// The driver or another caller will write them.
    Nothing,
    Write,
    Wake(Waker),
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        machine: Machine<Token, WatchHandle>,
        chance: Option<Random>,
        runtime: Handle,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            core: Mutex::new(Core { machine, sleeper: None, has_one_caller: true }),
            pipe: Mutex::new(Pipe::default()),
            states: Mutex::new(Subscribers::new()),
            corked: AtomicBool::new(false),
            next_watcher: AtomicU64::new(1),
            chance: chance.map(Mutex::new),
            runtime,
        })
    }

    pub(crate) fn watcher_id(&self) -> WatcherId {
        WatcherId(self.next_watcher.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a generator for one use.
    pub(crate) fn chance(&self) -> Random {
        match &self.chance {
            Some(chance) => Random::from_seed(lock(chance).next()),
            None => Random::from_os(),
        }
    }

    /// See [`Client::random_uuid`](crate::Client::random_uuid).
    pub(crate) fn random_uuid(&self) -> String {
        let session = lock(&self.core).machine.session().0;
        match &self.chance {
            Some(chance) if session != SessionId::NONE => {
                let mut chance = lock(chance);
                // The session id is mixed by the generator, so that it affects all bits of the UUID
                // half.
                let own = Random::from_seed(session.0 as u64).next();
                random::uuid_of(chance.next() ^ own, chance.next())
            }
            _ => random::uuid(),
        }
    }

    /// Applies `act` to the machine, then wakes the driver to process the outputs.
    pub(crate) fn with_machine<R>(
        &self,
        act: impl FnOnce(&mut Machine<Token, WatchHandle>) -> R,
    ) -> R {
        let mut core = lock(&self.core);
        let result = act(&mut core.machine);
        self.wake(core);
        result
    }

    /// Wakes the driver if it is idle.
    fn wake(&self, mut core: MutexGuard<'_, Core>) {
        let sleeper = core.sleeper.take();
        drop(core);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Queues a request.
    pub(crate) fn submit<T: Send + 'static>(
        self: &Arc<Shared>,
        op: OpCode,
        context: RequestContext,
        watch: Option<(WatchEnd, WatchRequest<WatchHandle>)>,
        decode: Decode<T>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Reply<T> {
        let (watch_end, watch_request) = watch.unzip();
        let slot = Slot::new(context, watch_end, decode);
        self.submit_under(lock(&self.core), op, slot, watch_request, body)
    }

    /// Does the same as `submit`, for a caller that has made a decision under this lock.
    fn submit_under<T: Send + 'static>(
        self: &Arc<Shared>,
        mut core: MutexGuard<'_, Core>,
        op: OpCode,
        slot: Arc<Slot<T>>,
        watch_request: Option<WatchRequest<WatchHandle>>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Reply<T> {
        let is_alone = !core.machine.awaits_reply();
        let submitted = core.machine.submit(op, slot.clone(), watch_request, body);
        let next = self.after_submit(&mut core, is_alone);
        drop(core);
        match next {
            Next::Nothing => {}
            Next::Write => self.write(),
            Next::Wake(driver) => driver.wake(),
        }
        if let Err((token, failure)) = submitted {
            token.failed(failure);
        }
        Reply::waiting(slot, self.clone())
    }

    fn after_submit(&self, core: &mut Core, is_alone: bool) -> Next {
        let Some(driver) = &core.sleeper else { return Next::Nothing };
        let is_corked = self.corked.load(Ordering::Relaxed);
        if !is_corked && !core.has_one_caller {
            return core.sleeper.take().map_or(Next::Nothing, Next::Wake);
        }
        if !is_corked && is_near_the_driver() {
            // The waker stays in `sleeper`: a task that awaits a reply before the driver is polled
            // can then write in place of the driver.
            self.corked.store(true, Ordering::Release);
            return Next::Wake(driver.clone());
        }
        if is_alone || core.machine.outgoing_bytes() >= CORKED_BYTES_MAX {
            return Next::Write;
        }
        self.corked.store(true, Ordering::Release);
        Next::Nothing
    }

    /// Writes the corked bytes now, because a task awaits a reply.
    pub(crate) fn uncork(&self) {
        if self.corked.load(Ordering::Acquire) {
            self.write();
        }
    }

    /// Wakes the driver to write the corked bytes, because the reply will not be awaited.
    pub(crate) fn uncork_later(&self) {
        if self.corked.swap(false, Ordering::AcqRel) {
            self.wake(lock(&self.core));
        }
    }

    /// Writes in place of the idle driver. A driver that is running writes by itself.
    fn write(&self) {
        let mut pipe = match self.pipe.try_lock() {
            Ok(pipe) => pipe,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The driver is becoming idle, or another caller writes.
            Err(TryLockError::WouldBlock) => return self.wake(lock(&self.core)),
        };
        let mut core = lock(&self.core);
        let Some(driver) = core.sleeper.take() else { return };
        loop {
            self.fill(&mut core, &mut pipe);
            if pipe.is_written() {
                // Meanwhile other callers may have found no driver to wake.
                if core.machine.has_output() {
                    drop(core);
                    return driver.wake();
                }
                core.sleeper = Some(driver);
                return;
            }
            drop(core);
            let moved = pipe.write(&mut Context::from_waker(&driver));
            core = lock(&self.core);
            report(&mut core, &mut pipe);
            match moved {
                Ok(_) if pipe.is_written() => {}
                // The transport has the waker.
                Ok(_) => return,
                Err(failure) => {
                    pipe.note_failure(failure);
                    drop(core);
                    return driver.wake();
                }
            }
        }
    }

    /// Moves the outgoing bytes into the pipe, if all earlier bytes are written.
    pub(crate) fn fill(&self, core: &mut Core, pipe: &mut Pipe) {
        if let Some(buffer) = pipe.next_buffer() {
            core.machine.take_outgoing(buffer);
            self.corked.store(false, Ordering::Release);
        }
    }

    /// Removes the server's watch if `is_useless` returns true, under one lock. A concurrent
    /// request for the same watch is submitted either before the decision, which then takes it into
    /// account, or after the removal.
    pub(crate) fn remove_watch_if(
        self: &Arc<Shared>,
        kind: WatchKind,
        path: &str,
        is_useless: impl FnOnce(&mut Machine<Token, WatchHandle>) -> bool,
    ) -> Option<Reply<()>> {
        let mut core = lock(&self.core);
        if !is_useless(&mut core.machine) {
            return None;
        }
        let context = RequestContext { path: path.into(), ..RequestContext::default() };
        let slot = Slot::new(context, None, nothing);
        Some(self.submit_under(core, OpCode::RemoveWatches, slot, None, |out| {
            out.put_str(path);
            out.put_i32(kind.remove_code());
        }))
    }

    /// Removes all watches of these kinds from a node, in the client and on the server.
    pub(crate) fn remove_all_watches(
        self: &Arc<Shared>,
        context: RequestContext,
        path: &str,
        kind: WatchType,
    ) -> Reply<()> {
        let slot = Slot::new(context, None, nothing);
        let submitted =
            self.with_machine(|machine| machine.remove_watches(kind.code(), path, slot.clone()));
        if let Err((token, failure)) = submitted {
            token.failed(failure);
        }
        Reply::waiting(slot, self.clone())
    }

    /// Does the same as [`Shared::remove_watch_if`] and ignores the reply.
    pub(crate) fn unwatch_if(
        &self,
        kind: WatchKind,
        path: &str,
        is_useless: impl FnOnce(&mut Machine<Token, WatchHandle>) -> bool,
    ) {
        let mut core = lock(&self.core);
        if is_useless(&mut core.machine) {
            core.machine.unwatch(kind, path);
            self.wake(core);
        }
    }

    pub(crate) fn close(&self, token: Option<Token>) {
        if let Some(token) = self.with_machine(|machine| machine.close(token)) {
            token.failed(Failure::Closed { sent: false });
        }
    }

    pub(crate) fn tell_state(&self, state: ConnectionState) {
        let mut wakers = Vec::new();
        lock(&self.states).tell(state, &mut wakers);
        for waker in wakers {
            waker.wake();
        }
    }
}

/// Returns whether waking the driver wakes no other thread. A tokio task and the driver run one
/// after the other on the same thread, and so do all futures in a runtime of one thread. Any other
/// future, for example that of `main`, has a thread of its own.
fn is_near_the_driver() -> bool {
    tokio::task::try_id().is_some()
        || Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// Reports the number of written bytes to the machine.
pub(crate) fn report(core: &mut Core, pipe: &mut Pipe) {
    let count = pipe.take_unreported();
    if count > 0 {
        core.machine.handle_written(Instant::now().into_std(), count);
    }
}
