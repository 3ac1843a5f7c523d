//! Locks and elections.
//!
//! ```text
//! take NAME KIND PATH        -> NAME held, when acquired
//! try NAME KIND PATH         -> NAME held, or NAME busy
//! downgrade NAME             -> NAME held
//! revocation NAME            -> NAME revoked, when a client requests it
//! revoke KIND PATH           -> KIND asked
//! counter PATH               -> counter PATH
//! count NAME KIND PATH TIMES -> NAME counted, after adding one TIMES times under the lock
//! leader KIND PATH           -> KIND ID
//! ```
//! KIND is mutex, read, write, semaphore (of two), semaphore-mutex, latch or selector; with kazoo's
//! node names: kazoo-mutex, kazoo-read, kazoo-write or kazoo-selector.

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::election::{Election, LeaderLatch, LeaderObserver, LeaderSelector};
use ironkeeper_recipes::lock::{Mutex, ReadWriteLock, Semaphore, SemaphoreMutex, revoke};
use tokio::sync::oneshot;

use crate::held::{Held, Names, release};
use crate::{Answer, Anything, say};

fn mutex(client: &Client, kind: &str, path: &str) -> Mutex {
    let mutex = Mutex::new(client, path);
    if kind.starts_with("kazoo-") { mutex.with_kazoo_names() } else { mutex }
}

fn read_write(client: &Client, kind: &str, path: &str) -> ReadWriteLock {
    let lock = ReadWriteLock::new(client, path);
    if kind.starts_with("kazoo-") { lock.with_kazoo_names() } else { lock }
}

fn selector(client: &Client, kind: &str, path: &str) -> LeaderSelector {
    let selector = LeaderSelector::new(client, path, "rust");
    if kind.starts_with("kazoo-") { selector.with_kazoo_names() } else { selector }
}

async fn take(client: &Client, kind: &str, path: &str) -> Anything<Held> {
    Ok(match kind {
        "mutex" | "kazoo-mutex" => Held::Guard(mutex(client, kind, path).lock().await?),
        "read" | "kazoo-read" => Held::Guard(read_write(client, kind, path).read().await?),
        "write" | "kazoo-write" => Held::Writing(read_write(client, kind, path).write().await?),
        "semaphore" => Held::Guard(Semaphore::new(client, path, 2)?.acquire().await?),
        "semaphore-mutex" => Held::Guard(SemaphoreMutex::new(client, path).lock().await?),
        "latch" => {
            let latch = LeaderLatch::start(client, path, "rust");
            latch.leading().await?;
            Held::Latch(latch)
        }
        "selector" | "kazoo-selector" => {
            let (elected, is_elected) = oneshot::channel();
            let (done, is_done) = oneshot::channel::<()>();
            let selector = selector(client, kind, path);
            tokio::spawn(async move {
                let led = selector
                    .lead(|_| async {
                        let _ = elected.send(());
                        let _ = is_done.await;
                    })
                    .await;
                say(if led.is_ok() { "selector gave way" } else { "selector failed" });
            });
            is_elected.await?;
            Held::Selected(done)
        }
        other => return Err(format!("no such kind: {other}").into()),
    })
}

async fn take_if_free(client: &Client, kind: &str, path: &str) -> Anything<Option<Held>> {
    Ok(match kind {
        "mutex" | "kazoo-mutex" => mutex(client, kind, path).try_lock().await?.map(Held::Guard),
        "read" | "kazoo-read" => read_write(client, kind, path).try_read().await?.map(Held::Guard),
        "write" | "kazoo-write" => {
            read_write(client, kind, path).try_write().await?.map(Held::Writing)
        }
        "semaphore" => Semaphore::new(client, path, 2)?.try_acquire().await?.map(Held::Guard),
        "semaphore-mutex" => SemaphoreMutex::new(client, path).try_lock().await?.map(Held::Guard),
        other => return Err(format!("cannot try a {other}").into()),
    })
}

/// Increments a number by a read and a write; only the lock makes the two atomic.
async fn count(client: &Client, kind: &str, path: &str, times: usize) -> Anything<()> {
    let counter = format!("{path}-count");
    for _ in 0..times {
        let held = take(client, kind, path).await?;
        let node = client.get(&counter).await?;
        let before: u64 = std::str::from_utf8(&node.data)?.parse()?;
        client.set(&counter, (before + 1).to_string(), Version::Any).await?;
        release(held).await?;
    }
    Ok(())
}

pub async fn obey(client: &Client, names: &Names, words: &[&str]) -> Answer {
    Ok(Some(match words[..] {
        ["take", name, kind, path] => names.hold(name, take(client, kind, path).await?),
        ["try", name, kind, path] => match take_if_free(client, kind, path).await? {
            Some(held) => names.hold(name, held),
            None => format!("{name} busy"),
        },
        ["downgrade", name] => {
            let Held::Writing(writing) = names.take(name)? else {
                return Err("not writing".into());
            };
            names.hold(name, Held::Guard(writing.downgrade().await?))
        }
        ["revocation", name] => {
            let Held::Guard(guard) = names.take(name)? else { return Err("no guard".into()) };
            guard.revocation().await?;
            guard.release().await?;
            format!("{name} revoked")
        }
        ["revoke", kind, path] => {
            let holders = match kind {
                "mutex" => Mutex::new(client, path).participants().await?,
                _ => ReadWriteLock::new(client, path).participants().await?,
            };
            revoke(client, &holders.first().ok_or("nobody holds it")?.path).await?;
            format!("{kind} asked")
        }
        ["count", name, kind, path, times] => {
            count(client, kind, path, times.parse()?).await?;
            format!("{name} counted")
        }
        ["counter", path] => {
            client.create_recursive(path, "0", CreateMode::Persistent).await?;
            format!("counter {path}")
        }
        ["leader", kind, path] => {
            let election = match kind {
                "latch" => Election::Latch,
                "kazoo-selector" => Election::Kazoo,
                _ => Election::Selector,
            };
            let leader = LeaderObserver::new(client, path, election).leader().await?;
            format!("{kind} {}", leader.ok_or("nobody leads")?.id())
        }
        _ => return Ok(None),
    }))
}
