//! The membership of an ensemble: the text that servers exchange, log and store in
//! `/zookeeper/config`.
//!
//! ```text
//! server.N=host:quorumPort:electionPort[|host2:q2:e2...]:participant|observer[;clientHost:clientPort]
//! group.G=N:N:...
//! weight.N=W
//! version=<hexadecimal zxid>
//! ```
//! Groups and weights occur only in hierarchical ensembles. Host names are kept as text and are
//! resolved when a socket is opened. Apache prints members in the order of a hash map, so two texts
//! are compared after parsing, never byte by byte.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use crate::ids::ServerId;

/// The maximal length of a membership text that is parsed: that of an election frame.
pub const CONFIG_TEXT_MAX: usize = 512 * 1024;

/// The reason why a text is not a membership.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line:?} of the ensemble's configuration: {what}")]
pub struct MembershipError {
    /// The line; empty if the error concerns the text as a whole.
    pub line: String,
    /// The reason.
    pub what: &'static str,
}

/// The role of a member: a participant votes, an observer does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerRole {
    /// Votes in elections and on transactions.
    Participant,
    /// Receives transactions without voting.
    Observer,
}

/// One of the addresses at which other members connect to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// A name or an address.
    pub host: String,
    /// The port for packets between a leader and its learners.
    pub quorum_port: u16,
    /// The port for votes.
    pub election_port: u16,
}

/// The address at which a member accepts clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// A name or an address.
    pub host: String,
    /// The client port.
    pub port: u16,
}

/// One `server.N` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Never empty.
    pub addresses: Vec<PeerAddress>,
    /// The role of the member.
    pub role: PeerRole,
    /// The address for clients without TLS.
    pub client: Option<ClientAddress>,
    /// The address for clients with TLS.
    pub secure_client: Option<ClientAddress>,
}

/// The membership of an ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Membership {
    /// All members by their ids.
    pub members: BTreeMap<ServerId, Member>,
    /// The group of each participant; empty if quorums are majorities.
    pub groups: BTreeMap<ServerId, i64>,
    /// The weights in the text. A participant that is not listed has weight 1.
    pub weights: BTreeMap<ServerId, i64>,
    /// The zxid of the reconfig transaction; zero for a membership from the configuration file.
    pub version: i64,
}

impl Membership {
    /// Parses the text that servers send. Lines with other keys are ignored, as in Apache.
    pub fn parse(text: &str) -> Result<Membership, MembershipError> {
        let mut membership = Membership::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let fail = |what| MembershipError { line: line.chars().take(200).collect(), what };
            let (key, value) = line.split_once('=').ok_or(fail("it has no '='"))?;
            let (key, value) = (key.trim(), value.trim());
            if let Some(id) = key.strip_prefix("server.") {
                let id = server_id(id).ok_or(fail("the number of the server is none"))?;
                let member = Member::parse(value).map_err(fail)?;
                if membership.members.insert(id, member).is_some() {
                    return Err(fail("the server was named before"));
                }
            } else if let Some(group) = key.strip_prefix("group.") {
                let group = group.parse().map_err(|_| fail("the number of the group is none"))?;
                for id in value.split(':') {
                    let id = server_id(id).ok_or(fail("a server in the group is no number"))?;
                    if membership.groups.insert(id, group).is_some() {
                        return Err(fail("a server is in two groups"));
                    }
                }
            } else if let Some(id) = key.strip_prefix("weight.") {
                let id = server_id(id).ok_or(fail("the number of the server is none"))?;
                let weight = value.parse().ok().filter(|weight| (0..=1 << 32).contains(weight));
                membership.weights.insert(id, weight.ok_or(fail("the weight is no number"))?);
            } else if key == "version" {
                // A negative version would be printed as a number that cannot be parsed.
                let version = i64::from_str_radix(value, 16).ok().filter(|version| *version >= 0);
                membership.version = version.ok_or(fail("the version is no number"))?;
            }
        }
        let whole = |what| MembershipError { line: String::new(), what };
        if !membership.groups.is_empty()
            && membership.voters().any(|id| !membership.groups.contains_key(&id))
        {
            return Err(whole("some participants are in a group, but not all"));
        }
        Ok(membership)
    }

    /// Returns the voters in the order of their ids.
    pub fn voters(&self) -> impl Iterator<Item = ServerId> {
        self.members
            .iter()
            .filter(|(_, member)| member.role == PeerRole::Participant)
            .map(|(id, _)| *id)
    }

    /// Returns whether the server is a member that votes.
    pub fn is_voter(&self, id: ServerId) -> bool {
        self.members.get(&id).is_some_and(|member| member.role == PeerRole::Participant)
    }

    /// Returns the weight of a vote.
    pub fn weight(&self, id: ServerId) -> i64 {
        self.weights.get(&id).copied().unwrap_or(1)
    }

    /// Returns whether both have the same members with the same roles, addresses, groups and
    /// weights.
    pub fn same_members(&self, other: &Membership) -> bool {
        self.members == other.members
            && self.groups == other.groups
            && self.weights == other.weights
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, member) in &self.members {
            writeln!(f, "server.{id}={member}")?;
        }
        let mut groups: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (id, group) in &self.groups {
            groups.entry(*group).or_default().push(id.to_string());
        }
        for (group, ids) in groups {
            writeln!(f, "group.{group}={}", ids.join(":"))?;
        }
        for (id, weight) in &self.weights {
            writeln!(f, "weight.{id}={weight}")?;
        }
        write!(f, "version={:x}", self.version)
    }
}

impl Member {
    /// Parses the value of a `server.N` line.
    ///
    /// ```
    /// use ironkeeper_proto::membership::Member;
    ///
    /// let member = Member::parse("zk1:2888:3888;2181").unwrap();
    /// assert_eq!(member.to_string(), "zk1:2888:3888:participant;0.0.0.0:2181");
    /// ```
    pub fn parse(value: &str) -> Result<Member, &'static str> {
        let mut parts = value.split(';').map(str::trim);
        let peers = parts.next().unwrap_or_default();
        let mut client =
            || parts.next().filter(|part| !part.is_empty()).map(client_address).transpose();
        let (client, secure_client) = (client()?, client()?);
        if parts.next().is_some() {
            return Err("there is something behind the client addresses");
        }
        let mut addresses = Vec::new();
        let mut role = None;
        for group in peers.split('|') {
            let (address, its_role) = peer_address(group.trim())?;
            if let (Some(before), Some(now)) = (role, its_role)
                && before != now
            {
                return Err("all addresses of a server must have the same role");
            }
            role = role.or(its_role);
            addresses.push(address);
        }
        let role = role.unwrap_or(PeerRole::Participant);
        Ok(Member { addresses, role, client, secure_client })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut addresses: Vec<&PeerAddress> = self.addresses.iter().collect();
        addresses.sort_by(|a, b| a.host.cmp(&b.host));
        for (index, address) in addresses.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "|" };
            let PeerAddress { host, quorum_port, election_port } = address;
            write!(f, "{separator}{}:{quorum_port}:{election_port}", Bracketed(host))?;
        }
        f.write_str(match self.role {
            PeerRole::Participant => ":participant",
            PeerRole::Observer => ":observer",
        })?;
        if self.client.is_some() || self.secure_client.is_some() {
            f.write_str(";")?;
        }
        if let Some(client) = &self.client {
            write!(f, "{}:{}", Bracketed(&client.host), client.port)?;
        }
        if let Some(secure) = &self.secure_client {
            write!(f, ";{}:{}", Bracketed(&secure.host), secure.port)?;
        }
        Ok(())
    }
}

/// A host before a port: an IPv6 address is written in brackets.
struct Bracketed<'a>(&'a str);

impl fmt::Display for Bracketed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(self.0) }
    }
}

fn server_id(text: &str) -> Option<ServerId> {
    text.trim().parse().ok().filter(|id| *id >= 0).map(ServerId)
}

fn peer_address(text: &str) -> Result<(PeerAddress, Option<PeerRole>), &'static str> {
    const FORM: &str = "an address is host:quorumPort:electionPort[:participant|observer]";
    let (host, rest) = split_host(text).ok_or(FORM)?;
    let mut fields = rest.split(':').map(str::trim);
    let (Some(quorum), Some(election)) = (fields.next(), fields.next()) else { return Err(FORM) };
    let role = match fields.next() {
        None => None,
        Some(text) if text.eq_ignore_ascii_case("participant") => Some(PeerRole::Participant),
        Some(text) if text.eq_ignore_ascii_case("observer") => Some(PeerRole::Observer),
        Some(_) => return Err("the role is neither participant nor observer"),
    };
    if fields.next().is_some() || host.is_empty() {
        return Err(FORM);
    }
    let (quorum_port, election_port) = (port(quorum)?, port(election)?);
    if quorum_port == election_port {
        return Err("the quorum port and the election port are the same");
    }
    Ok((PeerAddress { host: host.to_owned(), quorum_port, election_port }, role))
}

/// Parses `[host:]port`. A port without a host means all IPv4 addresses, as in Apache.
fn client_address(text: &str) -> Result<ClientAddress, &'static str> {
    if !text.starts_with('[') && !text.contains(':') {
        return Ok(ClientAddress { host: "0.0.0.0".to_owned(), port: port(text)? });
    }
    match split_host(text) {
        Some((host, rest)) if !host.is_empty() => {
            Ok(ClientAddress { host: host.to_owned(), port: port(rest)? })
        }
        _ => Err("a client address is [host:]port"),
    }
}

fn split_host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']')?;
            Some((host, rest.strip_prefix(':')?))
        }
        None => text.split_once(':'),
    }
}

fn port(text: &str) -> Result<u16, &'static str> {
    text.parse().map_err(|_| "a port is a number from 0 to 65535")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum_packet::tests::{CONFIG, from_hex};

    #[test]
    fn what_apache_sends_is_read_and_written() {
        let text = String::from_utf8(from_hex(CONFIG)).unwrap();
        let membership = Membership::parse(&text).unwrap();
        assert_eq!(membership.voters().collect::<Vec<_>>(), [1, 2, 3].map(ServerId));
        assert_eq!(membership.to_string(), text);
    }

    #[test]
    fn every_part_of_a_line_survives() {
        let text = "server.1=a:1:2|b:3:4:participant;0.0.0.0:2181\n\
            server.2=[2001:db8::1]:1:2:participant;[::]:2181;h:2281\n\
            server.7=c:1:2:observer;;h:2281\n\
            group.1=1:2\nweight.1=0\nversion=10000000a";
        let membership = Membership::parse(text).unwrap();
        assert_eq!(membership.to_string(), text);
        assert_eq!(membership.version, 0x1_0000_000a);
        assert_eq!((membership.weight(ServerId(1)), membership.weight(ServerId(2))), (0, 1));
        assert!(!membership.is_voter(ServerId(7)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "server.1",
            "server.x=a:1:2",
            "server.-1=a:1:2",
            "server.1=a:1:2\nversion=-ff0",
            "server.1=a:1:2\nserver.1=b:1:2",
            "server.1=a:1",
            "server.1=a:1:1",
            "server.1=a:1:2:voter",
            "server.1=a:1:2;1;2;3",
            "server.1=:1:2",
            "server.1=[::1:1:2",
            "server.1=a:1:2\nserver.2=b:1:2\ngroup.1=1",
            "group.1=1\ngroup.2=1",
            "weight.1=-1",
            "version=xyz",
        ] {
            assert!(Membership::parse(text).is_err(), "{text:?} was accepted");
        }
        let long = format!("server.1={}", "x".repeat(10_000));
        assert!(Membership::parse(&long).unwrap_err().line.len() <= 200);
    }
}
