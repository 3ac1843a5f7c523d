//! Holds many idle sessions, and measures their cost for the server and how many the server closes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use ironkeeper_proto::{OpCode, Xid};
use mio::{Events, Interest, Poll, Token};

use super::connection::Connection;
use super::histogram::Histogram;
use super::options::{Common, Idle};
use super::process::{self, Usage};
use super::progress::Progress;
use super::report::Report;
use super::session::Session;
use super::template::request;

/// How long the replies to the last pings, and then the closing of the sessions, are awaited.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

pub(crate) fn run(common: &Common, server: SocketAddr, idle: &Idle) -> Result<Report> {
    let opening = Instant::now();
    let sessions = Session::open_many(server, common.session_timeout, idle.connections)?;
    let opened_in = opening.elapsed();
    let granted_ms =
        sessions.iter().map(Session::timeout_ms).min().unwrap_or(common.session_timeout);
    let interval = match idle.ping_interval {
        Some(ms) => Duration::from_millis(u64::from(ms)),
        None => Duration::from_millis(u64::from(granted_ms.unsigned_abs()) / 3),
    };
    let mut holding = Holding::new(sessions, interval)?;
    let before = process::total_usage(&common.pid);
    let began = Instant::now();
    holding.hold(began, idle.seconds)?;
    let elapsed = began.elapsed();
    let after = process::total_usage(&common.pid);

    let setting = format!(
        "{} sessions, opened in {:.2} s, held for {:.0} s, pinging every {:.1} s",
        idle.connections,
        opened_in.as_secs_f64(),
        idle.seconds.as_secs_f64(),
        interval.as_secs_f64()
    );
    let mut report = Report::new("idle", &common.server, setting);
    report.timed("pings", &holding.answered);
    report.rate(holding.answered.count(), elapsed);
    report.lost(holding.lost());
    let used =
        before.zip(after).map(|(before, after)| Usage { cpu: after.cpu - before.cpu, ..after });
    report.used(None, used);
    holding.close();
    Ok(report)
}

struct Lane {
    connection: Connection,
    /// When the ping in flight was sent.
    pinged: Option<Instant>,
    lost: bool,
}

struct Holding {
    poll: Poll,
    lanes: Vec<Lane>,
    interval: Duration,
    answered: Histogram,
    buffer: Vec<u8>,
}

impl Holding {
    fn new(sessions: Vec<Session>, interval: Duration) -> Result<Holding> {
        let poll = Poll::new()?;
        let mut lanes = Vec::with_capacity(sessions.len());
        for session in sessions {
            let mut connection = session.into_connection()?;
            poll.registry().register(
                &mut connection.stream,
                Token(lanes.len()),
                Interest::READABLE,
            )?;
            lanes.push(Lane { connection, pinged: None, lost: false });
        }
        Ok(Holding { poll, lanes, interval, answered: Histogram::new(), buffer: vec![0; 16 << 10] })
    }

    /// Pings the sessions in turn, evenly over time: each session once per interval.
    fn hold(&mut self, began: Instant, seconds: Duration) -> Result<()> {
        let ping = request(Xid::PING.0, OpCode::Ping, |_| ());
        let gap = self.interval / u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let end = began + seconds;
        let mut next = began;
        let mut turn = 0;
        let mut events = Events::with_capacity(1024);
        let mut progress = Progress::new();
        loop {
            let now = Instant::now();
            if now >= end + LAST_ANSWERS || (now >= end && self.awaited() == 0) {
                return Ok(());
            }
            while next <= now && now < end {
                self.ping(turn, &ping);
                turn = (turn + 1) % self.lanes.len();
                next += gap;
            }
            let wait = if now < end { next.min(end) } else { end + LAST_ANSWERS };
            // Wait at least 1 ms: one system call then covers a small group of pings.
            let wait = wait.saturating_duration_since(now).max(Duration::from_millis(1));
            match self.poll.poll(&mut events, Some(wait)) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                result => result?,
            }
            for event in &events {
                self.receive(event.token().0)?;
            }
            progress.show(self.answered.count(), "pings");
        }
    }

    fn ping(&mut self, at: usize, ping: &[u8]) {
        let lane = &mut self.lanes[at];
        if lane.lost || lane.pinged.is_some() {
            return;
        }
        lane.pinged = Some(Instant::now());
        lane.connection.out().extend_from_slice(ping);
        lane.lost = lane.connection.flush().is_err();
    }

    fn receive(&mut self, at: usize) -> Result<()> {
        let Lane { connection, pinged, lost } = &mut self.lanes[at];
        loop {
            match connection.receive(&mut self.buffer) {
                Ok(Some(received)) => {
                    connection.scanner.feed(&self.buffer[..received], |reply| {
                        if reply.xid == Xid::PING.0
                            && let Some(sent) = pinged.take()
                        {
                            self.answered.record(sent.elapsed().as_nanos() as u64);
                        }
                    })?;
                }
                Ok(None) => return Ok(()),
                Err(_) => {
                    *lost = true;
                    return Ok(());
                }
            }
        }
    }

    fn awaited(&self) -> usize {
        self.lanes.iter().filter(|lane| !lane.lost && lane.pinged.is_some()).count()
    }

    fn lost(&self) -> u32 {
        self.lanes.iter().filter(|lane| lane.lost).count() as u32
    }

    /// Sends closeSession on every connection and waits at most `LAST_ANSWERS` until the server has
    /// closed them. Nothing is measured.
    fn close(mut self) {
        let close = request(1, OpCode::CloseSession, |_| ());
        for lane in self.lanes.iter_mut().filter(|lane| !lane.lost) {
            lane.connection.out().extend_from_slice(&close);
            let _ = lane.connection.flush();
        }
        let deadline = Instant::now() + LAST_ANSWERS;
        let mut events = Events::with_capacity(1024);
        while self.lost() < self.lanes.len() as u32 && Instant::now() < deadline {
            if self.poll.poll(&mut events, Some(LAST_ANSWERS)).is_err() {
                return;
            }
            for event in &events {
                if self.receive(event.token().0).is_err() {
                    return;
                }
            }
        }
    }
}
