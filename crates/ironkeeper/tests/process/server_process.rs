//! A server in a separate process, with access to its log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::client::{PATIENCE, TIMEOUT_MS};

/// The configuration of a server process.
#[derive(Clone, Debug)]
pub struct Setup {
    config_file: PathBuf,
    /// The arguments that replace the configuration file.
    arguments: Vec<String>,
    /// A shell command that runs before the server in the same process.
    prelude: Option<&'static str>,
    /// The location at which the server panics, see `planted.rs` of the engine.
    planted_panic: Option<&'static str>,
}

impl Setup {
    /// Creates a configuration with everything in `dir`; `settings` are lines of a zoo.cfg.
    pub fn new(dir: &Path, settings: &str) -> Setup {
        Setup::apart(dir, &dir.join("data"), settings)
    }

    /// Creates a configuration with the data in `data_dir` and the configuration file in `dir`.
    pub fn apart(dir: &Path, data_dir: &Path, settings: &str) -> Setup {
        let config_file = dir.join("zoo.cfg");
        let text = format!(
            "dataDir={}\nclientPort=2181\nmaxClientCnxns=0\nmaxSessionTimeout={TIMEOUT_MS}\n{settings}\n",
            data_dir.display()
        );
        std::fs::write(&config_file, text).expect("a configuration file");
        Setup { config_file, arguments: Vec::new(), prelude: None, planted_panic: None }
    }

    /// Creates a server without a configuration file; `arguments` follow `serve`.
    pub fn unconfigured(dir: &Path, arguments: &[&str]) -> Setup {
        let mut all = vec!["--data-dir".to_owned(), dir.join("data").display().to_string()];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Setup { config_file: PathBuf::new(), arguments: all, prelude: None, planted_panic: None }
    }

    /// Runs a line of shell before the server, in the same process.
    pub fn after(self, prelude: &'static str) -> Setup {
        Setup { prelude: Some(prelude), ..self }
    }

    /// Makes the server panic at `place` once `/panic-N` is created, where N is its server id.
    pub fn planting_panic(self, place: &'static str) -> Setup {
        Setup { planted_panic: Some(place), ..self }
    }

    /// Starts a server on any free port and waits until clients can connect.
    #[track_caller]
    pub fn start(&self) -> ServerProcess {
        match self.spawn(0).ready() {
            Ok(server) => server,
            Err((status, log)) => panic!("the server did not start: {status}\n{log}"),
        }
    }

    /// Starts a server that must fail to start, and returns its exit status and its output.
    #[track_caller]
    pub fn start_in_vain(&self, port: u16) -> (ExitStatus, String) {
        match self.spawn(port).ready() {
            Ok(server) => panic!("the server started: {}", server.kill()),
            Err(refusal) => refusal,
        }
    }

    /// Starts a server without waiting for it.
    pub fn spawn(&self, port: u16) -> Starting {
        let binary = env!("CARGO_BIN_EXE_ironkeeper");
        let mut command = match self.prelude {
            None => Command::new(binary),
            Some(prelude) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{prelude}; exec \"$0\" \"$@\""), binary]);
                shell
            }
        };
        command
            .args(["serve", "--client-address", "127.0.0.1", "--client-port", &port.to_string()])
            .args(&self.arguments)
            .env_remove("IRONKEEPER_LOG")
            .envs(self.planted_panic.map(|place| ("IRONKEEPER_PLANTED_PANIC", place)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.arguments.is_empty() {
            command.arg("--config").arg(&self.config_file);
        }
        let mut child = command.spawn().expect("a process");
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().expect("a pipe");
        let tail = Arc::clone(&log);
        thread::spawn(move || tail.collect(BufReader::new(stderr)));
        Starting { server: ServerProcess { child, address: UNKNOWN, log } }
    }
}

const UNKNOWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A server process that has not printed its client address yet.
#[derive(Debug)]
pub struct Starting {
    server: ServerProcess,
}

impl Starting {
    /// Waits until clients can connect. Returns the exit status and the log if the process ends
    /// instead.
    pub fn ready(mut self) -> Result<ServerProcess, (ExitStatus, String)> {
        let stdout = self.server.child.stdout.take().expect("a pipe");
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        while stdout.read_line(&mut line).expect("text") > 0 {
            if let Some(address) = line.trim().strip_prefix("clients") {
                self.server.address = address.trim().parse().expect("an address");
                // Keep reading, so that the server never writes to a closed pipe.
                thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
                return Ok(self.server);
            }
            line.clear();
        }
        let status = self.server.await_end();
        Err((status, self.server.log.whole()))
    }

    /// Kills the process in whatever state it is.
    pub fn kill(self) -> String {
        self.server.kill()
    }
}

/// A running server, killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    pub address: SocketAddr,
    log: Arc<Log>,
}

impl ServerProcess {
    /// Sends SIGKILL. Returns the log.
    pub fn kill(mut self) -> String {
        self.child.kill().expect("a process to kill");
        self.await_end();
        self.log.whole()
    }

    /// Sends SIGTERM. Returns the exit status and the log.
    #[track_caller]
    pub fn terminate(self) -> (ExitStatus, String) {
        self.end_by(Signal::TERM)
    }

    /// Sends a signal that ends the process. Returns the exit status and the log.
    #[track_caller]
    pub fn end_by(mut self, signal: Signal) -> (ExitStatus, String) {
        kill_process(self.pid(), signal).expect("a process to stop");
        let status = self.await_end();
        (status, self.log.whole())
    }

    /// Waits until the process ends by itself. Returns the exit status and the log.
    #[track_caller]
    pub fn ended(mut self) -> (ExitStatus, String) {
        let status = self.await_end();
        (status, self.log.whole())
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns the reply to a four-letter word.
    pub fn ask(&self, word: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.write_all(word.as_bytes()).expect("a word");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Waits until the log contains `text`.
    #[track_caller]
    pub fn await_log(&self, text: &str) {
        self.await_log_times(text, 1);
    }

    /// Waits until the log contains `text` this many times.
    #[track_caller]
    pub fn await_log_times(&self, text: &str, times: usize) {
        self.log.await_text(text, times);
    }

    /// Returns the resident memory of the process in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Returns the peak of the resident memory in bytes.
    pub fn resident_bytes_peak(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the status of a running process");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
        kib << 10
    }

    #[track_caller]
    fn await_end(&mut self) -> ExitStatus {
        // The standard error of the process is open until it ends.
        assert!(self.log.await_end(), "the server does not end: {}", self.log.whole());
        self.child.wait().expect("a process to wait for")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The standard error of the server.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    text: String,
    ended: bool,
}

impl Log {
    fn collect(&self, mut from: impl BufRead) {
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            self.lines.lock().expect("the log").text.push_str(&String::from_utf8_lossy(&line));
            self.changed.notify_all();
            line.clear();
        }
        self.lines.lock().expect("the log").ended = true;
        self.changed.notify_all();
    }

    fn whole(&self) -> String {
        self.lines.lock().expect("the log").text.clone()
    }

    #[track_caller]
    fn await_text(&self, text: &str, times: usize) {
        let lines = self.lines.lock().expect("the log");
        let waited = self.changed.wait_timeout_while(lines, PATIENCE, |lines| {
            lines.text.matches(text).count() < times && !lines.ended
        });
        let lines = waited.expect("the log").0;
        let found = lines.text.matches(text).count();
        assert!(found >= times, "waited for {text:?} in vain:\n{}", lines.text);
    }

    /// Waits for the end of the log, which is the end of the process. Returns `false` after
    /// `PATIENCE`.
    fn await_end(&self) -> bool {
        let lines = self.lines.lock().expect("the log");
        let waited = self.changed.wait_timeout_while(lines, PATIENCE, |lines| !lines.ended);
        waited.expect("the log").0.ended
    }
}
