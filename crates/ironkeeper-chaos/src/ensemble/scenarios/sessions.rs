//! Sessions in an ensemble: ephemeral nodes are deleted when their session ends, on all members,
//! and not before; a session moves with its client from member to member and survives the loss of a
//! leader.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_steps::tally::Tally;
use ironkeeper_testing::FaultyProxy;

use crate::ensemble::Stage;
use crate::ensemble::background::Background;

/// Session timeouts of clients that stay connected, and of clients that stop sending.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(5);

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let cluster = Cluster::start(&stage.membership, stage.programs, &Terms::default(), &stage.dir)?;
    let clients = Background::start()?;
    let mut observers = Vec::new();
    for server in cluster.members() {
        observers.push(clients.connect(&server.address(), LONG)?);
    }
    let mut play = Play { cluster, clients, observers, tally: Tally::default() };
    for at in 0..play.cluster.size() {
        play.closed_session(at)?;
        play.silent_session(at)?;
        play.moved_session(at)?;
    }
    play.session_outlives_leader()?;
    Ok(play.tally)
}

struct Play {
    cluster: Cluster,
    clients: Background,
    /// One client on each member, to read that member's state.
    observers: Vec<Client>,
    tally: Tally,
}

impl Play {
    /// Returns whether a node exists on all members (`true`) or on none (`false`); `None` if
    /// members differ.
    fn is_everywhere(&self, path: &str) -> Result<Option<bool>> {
        self.clients.wait("asking every member", async {
            let mut found = Vec::new();
            for observer in &self.observers {
                found.push(is_there(observer, path).await?);
            }
            let first = found.first().copied();
            Ok(first.filter(|first| found.iter().all(|there| there == first)))
        })
    }

    fn check(&mut self, what: &str, holds: bool) {
        self.tally.check(what, holds.then_some(()).ok_or_else(|| "it does not hold".to_owned()));
    }

    fn create(&self, client: &Client, path: &str) -> Result<()> {
        self.clients.wait("creating", async {
            client.create(path, "", CreateMode::Ephemeral).await?;
            Ok(())
        })
    }

    /// Closes a session through member `at` and checks that its node is deleted at once, on all
    /// members.
    fn closed_session(&mut self, at: usize) -> Result<()> {
        let client = self.clients.connect(&self.cluster.member(at).address(), LONG)?;
        self.create(&client, "/closed")?;
        let there = self.is_everywhere("/closed")?;
        self.check(
            &format!("a node made through member {} is everywhere", at + 1),
            there == Some(true),
        );
        self.clients.wait("closing", async { Ok(client.close().await?) })?;
        let there = self.is_everywhere("/closed")?;
        self.check(
            &format!("closed through member {}, gone everywhere", at + 1),
            there == Some(false),
        );
        Ok(())
    }

    /// Checks that a session whose client stops sending expires after its timeout and not before,
    /// on any member.
    fn silent_session(&mut self, at: usize) -> Result<()> {
        let proxy = FaultyProxy::start(self.cluster.member(at).address())?;
        let client = self.clients.connect(&proxy.connect_string(), SHORT)?;
        self.create(&client, "/silent")?;
        let observers = &self.observers;
        let watches = self.clients.wait("watching", async {
            let mut watches = Vec::new();
            for observer in observers {
                observer.sync("/silent").await?;
                watches.push(observer.exists_and_watch("/silent").await?.1);
            }
            Ok(watches)
        })?;
        // The server receives this request later than now, so the session must not expire before
        // now plus the timeout.
        let last_word = Instant::now();
        self.clients.wait("a last word", async { Ok(client.exists("/").await?) })?;
        proxy.black_hole();
        self.clients.wait("the end of a silent session", async {
            for watch in watches {
                watch.await.context("the watch ended without an event")?;
            }
            Ok(())
        })?;
        let lived = last_word.elapsed();
        self.check(
            &format!("a silent session on member {} lives for its time-out", at + 1),
            lived >= client.session_timeout(),
        );
        let there = self.is_everywhere("/silent")?;
        self.check(&format!("silent on member {}, gone everywhere", at + 1), there == Some(false));
        Ok(())
    }

    /// Checks that a client that loses member `at` continues its session on another member.
    fn moved_session(&mut self, at: usize) -> Result<()> {
        let next = (at + 1) % self.cluster.size();
        let proxy = FaultyProxy::start(self.cluster.member(at).address())?;
        let other = FaultyProxy::start(self.cluster.member(next).address())?;
        other.refuse();
        let both = format!("{},{}", proxy.connect_string(), other.connect_string());
        let client = self.clients.connect(&both, LONG)?;
        let session = client.session_id();
        self.create(&client, "/moved")?;
        other.heal()?;
        proxy.refuse();
        proxy.reset();
        self.clients.wait("moving", async {
            // The request that detects the lost connection may fail; the session must not.
            while client.set("/moved", "again", Version::Any).await.is_err() {
                client.connected().await?;
            }
            Ok(())
        })?;
        let kept = client.session_id() == session && self.is_everywhere("/moved")? == Some(true);
        self.check(&format!("a session moves from member {} to {}", at + 1, next + 1), kept);
        self.clients.wait("closing", async { Ok(client.close().await?) })?;
        let there = self.is_everywhere("/moved")?;
        self.check("a moved session that is closed takes its node along", there == Some(false));
        Ok(())
    }

    /// Kills the leader and checks that the sessions and nodes of its clients survive.
    fn session_outlives_leader(&mut self) -> Result<()> {
        let leader = self.cluster.wait_for_leader(|_| true)?;
        let addresses = self.cluster.connect_string();
        let client = self.clients.connect(&addresses, LONG)?;
        let session = client.session_id();
        self.create(&client, "/outlives")?;
        self.cluster.member_mut(leader).kill()?;
        self.cluster.wait_for_leader(|at| at != leader)?;
        self.cluster.member_mut(leader).start_again()?;
        let there = self.is_everywhere("/outlives")?;
        self.clients.wait("going on", async { Ok(client.connected().await?) })?;
        self.check(
            "a session outlives the leader",
            there == Some(true) && client.session_id() == session,
        );
        self.clients.wait("closing", async { Ok(client.close().await?) })?;
        let there = self.is_everywhere("/outlives")?;
        self.check("closed after the leader's death, gone everywhere", there == Some(false));
        Ok(())
    }
}

/// Returns whether a client's member has a node. Retries when an election closes the connection.
async fn is_there(client: &Client, path: &str) -> Result<bool> {
    loop {
        client.connected().await?;
        let synced = client.sync(path);
        let stat = client.exists(path);
        match synced.await.and(stat.await) {
            Ok(stat) => return Ok(stat.is_some()),
            Err(error) if error.kind() == ErrorKind::ConnectionLoss => {}
            Err(error) => return Err(error.into()),
        }
    }
}
