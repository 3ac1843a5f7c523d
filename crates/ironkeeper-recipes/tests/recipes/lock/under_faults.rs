//! Many workers, each behind its own proxy with cuts and stalls, and sessions that end at any time:
//! writes under the lock stay in the order of their tokens, no worker waits forever, no node is
//! left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, OpResult, Version, Zxid};
use ironkeeper_recipes::lock::{Mutex, ReadWriteLock, Semaphore};
use ironkeeper_recipes::{Guard, RecipeError, Result};
use ironkeeper_testing::{Direction, FaultyProxy};

use crate::world::{World, until_children};

const WORKERS: usize = 4;
const GRANTS: usize = 60;

/// A small generator (xorshift); the seed determines the faults of a run, but not their timing.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Mutex,
    Write,
    Semaphore,
}

async fn take(kind: Kind, client: &Client, patience: Duration) -> Result<Option<Guard>> {
    match kind {
        Kind::Mutex => Mutex::new(client, "/lock").lock_within(patience).await,
        Kind::Write => {
            let lock = ReadWriteLock::new(client, "/lock");
            match lock.write_within(patience).await? {
                Some(writing) => writing.downgrade().await.map(Some),
                None => Ok(None),
            }
        }
        Kind::Semaphore => Semaphore::new(client, "/lock", 1)?.acquire_within(patience).await,
    }
}

/// Takes the lock until it has written `GRANTS` times. Returns the zxid and the token of each
/// write.
async fn work(world: &World, proxy: &FaultyProxy, kind: Kind, seed: u64) -> Vec<(Zxid, Zxid)> {
    let mut dice = Dice(seed);
    let mut written = Vec::new();
    let mut client = world.client_behind(proxy).await;
    while written.len() < GRANTS {
        let patience = Duration::from_millis(20 + dice.roll(2000));
        let taken = take(kind, &client, patience).await;
        match taken {
            Ok(Some(guard)) => {
                let write = guard.transaction().set("/register", "", Version::Any).commit().await;
                if let Ok(results) = write
                    && let Some(OpResult::Set(stat)) = results.get(1)
                {
                    written.push((stat.mzxid, guard.fencing_token()));
                }
                match dice.roll(3) {
                    0 => drop(guard),
                    // The lock may be lost in between; the token fences the write.
                    _ => drop(guard.release().await),
                }
            }
            Ok(None) => {}
            Err(error) => {
                let deleted =
                    matches!(error, RecipeError::NodeGone { .. } | RecipeError::Lost { .. });
                assert!(deleted || error.is_session_over(), "{error}");
            }
        }
        if client.state().is_final() {
            client = world.client_behind(proxy).await;
        }
    }
    // The session may have been ended a moment ago.
    let _ = client.close().await;
    written
}

async fn disturb(
    world: &World,
    watching: &Client,
    proxies: &[FaultyProxy],
    done: &AtomicBool,
    seed: u64,
) {
    let mut dice = Dice(seed);
    let killer = world.client().await;
    while !done.load(Ordering::Acquire) {
        let proxy = &proxies[dice.roll(WORKERS as u64) as usize];
        match dice.roll(7) {
            0 => {
                // Ends sessions at random, with a probability of 1/6 each.
                if let Some(server) = world.server() {
                    for session in server.sessions().unwrap_or_default() {
                        if session != killer.session_id()
                            && session != watching.session_id()
                            && dice.roll(6) == 0
                        {
                            let _ = server.kill_session(session);
                        }
                    }
                }
            }
            6 => drop(proxy.cut()),
            1 => drop(proxy.reset()),
            2 => proxy.stall(Direction::ToClient),
            3 => proxy.cut_after(Direction::ToServer, dice.roll(300)),
            4 => proxy.cut_after(Direction::ToClient, dice.roll(300)),
            _ => {
                // Deletes the node of a contender or of a lease.
                for parent in ["/lock", "/lock/leases", "/lock/locks"] {
                    if let Ok(names) = killer.children(parent).await
                        && let Some(name) = names.iter().find(|name| name.starts_with("_c_"))
                        && dice.roll(4) == 0
                    {
                        let _ = killer.delete(&format!("{parent}/{name}"), Version::Any).await;
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5 + dice.roll(30))).await;
        for proxy in proxies {
            proxy.heal().expect("the port is ours");
        }
    }
}

async fn check(kind: Kind, seed: u64) {
    let world = Arc::new(World::start().await);
    let watching = world.client().await;
    watching.create("/register", "", CreateMode::Persistent).await.unwrap();
    let proxies: Vec<FaultyProxy> = (0..WORKERS).map(|_| world.proxy()).collect();
    let done = AtomicBool::new(false);
    let working = async {
        let mut written = Vec::new();
        let (world, proxies) = (&*world, &proxies);
        let (one, two, three, four) = tokio::join!(
            work(world, &proxies[0], kind, seed ^ 0x9e37),
            work(world, &proxies[1], kind, seed ^ 0x79b9),
            work(world, &proxies[2], kind, seed ^ 0x7f4a),
            work(world, &proxies[3], kind, seed ^ 0x7c15),
        );
        written.extend([one, two, three, four].into_iter().flatten());
        done.store(true, Ordering::Release);
        written
    };
    let (mut written, ()) =
        tokio::join!(working, disturb(&world, &watching, &proxies, &done, seed));
    written.sort();
    let tokens: Vec<Zxid> = written.iter().map(|(_, token)| *token).collect();
    assert_eq!(tokens.len(), WORKERS * GRANTS);
    assert!(tokens.is_sorted(), "a stale holder wrote: {written:?}");
    for parent in ["/lock/leases", "/lock/locks"] {
        until_children(&watching, parent, 0).await;
    }
    if !matches!(kind, Kind::Semaphore) {
        until_children(&watching, "/lock", 0).await;
    }
}

#[tokio::test]
async fn writes_under_the_mutex_never_come_out_of_order() {
    check(Kind::Mutex, 0x1234_5678_9abc_def1).await;
}

#[tokio::test]
async fn writes_under_the_read_write_lock_never_come_out_of_order() {
    check(Kind::Write, 0x2345_6789_abcd_ef12).await;
}

#[tokio::test]
async fn writes_under_a_semaphore_of_one_never_come_out_of_order() {
    check(Kind::Semaphore, 0x3456_789a_bcde_f123).await;
}
