//! Caches of a subtree, and programs that change it. When the changes have ended, every cache, and
//! every state built from its events, must equal the state of the servers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::cache::{CacheEvent, TreeCache, Watching};

use super::patient;
use crate::recipes::program::{Program, Waited};

const TREE: &str = "/tree";
/// The time within which a cache must reach the state of the servers.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Record {
    /// The number of programs that have stopped writing.
    resting_writers: usize,
}

/// Paths and their data.
type Nodes = BTreeMap<String, Bytes>;

pub async fn run(program: &mut Program) {
    match program.number.is_multiple_of(2) {
        true => {
            write(program).await;
            program.observations().records.cache.resting_writers += 1;
        }
        false => read_cache(program).await,
    }
}

async fn write(program: &mut Program) {
    while !program.must_finish() {
        program.pause_ms((0, 150)).await;
        let client = program.client().await;
        let (upper, lower) = (program.random.below(3), program.random.below(4));
        let path = match lower {
            0 => format!("{TREE}/{upper}"),
            _ => format!("{TREE}/{upper}/{lower}"),
        };
        let data = program.random.below(1000).to_string();
        let kind = program.random.below(10);
        program.log(format!("changes {path}, way {kind}"));
        let changing = async {
            let changed = match kind {
                0..2 => client.delete_recursive(&path).await.map(drop),
                2..5 => client.set(&path, &data, Version::Any).await.map(drop),
                _ => client.create_recursive(&path, &data, CreateMode::Persistent).await.map(drop),
            };
            match changed {
                Err(error) if error.is_session_over() => Err(RecipeError::from(error)),
                // Any other result is the same for all programs.
                _ => Ok(()),
            }
        };
        if let Waited::Got(()) = program.wait("change", changing).await {
            program.observations().operations += 1;
        }
        if program.draws_crash() {
            program.crash();
        }
    }
}

async fn read_cache(program: &mut Program) {
    let watching = match program.context.seed / 16 % 3 {
        0 => Watching::OneShot,
        _ => Watching::Lasting,
    };
    loop {
        let client = program.client().await;
        let cache = TreeCache::start_by(&client, TREE, watching);
        program.log(format!("reads the cache, with {watching:?} watches"));
        let mut followed = Nodes::new();
        if follow(program, &cache, &mut followed).await {
            return compare(program, &client, &cache, followed).await;
        }
        if program.draws_crash() {
            program.crash();
        }
    }
}

/// Applies the events until all writers have stopped. Returns whether the session survived until
/// then.
async fn follow(program: &mut Program, cache: &TreeCache, followed: &mut Nodes) -> bool {
    let mut events = cache.events();
    let writers = program.context.plan.programs.div_ceil(2);
    while program.observations().records.cache.resting_writers < writers {
        let look = Duration::from_millis(program.random.between(1, 2_000));
        let Ok(event) = tokio::time::timeout(look, events.next()).await else {
            if program.draws_crash() {
                return false;
            }
            continue;
        };
        match event {
            None | Some(CacheEvent::Ended(_)) => {
                program.log("stops reading the cache: its session is over");
                program.observations().losses += 1;
                return false;
            }
            Some(event) => take_in(program, followed, event),
        }
    }
    // Waits for the last events.
    let until = tokio::time::Instant::now() + PATIENCE / 2;
    while let Ok(event) = tokio::time::timeout_at(until, events.next()).await {
        match event {
            None | Some(CacheEvent::Ended(_)) => return false,
            Some(event) => take_in(program, followed, event),
        }
    }
    true
}

fn take_in(program: &Program, followed: &mut Nodes, event: CacheEvent) {
    program.observations().operations += 1;
    let consistent = match event {
        CacheEvent::Created(node) => match followed.insert(node.path.clone(), node.data.clone()) {
            None => Ok(()),
            Some(_) => Err(format!("{} was reported as created twice", node.path)),
        },
        CacheEvent::Changed { after, .. } => {
            match followed.insert(after.path.clone(), after.data.clone()) {
                Some(_) => Ok(()),
                None => Err(format!("{} was reported as changed but not as created", after.path)),
            }
        }
        CacheEvent::Deleted(node) => match followed.remove(&node.path) {
            Some(_) => Ok(()),
            None => Err(format!("{} was reported as deleted but not as created", node.path)),
        },
        CacheEvent::Reset => {
            followed.clear();
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(what) = consistent {
        program.observations().fail(Err(format!("cache: program {}: {what}", program.number)));
    }
}

/// Reads the state of the servers.
async fn truth(client: &Client) -> Result<Nodes, RecipeError> {
    client.retry(&patient(), || client.sync(TREE)).await?;
    let mut nodes = Nodes::new();
    let mut unread = vec![TREE.to_owned()];
    while let Some(path) = unread.pop() {
        match client.retry(&patient(), || client.get(&path)).await {
            Err(error) if error.kind() == ErrorKind::NoNode => continue,
            node => nodes.insert(path.clone(), node?.data),
        };
        let names = client.retry(&patient(), || client.children(&path)).await?;
        unread.extend(names.iter().map(|name| format!("{path}/{name}")));
    }
    Ok(nodes)
}

async fn compare(program: &mut Program, client: &Client, cache: &TreeCache, followed: Nodes) {
    // If the session ends now, the cache ends with it and there is nothing to compare.
    let Waited::Got(truth) =
        program.wait_long("read the state of the servers", truth(client)).await
    else {
        return;
    };
    let cached: Nodes =
        cache.nodes().iter().map(|node| (node.path.clone(), node.data.clone())).collect();
    for (what, seen) in [("the cache has", cached), ("its events reported", followed)] {
        if seen != truth && !client.state().is_final() {
            let violation =
                format!("cache: program {}: {what} {seen:?}, there is {truth:?}", program.number);
            program.observations().fail(Err(violation));
        }
    }
    program.log(format!("ends with {} nodes", truth.len()));
}
