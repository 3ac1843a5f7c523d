//! Membership of an ensemble as it is written in configuration: the `server.N` lines.
//!
//! ```text
//! server.N = host:quorumPort:electionPort[:role] [ | host:quorumPort:electionPort[:role] ... ]
//!            [ ; [clientHost:]clientPort [ ; [secureHost:]securePort ] ]
//! ```
//! A host may be an IPv6 address in brackets. Host names stay text: they are resolved when a socket
//! is opened.

use super::ListenAddress;

/// Whether a member votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerRole {
    Participant,
    Observer,
}

impl PeerRole {
    pub(super) fn parse(text: &str) -> Result<PeerRole, String> {
        if text.eq_ignore_ascii_case("participant") {
            Ok(PeerRole::Participant)
        } else if text.eq_ignore_ascii_case("observer") {
            Ok(PeerRole::Observer)
        } else {
            Err(format!("the role must be participant or observer, not {text:?}"))
        }
    }
}

/// One of the addresses at which other members reach a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    pub host: String,
    pub quorum_port: u16,
    pub election_port: u16,
}

/// One `server.N` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    /// At least one.
    pub addresses: Vec<PeerAddress>,
    pub role: PeerRole,
    /// Where the member serves clients, if the line says so.
    pub client: Option<ListenAddress>,
    /// Where the member serves clients over TLS, if the line says so.
    pub secure_client: Option<ListenAddress>,
}

impl Member {
    /// Reads the value of `server.<id>`.
    ///
    /// ```
    /// use ironkeeper_server::config::Member;
    ///
    /// let member = Member::parse("1", "zk1:2888:3888;2181").unwrap();
    /// assert_eq!(member.client.unwrap().port, 2181);
    /// ```
    pub fn parse(id: &str, value: &str) -> Result<Member, String> {
        let id =
            id.parse::<u64>().ok().filter(|&id| i64::try_from(id).is_ok()).ok_or_else(|| {
                format!("a server line is named server.<number>, and {id:?} is not a number")
            })?;
        let mut parts = value.split(';').map(str::trim);
        let peers = parts.next().unwrap_or_default();
        let client =
            parts.next().filter(|part| !part.is_empty()).map(listen_address).transpose()?;
        let secure_client =
            parts.next().filter(|part| !part.is_empty()).map(listen_address).transpose()?;
        if parts.next().is_some() {
            return Err(wrong_form(value));
        }
        let mut addresses = Vec::new();
        let mut role = None;
        for group in peers.split('|') {
            let (address, group_role) = peer_address(group.trim(), value)?;
            if let (Some(before), Some(now)) = (role, group_role)
                && before != now
            {
                return Err("all addresses of a server must have the same role".to_owned());
            }
            role = role.or(group_role);
            addresses.push(address);
        }
        Ok(Member {
            id,
            addresses,
            role: role.unwrap_or(PeerRole::Participant),
            client,
            secure_client,
        })
    }
}

fn wrong_form(value: &str) -> String {
    format!(
        "{value:?} is not of the form host:quorumPort:electionPort[:participant|observer][;[clientHost:]clientPort]"
    )
}

fn peer_address(group: &str, value: &str) -> Result<(PeerAddress, Option<PeerRole>), String> {
    let (host, rest) = split_host(group)?;
    let mut fields = rest.split(':').map(str::trim);
    let (Some(quorum), Some(election)) = (fields.next(), fields.next()) else {
        return Err(wrong_form(value));
    };
    let role = fields.next().map(PeerRole::parse).transpose()?;
    if fields.next().is_some() || host.is_empty() {
        return Err(wrong_form(value));
    }
    let (quorum_port, election_port) = (port(quorum)?, port(election)?);
    if quorum_port == election_port {
        return Err(format!(
            "the quorum port and the election port must differ, and both are {quorum_port}"
        ));
    }
    Ok((PeerAddress { host: host.to_owned(), quorum_port, election_port }, role))
}

/// `[host:]port`.
fn listen_address(text: &str) -> Result<ListenAddress, String> {
    if !text.starts_with('[') && !text.contains(':') {
        // Apache listens on the IPv4 wildcard for a port without a host in a server line.
        return Ok(ListenAddress { host: Some("0.0.0.0".to_owned()), port: port(text)? });
    }
    let (host, rest) = split_host(text)?;
    if host.is_empty() {
        return Err(format!("{text:?} has no host before the colon"));
    }
    Ok(ListenAddress { host: Some(host.to_owned()), port: port(rest)? })
}

/// The host, which may be in brackets, and what follows the colon behind it.
fn split_host(text: &str) -> Result<(&str, &str), String> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) =
            bracketed.split_once(']').ok_or_else(|| format!("{text:?} has '[' without ']'"))?;
        let rest =
            rest.strip_prefix(':').ok_or_else(|| format!("{text:?} has no port after ']'"))?;
        return Ok((host, rest));
    }
    text.split_once(':').ok_or_else(|| format!("{text:?} has no port"))
}

pub(super) fn port(text: &str) -> Result<u16, String> {
    text.parse::<u16>()
        .map_err(|_| format!("{text:?} is not a port: ports are numbers from 0 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: &str, quorum_port: u16, election_port: u16) -> PeerAddress {
        PeerAddress { host: host.into(), quorum_port, election_port }
    }

    fn listen(host: &str, port: u16) -> Option<ListenAddress> {
        Some(ListenAddress { host: Some(host.into()), port })
    }

    #[track_caller]
    fn read(value: &str) -> Member {
        Member::parse("7", value).expect(value)
    }

    #[test]
    fn the_short_form_is_a_participant_without_client_address() {
        let member = read("zk1.example.com:2888:3888");
        assert_eq!(
            member,
            Member {
                id: 7,
                addresses: vec![peer("zk1.example.com", 2888, 3888)],
                role: PeerRole::Participant,
                client: None,
                secure_client: None,
            }
        );
    }

    #[test]
    fn role_and_client_addresses_are_read() {
        let member = read("h:1:2:Observer;2181");
        assert_eq!((member.role, member.client), (PeerRole::Observer, listen("0.0.0.0", 2181)));
        let member = read("h:1:2:participant; 10.0.0.1:2181 ;2182");
        assert_eq!(member.client, listen("10.0.0.1", 2181));
        assert_eq!(member.secure_client, listen("0.0.0.0", 2182));
        assert_eq!(read("h:1:2;;2182").client, None);
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        let member = read("[2001:db8::1]:2888:3888;[::]:2181");
        assert_eq!(member.addresses, [peer("2001:db8::1", 2888, 3888)]);
        assert_eq!(member.client, listen("::", 2181));
    }

    #[test]
    fn several_addresses_share_a_role() {
        let member = read("a:1:2:observer|b:3:4");
        assert_eq!(member.addresses, [peer("a", 1, 2), peer("b", 3, 4)]);
        assert_eq!(member.role, PeerRole::Observer);
        assert!(Member::parse("1", "a:1:2:observer|b:3:4:participant").is_err());
    }

    #[test]
    fn malformed_lines_are_refused() {
        for value in [
            "",
            "h",
            "h:1",
            "h:1:1",
            "h:1:x",
            "h:1:99999",
            ":1:2",
            "h:1:2:voter",
            "h:1:2:participant:3",
            "h:1:2;x",
            "h:1:2;a:",
            "h:1:2;:5",
            "h:1:2;1;2;3",
            "[::1:1:2",
            "[::1]1:2",
        ] {
            assert!(Member::parse("1", value).is_err(), "{value:?} was accepted");
        }
        for id in ["", "a", "-1", "1.5", "99999999999999999999"] {
            assert!(Member::parse(id, "h:1:2").is_err(), "server.{id} was accepted");
        }
    }
}
