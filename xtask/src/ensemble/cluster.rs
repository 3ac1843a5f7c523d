//! An ensemble of real processes on this machine: started, stopped, killed, paused and cut off at will.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cast::{Cast, Kind, Programs};
use super::links::{Links, PeerPorts};
use crate::ports;
use crate::server::{Server, Setup};

/// How long anything that is waited for may take. It only bounds failure: a JVM on a busy machine starts slowly.
pub const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// Flags for members that are JVMs: many of them share two cores, and none lives long.
const JVM_FLAGS: [&str; 3] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"];

/// An ensemble. Members are named by their place in the cast; their ids are larger by one.
#[derive(Debug)]
pub struct Cluster {
    /// What lines about it begin with: plays run side by side.
    title: String,
    members: Vec<Server>,
    /// Where each really listens for others.
    peer_ports: Vec<PeerPorts>,
    links: Option<Links>,
    /// Whether each was a JVM at any time.
    was_apache: Vec<bool>,
}

/// What an ensemble has besides its cast.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Wires that can be cut, at the price of a proxy on each.
    pub links: bool,
    /// Further lines of `zoo.cfg`.
    pub lines: Vec<(&'static str, String)>,
    /// Further flags of the JVM.
    pub flags: Vec<&'static str>,
    /// JVMs as Apache's scripts start them: for measurements, not for scenarios.
    pub as_shipped: bool,
}

impl Cluster {
    /// Folders, ports and configurations for the cast, in `dir`; nothing runs yet.
    pub fn prepare(cast: &Cast, programs: &Programs, terms: &Terms, dir: &Path) -> Result<Cluster> {
        let mut real = Vec::new();
        for _ in &cast.0 {
            real.push(PeerPorts { quorum: ports::one()?, election: ports::one()? });
        }
        let links = terms.links.then(|| Links::between(&real)).transpose()?;
        let mut members = Vec::new();
        for (at, part) in cast.0.iter().enumerate() {
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
            for (other, part) in cast.0.iter().enumerate() {
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
        let title = format!("{} {cast}", dir.file_name().unwrap_or_default().display());
        Ok(Cluster { title, members, peer_ports: real, links, was_apache })
    }

    /// Starts everybody and waits until all serve.
    pub fn start(cast: &Cast, programs: &Programs, terms: &Terms, dir: &Path) -> Result<Cluster> {
        let mut cluster = Self::prepare(cast, programs, terms, dir)?;
        for server in &mut cluster.members {
            server.launch()?;
        }
        cluster.wait_until_all_serve()?;
        Ok(cluster)
    }

    /// Prints what has happened.
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

    /// The wires; an error if the ensemble has none to cut.
    pub fn links(&self) -> Result<&Links> {
        self.links.as_ref().context("this ensemble was started without links to cut")
    }

    /// All members, as clients want them.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.members.iter().map(Server::address).collect();
        addresses.join(",")
    }

    /// Who leads, if anybody says so.
    pub fn leader(&self) -> Option<usize> {
        let leads = |server: &Server| server.mode().is_some_and(|mode| mode == "leader");
        self.members.iter().position(|server| server.pid().is_some() && leads(server))
    }

    /// Waits until somebody leads of whom `wanted` holds.
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

    /// Waits for a condition, asking again and again.
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

    /// The ends of all logs.
    pub fn tails(&self, lines: usize) -> String {
        let mut text = String::new();
        for (at, server) in self.members.iter().enumerate() {
            let name = server.program().name();
            text += &format!("\nlog of member {} ({name}):\n{}", at + 1, server.log_tail(lines));
        }
        text
    }

    /// Whether a member is a JVM.
    pub fn is_apache(&self, at: usize) -> bool {
        is_apache(&self.members[at])
    }

    /// Whether the member with this port for clients was a JVM at any time.
    pub fn was_apache(&self, port: u16) -> bool {
        self.members.iter().zip(&self.was_apache).any(|(server, was)| server.port() == port && *was)
    }

    /// Whether the member with this port for clients has led as an Apache server: then its log says so.
    pub fn has_led_as_apache(&self, port: u16) -> bool {
        const LEADS: &[u8] = b"LEADING - LEADER ELECTION TOOK";
        self.was_apache(port)
            && self.members.iter().filter(|server| server.port() == port).any(|server| {
                let log = fs::read(server.log_path()).unwrap_or_default();
                log.windows(LEADS.len()).any(|window| window == LEADS)
            })
    }

    /// Where a member finds those of the others that were JVMs at any time, if they lead.
    pub fn apache_leader_ports(&self, of: usize) -> Vec<u16> {
        (0..self.members.len())
            .filter(|other| *other != of && self.was_apache[*other])
            .map(|other| match &self.links {
                Some(links) => links.ports(of, other).quorum,
                None => self.peer_ports[other].quorum,
            })
            .collect()
    }

    /// Makes another program of a stopped member, on the same data.
    pub fn recast(&mut self, at: usize, kind: Kind, programs: &Programs) -> Result<()> {
        self.members[at].replace_program(programs.get(kind)?)?;
        self.was_apache[at] |= self.is_apache(at);
        Ok(())
    }
}

fn is_apache(server: &Server) -> bool {
    server.program().name() == "apache"
}
