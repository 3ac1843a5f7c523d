//! The byte stream of a connection under shuttle: a buffer with bounded room between the server and
//! a client.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::Wake;

use ironkeeper_engine::outbox_sender::ByteSink;
use shuttle::sync::{Condvar, Mutex};

/// The buffer, and the wake-up of the connection's task.
pub struct Stream {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Everything that was accepted.
    received: Vec<u8>,
    /// The number of these bytes that the client has not read.
    unread: usize,
    capacity: usize,
    is_closed: bool,
    is_woken: bool,
    /// The client ends when it has read everything.
    ends: bool,
}

impl Default for Stream {
    fn default() -> Stream {
        let (received, unread, capacity) = (Vec::new(), 0, usize::MAX);
        let (is_closed, is_woken, ends) = (false, false, false);
        let state = State { received, unread, capacity, is_closed, is_woken, ends };
        Stream { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl Stream {
    /// Sets the number of unread bytes for which there is room.
    pub fn set_capacity(&self, capacity: usize) {
        self.state.lock().unwrap().capacity = capacity;
    }

    pub fn is_bounded(&self) -> bool {
        self.state.lock().unwrap().capacity < usize::MAX
    }

    pub fn has_room(&self) -> bool {
        self.state.lock().unwrap().has_room()
    }

    pub fn received(&self) -> Vec<u8> {
        self.state.lock().unwrap().received.clone()
    }

    /// Drops the bytes that were received before a test begins.
    pub fn forget_received(&self) {
        let mut state = self.state.lock().unwrap();
        state.received.clear();
        state.unread = 0;
    }

    /// Waits until the task is woken or, if it is blocked, until there is room.
    pub fn wait(&self, is_blocked: bool) {
        let mut state = self.state.lock().unwrap();
        while !(state.is_woken || is_blocked && state.has_room()) {
            state = self.changed.wait(state).unwrap();
        }
        state.is_woken = false;
    }

    /// Records that the task has closed the sender: no byte may follow.
    pub fn close(&self) {
        self.state.lock().unwrap().is_closed = true;
    }

    /// Reads as a client does, until [`Stream::end_reading`].
    pub fn read_until_end(&self) {
        let mut state = self.state.lock().unwrap();
        loop {
            while state.unread == 0 && !state.ends {
                state = self.changed.wait(state).unwrap();
            }
            if state.unread == 0 {
                return;
            }
            state.unread = 0;
            self.changed.notify_all();
        }
    }

    pub fn end_reading(&self) {
        self.state.lock().unwrap().ends = true;
        self.changed.notify_all();
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.unread < self.capacity
    }
}

impl Wake for Stream {
    fn wake(self: Arc<Self>) {
        self.state.lock().unwrap().is_woken = true;
        self.changed.notify_all();
    }
}

/// The sending half of a stream.
pub struct Sink(pub Arc<Stream>);

impl ByteSink for Sink {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Sink(stream) = self;
        let mut state = stream.state.lock().unwrap();
        assert!(!state.is_closed, "bytes after the end of the connection");
        let before = state.received.len();
        for slice in slices {
            let count = slice.len().min(state.capacity - state.unread);
            state.received.extend_from_slice(&slice[..count]);
            state.unread += if state.capacity < usize::MAX { count } else { 0 };
        }
        let written = state.received.len() - before;
        drop(state);
        stream.changed.notify_all();
        Ok(written)
    }
}
