//! Nodes of a common name that somebody in this program stands for.
//!
//! A claim whose reply was lost finds its node again by the mark in it. If somebody has written to the node meanwhile,
//! as a revocation does, the mark is gone, and other tasks of the same session may have claimed the same path. So all
//! of them note here what is theirs: a node of the session that nobody has noted is that of a claim in doubt, and only
//! one can note it.

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

/// A node that is somebody's until this is dropped.
#[derive(Debug)]
pub(crate) struct Claimed(Arc<Entry>);

impl Claimed {
    /// `None` if it is somebody's already.
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
        // The client, and with it perhaps the session, goes after the lock is free again.
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
        // Servers that have nothing to do with one another may give the same numbers.
        let elsewhere = Claimed::note(&other, Zxid(7)).unwrap();
        drop(claimed);
        assert!(Claimed::note(&client, Zxid(7)).is_some());
        assert!(Claimed::note(&client, Zxid(8)).is_none());
        drop((another, elsewhere));
    }
}
