//! Addresses to listen on.

use std::fmt;

/// An address to listen on: a host as text, resolved when the socket is opened, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// A name or address without brackets; all interfaces if absent.
    pub host: Option<String>,
    /// 0 lets the system choose.
    pub port: u16,
}

impl ListenAddress {
    /// Returns whether it means every interface of the machine.
    pub fn is_wildcard(&self) -> bool {
        self.host.as_deref().is_none_or(|host| matches!(host, "0.0.0.0" | "::" | "0:0:0:0:0:0:0:0"))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_deref() {
            None => write!(f, "*:{}", self.port),
            Some(host) if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            Some(host) => write!(f, "{host}:{}", self.port),
        }
    }
}
