//! What the peer links go by.

use std::fmt;
use std::time::Duration;

use ironkeeper_proto::ServerId;

/// A host, as text that is resolved when it is needed, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Where we are: what a change of the members can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    /// Where to listen for votes. Hosts are our own; a wildcard with `quorumListenOnAllIPs`.
    pub election_binds: Vec<Endpoint>,
    /// Where to listen for learners.
    pub quorum_binds: Vec<Endpoint>,
    /// `host:port` of our election port as we tell it to those we dial. More than one only with
    /// `multiAddress.enabled`: servers before 3.6 do not understand that.
    pub opening: Vec<String>,
}

/// See the fields; the names in brackets are those of `zoo.cfg`.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    pub me: ServerId,
    pub own: OwnAddresses,
    /// How often to try to take hold of ports whose address is not there yet, a second apart
    /// (`electionPortBindRetry`); without end if not set. A name of our own may need a moment to be
    /// known.
    pub bind_tries: Option<u32>,
    /// How long dialling an election port may take (`cnxTimeout`).
    pub election_dial_timeout: Duration,
    /// How long dialling a leader may take (`connectToLearnerMasterLimit`, else `initLimit`).
    pub quorum_dial_timeout: Duration,
    /// How long somebody who has dialled our election port may be silent about who it is.
    pub opening_timeout: Duration,
    /// The longest buffer in a packet: `jute.maxbuffer` and its extra size.
    pub field_bytes_max: usize,
    /// A peer that leaves so much unread is given up. Must be above what a learner can be sent at once
    /// to catch up.
    pub unsent_bytes_max: usize,
    /// Whether the system looks for peers that vanished without a word (`tcpKeepAlive`).
    pub tcp_keep_alive: bool,
}

impl PeerSettings {
    /// The settings that Apache has by default, for ticks of two seconds.
    pub fn new(me: ServerId) -> PeerSettings {
        PeerSettings {
            me,
            own: OwnAddresses::default(),
            bind_tries: Some(3),
            election_dial_timeout: Duration::from_secs(5),
            quorum_dial_timeout: Duration::from_secs(20),
            opening_timeout: Duration::from_secs(10),
            field_bytes_max: 2 * ironkeeper_proto::jute::MAX_BUFFER_DEFAULT,
            unsent_bytes_max: 256 << 20,
            tcp_keep_alive: false,
        }
    }
}
