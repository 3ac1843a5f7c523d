//! Contenders of one session hand a lock on among themselves, without waiting for the server.
//!
//! Whoever stands right behind the holder can be the next one only: nobody gets in between, since new nodes have
//! higher numbers. If both are of the same session, the holder need not wait until the server has deleted its node,
//! and the heir need not hear of it and look at the line: the turn passes in memory while the deletion is under way.
//! To everybody else the two are one holder for so much longer. The order is that of the line, as ever; an heir in
//! another process, or of another session, is passed on to by the server.
//!
//! What a look at the line would have told, the heir still knows:
//!
//! - It sees all that the last holder wrote: requests of one session are carried out in the order in which they
//!   were made. That is why the session has to be the same.
//! - Its session lives as far as anybody here knows: nothing is handed on while the connection is broken, or after this
//!   process has stood still.
//! - Its node is there. That is asked right behind the deletion, and if somebody else has deleted it, the
//!   guard is lost from the beginning, as if that had happened a moment later.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ironkeeper_client::{Client, Reply, SessionId, Stat, Zxid};
use tokio::sync::oneshot;

/// Those who wait, by the name of the node that they wait for. Names have a UUID in them.
static HEIRS: Mutex<BTreeMap<String, Entry>> = Mutex::new(BTreeMap::new());

struct Entry {
    session: SessionId,
    /// The heir's own node.
    path: String,
    turn: oneshot::Sender<Inheritance>,
}

fn heirs() -> MutexGuard<'static, BTreeMap<String, Entry>> {
    HEIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be called by a holder that has just made the request to delete its node, of this name.
pub(crate) fn hand_on(client: &Client, node: &str) {
    let heir = heirs().remove(node);
    let is_ours = |heir: &Entry| heir.session == client.session_id() && !heir.turn.is_closed();
    if let Some(heir) = heir.filter(is_ours).filter(|_| client.is_in_touch()) {
        let asked = State::Asked(client.exists(&heir.path));
        // Who gives up at this moment withdraws its node, and the server tells the next.
        let _ = heir.turn.send(Inheritance(Mutex::new(asked)));
    }
}

/// A contender that waits for the end of a node.
#[derive(Debug)]
pub(crate) struct Heir {
    predecessor: String,
    turn: oneshot::Receiver<Inheritance>,
}

impl Heir {
    /// `path` is its own node.
    pub(crate) fn of(predecessor: &str, client: &Client, path: &str) -> Heir {
        let (turn, receiver) = oneshot::channel();
        let entry = Entry { session: client.session_id(), path: path.to_owned(), turn };
        heirs().insert(predecessor.to_owned(), entry);
        Heir { predecessor: predecessor.to_owned(), turn: receiver }
    }

    /// Resolves when the turn is handed on, and never if it is not.
    pub(crate) async fn inherited(&mut self) -> Inheritance {
        match (&mut self.turn).await {
            Ok(inheritance) => inheritance,
            // The holder could not, or somebody else stands right behind it.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        self.turn.close();
        let mut heirs = heirs();
        // If it is closed it is ours, or of another that is about to do the same.
        if heirs.get(&self.predecessor).is_some_and(|entry| entry.turn.is_closed()) {
            heirs.remove(&self.predecessor);
        }
    }
}

/// A turn that was handed on, and the question whether the heir's node is there.
#[derive(Debug)]
pub(crate) struct Inheritance(Mutex<State>);

#[derive(Debug)]
enum State {
    Asked(Reply<Option<Stat>>),
    Answered { is_there: bool },
}

impl Inheritance {
    /// Whether the node that this transaction created is known to have been gone.
    pub(crate) fn is_void(&self, czxid: Zxid) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Asked(reply) = &mut *state
            && let Poll::Ready(answer) =
                Pin::new(reply).poll(&mut Context::from_waker(Waker::noop()))
        {
            // No answer says nothing, and then the connection has been lost.
            let is_there =
                answer.map_or(true, |found| found.is_some_and(|stat| stat.czxid == czxid));
            *state = State::Answered { is_there };
        }
        matches!(*state, State::Answered { is_there: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_client::CreateMode;
    use ironkeeper_testing::TestServer;

    async fn connected() -> (TestServer, Client) {
        let server = TestServer::start().unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        (server, client)
    }

    fn is_known(predecessor: &str) -> bool {
        heirs().contains_key(predecessor)
    }

    #[tokio::test]
    async fn an_heir_of_the_same_session_gets_its_turn_once() {
        let (_server, client) = connected().await;
        client.create("/heir", "", CreateMode::Ephemeral).await.unwrap();
        let stat = client.exists("/heir").await.unwrap().unwrap();
        let mut heir = Heir::of("same-session", &client, "/heir");
        hand_on(&client, "same-session");
        assert!(!is_known("same-session"));
        let inheritance = heir.inherited().await;
        client.sync("/").await.unwrap();
        assert!(!inheritance.is_void(stat.czxid));
        assert!(!inheritance.is_void(stat.czxid), "asked again");
    }

    #[tokio::test]
    async fn an_heir_whose_node_is_gone_or_another_learns_of_it() {
        let (_server, client) = connected().await;
        for path in ["/nothing", "/zookeeper"] {
            let mut heir = Heir::of("gone", &client, path);
            hand_on(&client, "gone");
            let inheritance = heir.inherited().await;
            client.sync("/").await.unwrap();
            assert!(inheritance.is_void(Zxid(7)), "{path}");
        }
    }

    #[tokio::test]
    async fn another_session_is_no_heir() {
        let (server, client) = connected().await;
        let other = Client::connect(&server.connect_string()).await.unwrap();
        let mut heir = Heir::of("other-session", &other, "/heir");
        hand_on(&client, "other-session");
        let mut inherited = std::pin::pin!(heir.inherited());
        let mut context = Context::from_waker(Waker::noop());
        assert!(inherited.as_mut().poll(&mut context).is_pending());
    }

    #[tokio::test]
    async fn an_heir_that_gives_up_is_forgotten() {
        let (_server, client) = connected().await;
        drop(Heir::of("given-up", &client, "/heir"));
        assert!(!is_known("given-up"));
        let given_up = Heir::of("given-up", &client, "/heir");
        let _next = Heir::of("given-up", &client, "/next");
        drop(given_up);
        assert!(is_known("given-up"), "the one that came after it is not");
    }
}
