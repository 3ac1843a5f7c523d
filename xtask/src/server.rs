//! One server under test, Apache ZooKeeper or Ironkeeper, as a child process: alone or of an ensemble.
//!
//! A [`Server`] is started from a [`Setup`], is ready when [`Server::start`] returns (it answered `srvr`;
//! nothing sleeps for a fixed time), writes its log into its folder and is killed when it is
//! dropped. A member of an ensemble serves only with others: it is prepared, launched, and waited for when
//! enough of them are there.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::apache::Apache;
use crate::{ironkeeper, ports, tools};

/// How long a server may take to answer, a JVM on a busy machine included.
const READY_MAX: Duration = Duration::from_secs(120);
/// How long a server may take to end after SIGTERM before it is killed.
const STOP_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// What to run.
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
            Self::Ironkeeper(binary) => ironkeeper::server(binary, config, jvm_flags),
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
    /// A server with Apache's usual settings on the given port, every four-letter word allowed.
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

    /// Sets a key of `zoo.cfg`; the last value wins.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Display) -> Self {
        self.lines.retain(|(k, _)| k != key);
        self.lines.push((key.to_owned(), value.to_string()));
        self
    }

    /// The same on another port for clients.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self.set("clientPort", port)
    }

    /// Adds a flag for the JVM, such as `-Djute.maxbuffer=4194304`; Ironkeeper gets it in `SERVER_JVMFLAGS`.
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
    /// Starts a server whose `zoo.cfg`, `data` and `server.log` live in `dir`, and waits until it serves.
    pub fn start(program: &Program, setup: Setup, dir: &Path) -> Result<Self> {
        let mut server = Self::prepare(program, setup, dir)?;
        server.start_again()?;
        Ok(server)
    }

    /// Makes the folder of a server and its `zoo.cfg`, and starts nothing.
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

    /// Another program for the same folder, from the next start on.
    pub fn replace_program(&mut self, program: &Program) -> Result<()> {
        if self.child.is_some() {
            bail!("the server is running");
        }
        self.program = program.clone();
        Ok(())
    }

    /// Another configuration, from the next start on.
    pub fn change_setup(&mut self, change: impl FnOnce(Setup) -> Setup) -> Result<()> {
        self.setup = change(self.setup.clone());
        self.write_config()
    }

    pub fn port(&self) -> u16 {
        self.setup.port
    }

    /// `127.0.0.1:port`, as clients want it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.setup.port)
    }

    /// The process id; `None` while stopped.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// The end of the log, for the message that reports a failure.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        tools::tail(&String::from_utf8_lossy(&log), lines)
    }

    /// The answer to a four-letter word.
    pub fn ask(&self, word: &str) -> std::io::Result<String> {
        ask(self.setup.port, word)
    }

    /// What `srvr` calls the server's mode, `leader` or `follower` for instance; `None` if it serves nobody.
    pub fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr").ok().filter(|answer| is_serving(answer))?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "))?;
        Some(mode.to_owned())
    }

    /// The last transaction it has applied, as `srvr` writes it; `None` if it serves nobody.
    pub fn last_zxid(&self) -> Option<String> {
        let answer = self.ask("srvr").ok().filter(|answer| is_serving(answer))?;
        Some(answer.lines().find_map(|line| line.strip_prefix("Zxid: "))?.to_owned())
    }

    /// Stops the server in its tracks (SIGSTOP), and waits until it has: on a busy machine its threads may go on for a
    /// while after the signal was sent.
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

    /// Asks the server to end (SIGTERM) and waits for it.
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

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().context("the server is not running")?;
        tools::run(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string())).map(drop)
    }

    /// Ends the server on the spot (SIGKILL).
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

    /// Starts the process and does not wait for it: a member of an ensemble cannot serve alone.
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

    /// Waits until the server takes requests; an error if it ends instead.
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
            // Both fail only when the process is gone already, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The states of a process's threads, where the system tells them: `T` is a thread that was stopped.
fn threads(pid: u32) -> impl Iterator<Item = char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // The name before it is in parentheses, and may contain any letter.
        stat.rsplit_once(") ")?.1.chars().next()
    })
}

/// Whether an answer to `srvr` comes from a server that takes requests; Apache answers before it does.
fn is_serving(srvr: &str) -> bool {
    !srvr.is_empty() && !srvr.contains("not currently serving requests")
}

/// Sends a four-letter word to a local port and reads the answer to its end.
pub fn ask(port: u16, word: &str) -> std::io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // The server closes right after its answer; a reset behind the last byte takes nothing away.
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
        tools::run(Command::new("kill").arg("-STOP").arg(child.id().to_string())).unwrap();
        while threads(child.id()).any(|state| state != 'T') {
            thread::sleep(POLL);
        }
        assert_eq!(threads(child.id()).collect::<Vec<_>>(), ['T']);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
