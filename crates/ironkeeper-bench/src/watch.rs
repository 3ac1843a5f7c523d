//! Watch fan-out: the time until the last of many watchers has received the event of a write.
//!
//! In each round every watcher reads the node with a watch. When all watchers have their replies,
//! another session writes the node, and the clock runs until the last watcher has received its
//! event.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ironkeeper_proto::{OpCode, Put, Xid};
use mio::{Events, Interest, Poll, Token};

use super::connection::Connection;
use super::histogram::Histogram;
use super::options::{Common, Watch};
use super::process::{self, Usage};
use super::progress::Progress;
use super::report::Report;
use super::session::{Session, unexpected};
use super::template::{Layout, request, value};
use super::tree::{self, Prefix};

/// The time limit of a round.
const ROUND_MAX: Duration = Duration::from_secs(60);
const XID: i32 = 1;

pub(crate) fn run(common: &Common, server: SocketAddr, watch: &Watch) -> Result<Report> {
    let prefix = Prefix::make(server, common)?;
    let layout = Layout::over(prefix.path(), 1);
    tree::make_nodes(server, common, &layout, 1, watch.size)?;
    let mut fan_out = FanOut::open(common, server, watch, &layout.path(0))?;
    let mut progress = Progress::new();
    for _ in 0..watch.warmup {
        fan_out.round()?;
    }
    fan_out.forget();
    let before = process::total_usage(&common.pid);
    let began = Instant::now();
    for round in 0..watch.operations {
        fan_out.round()?;
        progress.show(u64::from(round), "rounds");
    }
    let elapsed = began.elapsed();
    let after = process::total_usage(&common.pid);
    drop(progress);

    let setting = format!("{} watchers of a node of {} bytes", watch.watchers, watch.size);
    let mut report = Report::new("watch", &common.server, setting);
    report.timed("set reply", &fan_out.set_reply);
    report.timed("events", &fan_out.each_event);
    report.timed("last event", &fan_out.last_event);
    report.rate(u64::from(watch.operations), elapsed);
    let used =
        before.zip(after).map(|(before, after)| Usage { cpu: after.cpu - before.cpu, ..after });
    report.used(None, used);
    fan_out.close()?;
    prefix.remove()?;
    Ok(report)
}

struct FanOut {
    poll: Poll,
    events: Events,
    /// The watchers, followed by the writer.
    connections: Vec<Connection>,
    get: Vec<u8>,
    set: Vec<u8>,
    buffer: Vec<u8>,
    set_reply: Histogram,
    each_event: Histogram,
    last_event: Histogram,
}

impl FanOut {
    fn open(common: &Common, server: SocketAddr, watch: &Watch, path: &str) -> Result<FanOut> {
        let poll = Poll::new()?;
        let mut connections = Vec::new();
        for session in Session::open_many(server, common.session_timeout, watch.watchers + 1)? {
            let mut connection = session.into_connection()?;
            let token = Token(connections.len());
            poll.registry().register(&mut connection.stream, token, Interest::READABLE)?;
            connections.push(connection);
        }
        Ok(FanOut {
            poll,
            events: Events::with_capacity(1024),
            connections,
            get: request(XID, OpCode::GetData, |out| {
                out.put_str(path);
                out.put_bool(true);
            }),
            set: request(XID, OpCode::SetData, |out| {
                out.put_str(path);
                out.put_buf(Some(&value(watch.size)));
                out.put_i32(-1);
            }),
            buffer: vec![0; 64 << 10],
            set_reply: Histogram::new(),
            each_event: Histogram::new(),
            last_event: Histogram::new(),
        })
    }

    /// Resets the measurements.
    fn forget(&mut self) {
        self.set_reply = Histogram::new();
        self.each_event = Histogram::new();
        self.last_event = Histogram::new();
    }

    fn round(&mut self) -> Result<()> {
        let writer = self.connections.len() - 1;
        for watcher in &mut self.connections[..writer] {
            watcher.out().extend_from_slice(&self.get);
            watcher.flush()?;
        }
        let mut due = writer;
        self.until(|_, xid, _| {
            due -= usize::from(xid == XID);
            due == 0
        })?;

        let began = Instant::now();
        let set = self.set.clone();
        self.connections[writer].out().extend_from_slice(&set);
        self.connections[writer].flush()?;
        let (mut due, mut replied) = (writer, false);
        let mut seen = Vec::with_capacity(writer + 1);
        self.until(|at, xid, now| {
            if at == writer && xid == XID {
                replied = true;
            } else if xid == Xid::NOTIFICATION.0 {
                due -= 1;
            }
            seen.push((at == writer, now));
            due == 0 && replied
        })?;
        let mut last = Duration::ZERO;
        for (is_reply, now) in seen {
            let taken = now - began;
            if is_reply {
                self.set_reply.record(taken.as_nanos() as u64);
            } else {
                self.each_event.record(taken.as_nanos() as u64);
                last = last.max(taken);
            }
        }
        self.last_event.record(last.as_nanos() as u64);
        Ok(())
    }

    /// Passes each reply or event to `enough` (connection, xid, time) until `enough` returns
    /// `true`.
    fn until(&mut self, mut enough: impl FnMut(usize, i32, Instant) -> bool) -> Result<()> {
        let deadline = Instant::now() + ROUND_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("the server did not answer every watcher within {ROUND_MAX:?}");
            }
            match self.poll.poll(&mut self.events, Some(left)) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let mut done = false;
            let mut err = 0;
            for event in &self.events {
                let at = event.token().0;
                let connection = &mut self.connections[at];
                while let Some(received) = connection.receive(&mut self.buffer)? {
                    let now = Instant::now();
                    connection.scanner.feed(&self.buffer[..received], |reply| {
                        err = if err == 0 { reply.err } else { err };
                        done |= enough(at, reply.xid, now);
                    })?;
                    // The next bytes raise an event; the end of the stream raises no second event.
                    if received < self.buffer.len() && !event.is_read_closed() {
                        break;
                    }
                }
            }
            if err != 0 {
                return Err(unexpected(err));
            }
            if done {
                return Ok(());
            }
        }
    }

    fn close(mut self) -> Result<()> {
        let close = request(XID, OpCode::CloseSession, |_| ());
        for connection in &mut self.connections {
            connection.out().extend_from_slice(&close);
            connection.flush()?;
        }
        // The server replies and then closes the connection; either may be detected first.
        let mut open = self.connections.len();
        let deadline = Instant::now() + ROUND_MAX;
        let mut closed = vec![false; open];
        while open > 0 && Instant::now() < deadline {
            match self.poll.poll(&mut self.events, Some(Duration::from_secs(1))) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &self.events {
                let at = event.token().0;
                if !std::mem::replace(&mut closed[at], true) {
                    open -= 1;
                }
            }
        }
        Ok(())
    }
}
