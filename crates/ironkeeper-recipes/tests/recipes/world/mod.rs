//! The environment of every recipe test: a server, clients, faults, and reads of the tree.
//!
//! The server is an embedded Ironkeeper, or the server at `IRONKEEPER_TEST_SERVER`, for example an
//! Apache ZooKeeper: `IRONKEEPER_TEST_SERVER=127.0.0.1:2181 cargo test -p ironkeeper-recipes`.
//! Every test uses its own path, so that tests can share a server.

mod held_back;
pub mod requests;
pub mod watch_events;
mod wire;

use std::cell::Cell;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ironkeeper_client::{Client, ConnectionState, ErrorKind, SessionId};
use ironkeeper_testing::{Direction, FaultyProxy, TestServer};

pub struct World {
    server: Option<TestServer>,
    address: String,
    root: String,
}

/// Long enough for a busy machine; no test waits until a session times out.
const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

impl World {
    pub async fn start() -> World {
        let (server, address) = match std::env::var("IRONKEEPER_TEST_SERVER") {
            Ok(address) if !address.is_empty() => (None, address),
            _ => {
                let server = TestServer::start().expect("a test server starts");
                let address = server.connect_string();
                (Some(server), address)
            }
        };
        let root = format!("/recipes-{:016x}", RandomState::new().hash_one(0));
        let world = World { server, address, root };
        let client = world.client().await;
        client.create_chroot().await.expect("the root of the test can be created");
        client.close().await.expect("the server is there");
        world
    }

    pub fn connect_string(&self) -> String {
        format!("{}{}", self.address, self.root)
    }

    /// Returns the embedded server, if there is one.
    pub fn server(&self) -> Option<&TestServer> {
        self.server.as_ref()
    }

    pub async fn client(&self) -> Client {
        self.client_at(&self.address).await
    }

    async fn client_at(&self, address: &str) -> Client {
        Client::builder(&format!("{address}{}", self.root))
            .session_timeout(SESSION_TIMEOUT)
            .connect()
            .await
            .expect("the server is there")
    }

    /// Starts a proxy in front of the server and connects a client through it.
    pub async fn proxied(&self) -> (FaultyProxy, Client) {
        let proxy = self.proxy();
        let client = self.client_behind(&proxy).await;
        (proxy, client)
    }

    /// Starts a proxy in front of the server.
    pub fn proxy(&self) -> FaultyProxy {
        FaultyProxy::start(self.address.clone()).expect("a proxy starts")
    }

    /// Connects a client through a proxy.
    pub async fn client_behind(&self, proxy: &FaultyProxy) -> Client {
        self.client_at(&proxy.connect_string()).await
    }

    /// Ends the session of a client as an expiry does, and waits until the client has noticed.
    /// Works with any server: a second connection takes over the session and closes it.
    pub async fn end_session(&self, client: &Client) {
        let mut states = client.states();
        self.end_session_quietly(client).await;
        while !client.state().is_final() && states.next().await.is_some() {}
        assert_eq!(client.state(), ConnectionState::Lost);
    }

    /// Ends the session without waiting until the client has noticed.
    pub async fn end_session_quietly(&self, client: &Client) {
        self.end_session_by(client.session_id(), client.session_password()).await;
    }

    /// Ends a session by its id and password.
    pub async fn end_session_by(&self, session: SessionId, password: [u8; 16]) {
        // Repeat until the server replies "session expired". The takeover closes the client's
        // connection; the client reconnects at once and may take the session back before the server
        // reads the close.
        loop {
            let taken_over = Client::builder(&self.address)
                .session_timeout(SESSION_TIMEOUT)
                .resume(session, password)
                .connect()
                .await;
            match taken_over {
                Ok(thief) => thief.close().await.expect("the server is there"),
                Err(error) => break assert_eq!(error.kind(), ErrorKind::SessionExpired, "{error}"),
            }
        }
    }
}

/// Returns the sorted names of a node's children; none if the node does not exist.
pub async fn children(client: &Client, path: &str) -> Vec<String> {
    let mut names = client.children(path).await.unwrap_or_default();
    names.sort();
    names
}

/// Waits until a node has exactly `count` children. A node that does not exist has none.
pub async fn until_children(client: &Client, path: &str, count: usize) {
    loop {
        match client.children_and_watch(path).await {
            Ok((names, _, _)) if names.len() == count => return,
            Ok((_, _, watch)) => {
                watch.await.expect("the session lives");
            }
            Err(_) if count == 0 => return,
            Err(_) => {
                let (_, watch) = client.exists_and_watch(path).await.expect("the session lives");
                // Wait only if the node did not exist after the watch was set.
                if client.children(path).await.is_err() {
                    watch.await.expect("the session lives");
                }
            }
        }
    }
}

/// Waits until a client has `count` watches and the server has set them. One check per round trip.
pub async fn until_watches(client: &Client, count: usize) {
    while client.watch_count() != count {
        client.exists("/").await.unwrap();
    }
    // The client counts a watch when it sends the request; replies arrive in order.
    client.exists("/").await.unwrap();
}

struct Flag {
    woken: AtomicBool,
    waker: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

/// Polls a future `polls` times, each time after a wake-up, and drops it. Returns `None` if it was
/// not ready.
pub async fn drop_after_polls<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    if polls == 0 {
        return None;
    }
    let mut future = pin!(future);
    let mut done = 0;
    let mut flag: Option<Arc<Flag>> = None;
    std::future::poll_fn(move |cx| {
        if let Some(flag) = &flag
            && !flag.woken.swap(false, Ordering::AcqRel)
        {
            return Poll::Pending;
        }
        let current = flag.get_or_insert_with(|| {
            Arc::new(Flag { woken: AtomicBool::new(false), waker: cx.waker().clone() })
        });
        let waker = Waker::from(current.clone());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        done += 1;
        match polled {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if done == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Like [`drop_after_polls`], but for a future that finally waits for another session. Returns
/// whether the future reached that state within `polls` polls, and drops it in any case.
pub async fn waits_within_polls<F: Future>(client: &Client, future: F, polls: usize) -> bool {
    /// Round trips without a poll. One is enough, because replies arrive in order; more are for
    /// futures that delegate work to other tasks.
    const QUIET_MIN: usize = 3;
    let mut future = pin!(future);
    let polled = Cell::new(0);
    let counted = std::future::poll_fn(|cx| {
        polled.set(polled.get() + 1);
        future.as_mut().poll(cx)
    });
    let mut dropped = pin!(drop_after_polls(counted, polls));
    let mut quiet = 0;
    while quiet < QUIET_MIN {
        let before = polled.get();
        tokio::select! {
            biased;
            done = &mut dropped => {
                assert!(done.is_none(), "there is nobody to wait for");
                return false;
            }
            reply = client.exists("/") => reply.expect("the server is there"),
        };
        quiet = if polled.get() == before { quiet + 1 } else { 0 };
    }
    true
}

/// Smaller than any request or reply, of which the shortest has 20 bytes, and not a divisor of
/// their usual lengths.
const CUT_STEP: u64 = 19;

/// Runs `work` repeatedly, each time with a new client whose connection is cut after more bytes in
/// `direction`, so that every request or every reply is hit. `work` gets the client and the round
/// number. Returns when the work completes before the cut.
pub async fn with_every_cut<F>(
    world: &World,
    direction: Direction,
    mut work: impl FnMut(Client, usize) -> F,
) -> usize
where
    F: Future<Output = ()>,
{
    let mut round = 0;
    loop {
        let (proxy, client) = world.proxied().await;
        proxy.cut_after(direction, round as u64 * CUT_STEP);
        work(client.clone(), round).await;
        let was_cut = !proxy.is_armed();
        proxy.heal().expect("the port is ours");
        client.close().await.expect("the server is there");
        if !was_cut {
            return round;
        }
        round += 1;
    }
}

/// Like [`with_every_cut`], but runs `rival` between the cut and the reconnect: after a request was
/// applied or not, and before it can be retried. `rival` gets the round number.
pub async fn with_every_cut_and_a_rival<F, R>(
    world: &World,
    direction: Direction,
    mut work: impl FnMut(Client, usize) -> F,
    mut rival: impl FnMut(usize) -> R,
) -> usize
where
    F: Future<Output = ()>,
    R: Future<Output = ()>,
{
    let mut round = 0;
    loop {
        let proxy = world.proxy();
        let (client, mut knocks) = held_back::client(world, &proxy).await;
        proxy.cut_after(direction, round as u64 * CUT_STEP);
        let mut working = pin!(work(client.clone(), round));
        tokio::select! {
            () = &mut working => {}
            Some(knock) = knocks.recv() => {
                rival(round).await;
                drop(knock);
                working.await;
            }
        }
        let was_cut = !proxy.is_armed();
        proxy.heal().expect("the port is ours");
        client.close().await.expect("the server is there");
        if !was_cut {
            return round;
        }
        round += 1;
    }
}

/// Runs `work`, cuts its connection after `reply_bytes` bytes of replies, and refuses the reconnect
/// until `meanwhile` has completed: between a lost reply and the retry. Also returns whether the
/// cut came before the work was done.
pub async fn while_away<T>(
    proxy: &FaultyProxy,
    reply_bytes: u64,
    work: impl Future<Output = T>,
    meanwhile: impl Future<Output = ()>,
) -> (T, bool) {
    proxy.cut_after(Direction::ToClient, reply_bytes);
    proxy.refuse();
    let mut work = pin!(work);
    let cut = async {
        while proxy.is_armed() {
            tokio::task::yield_now().await;
        }
    };
    let done = tokio::select! {
        biased;
        done = &mut work => Some(done),
        () = cut => None,
    };
    if done.is_none() {
        meanwhile.await;
    }
    proxy.heal().expect("the port is ours");
    match done {
        Some(done) => (done, false),
        None => (work.await, true),
    }
}

/// Polls a future as [`drop_after_polls`] does, and drops it on a thread outside of any runtime.
pub async fn drop_elsewhere<F: Future + Send + 'static>(future: F, polls: usize)
where
    F::Output: Send,
{
    let mut future = Box::pin(future);
    let done = drop_after_polls(future.as_mut(), polls).await;
    std::thread::spawn(move || drop((future, done))).join().expect("dropping does not panic");
}
