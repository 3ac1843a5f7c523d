//! Sessions in an ensemble: ephemeral nodes go when their session ends, everywhere, and not before; a session moves
//! with its client from member to member and outlives leaders.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use ironkeeper_testing::FaultyProxy;

use crate::ensemble::Stage;
use crate::ensemble::background::Background;
use crate::ensemble::cluster::{Cluster, Terms};
use crate::interop::Tally;

/// Of clients that stay, and of those that fall silent.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(5);

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let cluster = Cluster::start(&stage.cast, stage.programs, &Terms::default(), &stage.dir)?;
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
    /// One on each member, to see what that member holds.
    observers: Vec<Client>,
    tally: Tally,
}

impl Play {
    /// Whether a node is there: on every member, or on none.
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

    /// A session that is closed through member `at` takes its node along, everywhere, at once.
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

    /// A session whose client falls silent ends after its time-out and not before, whoever it was connected to.
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
        // The server hears this later than now, so it may not end the session before now and the time-out.
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

    /// A client that loses member `at` goes on with its session on another.
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
            // The request that notices may fail; the session does not.
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

    /// The leader dies; its clients' sessions and nodes do not.
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

/// Whether a client's member has a node. Elections cost connections; the question is asked again then.
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
