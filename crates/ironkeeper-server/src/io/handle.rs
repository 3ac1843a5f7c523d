//! The interface of one I/O thread for the rest of the server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_engine::conn::Conn;
use tokio::sync::{Notify, mpsc};

use super::ConnSender;
use super::connection::Connection;
use super::slots::{self, Slots};
use crate::limits::Permit;
use crate::shared::Shared;
use crate::wire::{Detached, Stream};

/// A connection that is being passed to its thread.
#[derive(Debug)]
pub struct NewConnection {
    pub(crate) stream: Detached,
    pub(crate) permit: Permit,
}

/// The handle of a thread.
#[derive(Clone, Debug)]
pub struct IoHandle {
    mailbox: Arc<Mailbox>,
}

#[derive(Debug)]
struct Mailbox {
    index: usize,
    /// Connections whose tasks are to be notified.
    ready: Mutex<Vec<Arc<Conn>>>,
    /// The thread is to run the engine.
    run_engine: AtomicBool,
    /// Notified after a change of `ready` or `run_engine`.
    changed: Notify,
    new_connections: mpsc::UnboundedSender<NewConnection>,
    connections: AtomicUsize,
    /// Notified when a connection with large buffers has ended.
    freed: Notify,
    slots: Mutex<Slots>,
}

impl IoHandle {
    pub fn new(index: usize) -> (IoHandle, mpsc::UnboundedReceiver<NewConnection>) {
        let (new_connections, receiver) = mpsc::unbounded_channel();
        let mailbox = Mailbox {
            index,
            ready: Mutex::default(),
            run_engine: AtomicBool::new(false),
            changed: Notify::new(),
            new_connections,
            connections: AtomicUsize::new(0),
            freed: Notify::new(),
            slots: Mutex::default(),
        };
        (IoHandle { mailbox: Arc::new(mailbox) }, receiver)
    }

    /// Returns the index of the thread in a connection's tag.
    pub fn thread_of(tag: u64) -> usize {
        slots::thread_of(tag)
    }

    /// Queues a connection that has work. Call [`IoHandle::wake`] afterwards.
    pub fn push_ready(&self, conn: Arc<Conn>) {
        self.mailbox.ready.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
    }

    pub fn wake(&self) {
        self.mailbox.changed.notify_one();
    }

    /// Sends a connection's events from the caller's thread, if they are its only output. Returns
    /// false if the connection has to be queued.
    pub fn send_events(&self, conn: &Conn) -> bool {
        let sender = self.slots().find(conn).cloned();
        sender.is_some_and(|sender| sender.send_events(conn))
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.mailbox.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this thread run the engine.
    pub fn run_engine(&self) {
        self.mailbox.run_engine.store(true, Ordering::Release);
        self.wake();
    }

    /// Starts to serve a new connection on this thread, which is the caller's.
    pub(crate) fn start(&self, stream: Stream, permit: Permit, shared: &Arc<Shared>) {
        self.mailbox.connections.fetch_add(1, Ordering::Relaxed);
        self.serve(stream, permit, shared);
    }

    /// Passes a new connection from another thread.
    pub fn pass(&self, new: NewConnection) {
        self.mailbox.connections.fetch_add(1, Ordering::Relaxed);
        // The receiver exists until shutdown; then the connection may be dropped.
        let _ = self.mailbox.new_connections.send(new);
    }

    /// Returns the number of connections of the thread.
    pub fn load(&self) -> usize {
        self.mailbox.connections.load(Ordering::Relaxed)
    }

    /// Serves a connection that another thread has passed.
    pub(super) fn serve_passed(&self, new: NewConnection, shared: &Arc<Shared>) {
        let peer = new.stream.peer();
        match new.stream.attach() {
            Ok(stream) => self.serve(stream, new.permit, shared),
            Err(error) => {
                tracing::debug!(client = %peer, %error, "client connection not set up");
                self.mailbox.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn serve(&self, stream: Stream, permit: Permit, shared: &Arc<Shared>) {
        if let Err(error) = stream.set_nodelay() {
            let peer = stream.peer();
            tracing::debug!(client = %peer, %error, "client connection not set up");
            self.mailbox.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let connection = Connection::open(self, stream, permit, shared);
        tokio::spawn(connection.run());
    }

    /// Stores the sender of a new connection and returns the connection's tag.
    pub(super) fn register(&self, sender: Arc<ConnSender>) -> u64 {
        self.slots().insert(self.mailbox.index, sender)
    }

    /// Removes a connection that has ended.
    pub(super) fn unregister(&self, tag: u64) {
        self.slots().remove(tag);
        self.mailbox.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Removes all connections, when the thread has ended.
    pub(super) fn unregister_all(&self) {
        self.slots().clear();
    }

    /// Records that a connection with large buffers has ended.
    pub(super) fn note_freed(&self) {
        self.mailbox.freed.notify_one();
    }

    /// Notified when a connection with large buffers has ended.
    pub(super) fn freed(&self) -> &Notify {
        &self.mailbox.freed
    }

    /// Notifies the tasks of ready connections. One such loop in each thread turns one wake-up by
    /// another thread, which costs a system call, into many local ones, which do not.
    pub(super) async fn dispatch(self, shared: Arc<Shared>) {
        let mut ready = Vec::new();
        loop {
            self.mailbox.changed.notified().await;
            if self.mailbox.run_engine.swap(false, Ordering::AcqRel) {
                shared.core.run();
            }
            std::mem::swap(
                &mut *self.mailbox.ready.lock().unwrap_or_else(PoisonError::into_inner),
                &mut ready,
            );
            let slots = self.slots();
            for conn in ready.drain(..) {
                if let Some(sender) = slots.find(&conn) {
                    sender.notify();
                }
            }
        }
    }
}
