//! The registry of this process for owned nodes whose name is not unique.
//!
//! An owned node on a fixed path is found after a lost reply by the unique data in it. If another
//! client has overwritten the data meanwhile, as a revocation does, the data no longer identifies
//! the node, and other tasks of the same session may have tried to create the same path. So each
//! task registers the czxid of the node it owns: an unregistered node of the session was created by
//! a request whose reply was lost, and only one task can register it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_client::{Client, Zxid};

static CLAIMED: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Entry {
    client: Client,
    /// The transaction that created the node.
    czxid: Zxid,
}

fn entries() -> MutexGuard<'static, Vec<Arc<Entry>>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registration of a node by its owner. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Claimed(Arc<Entry>);

impl Claimed {
    /// Registers the node with this `czxid`. Returns `None` if the session has registered it
    /// already.
    pub(crate) fn note(client: &Client, czxid: Zxid) -> Option<Claimed> {
        let mut entries = entries();
        let is_known =
            |entry: &Arc<Entry>| entry.czxid == czxid && entry.client.has_same_session_as(client);
        if entries.iter().any(is_known) {
            return None;
        }
        let entry = Arc::new(Entry { client: client.clone(), czxid });
        entries.push(Arc::clone(&entry));
        Some(Claimed(entry))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // `self.0` drops the client, and perhaps with it the session, after the mutex is unlocked.
        entries().retain(|entry| !Arc::ptr_eq(entry, &self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_testing::TestServer;

    #[tokio::test]
    async fn a_node_is_noted_by_one_of_a_session_at_a_time() {
        let server = TestServer::start().unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let other = Client::connect(&server.connect_string()).await.unwrap();
        let claimed = Claimed::note(&client, Zxid(7)).unwrap();
        assert!(Claimed::note(&client.clone(), Zxid(7)).is_none());
        assert!(
            Claimed::note(&client, Zxid(7)).is_none(),
            "whoever was refused leaves it as it is"
        );
        let another = Claimed::note(&client, Zxid(8)).unwrap();
        // Independent servers may assign the same zxids.
        let elsewhere = Claimed::note(&other, Zxid(7)).unwrap();
        drop(claimed);
        assert!(Claimed::note(&client, Zxid(7)).is_some());
        assert!(Claimed::note(&client, Zxid(8)).is_none());
        drop((another, elsewhere));
    }
}
