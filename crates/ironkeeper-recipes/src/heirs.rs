//! Handover of a lock between two contenders of one session, in memory.
//!
//! The contender right behind the holder is always the next holder: new nodes have higher sequence
//! numbers, so none is inserted between the two. If both contenders belong to the same session, the
//! lock passes to the next one while the deletion of the holder's node is in flight. The holder
//! does not wait for the reply, and the receiver needs neither the watch event nor a new list.
//! Other sessions see the holder's node exist slightly longer. The order of the queue is unchanged;
//! a contender of another session or process gets the lock by the watch event of the server.
//!
//! The guarantees of a list of the children still hold for the receiver:
//!
//! - It reads everything that the previous holder wrote, because the server executes the requests
//!   of one session in the order in which they were sent. So both must have the same session.
//! - Its session is open, as far as this process knows: there is no handover while the connection
//!   is lost, or after this process was suspended.
//! - Its node exists. An `exists` request follows the deletion; if the receiver's node has been
//!   deleted, the new guard is lost from the beginning, as if the deletion had come after the
//!   grant.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ironkeeper_client::{Client, Reply, SessionId, Stat, Zxid};
use tokio::sync::oneshot;

/// The waiting contenders, by the name of the node that each waits for. The names are unique
/// because they contain a UUID.
static HEIRS: Mutex<BTreeMap<String, Entry>> = Mutex::new(BTreeMap::new());

struct Entry {
    session: SessionId,
    /// The node of the waiting contender.
    path: String,
    turn: oneshot::Sender<Inheritance>,
}

fn heirs() -> MutexGuard<'static, BTreeMap<String, Entry>> {
    HEIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands the lock over to the contender that waits for `node`, if it belongs to the same session.
/// The holder calls this right after it has sent the request to delete its own node `node`.
pub(crate) fn hand_on(client: &Client, node: &str) {
    let heir = heirs().remove(node);
    let is_ours = |heir: &Entry| heir.session == client.session_id() && !heir.turn.is_closed();
    if let Some(heir) = heir.filter(is_ours).filter(|_| client.is_in_touch()) {
        let asked = State::Asked(client.exists(&heir.path));
        // `Err`: the receiver was dropped just now. It deletes its node, and the contender
        // behind it is notified by the server.
        let _ = heir.turn.send(Inheritance(Mutex::new(asked)));
    }
}

/// A contender that waits for the deletion of another node and accepts a handover.
#[derive(Debug)]
pub(crate) struct Heir {
    predecessor: String,
    turn: oneshot::Receiver<Inheritance>,
}

impl Heir {
    /// Registers the contender with the node `path`, which waits for the node `predecessor`.
    pub(crate) fn of(predecessor: &str, client: &Client, path: &str) -> Heir {
        let (turn, receiver) = oneshot::channel();
        let entry = Entry { session: client.session_id(), path: path.to_owned(), turn };
        heirs().insert(predecessor.to_owned(), entry);
        Heir { predecessor: predecessor.to_owned(), turn: receiver }
    }

    /// Waits for the handover. Stays pending forever if there is none.
    pub(crate) async fn inherited(&mut self) -> Inheritance {
        match (&mut self.turn).await {
            Ok(inheritance) => inheritance,
            // The holder could not hand over, or another contender registered for the same node.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        self.turn.close();
        let mut heirs = heirs();
        // A closed entry is this one, or that of another `Heir` that is being dropped.
        if heirs.get(&self.predecessor).is_some_and(|entry| entry.turn.is_closed()) {
            heirs.remove(&self.predecessor);
        }
    }
}

/// A handover, with the `exists` request for the receiver's node.
#[derive(Debug)]
pub(crate) struct Inheritance(Mutex<State>);

#[derive(Debug)]
enum State {
    Asked(Reply<Option<Stat>>),
    Answered { is_there: bool },
}

impl Inheritance {
    /// Returns whether the reply has arrived and shows that the node with this `czxid` did not
    /// exist. Never waits.
    pub(crate) fn is_void(&self, czxid: Zxid) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Asked(reply) = &mut *state
            && let Poll::Ready(answer) =
                Pin::new(reply).poll(&mut Context::from_waker(Waker::noop()))
        {
            // An error leaves it open whether the node exists; the connection was lost then.
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
