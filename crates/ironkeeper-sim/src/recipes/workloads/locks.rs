//! Locks: mutex, read-write lock and semaphore. Waits are cancelled, guards are dropped, processes
//! end, and an operator may delete nodes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, Zxid};
use ironkeeper_recipes::lock::{Mutex, ReadWriteLock, Semaphore, WriteGuard};
use ironkeeper_recipes::{Guard, Result};

use super::register::REGISTER;
use super::{Workload, operate, patient, prepare, register};
use crate::recipes::claimed_holds::Share;
use crate::recipes::plan::ProgramBug;
use crate::recipes::program::{Program, Waited};

const LOCK: &str = "/lock";
const PERMITS: i32 = 2;

/// The guard of a lock.
enum Held {
    Plain(Guard),
    Writer(WriteGuard),
}

impl Held {
    fn guard(&self) -> &Guard {
        match self {
            Held::Plain(guard) => guard,
            Held::Writer(guard) => guard,
        }
    }

    async fn release(self) -> Result<()> {
        match self {
            Held::Plain(guard) => guard.release().await,
            Held::Writer(guard) => guard.release().await,
        }
    }
}

pub async fn run(program: &mut Program, workload: Workload) {
    prepare(program, REGISTER).await;
    while !program.must_finish() {
        program.pause_ms((0, 300)).await;
        let client = program.client().await;
        if program.context.plan.has_operator && program.random.chance(150) {
            // The parent of the contenders.
            let path = if workload == Workload::Semaphore { "/lock/leases" } else { LOCK };
            operate(program, &client, path).await;
        } else if program.has_bug(ProgramBug::SkipLook) {
            take_without_a_look(program, &client).await;
        } else {
            round(program, &client, workload).await;
        }
    }
}

/// Makes one request, in one of the possible ways.
async fn take(client: &Client, workload: Workload, way: u64) -> Result<Option<(Held, Share)>> {
    let short = Duration::from_millis(way * 30);
    Ok(match (workload, way % 8) {
        (Workload::Semaphore, way) => {
            let semaphore = Semaphore::new(client, LOCK, PERMITS)?;
            let share = Share::Permits(PERMITS as usize);
            let lease = match way {
                0 => semaphore.try_acquire().await?,
                1 => semaphore.acquire_within(short).await?,
                _ => Some(semaphore.acquire().await?),
            };
            lease.map(|lease| (Held::Plain(lease), share))
        }
        (Workload::ReadWriteLock, way) => {
            let lock = ReadWriteLock::new(client, LOCK);
            let reading = |guard| (Held::Plain(guard), Share::Readers);
            let writing = |guard| (Held::Writer(guard), Share::Alone);
            match way {
                0 => lock.try_read().await?.map(reading),
                1 => lock.try_write().await?.map(writing),
                2 => lock.write_within(short).await?.map(writing),
                3 | 4 => Some(writing(lock.write().await?)),
                5 => Some(reading(lock.write().await?.downgrade().await?)),
                _ => Some(reading(lock.read().await?)),
            }
        }
        (_, way) => {
            let mutex = Mutex::new(client, LOCK);
            let guard = match way {
                0 => mutex.try_lock().await?,
                1 => mutex.lock_within(short).await?,
                2 | 3 => Some(hand_on(&mutex).await?),
                _ => Some(mutex.lock().await?),
            };
            guard.map(|guard| (Held::Plain(guard), Share::Alone))
        }
    })
}

/// Makes two requests and releases the first lock that is granted, so that it is handed over to the
/// other.
async fn hand_on(mutex: &Mutex) -> Result<Guard> {
    let (mut one, mut two) = (pin!(mutex.lock()), pin!(mutex.lock()));
    tokio::select! {
        biased;
        first = &mut one => {
            drop(first?);
            two.await
        }
        first = &mut two => {
            drop(first?);
            one.await
        }
    }
}

async fn round(program: &mut Program, client: &Client, workload: Workload) {
    let way = program.random.below(64);
    program.log(format!("actions for the lock, way {}", way % 8));
    let taken = program.wait("get the lock", take(client, workload, way)).await;
    let Waited::Got(Some((held, share))) = taken else { return };
    let held = Arc::new(held);
    let token = held.guard().fencing_token();
    let (seen, ignores_loss) = (held.clone(), program.has_bug(ProgramBug::IgnoreLoss));
    let hold = program.hold(
        LOCK,
        share,
        held.guard().path(),
        (share == Share::Alone).then_some(token),
        move || ignores_loss || seen.guard().is_valid(),
    );
    let lost = {
        let (low, high) = program.context.plan.hold_ms;
        let hold = Duration::from_millis(program.random.between(low, high));
        let program = &*program;
        let work = async {
            tokio::time::sleep(hold / 2).await;
            if share == Share::Alone {
                register::write(program, client, held.guard().transaction(), token).await;
            }
            tokio::time::sleep(hold / 2).await;
        };
        let unheeded = ignores_loss || program.has_bug(ProgramBug::WriteUnfenced);
        tokio::select! {
            biased;
            lost = held.guard().lost(), if !unheeded => Some(lost),
            () = work => None,
        }
    };
    if program.draws_crash() {
        program.crash();
        return;
    }
    program.release_claim(hold);
    let held = Arc::into_inner(held).expect("the is_claimed is gone");
    match lost {
        Some(lost) => program.log(format!("has lost the lock: {lost}")),
        None if program.random.chance(200) => program.log("drops the lock"),
        None => give_back(program, held).await,
    }
}

async fn give_back(program: &mut Program, held: Held) {
    program.log("gives the lock back");
    if let Waited::Got(()) = program.wait_long("give the lock back", held.release()).await {
        program.log("has given the lock back");
    }
}

/// See [`ProgramBug::SkipLook`].
async fn take_without_a_look(program: &mut Program, client: &Client) {
    let mode = CreateMode::EphemeralSequential;
    let policy = patient();
    let standing = async {
        let node = client.create_protected("/lock/lock-", "", mode, &policy).await;
        match node {
            Err(error) if error.kind() == ironkeeper_client::ErrorKind::NoNode => {
                client.create_parents("/lock/lock-").await?;
                Ok(None)
            }
            node => Ok(Some(node?)),
        }
    };
    let stands = program.wait_long("stand in line", standing).await;
    let Waited::Got(Some(created)) = stands else { return };
    let seen = client.clone();
    let is_claimed = move || seen.state().is_connected();
    let token: Option<Zxid> = Some(created.stat.czxid);
    let hold = program.hold(LOCK, Share::Alone, &created.path, token, is_claimed);
    program.pause_ms(program.context.plan.hold_ms).await;
    program.release_claim(hold);
    drop(client.delete_guaranteed(&created.path, ironkeeper_client::Version::Any));
}
