//! The settings of a member of an ensemble in addition to those of every server.

use std::path::PathBuf;

use ironkeeper_proto::membership::Member;
use ironkeeper_proto::{Membership, ServerId};

use crate::{ConfigError, Problem, ProblemKind, defaults};

/// The settings of a member. All members of an ensemble should have the same limits and the same
/// [`EnsembleConfig::membership`].
#[derive(Debug, Clone, PartialEq)]
pub struct EnsembleConfig {
    /// The id of this server: the number in the file `myid`.
    pub my_id: ServerId,
    /// The committed membership with its version; zero if an administrator wrote it.
    pub membership: Membership,
    /// The membership that was proposed before the last stop, and perhaps committed.
    pub proposed: Option<Membership>,
    /// The static configuration file. Files with a changed membership are written beside it;
    /// without one a change is lost at the next start.
    pub config_file: Option<PathBuf>,

    /// Ticks for finding a leader and synchronizing with it.
    pub init_limit: u32,
    /// Ticks without packets after which the link between leader and learner times out.
    pub sync_limit: u32,
    /// Ticks to reach the leader; `init_limit` if not set.
    pub connect_limit: Option<u32>,
    /// Milliseconds between two attempts to reach the leader.
    pub leader_connect_delay_ms: u32,
    /// Milliseconds after which a vote is sent again, at first.
    pub notification_min_ms: u32,
    /// Milliseconds after which a vote is sent again, at most.
    pub notification_max_ms: u32,
    /// Maximum milliseconds that an observer waits before it is LOOKING again.
    pub observer_election_delay_ms: u32,
    /// Milliseconds to connect to another member's election port.
    pub election_connect_timeout_ms: u32,
    /// Milliseconds in which another member must identify itself; `sync_limit` ticks if not set.
    pub election_read_timeout_ms: Option<u32>,
    /// Attempts, a second apart, to listen on an own address that does not exist yet, for example
    /// because its name cannot be resolved; unlimited if not set.
    pub bind_tries: Option<u32>,
    /// TCP keep-alive between members.
    pub tcp_keep_alive: bool,
    /// Whether the server listens for other members on every interface.
    pub listen_on_all_ips: bool,

    /// Transactions kept in memory to synchronize learners.
    pub commit_log_count: u32,
    /// The log on disk is sent instead of a snapshot up to this fraction of the snapshot's size;
    /// never if not set.
    pub snapshot_size_factor: Option<f64>,

    /// Whether a reconfig that leaves fewer than two voters is rejected.
    pub standalone_enabled: bool,
    /// Whether sessions are local to the member that opened them.
    pub local_sessions: bool,
    /// Whether a local session becomes global when it creates an ephemeral node.
    pub local_sessions_upgrading: bool,
    /// Whether read-only clients are served while there is no quorum.
    pub read_only: bool,
    /// Whether the leader serves clients.
    pub leader_serves: bool,
}

impl EnsembleConfig {
    /// Returns a member with Apache's defaults and the limits of its sample file.
    ///
    /// ```
    /// use ironkeeper_proto::{Membership, ServerId};
    /// use ironkeeper_config::{Config, EnsembleConfig};
    ///
    /// let members = "server.1=127.0.0.1:2888:3888\nserver.2=127.0.0.1:2889:3889\n\
    ///                server.3=127.0.0.1:2890:3890";
    /// let mut config = Config::standalone_default("data/1".into());
    /// config.ensemble =
    ///     Some(EnsembleConfig::new(ServerId(1), Membership::parse(members).unwrap()));
    /// config.validate().unwrap();
    /// ```
    pub fn new(my_id: ServerId, membership: Membership) -> EnsembleConfig {
        EnsembleConfig {
            my_id,
            membership,
            proposed: None,
            config_file: None,
            init_limit: defaults::SAMPLE_INIT_LIMIT,
            sync_limit: defaults::SAMPLE_SYNC_LIMIT,
            connect_limit: None,
            leader_connect_delay_ms: defaults::LEADER_CONNECT_DELAY_MS,
            notification_min_ms: defaults::NOTIFICATION_MIN_MS,
            notification_max_ms: defaults::NOTIFICATION_MAX_MS,
            observer_election_delay_ms: defaults::OBSERVER_ELECTION_DELAY_MS,
            election_connect_timeout_ms: defaults::ELECTION_CONNECT_TIMEOUT_MS,
            election_read_timeout_ms: None,
            bind_tries: Some(defaults::BIND_TRIES),
            tcp_keep_alive: false,
            listen_on_all_ips: false,
            commit_log_count: defaults::COMMIT_LOG_COUNT,
            snapshot_size_factor: Some(defaults::SNAPSHOT_SIZE_FACTOR),
            standalone_enabled: true,
            local_sessions: false,
            local_sessions_upgrading: false,
            read_only: false,
            leader_serves: true,
        }
    }

    /// Returns this server's own member entry, of the committed or the proposed membership.
    pub fn me(&self) -> Option<&Member> {
        let known = [Some(&self.membership), self.proposed.as_ref()];
        known.into_iter().flatten().find_map(|membership| membership.members.get(&self.my_id))
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, message: String| {
            if !holds {
                problems.push(Problem::of_all(ProblemKind::Conflict(message)));
            }
        };
        require(
            self.me().is_some(),
            format!(
                "myid says that this is server {0}, and there is no line server.{0}: give the \
                 server one of the numbers in the server lines",
                self.my_id
            ),
        );
        for (key, limit) in [("initLimit", self.init_limit), ("syncLimit", self.sync_limit)] {
            require(limit > 0, format!("{key} must be at least one tick"));
        }
        require(
            (1..=self.notification_max_ms).contains(&self.notification_min_ms),
            "fastleader.minNotificationInterval must be at least 1 millisecond and not larger than \
             fastleader.maxNotificationInterval"
                .to_owned(),
        );
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(problems)) }
    }
}
