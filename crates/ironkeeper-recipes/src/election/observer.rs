//! Observation of an election's leader by a client that is not a candidate.
//!
//! # On the tree
//! The observer creates no nodes: it reads the nodes of an election.
//!
//! # Steps
//! Find the first candidate. Read and watch its node; when it changes, start over. If there are no
//! candidates, watch the children of the path, or the path itself if it does not exist.
//!
//! # Guarantees
//! Each reported leader was the leader when it was read. The observer may skip leaders between two
//! reads, but always reports the last one. One watch event per observer and change of leader:
//! observers watch the leader's node, not the children, so other candidates that join or leave
//! cause no events.
//!
//! # When things break
//! The connection is lost: the wait continues after the reconnect, and reports a change that
//! happened meanwhile. The session has ended: an error.

use ironkeeper_client::{Client, ErrorKind, SessionId};

use crate::election::single_node::parse_leader;
use crate::election::{latch, support};
use crate::error::Result;
use crate::lock::mutex;
use crate::place::patient;
use crate::queue_of_waiters::{Bases, Participant, line_up};

/// The kind of election to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Election {
    /// The election of [`LeaderLatch`](super::LeaderLatch), or of Curator's.
    Latch,
    /// The election of [`LeaderSelector`](super::LeaderSelector), or of Curator's.
    Selector,
    /// kazoo's `Election`, or the election of
    /// [`LeaderSelector::with_kazoo_names`](super::LeaderSelector::with_kazoo_names).
    Kazoo,
    /// The election of [`ElectionSupport`](super::ElectionSupport), or of ZooKeeper's own.
    Support,
    /// The election of [`StaticElection`](super::StaticElection).
    SingleNode,
}

impl Election {
    fn bases(self) -> Option<Bases> {
        match self {
            Election::Latch => Some(latch::BASES),
            Election::Selector => Some(mutex::BASES),
            Election::Kazoo => Some(mutex::KAZOO),
            Election::Support => Some(support::BASES),
            Election::SingleNode => None,
        }
    }
}

/// An observer that follows the leader of an election.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::election::{Election, LeaderLatch, LeaderObserver};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut observer = LeaderObserver::new(&client, "/leader", Election::Latch);
///     assert!(observer.next().await?.is_none()); // how it stands at the beginning
///     let latch = LeaderLatch::start(&client, "/leader", "host-1");
///     assert_eq!(observer.next().await?.unwrap().id(), "host-1");
///     latch.close().await?;
///     assert!(observer.next().await?.is_none());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "getLeader")]
pub struct LeaderObserver {
    client: Client,
    path: String,
    election: Election,
    /// The leader that was returned last; the outer `None` if none was returned yet.
    told: Option<Option<Participant>>,
}

impl LeaderObserver {
    /// Creates an observer of the election of this kind on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, election: Election) -> LeaderObserver {
        LeaderObserver { client: client.clone(), path: path.into(), election, told: None }
    }

    /// Returns the current leader.
    pub async fn leader(&self) -> Result<Option<Participant>> {
        loop {
            let Some(path) = self.first().await? else { return Ok(None) };
            match self.client.retry(&patient(), || self.client.get(&path)).await {
                Ok(node) => return Ok(Some(self.participant(path, &node))),
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the current leader on the first call; later calls wait until the leader has changed.
    /// The future may be dropped at any await: no change is lost.
    pub async fn next(&mut self) -> Result<Option<Participant>> {
        let client = self.client.clone();
        loop {
            let Some(path) = self.first().await? else {
                if self.is_news(None) {
                    return Ok(None);
                }
                self.await_candidates().await?;
                continue;
            };
            let (node, watch) = match client.retry(&patient(), || client.get_and_watch(&path)).await
            {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::NoNode => continue,
                Err(error) => return Err(error.into()),
            };
            let leader = Some(self.participant(path, &node));
            if self.is_news(leader.as_ref()) {
                return Ok(leader);
            }
            watch.await?;
        }
    }

    fn is_news(&mut self, leader: Option<&Participant>) -> bool {
        let key = |leader: &Participant| (leader.path.clone(), leader.czxid);
        let same = match &self.told {
            Some(told) => told.as_ref().map(key) == leader.map(key),
            None => false,
        };
        if !same {
            self.told = Some(leader.cloned());
        }
        !same
    }

    fn participant(&self, path: String, node: &ironkeeper_client::Node) -> Participant {
        let data = match self.election {
            Election::SingleNode => {
                parse_leader(&node.data).map_or_else(|| node.data.to_vec(), String::into_bytes)
            }
            _ => node.data.to_vec(),
        };
        Participant {
            path,
            data,
            session: SessionId(node.stat.ephemeral_owner),
            czxid: node.stat.czxid,
            is_granted: true,
        }
    }

    /// Returns the path of the leader's node.
    async fn first(&self) -> Result<Option<String>> {
        let client = &self.client;
        let Some(bases) = self.election.bases() else {
            let found = client.retry(&patient(), || client.exists(&self.path)).await?;
            return Ok(found.map(|_| self.path.clone()));
        };
        match client.retry(&patient(), || client.children(&self.path)).await {
            Ok(names) => Ok(line_up(&names, bases, None)
                .first()
                .map(|first| crate::place::join(&self.path, first.name))),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a change while there is no leader.
    async fn await_candidates(&self) -> Result<()> {
        let client = &self.client;
        if let Some(bases) = self.election.bases() {
            match client.retry(&patient(), || client.children_and_watch(&self.path)).await {
                Ok((names, _, watch)) => {
                    if line_up(&names, bases, None).is_empty() {
                        watch.await?;
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
        // This is the only watch on a path that does not exist. The server removes it when the path
        // is created or the session ends.
        let (found, watch) =
            client.retry(&patient(), || client.exists_and_watch(&self.path)).await?;
        if found.is_none() {
            watch.await?;
        }
        Ok(())
    }
}
