//! The connect string, and the order in which servers are tried.
//!
//! `h1:p1,h2:p2/chroot`: servers separated by commas, each with an optional port, IPv6 addresses in
//! brackets, and after the last server the chroot of the client.

use std::fmt;

use ironkeeper_proto::path;

use crate::error::{Error, ErrorKind};
use crate::random::Random;

/// The port of a server that is given without a port.
///
/// ```
/// use ironkeeper_client::{ConnectString, DEFAULT_PORT};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let parsed: ConnectString = "zk.example".parse()?;
///     assert_eq!(parsed.servers()[0].port(), DEFAULT_PORT);
///     Ok(())
/// }
/// ```
pub const DEFAULT_PORT: u16 = 2181;

/// One server of the connect string. The name is resolved for every connection.
///
/// ```
/// use ironkeeper_client::ConnectString;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let parsed: ConnectString = "[::1]:2182,zk.example".parse()?;
///     assert_eq!(parsed.servers()[0].name(), "::1");
///     assert_eq!(parsed.servers()[0].port(), 2182);
///     assert_eq!(parsed.servers()[1].to_string(), "zk.example:2181");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    name: String,
    port: u16,
}

impl Host {
    /// Creates a server from its name (or its address without brackets) and port.
    ///
    /// ```
    /// use ironkeeper_client::Host;
    /// assert_eq!(Host::new("::1", 2181).to_string(), "[::1]:2181");
    /// ```
    pub fn new(name: impl Into<String>, port: u16) -> Host {
        Host { name: name.into(), port }
    }

    /// Returns the name or address, without brackets.
    ///
    /// ```
    /// assert_eq!(ironkeeper_client::Host::new("zk", 1).name(), "zk");
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the port.
    ///
    /// ```
    /// assert_eq!(ironkeeper_client::Host::new("zk", 1).port(), 1);
    /// ```
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// A parsed connect string.
///
/// ```
/// use ironkeeper_client::ConnectString;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let parsed: ConnectString = "zk1,zk2:2182/app".parse()?;
///     assert_eq!(parsed.servers().len(), 2);
///     assert_eq!(parsed.chroot(), "/app");
///     assert!("zk1:notaport".parse::<ConnectString>().is_err());
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectString {
    servers: Vec<Host>,
    chroot: String,
}

impl ConnectString {
    /// Returns the servers in the order of the text.
    ///
    /// ```
    /// use ironkeeper_client::{ConnectString, Host};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let parsed: ConnectString = "a:1,b:2".parse()?;
    ///     assert_eq!(parsed.servers(), [Host::new("a", 1), Host::new("b", 2)]);
    ///     Ok(())
    /// }
    /// ```
    pub fn servers(&self) -> &[Host] {
        &self.servers
    }

    /// Returns the chroot, the path that precedes all paths of the client; `/` if there is none.
    ///
    /// ```
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let parsed: ironkeeper_client::ConnectString = "a:1/app".parse()?;
    ///     assert_eq!(parsed.chroot(), "/app");
    ///     Ok(())
    /// }
    /// ```
    pub fn chroot(&self) -> &str {
        &self.chroot
    }
}

impl std::str::FromStr for ConnectString {
    type Err = Error;

    fn from_str(text: &str) -> Result<ConnectString, Error> {
        let refuse = |why: String| Error::new(ErrorKind::BadConnectString).with_detail(why);
        let (list, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, "/"),
        };
        path::validate(chroot).map_err(|why| refuse(format!("{chroot:?}: {why}")))?;
        let mut servers = Vec::new();
        for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            servers.push(host(part).ok_or_else(|| refuse(format!("{part:?} is not a server")))?);
        }
        if servers.is_empty() {
            return Err(refuse(format!("{text:?} names no server")));
        }
        Ok(ConnectString { servers, chroot: chroot.to_owned() })
    }
}

fn host(text: &str) -> Option<Host> {
    if let Some(inside) = text.strip_prefix('[') {
        let (name, rest) = inside.split_once(']')?;
        let port = match rest {
            "" => DEFAULT_PORT,
            _ => port(rest.strip_prefix(':')?)?,
        };
        return (!name.is_empty()).then(|| Host::new(name, port));
    }
    match text.rsplit_once(':') {
        None => Some(Host::new(text, DEFAULT_PORT)),
        // More than one colon and no brackets: an IPv6 address without a port.
        Some((name, _)) if name.contains(':') => {
            text.parse::<std::net::Ipv6Addr>().ok().map(|_| Host::new(text, DEFAULT_PORT))
        }
        Some((name, digits)) => (!name.is_empty()).then_some(Host::new(name, port(digits)?)),
    }
}

fn port(digits: &str) -> Option<u16> {
    digits.parse().ok().filter(|port| *port != 0)
}

/// The servers in a shuffled order, tried round-robin. The shuffle distributes the clients of a
/// service over the ensemble.
#[derive(Debug)]
pub(crate) struct Walk {
    servers: Vec<Host>,
    next: usize,
    /// Servers tried since the last successful one.
    tried: usize,
}

impl Walk {
    pub(crate) fn new(mut servers: Vec<Host>, random: &mut Random) -> Walk {
        random.shuffle(&mut servers);
        Walk { servers, next: 0, tried: 0 }
    }

    /// Returns the next server to try.
    pub(crate) fn advance(&mut self) -> Host {
        let host = self.servers[self.next % self.servers.len()].clone();
        self.next = (self.next + 1) % self.servers.len();
        self.tried += 1;
        host
    }

    /// Returns a server other than the connected one, to be probed; `None` if there is no other.
    pub(crate) fn peek_other(&mut self, current: &Host) -> Option<Host> {
        for _ in 0..self.servers.len() {
            let host = &self.servers[self.next];
            if host != current {
                return Some(host.clone());
            }
            self.next = (self.next + 1) % self.servers.len();
        }
        None
    }

    /// Makes `host` the next server to try.
    pub(crate) fn prefer(&mut self, host: &Host) {
        if let Some(at) = self.servers.iter().position(|server| server == host) {
            self.next = at;
        }
    }

    /// Skips the server that `peek_other` returned.
    pub(crate) fn skip(&mut self) {
        self.next = (self.next + 1) % self.servers.len();
    }

    /// Returns whether every server has been tried since the last successful one.
    pub(crate) fn round_is_over(&self) -> bool {
        self.tried >= self.servers.len()
    }

    pub(crate) fn start_round(&mut self) {
        self.tried = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, servers: &str, chroot: &str) {
        let parsed: ConnectString = text.parse().unwrap();
        let names: Vec<String> = parsed.servers.iter().map(Host::to_string).collect();
        assert_eq!((names.join(" ").as_str(), parsed.chroot()), (servers, chroot));
    }

    #[test]
    fn connect_strings_that_users_write() {
        check("a", "a:2181", "/");
        check("a:1,b:2/", "a:1 b:2", "/");
        check("a, b /app/x", "a:2181 b:2181", "/app/x");
        check("[::1]:7,[fe80::1]", "[::1]:7 [fe80::1]:2181", "/");
        check("::1/x", "[::1]:2181", "/x");
        check("127.0.0.1:2182", "127.0.0.1:2182", "/");
    }

    #[test]
    fn connect_strings_that_cannot_be_meant() {
        for text in
            ["", ",", "/app", "a:", "a:0", "a:70000", ":1", "[::1", "[]:1", "a/x/", "a//x", "a:1:2"]
        {
            assert!(text.parse::<ConnectString>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn every_server_gets_its_turn_before_any_gets_a_second() {
        let servers: Vec<Host> = (1..=5).map(|port| Host::new("h", port)).collect();
        let mut walk = Walk::new(servers.clone(), &mut Random::from_seed(3));
        let mut first: Vec<Host> = (0..5).map(|_| walk.advance()).collect();
        assert!(walk.round_is_over());
        let second: Vec<Host> = (0..5).map(|_| walk.advance()).collect();
        assert_eq!(first, second);
        first.sort_by_key(Host::port);
        assert_eq!(first, servers);
    }
}
