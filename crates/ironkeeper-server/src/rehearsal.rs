//! What a start would find, without starting.

use ironkeeper_proto::Zxid;
use ironkeeper_store::disk::ReadOnlyDisk;
use ironkeeper_store::{Store, StoreOptions};

use crate::config::Config;
use crate::recovery::{self, Report};
use crate::server::StartError;
use crate::{member, settings};

/// What the data directories of a configuration hold.
#[derive(Debug)]
pub struct Rehearsal {
    pub report: Report,
    pub last_zxid: Zxid,
    pub nodes: usize,
    pub sessions: usize,
    /// Transactions that lead to another tree here than where they were made.
    pub digest_mismatches: u64,
}

/// Does what a start does with the data, in memory: finds the newest snapshot that can be read, and
/// replays the log. Nothing is written, and the server whose data it is may run meanwhile.
///
/// ```
/// use ironkeeper_server::config::Config;
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
    let whom = member::recover_for(config.ensemble.as_ref());
    let (recovered, end, report) = recovery::recover(&store, tree, whom)?;
    if config.ensemble.is_some() {
        store.load_epochs(end.last)?;
    }
    Ok(Rehearsal {
        report,
        last_zxid: recovered.tree.last_zxid(),
        nodes: recovered.tree.node_count(),
        sessions: recovered.sessions.len(),
        digest_mismatches: recovered.digest_mismatches,
    })
}
