//! A check of the data without starting a server.

use ironkeeper_config::Config;
use ironkeeper_node::{Recovery, recover};
use ironkeeper_proto::Zxid;
use ironkeeper_store::disk::ReadOnlyDisk;
use ironkeeper_store::{RecoveryReport, Store, StoreOptions};

use crate::server::StartError;
use crate::settings;

/// The content of the data directories of a configuration.
#[derive(Debug)]
pub struct Rehearsal {
    pub files: RecoveryReport,
    pub last_zxid: Zxid,
    pub nodes: usize,
    pub sessions: usize,
    /// Transactions whose recorded digest differs from the digest of the resulting tree.
    pub digest_mismatches: u64,
}

/// Recovers the data in memory, as a start does: reads the newest valid snapshot and replays the
/// log. Writes nothing; the server that owns the data may run meanwhile.
///
/// ```
/// use ironkeeper_config::Config;
/// use ironkeeper_server::{Server, rehearse};
///
/// let dir = tempfile::tempdir().unwrap();
/// let mut config = Config::standalone_default(dir.path().to_owned());
/// config.client_address.port = 0;
/// let server = Server::start(config.clone()).unwrap();
/// assert!(rehearse(&config).unwrap().nodes > 0);
/// ```
pub fn rehearse(config: &Config) -> Result<Rehearsal, StartError> {
    let options = StoreOptions { auto_create: false, ..settings::store(config) };
    let store = Store::open(ReadOnlyDisk, settings::dirs(config), options)?;
    let tree = settings::engine(config, 0).tree;
    let kind = settings::server_kind(config.ensemble.as_ref());
    let Recovery { recovered, history, report } = recover(&store, tree, kind, || {})?;
    if config.ensemble.is_some() {
        store.load_epochs(history.last)?;
    }
    let state = &recovered.state;
    Ok(Rehearsal {
        files: report,
        last_zxid: state.applied(),
        nodes: state.tree.node_count(),
        sessions: state.sessions.len(),
        digest_mismatches: recovered.digest_mismatches,
    })
}
