//! Opens and closes sessions, a number of them at the same time.
//!
//! The latency of opening runs from the call of connect to the reply to the connect request.
//! Without `--hold`, a session is closed as soon as it is open, and the next session replaces it;
//! with `--hold`, all sessions stay open until the end.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ironkeeper_proto::OpCode;
use ironkeeper_proto::connect::ConnectResponse;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::histogram::Histogram;
use super::options::{Common, Sessions};
use super::process::{self, Usage};
use super::progress::Progress;
use super::report::Report;
use super::session::connect_request;
use super::template::request;

const TICK: Duration = Duration::from_millis(100);
/// A server that sends nothing for so long is treated as failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The length of a connect response with the `readOnly` field, including its length prefix.
const RESPONSE_BYTES: usize = 4 + 37;

pub(crate) fn run(common: &Common, server: SocketAddr, sessions: &Sessions) -> Result<Report> {
    let opener = Opener {
        poll: Poll::new()?,
        server,
        connect: connect_request(common.session_timeout),
        close: request(1, OpCode::CloseSession, |_| ()),
        hold: sessions.hold,
        limit: sessions.operations.unwrap_or(u64::MAX),
        begun: 0,
        attempts: Vec::new(),
        opened: Histogram::new(),
        closed: Histogram::new(),
        failed: 0,
    };
    let seconds = match sessions.operations {
        Some(_) => Duration::MAX,
        None => sessions.seconds.unwrap_or(Duration::from_secs(10)),
    };
    let before = process::total_usage(&common.pid);
    let (opener, elapsed) = opener.run(sessions.connections as usize, seconds)?;
    let after = process::total_usage(&common.pid);

    let setting = format!(
        "{} at once, {}",
        sessions.connections,
        if sessions.hold { "held until the end" } else { "closed at once" }
    );
    let mut report = Report::new("sessions", &common.server, setting);
    report.timed("open", &opener.opened);
    report.timed("close", &opener.closed);
    report.rate(opener.opened.count(), elapsed);
    report.lost(opener.failed);
    let used =
        before.zip(after).map(|(before, after)| Usage { cpu: after.cpu - before.cpu, ..after });
    report.used(None, used);
    opener.close_held()?;
    Ok(report)
}

/// The state of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connecting,
    /// The connect request has been sent.
    Opening,
    /// closeSession has been sent.
    Closing,
    Held,
    Over,
}

#[derive(Debug)]
struct Attempt {
    stream: TcpStream,
    step: Step,
    since: Instant,
    received: Vec<u8>,
}

struct Opener {
    poll: Poll,
    server: SocketAddr,
    connect: Vec<u8>,
    close: Vec<u8>,
    hold: bool,
    limit: u64,
    begun: u64,
    /// Indexed by token. The next session reuses the index of a finished one, unless sessions are
    /// held.
    attempts: Vec<Attempt>,
    opened: Histogram,
    closed: Histogram,
    failed: u32,
}

impl Opener {
    fn run(mut self, at_once: usize, seconds: Duration) -> Result<(Opener, Duration)> {
        let mut events = Events::with_capacity(1024);
        let mut progress = Progress::new();
        let began = Instant::now();
        let mut last_news = began;
        let mut running = 0;
        while running < at_once && self.begin(None)? {
            running += 1;
        }
        while running > 0 {
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            }
            let now = Instant::now();
            if events.is_empty() && now - last_news > SILENCE_MAX {
                bail!("the server has been silent for {SILENCE_MAX:?}");
            }
            for event in &events {
                last_news = now;
                let at = event.token().0;
                if !self.step(at)? {
                    continue;
                }
                // This session is finished: start the next one while time is left.
                let again = began.elapsed() < seconds && self.begin((!self.hold).then_some(at))?;
                running -= usize::from(!again);
            }
            progress.show(self.opened.count(), "sessions");
        }
        if self.opened.count() == 0 {
            bail!("the server opened no session; the last attempt was closed by it");
        }
        Ok((self, began.elapsed()))
    }

    /// Starts the next session, at the index `place` or at a new one; returns `false` at the limit.
    fn begin(&mut self, place: Option<usize>) -> Result<bool> {
        if self.begun == self.limit {
            return Ok(false);
        }
        self.begun += 1;
        let since = Instant::now();
        let mut stream = TcpStream::connect(self.server).context("cannot connect")?;
        let at = place.unwrap_or(self.attempts.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(at), interest)?;
        let attempt = Attempt { stream, step: Step::Connecting, since, received: Vec::new() };
        match place {
            Some(at) => self.attempts[at] = attempt,
            None => self.attempts.push(attempt),
        }
        Ok(true)
    }

    /// Handles readiness; returns `true` when another session may start at this index.
    fn step(&mut self, at: usize) -> Result<bool> {
        let attempt = &mut self.attempts[at];
        if attempt.step == Step::Connecting {
            match attempt.stream.peer_addr() {
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::NotConnected => {
                    return match attempt.stream.take_error()? {
                        Some(_) => Ok(self.fail(at)),
                        None => Ok(false),
                    };
                }
                Err(_) => return Ok(self.fail(at)),
            }
            attempt.stream.set_nodelay(true)?;
            // The send buffer of a new socket accepts these few bytes at once.
            if attempt.stream.write_all(&self.connect).is_err() {
                return Ok(self.fail(at));
            }
            attempt.step = Step::Opening;
        }
        if matches!(attempt.step, Step::Over | Step::Held) {
            return Ok(false);
        }
        let ended = read_all(attempt);
        match attempt.step {
            Step::Opening if attempt.received.len() >= RESPONSE_BYTES => {
                let response = ConnectResponse::decode(&attempt.received[4..RESPONSE_BYTES])?;
                if response.timeout_ms <= 0 {
                    return Ok(self.fail(at));
                }
                self.opened.record(attempt.since.elapsed().as_nanos() as u64);
                attempt.received.clear();
                if self.hold {
                    attempt.step = Step::Held;
                    return Ok(true);
                }
                attempt.since = Instant::now();
                attempt.step = Step::Closing;
                if attempt.stream.write_all(&self.close).is_err() {
                    return Ok(self.fail(at));
                }
                Ok(false)
            }
            Step::Closing if !attempt.received.is_empty() || ended => {
                self.closed.record(attempt.since.elapsed().as_nanos() as u64);
                attempt.step = Step::Over;
                Ok(true)
            }
            _ if ended => Ok(self.fail(at)),
            _ => Ok(false),
        }
    }

    /// Records that the server did not open this session.
    fn fail(&mut self, at: usize) -> bool {
        self.attempts[at].step = Step::Over;
        self.failed += 1;
        true
    }

    /// Closes the held sessions and waits until the server has closed their connections.
    fn close_held(mut self) -> Result<()> {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.step == Step::Held) {
            attempt.step = Step::Closing;
            // A connection that the server has closed needs no closeSession.
            let _ = attempt.stream.write_all(&self.close);
        }
        let mut open = self.attempts.iter().filter(|attempt| attempt.step == Step::Closing).count();
        let deadline = Instant::now() + SILENCE_MAX;
        let mut events = Events::with_capacity(1024);
        while open > 0 && Instant::now() < deadline {
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                let attempt = &mut self.attempts[event.token().0];
                if attempt.step == Step::Closing
                    && (read_all(attempt) || !attempt.received.is_empty())
                {
                    attempt.step = Step::Over;
                    open -= 1;
                }
            }
        }
        Ok(())
    }
}

/// Reads the available bytes; returns `true` when the server has closed the connection.
fn read_all(attempt: &mut Attempt) -> bool {
    let mut buffer = [0; 256];
    loop {
        match attempt.stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(count) => attempt.received.extend_from_slice(&buffer[..count]),
            Err(why) if why.kind() == ErrorKind::WouldBlock => return false,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}
