//! What the handles of a client share with the driver of its session: how a request gets on its way.
//!
//! A caller encodes its request into the session's outgoing buffer under one short lock. Who writes the
//! buffer to the socket depends on what the driver is at:
//!
//! - It is awake: it looks at the buffer before it sleeps.
//! - It sleeps, and one caller alone has been at work: that caller writes by itself, which saves waking
//!   another thread. It does so at once if the server has nothing to answer. Else more requests may
//!   follow in a moment, and the buffer stays *corked* until somebody waits for a reply, until it is
//!   large, or until the server's next answer wakes the driver, whichever comes first. A task has the driver
//!   near, and wakes it as well, which wakes no thread: what it leaves corked when it pauses leaves in the driver's
//!   turn, and what it waits for does not wait until all other tasks have had theirs.
//! - It sleeps, and several callers are at work: it is woken, and writes what all of them have put there.
//!
//! A caller writes with the waker of the driver. So whatever the transport has to tell afterwards, it
//! tells to the driver, as if the driver had written.
//!
//! Lock order: a slot's own lock, the pipe's, the session's. Any of them may be left out.

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

/// What a caller puts together before it writes although nobody waits yet.
const CORKED_BYTES_MAX: usize = 16 * 1024;

/// The session, as the handles and the driver see it.
pub(crate) struct Shared {
    pub(crate) core: Mutex<Core>,
    pub(crate) pipe: Mutex<Pipe>,
    pub(crate) states: Mutex<Subscribers>,
    /// There are bytes to be written, and nobody has been told.
    corked: AtomicBool,
    next_watcher: AtomicU64,
    /// Whatever is left to chance, if that was given a seed.
    chance: Option<Mutex<Random>>,
    /// Where the driver runs, and whatever else has to be done as long as the session lives.
    pub(crate) runtime: Handle,
}

pub(crate) struct Core {
    pub(crate) machine: Machine<Token, WatchHandle>,
    /// The driver, when it sleeps although it could write.
    pub(crate) sleeper: Option<Waker>,
    /// The last replies went to one task, so the next requests are likely to be its own.
    pub(crate) has_one_caller: bool,
}

/// What becomes of bytes that have just been put into the outgoing buffer.
enum Next {
    /// Somebody will see them.
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

    /// Chance for one use.
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
                // The session's own bits go through the generator, so that they are in all of the id.
                let own = Random::from_seed(session.0 as u64).next();
                random::uuid_of(chance.next() ^ own, chance.next())
            }
            _ => random::uuid(),
        }
    }

    /// Does something with the machine, then sees to it that the driver looks at the consequences.
    pub(crate) fn with_machine<R>(
        &self,
        act: impl FnOnce(&mut Machine<Token, WatchHandle>) -> R,
    ) -> R {
        let mut core = lock(&self.core);
        let result = act(&mut core.machine);
        self.wake(core);
        result
    }

    /// Wakes the driver if it sleeps.
    fn wake(&self, mut core: MutexGuard<'_, Core>) {
        let sleeper = core.sleeper.take();
        drop(core);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Puts a request into the line.
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

    /// The same for whoever has decided upon it under this lock.
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
            // It stays the sleeper: whoever waits for a reply before its turn comes writes in its place.
            self.corked.store(true, Ordering::Release);
            return Next::Wake(driver.clone());
        }
        if is_alone || core.machine.outgoing_bytes() >= CORKED_BYTES_MAX {
            return Next::Write;
        }
        self.corked.store(true, Ordering::Release);
        Next::Nothing
    }

    /// Somebody waits for a reply: what has been held back leaves now.
    pub(crate) fn uncork(&self) {
        if self.corked.load(Ordering::Acquire) {
            self.write();
        }
    }

    /// Nobody will wait for a reply: what has been held back leaves when the driver gets to it.
    pub(crate) fn uncork_later(&self) {
        if self.corked.swap(false, Ordering::AcqRel) {
            self.wake(lock(&self.core));
        }
    }

    /// Writes in place of the driver, which sleeps. If it does not, it sees to everything itself.
    fn write(&self) {
        let mut pipe = match self.pipe.try_lock() {
            Ok(pipe) => pipe,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The driver is just falling asleep, or another caller writes.
            Err(TryLockError::WouldBlock) => return self.wake(lock(&self.core)),
        };
        let mut core = lock(&self.core);
        let Some(driver) = core.sleeper.take() else { return };
        loop {
            self.fill(&mut core, &mut pipe);
            if pipe.is_written() {
                // Meanwhile others may have found no sleeper to wake.
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

    /// Moves what may leave into the pipe, if that has room.
    pub(crate) fn fill(&self, core: &mut Core, pipe: &mut Pipe) {
        if let Some(buffer) = pipe.next_buffer() {
            core.machine.take_outgoing(buffer);
            self.corked.store(false, Ordering::Release);
        }
    }

    /// Ends the server's watch if `is_useless` says so, under one lock: whoever asks for the same watch
    /// asks before the decision, which then sees it, or behind the removal.
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

    /// Ends all watches of these kinds on a node, here and on the server.
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

    /// As [`Shared::remove_watch_if`], for nobody who waits for the answer.
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

/// Whether waking the driver wakes no thread: a task is followed by the driver on the thread it runs on,
/// and so is everything in a runtime of one thread. Any other future, `main`'s for one, has a thread of
/// its own.
fn is_near_the_driver() -> bool {
    tokio::task::try_id().is_some()
        || Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// Tells the machine what was written.
pub(crate) fn report(core: &mut Core, pipe: &mut Pipe) {
    let count = pipe.take_unreported();
    if count > 0 {
        core.machine.handle_written(Instant::now().into_std(), count);
    }
}
