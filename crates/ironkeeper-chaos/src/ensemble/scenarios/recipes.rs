//! Recipes on an ensemble whose leader is killed (SIGKILL), twice: never two holders, no lost item,
//! no waiter that waits forever.
//!
//! All recipes run concurrently. The sessions of their users outlast every election, so each user
//! has to continue after it. The file of each recipe states its requirements.

mod barrier;
mod fenced;
mod queue;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ironkeeper_client::{Client, RetryPolicy};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_steps::tally::Tally;
use tokio::task::{JoinHandle, JoinSet};

use crate::ensemble::Stage;
use crate::ensemble::background::Background;

const LEADER_KILLS: usize = 2;
/// The rounds of each recipe between two faults.
const ROUNDS: u64 = 5;
/// The session timeout: longer than any election, also on a busy machine.
const SESSION: Duration = Duration::from_secs(40);
/// Users of each recipe, each with its own session.
const USERS: usize = 3;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let mut cluster =
        Cluster::start(&stage.membership, stage.programs, &Terms::default(), &stage.dir)?;
    let background = Background::start()?;
    let mut company = Company { cluster: &cluster, background: &background, plays: Vec::new() };
    company.add("mutex", fenced::mutex)?;
    company.add("leader latch", fenced::latch)?;
    company.add("work queue", queue::work)?;
    company.add("simple queue", queue::simple)?;
    company.add("double barrier", barrier::double)?;
    let plays = company.plays;

    wait_for_rounds(&cluster, &plays).context("at the beginning")?;
    for _ in 0..LEADER_KILLS {
        let leader = cluster.wait_for_leader(|_| true)?;
        cluster.member_mut(leader).kill()?;
        wait_for_rounds(&cluster, &plays).context("without the leader that was killed")?;
        cluster.member_mut(leader).start_again()?;
        wait_for_rounds(&cluster, &plays).context("with all members again")?;
    }

    let mut tally = Tally::default();
    for play in &plays {
        play.shift.over.store(true, Ordering::Release);
    }
    for Play { name, shift, task } in plays {
        let ended = background.wait(name, async { task.await.context("it panicked")? });
        cluster.tell(&format!("{name}: {} rounds", shift.rounds()));
        tally.check(name, ended.map_err(|why| format!("{why:#}")));
    }
    Ok(tally)
}

/// Waits until every recipe has completed more rounds.
fn wait_for_rounds(cluster: &Cluster, plays: &[Play]) -> Result<()> {
    let wanted: Vec<u64> = plays.iter().map(|play| play.shift.rounds() + ROUNDS).collect();
    let lacks = |(play, wanted): &(&Play, &u64)| play.shift.rounds() < **wanted;
    // A recipe that has ended early has failed and completes no more rounds.
    let has_ended = || plays.iter().any(|play| play.task.is_finished());
    let waited = cluster.wait(|| has_ended() || !plays.iter().zip(&wanted).any(|one| lacks(&one)));
    let late: Vec<&str> =
        plays.iter().zip(&wanted).filter(lacks).map(|(play, _)| play.name).collect();
    waited.with_context(|| format!("stuck: {}", late.join(", ")))
}

/// One running recipe.
struct Play {
    name: &'static str,
    shift: Shift,
    task: JoinHandle<Result<()>>,
}

/// The stop flag and the number of completed rounds.
#[derive(Debug, Clone, Default)]
struct Shift {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Shift {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn done_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

/// The started recipes.
struct Company<'a> {
    cluster: &'a Cluster,
    background: &'a Background,
    plays: Vec<Play>,
}

impl Company<'_> {
    fn add<F>(
        &mut self,
        name: &'static str,
        work: impl FnOnce(Vec<Client>, Shift) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut clients = Vec::new();
        for _ in 0..USERS {
            clients.push(self.background.connect(&self.cluster.connect_string(), SESSION)?);
        }
        let shift = Shift::default();
        let task = self.background.spawn(work(clients, shift.clone()));
        self.plays.push(Play { name, shift, task });
        Ok(())
    }
}

/// Waits for all users, or for the first that fails.
async fn all(mut users: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = users.join_next().await {
        ended.context("a user panicked")??;
    }
    Ok(())
}

/// Returns the retry policy for requests that outlast elections.
fn patient() -> RetryPolicy {
    RetryPolicy::forever(Duration::from_millis(5))
}

/// Checks that two lists are equal as multisets.
fn same(mut wanted: Vec<String>, mut found: Vec<String>) -> Result<()> {
    wanted.sort();
    found.sort();
    if wanted != found {
        let lost: Vec<&String> = wanted.iter().filter(|one| !found.contains(one)).collect();
        bail!(
            "{} were put and {} were taken; lost: {lost:?}; taken: {found:?}",
            wanted.len(),
            found.len()
        );
    }
    Ok(())
}
