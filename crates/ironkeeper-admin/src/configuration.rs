//! The configuration that the server shows.

use ironkeeper_proto::{Membership, ServerId};

/// The configuration in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    pub client_port: u16,
    pub data_dir: String,
    /// -1 if it is unknown.
    pub data_dir_bytes: i64,
    pub data_log_dir: String,
    /// -1 if it is unknown.
    pub log_dir_bytes: i64,
    pub tick_ms: u32,
    pub max_client_cnxns: u32,
    pub min_session_timeout_ms: u32,
    pub max_session_timeout_ms: u32,
    /// -1 is the default of the system.
    pub listen_backlog: i64,
    /// The settings of a member of an ensemble.
    pub member: Option<MemberConfiguration>,
}

/// The configuration of a member of an ensemble.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberConfiguration {
    pub my_id: ServerId,
    pub init_limit: u32,
    pub sync_limit: u32,
    pub membership: Membership,
}

/// The sizes of the data directories in bytes; -1 if they cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirSizes {
    pub data_dir: i64,
    pub log_dir: i64,
}
