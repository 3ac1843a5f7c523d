//! The settings of the peer links.

use std::fmt;
use std::time::Duration;

use ironkeeper_proto::ServerId;

/// A host, as text that is resolved when needed, and a port.
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

/// The addresses of this server, which a reconfig can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    /// Where to listen for votes. Our own hosts; a wildcard with `quorumListenOnAllIPs`.
    pub election_binds: Vec<Endpoint>,
    /// Where to listen for learners.
    pub quorum_binds: Vec<Endpoint>,
    /// `host:port` of our election port as we send it to servers that we dial. More than one only
    /// with `multiAddress.enabled`: servers before 3.6 do not understand that.
    pub opening: Vec<String>,
}

/// The settings; the names in parentheses are those of `zoo.cfg`.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    pub me: ServerId,
    pub own: OwnAddresses,
    /// The number of attempts, a second apart, to bind ports whose address does not exist yet
    /// (`electionPortBindRetry`); unlimited if not set. Our own name may become resolvable after a
    /// while.
    pub bind_tries: Option<u32>,
    /// The timeout of dialling an election port (`cnxTimeout`).
    pub election_dial_timeout: Duration,
    /// The timeout of dialling a leader (`connectToLearnerMasterLimit`, else `initLimit`).
    pub quorum_dial_timeout: Duration,
    /// The time in which a server that has dialled our election port must identify itself.
    pub opening_timeout: Duration,
    /// The longest buffer in a packet: `jute.maxbuffer` and its extra size.
    pub field_bytes_max: usize,
    /// The link of a peer that leaves this many bytes unread is closed. Must be more than a learner
    /// can be sent at once for its synchronization.
    pub unsent_bytes_max: usize,
    /// Whether TCP keep-alive is enabled (`tcpKeepAlive`).
    pub tcp_keep_alive: bool,
}

impl PeerSettings {
    /// Returns Apache's default settings, for ticks of two seconds.
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
