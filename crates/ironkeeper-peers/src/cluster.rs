//! An ensemble of real processes on this machine, which can be started, stopped, killed, paused and
//! partitioned.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::links::{Links, PeerPorts};
use crate::members::{Kind, Membership, Programs};
use crate::ports;
use crate::server::{Server, Setup};

/// The timeout of every wait. It only bounds failures: a JVM on a busy machine starts slowly.
pub const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// Flags for members that are JVMs: many of them share two cores, and all are short-lived.
const JVM_FLAGS: [&str; 3] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"];

/// An ensemble. Members are named by their index in the specification; `id == index + 1`.
#[derive(Debug)]
pub struct Cluster {
    /// The prefix of its output lines, because scenarios run concurrently.
    title: String,
    members: Vec<Server>,
    /// The real peer ports of each member.
    peer_ports: Vec<PeerPorts>,
    links: Option<Links>,
    /// Whether each member was a JVM at any time.
    was_apache: Vec<bool>,
}

/// The settings of an ensemble besides its members.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Whether links can be cut, at the price of a proxy on each.
    pub links: bool,
    /// Additional lines of `zoo.cfg`.
    pub lines: Vec<(&'static str, String)>,
    /// Additional flags of the JVM.
    pub flags: Vec<&'static str>,
    /// Whether JVMs get the flags of Apache's scripts: for measurements, not for scenarios.
    pub as_shipped: bool,
}

impl Cluster {
    /// Creates directories, ports and configurations of all members in `dir`, without starting a
    /// process.
    pub fn prepare(
        membership: &Membership,
        programs: &Programs,
        terms: &Terms,
        dir: &Path,
    ) -> Result<Cluster> {
        let mut real = Vec::new();
        for _ in &membership.0 {
            real.push(PeerPorts { quorum: ports::one()?, election: ports::one()? });
        }
        let links = terms.links.then(|| Links::between(&real)).transpose()?;
        let mut members = Vec::new();
        for (at, part) in membership.0.iter().enumerate() {
            let mut setup = Setup::on_free_port()?
                .set("tickTime", 1000)
                .set("initLimit", 30)
                .set("syncLimit", 4)
                .set("maxSessionTimeout", 40_000)
                .set("maxClientCnxns", 0);
            let usual: &[&str] = if terms.as_shipped { &[] } else { &JVM_FLAGS };
            for flag in usual.iter().chain(&terms.flags) {
                setup = setup.jvm_flag(flag);
            }
            for (key, value) in &terms.lines {
                setup = setup.set(key, value);
            }
            if part.observer {
                setup = setup.set("peerType", "observer");
            }
            for (other, part) in membership.0.iter().enumerate() {
                let (host, ports) = match &links {
                    Some(_) if other == at => ("0.0.0.0", real[at]),
                    Some(links) => ("127.0.0.1", links.ports(at, other)),
                    None => ("127.0.0.1", real[other]),
                };
                let role = if part.observer { ":observer" } else { "" };
                setup = setup.set(
                    &format!("server.{}", other + 1),
                    format!("{host}:{}:{}{role}", ports.quorum, ports.election),
                );
            }
            let dir = dir.join(format!("member-{}", at + 1));
            let server = Server::prepare(programs.get(part.kind)?, setup, &dir)?;
            fs::write(server.data_dir().join("myid"), format!("{}\n", at + 1))?;
            members.push(server);
        }
        let was_apache = members.iter().map(is_apache).collect();
        let title = format!("{} {membership}", dir.file_name().unwrap_or_default().display());
        Ok(Cluster { title, members, peer_ports: real, links, was_apache })
    }

    /// Starts all members and waits until all of them serve.
    pub fn start(
        membership: &Membership,
        programs: &Programs,
        terms: &Terms,
        dir: &Path,
    ) -> Result<Cluster> {
        let mut cluster = Self::prepare(membership, programs, terms, dir)?;
        for server in &mut cluster.members {
            server.launch()?;
        }
        cluster.wait_until_all_serve()?;
        Ok(cluster)
    }

    /// Prints an event of the run.
    pub fn tell(&self, what: &str) {
        println!("   [{}] {what}", self.title);
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    pub fn member(&self, at: usize) -> &Server {
        &self.members[at]
    }

    pub fn member_mut(&mut self, at: usize) -> &mut Server {
        &mut self.members[at]
    }

    pub fn peer_ports(&self, at: usize) -> PeerPorts {
        self.peer_ports[at]
    }

    pub fn members(&self) -> impl Iterator<Item = &Server> {
        self.members.iter()
    }

    /// Returns the links; an error if the ensemble was started without proxies.
    pub fn links(&self) -> Result<&Links> {
        self.links.as_ref().context("this ensemble was started without links to cut")
    }

    /// Returns the connect string of all members.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.members.iter().map(Server::address).collect();
        addresses.join(",")
    }

    /// Returns the leader, if a running member reports that it leads.
    pub fn leader(&self) -> Option<usize> {
        let leads = |server: &Server| server.mode().is_some_and(|mode| mode == "leader");
        self.members.iter().position(|server| server.pid().is_some() && leads(server))
    }

    /// Waits for a leader for which `wanted` holds.
    pub fn wait_for_leader(&self, wanted: impl Fn(usize) -> bool) -> Result<usize> {
        let mut leader = None;
        self.wait(|| {
            leader = self.leader().filter(|at| wanted(*at));
            leader.is_some()
        })
        .context("nobody took the lead")?;
        leader.context("somebody leads")
    }

    /// Waits until every running member serves.
    pub fn wait_until_all_serve(&mut self) -> Result<()> {
        for (at, server) in self.members.iter_mut().enumerate() {
            if server.pid().is_some() {
                server.wait_until_serving().with_context(|| format!("member {}", at + 1))?;
            }
        }
        Ok(())
    }

    /// Polls until a condition holds.
    pub fn wait(&self, mut condition: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            if Instant::now() > deadline {
                bail!("not within {PATIENCE:?}; {}", self.tails(12));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Returns the last lines of all logs.
    pub fn tails(&self, lines: usize) -> String {
        let mut text = String::new();
        for (at, server) in self.members.iter().enumerate() {
            let name = server.program().name();
            text += &format!("\nlog of member {} ({name}):\n{}", at + 1, server.log_tail(lines));
        }
        text
    }

    /// Returns whether a member is a JVM.
    pub fn is_apache(&self, at: usize) -> bool {
        is_apache(&self.members[at])
    }

    /// Returns whether the member with this client port was a JVM at any time.
    pub fn was_apache(&self, port: u16) -> bool {
        self.members.iter().zip(&self.was_apache).any(|(server, was)| server.port() == port && *was)
    }

    /// Returns whether the member with this client port has led as an Apache server, according to
    /// its log.
    pub fn has_led_as_apache(&self, port: u16) -> bool {
        const LEADS: &[u8] = b"LEADING - LEADER ELECTION TOOK";
        self.was_apache(port)
            && self.members.iter().filter(|server| server.port() == port).any(|server| {
                let log = fs::read(server.log_path()).unwrap_or_default();
                log.windows(LEADS.len()).any(|window| window == LEADS)
            })
    }

    /// Returns the quorum ports under which a member dials the other members that were JVMs at any
    /// time.
    pub fn apache_leader_ports(&self, of: usize) -> Vec<u16> {
        (0..self.members.len())
            .filter(|other| *other != of && self.was_apache[*other])
            .map(|other| match &self.links {
                Some(links) => links.ports(of, other).quorum,
                None => self.peer_ports[other].quorum,
            })
            .collect()
    }

    /// Replaces the program of a stopped member; the data stays.
    pub fn change_program(&mut self, at: usize, kind: Kind, programs: &Programs) -> Result<()> {
        self.members[at].replace_program(programs.get(kind)?)?;
        self.was_apache[at] |= self.is_apache(at);
        Ok(())
    }
}

fn is_apache(server: &Server) -> bool {
    server.program().name() == "apache"
}
