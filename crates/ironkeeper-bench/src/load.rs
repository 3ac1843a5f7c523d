//! The load engine: keeps a fixed number of requests in flight on each connection and measures the
//! latency of their replies.
//!
//! Sessions are opened first. Then each thread polls its share of the connections. It reads the
//! bytes that have arrived, matches replies with requests (a server replies to a connection in
//! order, so a queue of send times is enough), and sends as many new requests as there were
//! replies. The latency of a request runs from the creation of its batch, before the write, to the
//! read of the batch that contains its reply.
//!
//! A run passes through the [`Phase`]s: replies are counted only while measuring; then the replies
//! in flight are awaited and the sessions are closed. The calling thread only observes: it samples
//! the CPU time of the server at the start and the end of the measurement and updates the progress
//! line.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use ironkeeper_proto::OpCode;
use mio::{Events, Interest, Poll, Token};

use super::connection::Connection;
use super::histogram::Histogram;
use super::options::{Common, Rate, Until};
use super::process::{self, Usage};
use super::progress::Progress;
use super::requests::{KINDS, Source};
use super::session::Session;
use super::template::append_request;

/// How long the replies to the requests in flight at the end are awaited.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How often a thread reads the clock when no bytes arrive.
const TICK: Duration = Duration::from_millis(50);
const RECEIVE_BYTES: usize = 256 << 10;
/// How many of the slowest replies are kept with their send time.
const LONGEST: usize = 10;

/// The result of a measurement.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// By kind of request; replies with an error are not included.
    pub latencies: [Histogram; KINDS],
    pub errors: BTreeMap<i32, u64>,
    pub began: SystemTime,
    pub elapsed: Duration,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub lost_connections: u32,
    /// Requests without a reply.
    pub unanswered: u64,
    /// The slowest replies, slowest first.
    pub longest: Vec<Slow>,
    pub client: Option<Duration>,
    /// CPU time of the server while measuring, and its memory at the end.
    pub server: Option<Usage>,
}

/// One slow reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slow {
    pub latency_ns: u64,
    /// When the request was sent, since measuring began.
    pub at_ns: u64,
}

/// Runs one source per thread. The connections are distributed evenly over the servers and the
/// threads.
pub(crate) fn run<S: Source>(
    servers: &[SocketAddr],
    common: &Common,
    rate: &Rate,
    sources: Vec<S>,
) -> Result<Outcome> {
    if rate.connections < rate.threads {
        bail!("{} threads have nothing to do with {} connections", rate.threads, rate.connections);
    }
    let sessions = Session::open_spread(servers, common.session_timeout, rate.connections)?;
    let mut shares: Vec<Vec<Lane>> = sources.iter().map(|_| Vec::new()).collect();
    for (at, session) in sessions.into_iter().enumerate() {
        let share = at % shares.len();
        shares[share].push(Lane::new(session.into_connection()?, rate.pipeline));
    }
    let done: Vec<AtomicU64> = sources.iter().map(|_| AtomicU64::new(0)).collect();
    let clock = Clock(Instant::now());
    let mut workers = Vec::new();
    for (at, (source, lanes)) in sources.into_iter().zip(shares).enumerate() {
        let schedule = Schedule::of(rate, at);
        workers.push(Worker::new(lanes, source, schedule, clock, &done[at])?);
    }
    thread::scope(|scope| {
        let (stopped, stops) = mpsc::channel();
        let handles: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let stopped = stopped.clone();
                scope.spawn(move || worker.run(&stopped))
            })
            .collect();
        drop(stopped);
        let usage = watch(&stops, rate.warmup, &common.pid, &done);
        let mut outcome: Option<Outcome> = None;
        for handle in handles {
            let part =
                handle.join().map_err(|_| anyhow!("a thread of the load generator panicked"))??;
            match &mut outcome {
                None => outcome = Some(part),
                Some(whole) => whole.merge(part),
            }
        }
        let mut outcome = outcome.context("at least one thread")?;
        (outcome.client, outcome.server) = usage;
        Ok(outcome)
    })
}

/// Observes the worker threads; returns what this process and the server used while measuring.
fn watch(
    stops: &mpsc::Receiver<()>,
    warmup: Duration,
    pids: &[u32],
    done: &[AtomicU64],
) -> (Option<Duration>, Option<Usage>) {
    let sample = || (process::own_usage(), process::total_usage(pids));
    let began = Instant::now();
    let mut before = warmup.is_zero().then(sample);
    let mut progress = Progress::new();
    loop {
        let wait = if before.is_none() { warmup.saturating_sub(began.elapsed()) } else { TICK * 4 };
        match stops.recv_timeout(wait.min(TICK * 4)) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
        if before.is_none() && began.elapsed() >= warmup {
            before = Some(sample());
        }
        progress.show(done.iter().map(|done| done.load(Ordering::Relaxed)).sum(), "operations");
    }
    let after = sample();
    let (client, server) = before.unwrap_or(after);
    let client = client.zip(after.0).map(|(before, after)| after.cpu - before.cpu);
    let server =
        server.zip(after.1).map(|(before, after)| Usage { cpu: after.cpu - before.cpu, ..after });
    (client, server)
}

impl Outcome {
    fn new() -> Outcome {
        Outcome {
            latencies: std::array::from_fn(|_| Histogram::new()),
            errors: BTreeMap::new(),
            began: SystemTime::now(),
            elapsed: Duration::ZERO,
            sent_bytes: 0,
            received_bytes: 0,
            lost_connections: 0,
            unanswered: 0,
            longest: Vec::new(),
            client: None,
            server: None,
        }
    }

    fn merge(&mut self, other: Outcome) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
        for (code, count) in other.errors {
            *self.errors.entry(code).or_default() += count;
        }
        self.elapsed = self.elapsed.max(other.elapsed);
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.lost_connections += other.lost_connections;
        self.unanswered += other.unanswered;
        other.longest.into_iter().for_each(|slow| keep_longest(&mut self.longest, slow));
    }

    /// Returns the number of replies without an error.
    pub(crate) fn operations(&self) -> u64 {
        self.latencies.iter().map(Histogram::count).sum()
    }
}

/// Inserts into a short list, sorted slowest first.
fn keep_longest(longest: &mut Vec<Slow>, slow: Slow) {
    if longest.len() == LONGEST
        && longest.last().is_some_and(|last| last.latency_ns >= slow.latency_ns)
    {
        return;
    }
    let at = longest.partition_point(|other| other.latency_ns >= slow.latency_ns);
    longest.insert(at, slow);
    longest.truncate(LONGEST);
}

/// Nanoseconds since the run began, the same on all threads.
#[derive(Debug, Clone, Copy)]
struct Clock(Instant);

impl Clock {
    #[inline]
    fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The time window of the measurement, on the clock of the run.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    from_ns: u64,
    until_ns: u64,
    /// Number of replies after which this thread stops measuring.
    replies: u64,
}

impl Schedule {
    fn of(rate: &Rate, thread: usize) -> Schedule {
        let from_ns = rate.warmup.as_nanos() as u64;
        match rate.until() {
            Until::Elapsed(elapsed) => {
                let until_ns = from_ns.saturating_add(elapsed.as_nanos() as u64);
                Schedule { from_ns, until_ns, replies: u64::MAX }
            }
            Until::Completed(total) => {
                let threads = u64::from(rate.threads);
                let extra = u64::from((thread as u64) < total % threads);
                Schedule { from_ns, until_ns: u64::MAX, replies: total / threads + extra }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmingUp,
    Measuring,
    /// No new requests are sent; the replies in flight are awaited.
    Draining,
    /// closeSession has been sent on every connection.
    Closing,
}

/// One connection and its requests in flight.
#[derive(Debug)]
struct Lane {
    connection: Connection,
    /// Send times in nanoseconds, oldest first; the lowest bit is the kind of the request.
    in_flight: VecDeque<u64>,
    pipeline: usize,
    next_xid: i32,
    due_xid: i32,
    lost: bool,
}

impl Lane {
    fn new(connection: Connection, pipeline: u32) -> Lane {
        let pipeline = pipeline as usize;
        let in_flight = VecDeque::with_capacity(pipeline + 1);
        Lane { connection, in_flight, pipeline, next_xid: 1, due_xid: 1, lost: false }
    }

    fn is_idle(&self) -> bool {
        self.lost || self.in_flight.is_empty()
    }
}

fn xid_after(xid: i32) -> i32 {
    if xid == i32::MAX { 1 } else { xid + 1 }
}

struct Worker<'a, S> {
    poll: Poll,
    lanes: Vec<Lane>,
    source: S,
    exhausted: bool,
    schedule: Schedule,
    phase: Phase,
    clock: Clock,
    outcome: Outcome,
    /// Replies received while measuring, errors included.
    replies: u64,
    done: &'a AtomicU64,
    buffer: Box<[u8]>,
}

impl<'a, S: Source> Worker<'a, S> {
    fn new(
        mut lanes: Vec<Lane>,
        source: S,
        schedule: Schedule,
        clock: Clock,
        done: &'a AtomicU64,
    ) -> Result<Worker<'a, S>> {
        let poll = Poll::new()?;
        for (at, lane) in lanes.iter_mut().enumerate() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut lane.connection.stream, Token(at), interest)?;
        }
        Ok(Worker {
            poll,
            lanes,
            source,
            exhausted: false,
            schedule,
            phase: Phase::WarmingUp,
            clock,
            outcome: Outcome::new(),
            replies: 0,
            done,
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
        })
    }

    /// Runs all phases. Sends to `stopped` when the measurement ends.
    fn run(mut self, stopped: &mpsc::Sender<()>) -> Result<Outcome> {
        let now = self.clock.now();
        self.advance(now);
        for at in 0..self.lanes.len() {
            self.send(at, now);
        }
        let mut events = Events::with_capacity(self.lanes.len().clamp(1, 1024));
        while matches!(self.phase, Phase::WarmingUp | Phase::Measuring) {
            self.turn(&mut events)?;
            if self.exhausted && self.all_idle() || self.lanes.iter().all(|lane| lane.lost) {
                self.finish(self.clock.now());
            }
        }
        // The receiver is dropped if another worker has stopped first.
        let _ = stopped.send(());
        self.drain(&mut events)?;
        self.phase = Phase::Closing;
        let now = self.clock.now();
        for lane in self.lanes.iter_mut().filter(|lane| !lane.lost) {
            append_request(lane.next_xid, OpCode::CloseSession, lane.connection.out(), |_| ());
            lane.next_xid = xid_after(lane.next_xid);
            lane.in_flight.push_back(now << 1);
        }
        for at in 0..self.lanes.len() {
            self.send(at, now);
        }
        self.drain(&mut events)?;
        Ok(self.outcome)
    }

    /// Waits at most `DRAIN_MAX` until no request is in flight.
    fn drain(&mut self, events: &mut Events) -> Result<()> {
        let deadline = Instant::now() + DRAIN_MAX;
        while !self.all_idle() && Instant::now() < deadline {
            self.turn(events)?;
        }
        for lane in self.lanes.iter_mut().filter(|lane| !lane.is_idle()) {
            self.outcome.unanswered += lane.in_flight.len() as u64;
            lane.lost = true;
        }
        Ok(())
    }

    fn all_idle(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle)
    }

    /// Waits for events, at most one `TICK`, and handles them.
    fn turn(&mut self, events: &mut Events) -> Result<()> {
        match self.poll.poll(events, Some(TICK)) {
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        if events.is_empty() {
            self.advance(self.clock.now());
        }
        for event in events.iter() {
            let at = event.token().0;
            if self.lanes[at].lost {
                continue;
            }
            let ended = event.is_read_closed() || event.is_error();
            if event.is_readable() || ended {
                self.receive(at, ended)?;
            } else {
                self.flush(at);
            }
        }
        Ok(())
    }

    /// Reads until the socket is empty; each batch of replies permits as many new requests.
    /// `ended`: the server has closed the connection, and its last bytes may still be unread.
    fn receive(&mut self, at: usize, ended: bool) -> Result<()> {
        loop {
            let received = match self.lanes[at].connection.receive(&mut self.buffer) {
                Ok(Some(count)) => count,
                Ok(None) => return Ok(()),
                Err(_) => {
                    self.lose(at);
                    return Ok(());
                }
            };
            let now = self.clock.now();
            self.advance(now);
            self.replied(at, received, now)?;
            self.send(at, now);
            // A read that did not fill the buffer has emptied the socket; the next bytes raise an
            // event. The end of the stream raises no second event.
            if received < self.buffer.len() && !ended {
                return Ok(());
            }
        }
    }

    fn replied(&mut self, at: usize, received: usize, now: u64) -> Result<()> {
        let measuring = self.phase == Phase::Measuring;
        let Lane { connection, in_flight, due_xid, .. } = &mut self.lanes[at];
        let outcome = &mut self.outcome;
        let mut replies = 0;
        let mut out_of_order = None;
        connection.scanner.feed(&self.buffer[..received], |reply| {
            let sent = match in_flight.pop_front() {
                Some(sent) if reply.xid == *due_xid => sent,
                _ => {
                    out_of_order.get_or_insert((reply.xid, *due_xid));
                    return;
                }
            };
            *due_xid = xid_after(*due_xid);
            if !measuring {
                return;
            }
            replies += 1;
            match S::err(&reply) {
                0 => {
                    let latency_ns = now - (sent >> 1);
                    outcome.latencies[(sent & 1) as usize].record(latency_ns);
                    let slow = Slow {
                        latency_ns,
                        at_ns: (sent >> 1).saturating_sub(self.schedule.from_ns),
                    };
                    keep_longest(&mut outcome.longest, slow);
                }
                code => *outcome.errors.entry(code).or_default() += 1,
            }
        })?;
        if let Some((found, due)) = out_of_order {
            bail!("the server answered request {found} when {due} was due");
        }
        if measuring {
            self.outcome.received_bytes += received as u64;
            self.replies += replies;
            self.done.store(self.replies, Ordering::Relaxed);
            if self.replies >= self.schedule.replies {
                self.finish(now);
            }
        }
        Ok(())
    }

    /// Refills the pipeline with new requests while the run lasts, and flushes the connection.
    fn send(&mut self, at: usize, now: u64) {
        let lane = &mut self.lanes[at];
        if matches!(self.phase, Phase::WarmingUp | Phase::Measuring) && !self.exhausted {
            while lane.in_flight.len() < lane.pipeline {
                match self.source.append(lane.next_xid, lane.connection.out()) {
                    Some(kind) => lane.in_flight.push_back(now << 1 | u64::from(kind)),
                    None => {
                        self.exhausted = true;
                        break;
                    }
                }
                lane.next_xid = xid_after(lane.next_xid);
            }
        }
        self.flush(at);
    }

    fn flush(&mut self, at: usize) {
        match self.lanes[at].connection.flush() {
            Ok(sent) if self.phase == Phase::Measuring => self.outcome.sent_bytes += sent as u64,
            Ok(_) => {}
            Err(_) => self.lose(at),
        }
    }

    /// Records that the server closed a connection. In phase `Closing` this is the expected reply.
    fn lose(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if !std::mem::replace(&mut lane.lost, true) && self.phase != Phase::Closing {
            self.outcome.lost_connections += 1;
            self.outcome.unanswered += lane.in_flight.len() as u64;
        }
    }

    /// Advances the phase by the clock.
    fn advance(&mut self, now: u64) {
        if self.phase == Phase::WarmingUp && now >= self.schedule.from_ns {
            self.phase = Phase::Measuring;
            self.outcome.began = SystemTime::now();
        }
        if self.phase == Phase::Measuring && now >= self.schedule.until_ns {
            self.finish(now);
        }
    }

    /// Ends the measurement. A measurement by time has exactly the configured duration, because the
    /// clock decides which replies are counted.
    fn finish(&mut self, now: u64) {
        if matches!(self.phase, Phase::WarmingUp | Phase::Measuring) {
            let end = now.min(self.schedule.until_ns);
            self.outcome.elapsed = Duration::from_nanos(end.saturating_sub(self.schedule.from_ns));
            self.phase = Phase::Draining;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{Creates, Mix};
    use crate::template::Layout;
    use ironkeeper_proto::connect::ConnectResponse;
    use ironkeeper_proto::reply::{finish_frame, header_frame, start_frame};
    use ironkeeper_proto::request::RequestHeader;
    use ironkeeper_proto::{ErrorCode, Put, Reader, SessionId, Xid, Zxid};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn rate(operations: Option<u64>, connections: u32, threads: u32) -> Rate {
        Rate {
            connections,
            pipeline: 7,
            threads,
            seconds: None,
            operations,
            warmup: Duration::from_secs(2),
        }
    }

    #[test]
    fn threads_share_a_count_without_a_rest() {
        let rate = rate(Some(10), 4, 4);
        let shares: Vec<u64> = (0..4).map(|thread| Schedule::of(&rate, thread).replies).collect();
        assert_eq!(shares, [3, 3, 2, 2]);
    }

    #[test]
    fn measuring_by_time_starts_behind_the_warm_up() {
        let schedule = Schedule::of(&rate(None, 1, 1), 0);
        assert_eq!((schedule.from_ns, schedule.until_ns), (2_000_000_000, 12_000_000_000));
        assert_eq!(schedule.replies, u64::MAX);
    }

    #[test]
    fn the_longest_replies_are_kept_slowest_first() {
        let mut longest = Vec::new();
        for latency_ns in [5, 1, 9, 7, 3, 11, 2, 8, 4, 6, 10, 12, 0] {
            keep_longest(&mut longest, Slow { latency_ns, at_ns: latency_ns * 2 });
        }
        let kept: Vec<u64> = longest.iter().map(|slow| slow.latency_ns).collect();
        assert_eq!(kept, [12, 11, 10, 9, 8, 7, 6, 5, 4, 3]);
        assert!(longest.iter().all(|slow| slow.at_ns == slow.latency_ns * 2));
    }

    #[test]
    fn xids_stay_positive() {
        assert_eq!(xid_after(1), 2);
        assert_eq!(xid_after(i32::MAX), 1);
    }

    /// The reaction of a scripted server to a request.
    enum Answer {
        Reply { xid: i32, error: Option<ErrorCode> },
        HangUp,
    }

    /// Starts a server on its own port that replies with `script(request number, xid)`, with one
    /// thread for each of `connections`. It sends in pieces that split frames. The threads end with
    /// their connections.
    fn serve(connections: usize, script: fn(usize, i32) -> Answer) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for _ in 0..connections {
                let (stream, _) = listener.accept().unwrap();
                thread::spawn(move || answer_all(stream, script));
            }
        });
        address
    }

    fn answer_all(mut stream: TcpStream, script: fn(usize, i32) -> Answer) {
        let mut out = Vec::new();
        let response = ConnectResponse {
            timeout_ms: 30_000,
            session: SessionId(1),
            password: [0; 16],
            read_only: Some(false),
        };
        let mut body = Vec::new();
        response.encode(&mut body);
        out.put_buf(Some(&body));
        read_frame(&mut stream).unwrap();
        stream.write_all(&out).unwrap();
        for number in 0.. {
            let Some(frame) = read_frame(&mut stream) else { return };
            let header = RequestHeader::decode(&mut Reader::new(&frame)).unwrap();
            out.clear();
            if header.op == OpCode::CloseSession.code() {
                header_frame(&mut out, header.xid, Zxid(1), None);
                stream.write_all(&out).unwrap();
                return;
            }
            match script(number, header.xid.0) {
                Answer::HangUp => return,
                Answer::Reply { xid, error: Some(error) } => {
                    header_frame(&mut out, Xid(xid), Zxid(1), Some(error));
                }
                Answer::Reply { xid, error: None } => {
                    let start = start_frame(&mut out, Xid(xid), Zxid(1));
                    out.put_raw(&[0; 180]);
                    finish_frame(&mut out, start);
                }
            }
            let (head, tail) = out.split_at(out.len() * (number % 5) / 5);
            if stream.write_all(head).and_then(|()| stream.write_all(tail)).is_err() {
                return;
            }
        }
    }

    fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut len = [0; 4];
        stream.read_exact(&mut len).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        stream.read_exact(&mut frame).ok()?;
        Some(frame)
    }

    fn run_against(server: SocketAddr, rate: &Rate) -> Result<Outcome> {
        run_against_all(&[server], rate)
    }

    fn run_against_all(servers: &[SocketAddr], rate: &Rate) -> Result<Outcome> {
        let common = Common {
            server: String::new(),
            prefix: "/b".to_owned(),
            keep: false,
            json: false,
            pid: Vec::new(),
            session_timeout: 30_000,
        };
        let rate = Rate { warmup: Duration::ZERO, ..rate.clone() };
        let layout = Layout::over("/b", 10);
        let sources =
            (0..rate.threads).map(|thread| Mix::new(&layout, 10, 100, 50, thread)).collect();
        run(servers, &common, &rate, sources)
    }

    fn reply(_: usize, xid: i32) -> Answer {
        Answer::Reply { xid, error: None }
    }

    #[test]
    fn every_request_is_answered_and_counted_once() {
        let outcome = run_against(serve(5, reply), &rate(Some(5000), 5, 2)).unwrap();
        // A batch of replies is counted as a whole, so the count may exceed the limit by a batch.
        assert!((5000..5000 + 2 * 7).contains(&outcome.operations()), "{}", outcome.operations());
        assert!(outcome.latencies.iter().all(|histogram| histogram.count() > 1000));
        assert_eq!((outcome.lost_connections, outcome.unanswered), (0, 0));
        assert!(outcome.errors.is_empty() && outcome.received_bytes >= 5000 * 200);
        assert_eq!(outcome.longest.len(), LONGEST);
    }

    #[test]
    fn connections_are_dealt_out_to_all_servers() {
        // Each server accepts the given number of connections, and the run needs all five.
        let servers = [serve(3, reply), serve(2, reply)];
        let outcome = run_against_all(&servers, &rate(Some(1000), 5, 1)).unwrap();
        assert!(outcome.operations() >= 1000);
        assert_eq!((outcome.lost_connections, outcome.unanswered), (0, 0));
    }

    #[test]
    fn errors_are_counted_apart() {
        fn script(number: usize, xid: i32) -> Answer {
            Answer::Reply { xid, error: number.is_multiple_of(2).then_some(ErrorCode::NoNode) }
        }
        let outcome = run_against(serve(1, script), &rate(Some(100), 1, 1)).unwrap();
        let errors = outcome.errors[&ErrorCode::NoNode.code()];
        assert!(errors >= 50 && outcome.operations() >= 50, "{errors} of {}", outcome.operations());
        assert_eq!(outcome.errors.len(), 1);
    }

    #[test]
    fn a_server_that_hangs_up_ends_the_run_with_what_there_was() {
        fn script(number: usize, xid: i32) -> Answer {
            if number == 50 { Answer::HangUp } else { reply(number, xid) }
        }
        let outcome = run_against(serve(3, script), &rate(Some(100_000), 3, 1)).unwrap();
        assert_eq!(outcome.lost_connections, 3);
        assert!(outcome.operations() <= 150 && outcome.unanswered > 0);
    }

    #[test]
    fn replies_out_of_order_are_a_failure_of_the_server() {
        fn script(number: usize, xid: i32) -> Answer {
            Answer::Reply { xid: if number == 20 { xid + 1 } else { xid }, error: None }
        }
        let why = run_against(serve(1, script), &rate(Some(100), 1, 1)).unwrap_err();
        assert_eq!(why.to_string(), "the server answered request 22 when 21 was due");
    }

    #[test]
    fn a_run_ends_when_there_is_nothing_more_to_ask() {
        struct Three(Creates, u32);
        impl Source for Three {
            fn append(&mut self, xid: i32, out: &mut Vec<u8>) -> Option<u8> {
                self.1 = self.1.checked_sub(1)?;
                self.0.append(xid, out)
            }
        }
        let common = Common {
            server: String::new(),
            prefix: "/b".to_owned(),
            keep: false,
            json: false,
            pid: Vec::new(),
            session_timeout: 30_000,
        };
        let source = Three(Creates::new(&Layout::flat("/b"), 1, 0, 1), 3);
        let rate = Rate { warmup: Duration::ZERO, ..rate(Some(u64::MAX), 2, 1) };
        let outcome = run(&[serve(2, reply)], &common, &rate, vec![source]).unwrap();
        assert_eq!(outcome.operations(), 3);
    }
}
