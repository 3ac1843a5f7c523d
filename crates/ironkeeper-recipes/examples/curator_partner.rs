//! The Rust side of the interoperation with Curator: does what it is told on its standard input, line
//! by line, and says on its standard output what came of it. Run by `cargo xtask interop`.
//!
//! ```text
//! take NAME KIND PATH        -> NAME held, when it is
//! try NAME KIND PATH         -> NAME held, or NAME busy
//! release NAME               -> NAME released
//! downgrade NAME             -> NAME held
//! revocation NAME            -> NAME revoked, when somebody asks for it
//! revoke KIND PATH           -> KIND asked
//! count NAME KIND PATH TIMES -> NAME counted, after adding one TIMES times under the lock
//! leader KIND PATH           -> KIND ID
//! register NAME PATH SERVICE ID PORT -> NAME held, when the instance is registered
//! find PATH SERVICE ID       -> found URI PAYLOAD
//! ```
//! KIND is mutex, read, write, semaphore (of two), semaphore-mutex, latch or selector.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::Guard;
use ironkeeper_recipes::election::{Election, LeaderLatch, LeaderObserver, LeaderSelector};
use ironkeeper_recipes::lock::{
    Mutex, ReadWriteLock, Semaphore, SemaphoreMutex, WriteGuard, revoke,
};
use ironkeeper_recipes::service::{Registration, ServiceDiscovery, ServiceInstance, UriSpec};
use tokio::sync::oneshot;

type Anything<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Whatever can be held under a name.
enum Held {
    Guard(Guard),
    Writing(WriteGuard),
    Latch(LeaderLatch),
    /// The work of a selector goes on until it is told so.
    Selected(oneshot::Sender<()>),
    Registered(Registration),
}

type Names = Arc<StdMutex<HashMap<String, Held>>>;

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever does not listen any more has ended us.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn take(client: &Client, kind: &str, path: &str) -> Anything<Held> {
    Ok(match kind {
        "mutex" => Held::Guard(Mutex::new(client, path).lock().await?),
        "read" => Held::Guard(ReadWriteLock::new(client, path).read().await?),
        "write" => Held::Writing(ReadWriteLock::new(client, path).write().await?),
        "semaphore" => Held::Guard(Semaphore::new(client, path, 2)?.acquire().await?),
        "semaphore-mutex" => Held::Guard(SemaphoreMutex::new(client, path).lock().await?),
        "latch" => {
            let latch = LeaderLatch::start(client, path, "rust");
            latch.leading().await?;
            Held::Latch(latch)
        }
        "selector" => {
            let (elected, is_elected) = oneshot::channel();
            let (done, is_done) = oneshot::channel::<()>();
            let selector = LeaderSelector::new(client, path, "rust");
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
        "mutex" => Mutex::new(client, path).try_lock().await?.map(Held::Guard),
        "read" => ReadWriteLock::new(client, path).try_read().await?.map(Held::Guard),
        "write" => ReadWriteLock::new(client, path).try_write().await?.map(Held::Writing),
        "semaphore" => Semaphore::new(client, path, 2)?.try_acquire().await?.map(Held::Guard),
        "semaphore-mutex" => SemaphoreMutex::new(client, path).try_lock().await?.map(Held::Guard),
        other => return Err(format!("cannot try a {other}").into()),
    })
}

async fn release(held: Held) -> Anything<()> {
    match held {
        Held::Guard(guard) => guard.release().await?,
        Held::Writing(guard) => guard.release().await?,
        Held::Latch(latch) => latch.close().await?,
        Held::Selected(done) => drop(done.send(())),
        Held::Registered(registration) => registration.unregister().await?,
    }
    Ok(())
}

/// Adds one in two steps that only the lock keeps together.
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

fn names_of(names: &Names) -> std::sync::MutexGuard<'_, HashMap<String, Held>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn obey(client: Client, names: Names, line: String) -> Anything<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["take", name, kind, path] => {
            let held = take(&client, kind, path).await?;
            names_of(&names).insert(name.to_owned(), held);
            say(&format!("{name} held"));
        }
        ["try", name, kind, path] => match take_if_free(&client, kind, path).await? {
            Some(held) => {
                names_of(&names).insert(name.to_owned(), held);
                say(&format!("{name} held"));
            }
            None => say(&format!("{name} busy")),
        },
        ["release", name] => {
            let held = names_of(&names).remove(name).ok_or("no such name")?;
            release(held).await?;
            say(&format!("{name} released"));
        }
        ["downgrade", name] => {
            let held = names_of(&names).remove(name).ok_or("no such name")?;
            let Held::Writing(writing) = held else { return Err("not writing".into()) };
            let reading = Held::Guard(writing.downgrade().await?);
            names_of(&names).insert(name.to_owned(), reading);
            say(&format!("{name} held"));
        }
        ["revocation", name] => {
            let held = names_of(&names).remove(name).ok_or("no such name")?;
            let Held::Guard(guard) = held else { return Err("no guard".into()) };
            guard.revocation().await?;
            guard.release().await?;
            say(&format!("{name} revoked"));
        }
        ["revoke", kind, path] => {
            let holders = match kind {
                "mutex" => Mutex::new(&client, path).participants().await?,
                _ => ReadWriteLock::new(&client, path).participants().await?,
            };
            revoke(&client, &holders.first().ok_or("nobody holds it")?.path).await?;
            say(&format!("{kind} asked"));
        }
        ["count", name, kind, path, times] => {
            count(&client, kind, path, times.parse()?).await?;
            say(&format!("{name} counted"));
        }
        ["leader", kind, path] => {
            let election = match kind {
                "latch" => Election::Latch,
                _ => Election::Selector,
            };
            let leader = LeaderObserver::new(&client, path, election).leader().await?;
            say(&format!("{kind} {}", leader.ok_or("nobody leads")?.id()));
        }
        ["register", name, path, service, id, port] => {
            let instance = ServiceInstance::new(service)
                .with_id(id)
                .with_address("rust.example")
                .with_port(port.parse()?)
                .with_payload("from Rust".into())
                .with_uri_spec(UriSpec::parse("{scheme}://{address}:{port}/{name}")?);
            let registration = ServiceDiscovery::new(&client, path).register(instance).await?;
            names_of(&names).insert(name.to_owned(), Held::Registered(registration));
            say(&format!("{name} held"));
        }
        ["find", path, service, id] => {
            let found = ServiceDiscovery::new(&client, path).instance(service, id).await?;
            let found = found.ok_or("no such instance")?;
            let (uri, payload) =
                (found.uri().unwrap_or_default(), found.payload.unwrap_or_default());
            say(&format!("found {uri} {payload}"));
        }
        ["counter", path] => {
            client.create_recursive(path, "0", CreateMode::Persistent).await?;
            say(&format!("counter {path}"));
        }
        _ => return Err(format!("not understood: {line}").into()),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Anything<()> {
    let address = std::env::args().nth(1).ok_or("the address of a server is missing")?;
    let client = Client::connect(&address).await?;
    let names = Names::default();
    let (lines, mut received) = tokio::sync::mpsc::channel(64);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = received.recv().await {
        let (client, names) = (client.clone(), names.clone());
        tokio::spawn(async move {
            if let Err(error) = obey(client, names, line.clone()).await {
                say(&format!("error: {line}: {error}"));
            }
        });
    }
    client.close().await?;
    Ok(())
}
