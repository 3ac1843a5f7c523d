//! The main loop of an I/O thread.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::connection::CLOSING_GRACE;
use super::handle::{IoHandle, NewConnection};
use crate::accept;
use crate::panics;
use crate::shared::Shared;
use crate::unused_memory;

/// The maximum number of four-letter words that the connections of a thread run at the same time.
const WORD_THREADS: usize = 2;

/// Runs the main loop of the thread.
pub fn run(
    handle: &IoHandle,
    listener: std::net::TcpListener,
    mut new_connections: mpsc::UnboundedReceiver<NewConnection>,
    shared: &Arc<Shared>,
) {
    // Dropped after the runtime, and so after its tasks.
    let _closing = Closing { handle, shared };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WORD_THREADS)
        .on_thread_start({
            let shutdown = Arc::clone(&shared.core.shutdown);
            move || panics::stop_on_panic(&shutdown)
        })
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return shared.core.shutdown.fail(format!("no runtime for an I/O thread: {error}"));
        }
    };
    runtime.block_on(async {
        tokio::spawn(handle.clone().dispatch(Arc::clone(shared)));
        let own = handle.clone();
        tokio::spawn(async move { unused_memory::release_when(own.freed()).await });
        let accepting = tokio::spawn(accept::run(listener, handle.clone(), Arc::clone(shared)));
        let shutdown = Arc::clone(&shared.core.shutdown);
        let stopped = shutdown.begun();
        tokio::pin!(stopped);
        loop {
            let next = tokio::select! {
                next = new_connections.recv() => next,
                () = &mut stopped => break,
            };
            let Some(new) = next else { break };
            handle.serve_passed(new, shared);
        }
        accepting.abort();
        if shared.core.shutdown.is_halted() {
            return;
        }
        // Connections notice the shutdown themselves; the thread waits some time for their last
        // replies.
        let grace = tokio::time::Instant::now() + CLOSING_GRACE;
        while handle.load() > 0 && tokio::time::Instant::now() < grace {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Closes all connections when the thread ends, even by a panic, so that no client takes the server
/// for a running one.
struct Closing<'a> {
    handle: &'a IoHandle,
    shared: &'a Shared,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // The entries of connections whose tasks did not finish.
        self.handle.unregister_all();
        if let Some(member) = &self.shared.core.member {
            member.stop();
        }
    }
}
