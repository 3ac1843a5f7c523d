//! One server under test, Apache ZooKeeper or Ironkeeper, as a child process: standalone or as a
//! member of an ensemble.
//!
//! A [`Server`] is started from a [`Setup`], serves when [`Server::start`] returns (it has replied
//! to `srvr`; there is no fixed sleep), writes its log into its directory and is killed when it is
//! dropped. A member of an ensemble serves only with a quorum: it is prepared, launched, and waited
//! for when enough members run.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ironkeeper_steps::process;

use crate::apache::Apache;
use crate::ports;

/// The longest time until a server replies, including a JVM on a busy machine.
const READY_MAX: Duration = Duration::from_secs(120);
/// The longest time from SIGTERM until a server has exited; after it the server is killed.
const STOP_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// The program to run.
#[derive(Debug, Clone)]
pub enum Program {
    Apache(Apache),
    Ironkeeper(PathBuf),
}

impl Program {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Apache(_) => "apache",
            Self::Ironkeeper(_) => "ironkeeper",
        }
    }

    pub fn command(&self, config: &Path, jvm_flags: &[String]) -> Command {
        match self {
            Self::Apache(apache) => apache.server(config, jvm_flags),
            Self::Ironkeeper(binary) => {
                let mut command = Command::new(binary);
                command.args(["serve", "--config"]).arg(config);
                // JVM flags are passed as in Apache's scripts.
                command.env("SERVER_JVMFLAGS", jvm_flags.join(" "));
                command
            }
        }
    }
}

/// The configuration of a server: `zoo.cfg` lines and Java system properties.
#[derive(Debug, Clone)]
pub struct Setup {
    pub port: u16,
    lines: Vec<(String, String)>,
    jvm_flags: Vec<String>,
}

impl Setup {
    /// Creates a setup with Apache's usual settings on the given port; all four-letter words are
    /// allowed.
    pub fn on_port(port: u16) -> Self {
        let setup = Self { port, lines: Vec::new(), jvm_flags: Vec::new() };
        setup
            .set("tickTime", 2000)
            .set("clientPort", port)
            .set("clientPortAddress", "127.0.0.1")
            .set("admin.enableServer", false)
            .set("4lw.commands.whitelist", "*")
    }

    pub fn on_free_port() -> Result<Self> {
        Ok(Self::on_port(ports::one()?))
    }

    /// Sets a key of `zoo.cfg`; the last value is used.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Display) -> Self {
        self.lines.retain(|(k, _)| k != key);
        self.lines.push((key.to_owned(), value.to_string()));
        self
    }

    /// Changes the client port.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self.set("clientPort", port)
    }

    /// Adds a flag for the JVM, such as `-Djute.maxbuffer=4194304`; Ironkeeper gets it in
    /// `SERVER_JVMFLAGS`.
    #[must_use]
    pub fn jvm_flag(mut self, flag: &str) -> Self {
        self.jvm_flags.push(flag.to_owned());
        self
    }

    fn config(&self, data_dir: &Path) -> String {
        let mut text = format!("dataDir={}\n", data_dir.display());
        for (key, value) in &self.lines {
            text.push_str(&format!("{key}={value}\n"));
        }
        text
    }
}

/// A running server. Owns its process.
#[derive(Debug)]
pub struct Server {
    program: Program,
    setup: Setup,
    dir: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// Starts a server with `zoo.cfg`, `data` and `server.log` in `dir`, and waits until it serves.
    pub fn start(program: &Program, setup: Setup, dir: &Path) -> Result<Self> {
        let mut server = Self::prepare(program, setup, dir)?;
        server.start_again()?;
        Ok(server)
    }

    /// Creates the directory of a server and its `zoo.cfg`, without starting it.
    pub fn prepare(program: &Program, setup: Setup, dir: &Path) -> Result<Self> {
        let server = Self { program: program.clone(), setup, dir: dir.to_owned(), child: None };
        fs::create_dir_all(server.data_dir())?;
        server.write_config()?;
        Ok(server)
    }

    fn write_config(&self) -> Result<()> {
        Ok(fs::write(self.dir.join("zoo.cfg"), self.setup.config(&self.data_dir()))?)
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Replaces the program of a stopped server; used from the next start on.
    pub fn replace_program(&mut self, program: &Program) -> Result<()> {
        if self.child.is_some() {
            bail!("the server is running");
        }
        self.program = program.clone();
        Ok(())
    }

    /// Changes the configuration; used from the next start on.
    pub fn change_setup(&mut self, change: impl FnOnce(Setup) -> Setup) -> Result<()> {
        self.setup = change(self.setup.clone());
        self.write_config()
    }

    pub fn port(&self) -> u16 {
        self.setup.port
    }

    /// Returns the address for clients, `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.setup.port)
    }

    /// Returns the process id; `None` while the server is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Returns the last lines of the log, for an error message.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        process::tail(&String::from_utf8_lossy(&log), lines)
    }

    /// Returns the reply to a four-letter word.
    pub fn ask(&self, word: &str) -> std::io::Result<String> {
        ask(self.setup.port, word)
    }

    /// Returns the mode from `srvr`, `leader` or `follower` for instance; `None` if the server does
    /// not serve.
    pub fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr").ok().filter(|answer| is_serving(answer))?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "))?;
        Some(mode.to_owned())
    }

    /// Returns the zxid of the last applied transaction, as printed by `srvr`; `None` if the server
    /// does not serve.
    pub fn last_zxid(&self) -> Option<String> {
        let answer = self.ask("srvr").ok().filter(|answer| is_serving(answer))?;
        Some(answer.lines().find_map(|line| line.strip_prefix("Zxid: "))?.to_owned())
    }

    /// Pauses the server (SIGSTOP) and waits until all of its threads have stopped: on a busy
    /// machine they may continue for a while after the signal was sent.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")?;
        let pid = self.pid().context("the server is not running")?;
        let deadline = Instant::now() + STOP_MAX;
        while threads(pid).any(|state| state != 'T') {
            if Instant::now() > deadline {
                bail!("the {} server goes on after SIGSTOP", self.program.name());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Terminates the server (SIGTERM) and waits for its exit.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal("TERM")?;
        let mut child = self.child.take().context("the server is not running")?;
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
        child.kill()?;
        child.wait()?;
        bail!("the {} server did not end within {STOP_MAX:?} of SIGTERM", self.program.name())
    }

    /// Sends a signal, named without `SIG`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().context("the server is not running")?;
        process::run(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string())).map(drop)
    }

    /// Kills the server (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the server is not running")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Starts a stopped or killed server again on its data.
    pub fn start_again(&mut self) -> Result<()> {
        self.launch()?;
        self.wait_until_serving()
    }

    /// Starts the process without waiting: a member of an ensemble cannot serve alone.
    pub fn launch(&mut self) -> Result<()> {
        if self.child.is_some() {
            bail!("the server is running already");
        }
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = self.program.command(&self.dir.join("zoo.cfg"), &self.setup.jvm_flags);
        let child = command
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the server accepts requests; returns an error if it exits.
    pub fn wait_until_serving(&mut self) -> Result<()> {
        let name = self.program.name();
        let deadline = Instant::now() + READY_MAX;
        loop {
            let ended = match &mut self.child {
                Some(child) => child.try_wait()?,
                None => bail!("the server is not running"),
            };
            if let Some(status) = ended {
                self.child = None;
                bail!(
                    "the {name} server ended at once ({status}); its log ends:\n{}",
                    self.log_tail(20)
                );
            }
            if ask(self.setup.port, "srvr").is_ok_and(|answer| is_serving(&answer)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "the {name} server does not answer on {} after {READY_MAX:?}; its log ends:\n{}",
                    self.address(),
                    self.log_tail(20)
                );
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both calls fail only if the process has already terminated.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the states of a process's threads, if the system reports them: `T` is a stopped thread.
fn threads(pid: u32) -> impl Iterator<Item = char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // The preceding name is in parentheses and may contain any character.
        stat.rsplit_once(") ")?.1.chars().next()
    })
}

/// Returns whether a reply to `srvr` is from a server that accepts requests; Apache replies before
/// it does.
fn is_serving(srvr: &str) -> bool {
    !srvr.is_empty() && !srvr.contains("not currently serving requests")
}

/// Sends a four-letter word to a local port and reads the whole reply.
pub fn ask(port: u16, word: &str) -> std::io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // The server closes the connection after its reply; a reset after the last byte loses no
        // data.
        Err(e) if e.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {}
        Err(e) => return Err(e),
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_threads_of_a_process_are_told_apart_from_stopped_ones() {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        assert!(threads(child.id()).all(|state| state != 'T'));
        process::run(Command::new("kill").arg("-STOP").arg(child.id().to_string())).unwrap();
        while threads(child.id()).any(|state| state != 'T') {
            thread::sleep(POLL);
        }
        assert_eq!(threads(child.id()).collect::<Vec<_>>(), ['T']);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
