//! A panic on any thread of a server stops that server at once.
//!
//! Every thread of a server registers itself here, including the threads of its tokio runtimes'
//! blocking pools. The process's panic hook, which runs on the panicking thread before unwinding
//! releases any lock, finds the server by that registration and halts it: after that no engine step
//! runs and no reply is sent. So nothing depends on how a task was spawned, and a panic of a task
//! cannot be lost in tokio.
//!
//! In the binary the process ends before that: its own hook, which this one calls first, ends it
//! (`ironkeeper serve`). This module is for servers inside another program, such as a test.

use std::cell::OnceCell;
use std::panic::PanicHookInfo;
use std::sync::{Arc, Once, Weak};

#[doc(hidden)]
pub use ironkeeper_engine::planted::Place;

use crate::shutdown::Shutdown;

thread_local! {
    /// The server to which this thread belongs.
    static SERVER: OnceCell<Weak<Shutdown>> = const { OnceCell::new() };
}

/// Registers the current thread: a panic on it stops the server.
pub(crate) fn stop_on_panic(shutdown: &Arc<Shutdown>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            let server = SERVER.try_with(|server| server.get().and_then(Weak::upgrade));
            if let Ok(Some(shutdown)) = server {
                shutdown.halt(describe(info));
            }
        }));
    });
    SERVER.with(|server| {
        // A thread belongs to one server for its whole lifetime.
        let _ = server.set(Arc::downgrade(shutdown));
    });
}

/// Returns thread, place and reason of a panic, in one line.
pub fn describe(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let reason = info.payload_as_str().unwrap_or("(no text)");
    match info.location() {
        Some(place) => format!("the thread `{name}` panicked at {place}: {reason}"),
        None => format!("the thread `{name}` panicked: {reason}"),
    }
}
