//! The target of an attack: one server, or an ensemble of three.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::links::PeerPorts;
use ironkeeper_peers::members::{Kind, Membership, Programs};
use ironkeeper_peers::server::{Program, Server, Setup};

/// A fresh server or ensemble, and the size of the attacks on it.
#[derive(Debug)]
pub struct Target {
    servers: Servers,
    size: Size,
}

/// Whether attacks have the size in their description, or a smaller size for CI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Full,
    Short,
}

#[derive(Debug)]
enum Servers {
    Alone(Server),
    Ensemble { cluster: Cluster, leader: usize },
}

impl Target {
    pub fn alone(binary: &Path, size: Size, dir: &Path) -> Result<Target> {
        let setup = Setup::on_free_port()?
            // Attackers on one machine represent attackers on many machines.
            .set("maxClientCnxns", 0)
            .set("extendedTypesEnabled", true);
        let server = Server::start(&Program::Ironkeeper(binary.to_owned()), setup, dir)?;
        Ok(Target { servers: Servers::Alone(server), size })
    }

    pub fn ensemble(binary: &Path, size: Size, dir: &Path) -> Result<Target> {
        let programs = Programs::only(Kind::Ours, Program::Ironkeeper(binary.to_owned()));
        let lines = vec![
            ("extendedTypesEnabled", "true".to_owned()),
            ("reconfigEnabled", "true".to_owned()),
        ];
        let terms = Terms { lines, ..Terms::default() };
        let cluster = Cluster::start(&Membership::of("ours,ours,ours"), &programs, &terms, dir)?;
        let leader = cluster.wait_for_leader(|_| true)?;
        Ok(Target { servers: Servers::Ensemble { cluster, leader }, size })
    }

    /// Returns `full`, or a part of it in the short form.
    pub fn count(&self, full: usize) -> usize {
        match self.size {
            Size::Full => full,
            Size::Short => (full / 5).max(1),
        }
    }

    /// Returns the client port; in an ensemble that of the leader.
    pub fn port(&self) -> u16 {
        match &self.servers {
            Servers::Alone(server) => server.port(),
            Servers::Ensemble { cluster, leader } => cluster.member(*leader).port(),
        }
    }

    /// Returns all client ports, that of [`Target::port`] first.
    pub fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.servers().map(Server::port).collect();
        ports.sort_by_key(|port| *port != self.port());
        ports
    }

    /// Returns the peer ports of the leader.
    pub fn leader_ports(&self) -> Result<PeerPorts> {
        match &self.servers {
            Servers::Alone(_) => anyhow::bail!("a server alone has no ports for others"),
            Servers::Ensemble { cluster, leader } => Ok(cluster.peer_ports(*leader)),
        }
    }

    /// Returns the id of a follower.
    pub fn follower_id(&self) -> i64 {
        match &self.servers {
            Servers::Ensemble { leader: 0, .. } => 2,
            _ => 1,
        }
    }

    fn servers(&self) -> Box<dyn Iterator<Item = &Server> + '_> {
        match &self.servers {
            Servers::Alone(server) => Box::new(std::iter::once(server)),
            Servers::Ensemble { cluster, .. } => Box::new(cluster.members()),
        }
    }

    pub fn pids(&self) -> Vec<u32> {
        self.servers().filter_map(Server::pid).collect()
    }

    pub fn logs(&self) -> Vec<PathBuf> {
        self.servers().map(Server::log_path).collect()
    }

    /// Returns the newest epoch of any server; zero for a single server.
    pub fn epoch(&self) -> i64 {
        let epochs = self.servers().filter_map(|server| {
            let zxid = server.last_zxid()?;
            i64::from_str_radix(zxid.trim_start_matches("0x"), 16).ok()
        });
        epochs.map(|zxid| zxid >> 32).max().unwrap_or(0)
    }

    /// Resets the sync statistics of all servers.
    pub fn forget_syncs(&self) {
        for server in self.servers() {
            // A server that does not reply now fails the check at the end.
            let _ = server.ask("srst");
        }
    }

    /// Returns the longest sync of a log since [`Target::forget_syncs`].
    pub fn longest_sync(&self) -> Duration {
        let longest = self.servers().filter_map(|server| longest_sync(&server.ask("mntr").ok()?));
        longest.max().unwrap_or_default()
    }

    /// Returns an error with the first server that does not reply.
    pub fn check_alive(&self) -> Result<()> {
        for (at, server) in self.servers().enumerate() {
            let answer =
                server.ask("srvr").with_context(|| format!("server {} is gone", at + 1))?;
            ensure!(answer.contains("Mode:"), "server {} does not serve", at + 1);
        }
        Ok(())
    }
}

fn longest_sync(mntr: &str) -> Option<Duration> {
    let ms = mntr.lines().find_map(|line| line.strip_prefix("zk_max_fsynctime\t"))?;
    Some(Duration::from_millis(ms.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_sync_is_a_line_of_mntr() {
        let answer = "zk_min_fsynctime\t0\nzk_max_fsynctime\t27\nzk_cnt_fsynctime\t3\n";
        assert_eq!(longest_sync(answer), Some(Duration::from_millis(27)));
        assert_eq!(longest_sync("zk_server_state\tleader\n"), None);
    }
}
