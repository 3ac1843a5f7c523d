//! Demos of locks.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::lock::{
    Condition, DeadlockDetector, MultiLock, Mutex, NonBlockingLease, Optimistic, ReadWriteLock,
    Reentrant, Semaphore, SemaphoreMutex, SingleNodeLock, Victim, WriteGuard,
};
use ironkeeper_recipes::{Guard, Lost};

use crate::demo::stage::{Actor, Stage, done, meanwhile};

pub async fn mutex(stage: &mut Stage) -> Result<()> {
    let (anna, bob, carol) =
        (stage.enter("anna").await?, stage.enter("bob").await?, stage.enter("carol").await?);
    let lock = |actor: &Actor| Mutex::new(&actor.client, "/lock").with_data(actor.name);
    let held = lock(&anna).lock().await?;
    stage.says(&anna, format!("has the lock, token {}", held.fencing_token())).await?;

    let bobs = lock(&bob);
    let bobs = meanwhile(async move { bobs.lock().await });
    stage.until_created("lock-0000000001").await?;
    stage.says(&bob, "stands in line and watches anna's node, nothing else").await?;
    let carols = lock(&carol);
    let carols = meanwhile(async move { carols.lock().await });
    stage.until_created("lock-0000000002").await?;
    stage.says(&carol, "stands behind bob and watches his").await?;

    held.release().await?;
    stage.says(&anna, "lets go: one watch event, for bob").await?;
    let held = done(bobs).await?;
    stage
        .says(&bob, format!("has it now, token {}: tokens only grow", held.fencing_token()))
        .await?;

    stage.kill(&bob).await?;
    let held = done(carols).await?;
    stage.says(&carol, format!("has it at once, token {}", held.fencing_token())).await?;
    held.release().await?;
    Ok(())
}

pub async fn fencing(stage: &mut Stage) -> Result<()> {
    let (slow, next) = (stage.enter("slow").await?, stage.enter("next").await?);
    next.client.create("/report", "empty", CreateMode::Persistent).await?;
    let stale = Mutex::new(&slow.client, "/lock").lock().await?;
    stage.says(&slow, "has the lock, and falls asleep for too long").await?;
    let token = stale.fencing_token();
    let fence = stale.transaction().set("/report", "by a sleepwalker", Version::Any);
    stage.expire(&slow).await?;
    let held = Mutex::new(&next.client, "/lock").lock().await?;
    held.transaction().set("/report", "by the holder", Version::Any).commit().await?;
    stage
        .says(&next, "has the lock and has written, in one transaction with a check of it")
        .await?;
    ensure!(fence.commit().await.is_err(), "a stale holder has written");
    stage
        .says(&slow, format!("wakes up and writes with token {token}: the server refuses"))
        .await?;
    held.release().await?;
    Ok(())
}

pub async fn read_write(stage: &mut Stage) -> Result<()> {
    let (anna, bob, carol) =
        (stage.enter("anna").await?, stage.enter("bob").await?, stage.enter("carol").await?);
    let lock = |actor: &Actor| ReadWriteLock::new(&actor.client, "/index");
    let (one, two) = (lock(&anna).read().await?, lock(&bob).read().await?);
    stage.tells("anna and bob read at the same time").await?;
    let writer = lock(&carol);
    let writer = meanwhile(async move { writer.write().await });
    stage.until_created("__WRIT__").await?;
    stage.says(&carol, "wants to write and waits for both").await?;
    one.release().await?;
    two.release().await?;
    let writing: WriteGuard = done(writer).await?;
    stage.says(&carol, "writes, alone").await?;
    let reading = writing.downgrade().await?;
    stage.says(&carol, "goes on reading what it wrote: nobody was in between").await?;
    reading.release().await?;
    Ok(())
}

pub async fn semaphore(stage: &mut Stage) -> Result<()> {
    let (anna, bob, carol) =
        (stage.enter("anna").await?, stage.enter("bob").await?, stage.enter("carol").await?);
    let semaphore = |actor: &Actor| Semaphore::new(&actor.client, "/printers", 2);
    let first = semaphore(&anna)?.acquire().await?;
    stage.says(&anna, "has one of two leases").await?;
    let second = semaphore(&bob)?.acquire().await?;
    stage.says(&bob, "has the other").await?;
    ensure!(semaphore(&carol)?.try_acquire().await?.is_none(), "a third lease of two");
    stage.says(&carol, "gets none, and does not wait").await?;
    first.release().await?;
    let third = semaphore(&carol)?.acquire().await?;
    stage.says(&carol, "gets the one that anna gave back").await?;
    second.release().await?;
    third.release().await?;
    Ok(())
}

/// The number of contenders that wait for a lock.
const CROWD: usize = 8;

pub async fn single_node(stage: &mut Stage) -> Result<()> {
    let (anna, crowd) = (stage.enter("anna").await?, stage.enter("crowd").await?);
    let simple =
        |client: Client| async move { SingleNodeLock::new(&client, "/simple").lock().await };
    let creates = crowded(&anna, &crowd, simple).await?;
    let woken = format!("one node: a release wakes all {CROWD} who wait");
    stage.tells(format!("{woken}, and {creates} creates follow, of which one succeeds")).await?;
    let fair = |client: Client| async move { Mutex::new(&client, "/fair").lock().await };
    let creates = crowded(&anna, &crowd, fair).await?;
    stage.tells(format!("a line: a release wakes one, and {creates} creates follow")).await?;
    Ok(())
}

/// Lets `CROWD` tasks wait for the lock that `one` holds, and returns the number of writes that its
/// release causes.
async fn crowded<F>(one: &Actor, crowd: &Actor, lock: impl Fn(Client) -> F) -> Result<i64>
where
    F: Future<Output = ironkeeper_recipes::Result<Guard>> + Send + 'static,
{
    let watching = |count: usize| async move {
        while crowd.client.watch_count() != count {
            crowd.client.exists("/").await?;
        }
        anyhow::Ok(())
    };
    let held = lock(one.client.clone()).await?;
    let (sender, mut granted) = tokio::sync::mpsc::channel(CROWD);
    let waiting: Vec<_> = (0..CROWD)
        .map(|_| {
            let (locking, sender) = (lock(crowd.client.clone()), sender.clone());
            tokio::spawn(async move { sender.send(locking.await).await })
        })
        .collect();
    watching(CROWD).await?;
    let before = written(one).await?;
    held.release().await?;
    let Some(next) = granted.recv().await else { bail!("nobody has got it") };
    watching(CROWD - 1).await?;
    // Every write has a zxid, also a rejected one. Two of them are not counted: the release, and
    // the `written` of the next line.
    let writes = written(one).await? - before - 2;
    for task in waiting {
        task.abort();
    }
    next?.release().await?;
    Ok(writes)
}

/// Writes a node and returns the zxid of that write.
async fn written(actor: &Actor) -> Result<i64> {
    let stat = actor.client.set_or_create("/clock", "", CreateMode::Persistent).await?;
    Ok(stat.mzxid.0)
}

pub async fn reentrant(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let mut lock = Reentrant::new(Mutex::new(&anna.client, "/lock"));
    lock.acquire().await?;
    stage.says(&anna, "has the lock and calls a function that takes it, too").await?;
    lock.acquire().await?;
    stage.says(&anna, format!("has it {} times, with one node", lock.count())).await?;
    lock.release().await?;
    lock.release().await?;
    stage.says(&anna, "has given it back as often as she took it").await?;
    Ok(())
}

pub async fn semaphore_mutex(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let lock = |actor: &Actor| SemaphoreMutex::new(&actor.client, "/lock");
    let held = lock(&anna).lock().await?;
    stage.says(&anna, "has the only lease of a semaphore").await?;
    ensure!(lock(&anna).try_lock().await?.is_none(), "it was taken twice");
    ensure!(lock(&bob).try_lock().await?.is_none(), "it was had by two");
    stage.tells("nobody gets it, she herself neither").await?;
    held.release().await?;
    Ok(())
}

pub async fn host_names(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let lock =
        |actor: &Actor| ReadWriteLock::new(&actor.client, "/index").with_host_names(actor.name);
    let reading = lock(&anna).read().await?;
    ensure!(lock(&bob).try_write().await?.is_none(), "a writer came in");
    stage.tells("the names on the tree say who reads and who writes").await?;
    reading.release().await?;
    lock(&bob).write().await?.release().await?;
    Ok(())
}

pub async fn lock_delay(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let delay = Duration::from_millis(500);
    let lock = |actor: &Actor| Mutex::new(&actor.client, "/lock").with_lock_delay(delay);
    let _held = lock(&anna).lock().await?;
    stage.says(&anna, "has the lock; a marker says that she has not released it").await?;
    stage.kill(&anna).await?;
    let begun = tokio::time::Instant::now();
    let held = lock(&bob).lock().await?;
    ensure!(begun.elapsed() >= delay, "the delay was cut short");
    stage.says(&bob, format!("has it, {delay:?} later: what anna had sent has arrived")).await?;
    held.release().await?;
    stage.says(&bob, "has released it: the next one need not wait").await?;
    Ok(())
}

pub async fn changing_limit(stage: &mut Stage) -> Result<()> {
    let (anna, bob, boss) =
        (stage.enter("anna").await?, stage.enter("bob").await?, stage.enter("boss").await?);
    Semaphore::set_shared_limit(&boss.client, "/printers-limit", 1).await?;
    let semaphore =
        |actor: &Actor| Semaphore::with_shared_limit(&actor.client, "/printers", "/printers-limit");
    let first = semaphore(&anna).acquire().await?;
    stage.says(&anna, "has the only lease").await?;
    let waiting = semaphore(&bob);
    let waiting = meanwhile(async move { waiting.acquire().await });
    stage.until_created("lease-0000000001").await?;
    stage.says(&bob, "waits").await?;
    Semaphore::set_shared_limit(&boss.client, "/printers-limit", 2).await?;
    let second = done(waiting).await?;
    stage.says(&boss, "has bought a second printer; bob has it at once").await?;
    first.release().await?;
    second.release().await?;
    Ok(())
}

pub async fn lease_time(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let semaphore = |actor: &Actor| {
        let one = Semaphore::new(&actor.client, "/printers", 1)?;
        anyhow::Ok(one.with_lease_time(Duration::from_millis(400)))
    };
    let forgotten = semaphore(&anna)?.acquire().await?;
    stage.says(&anna, "has the lease, and falls asleep").await?;
    let lease = semaphore(&bob)?.acquire().await?;
    ensure!(forgotten.lost().await != Lost::SessionEnded, "her session lives");
    stage.says(&bob, "has it when its time is over; anna's guard knows that it is lost").await?;
    lease.release().await?;
    Ok(())
}

pub async fn multi_lock(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let both = MultiLock::new(&anna.client, ["/accounts/b", "/accounts/a"])?.lock().await?;
    stage.says(&anna, "has both accounts, taken in the order of their names").await?;
    let one = Mutex::new(&bob.client, "/accounts/b").try_lock().await?;
    ensure!(one.is_none(), "one of the locks was free");
    stage.says(&bob, "gets neither").await?;
    both.release().await?;
    Ok(())
}

pub async fn revocation(stage: &mut Stage) -> Result<()> {
    let (anna, boss) = (stage.enter("anna").await?, stage.enter("boss").await?);
    let held = Mutex::new(&anna.client, "/lock").lock().await?;
    stage.says(&anna, "has the lock and works").await?;
    Mutex::new(&boss.client, "/lock").revoke_holder().await?;
    stage.says(&boss, "asks for it: a word in the holder's node").await?;
    held.revocation().await?;
    held.release().await?;
    stage.says(&anna, "has heard it, ends her work and lets go").await?;
    Ok(())
}

pub async fn lease(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let day = Duration::from_secs(24 * 60 * 60);
    let lease = |actor: &Actor| NonBlockingLease::new(&actor.client, "/nightly", day);
    ensure!(lease(&anna).obtain("anna").await?.is_some(), "the lease was free");
    stage.says(&anna, "does the nightly work today").await?;
    ensure!(lease(&bob).obtain("bob").await?.is_none(), "a lease was given twice");
    stage.says(&bob, "sees that it is done, and goes home").await?;
    Ok(())
}

pub async fn optimistic(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    anna.client.create("/list", "eggs", CreateMode::Persistent).await?;
    let (annas, bobs) =
        (Optimistic::new(&anna.client, "/list"), Optimistic::new(&bob.client, "/list"));
    let read = annas.read().await?;
    stage.says(&anna, format!("has read version {}", read.version)).await?;
    bobs.update(|old| [old, b", milk"].concat()).await?;
    stage.says(&bob, "was faster").await?;
    let written = annas.update(|old| [old, b", bread"].concat()).await?;
    stage
        .says(&anna, format!("has tried again on {:?}", String::from_utf8_lossy(&written.data)))
        .await?;
    Ok(())
}

pub async fn condition(stage: &mut Stage) -> Result<()> {
    let (guest, porter) = (stage.enter("guest").await?, stage.enter("porter").await?);
    let waiting = {
        let client = guest.client.clone();
        meanwhile(async move {
            let mutex = Mutex::new(&client, "/door");
            let opened = Condition::new(&mutex, "/door-opened");
            let is_closed = || async { Ok(client.exists("/open").await?.is_none()) };
            opened.wait_while(mutex.lock().await?, is_closed).await?.release().await
        })
    };
    stage.until_created("waits-").await?;
    stage.says(&guest, "has looked inside the lock: closed; waits, and lets the lock go").await?;
    let mutex = Mutex::new(&porter.client, "/door");
    let held = mutex.lock().await?;
    held.transaction().create("/open", "", CreateMode::Persistent).commit().await?;
    Condition::new(&mutex, "/door-opened").notify_one(&held).await?;
    held.release().await?;
    stage.says(&porter, "has opened the door and told one who waits").await?;
    done(waiting).await?;
    stage.says(&guest, "is in").await?;
    Ok(())
}

pub async fn deadlock(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let lock = |actor: &Actor, path: &str| {
        Mutex::new(&actor.client, path).with_data(actor.name).heeding_deadlocks()
    };
    let fork = lock(&anna, "/table/fork").lock().await?;
    let knife = lock(&bob, "/table/knife").lock().await?;
    stage.tells("anna has the fork, bob the knife").await?;
    let (annas, bobs) = (lock(&anna, "/table/knife"), lock(&bob, "/table/fork"));
    let annas = meanwhile(async move { annas.lock().await });
    stage.until_created("/table/knife/").await?;
    let bobs = meanwhile(async move { bobs.lock().await });
    stage.until_created("/table/fork/").await?;
    let detector = DeadlockDetector::new(&anna.client, "/table");
    let found = loop {
        if let Some(found) = detector.detect().await?.pop() {
            break found;
        }
    };
    for wait in &found.waits {
        stage.tells(wait).await?;
    }
    detector.resolve(&found, Victim::Youngest).await?;
    stage.tells("the detector asks the one who came last to give way").await?;
    let Err(refused) = done(bobs).await else { bail!("bob has got what anna holds") };
    stage.says(&bob, refused).await?;
    knife.release().await?;
    let both = [fork, done(annas).await?];
    stage.says(&anna, "has both and eats").await?;
    for held in both {
        held.release().await?;
    }
    Ok(())
}
