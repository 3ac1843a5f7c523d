//! What programs do together. Each play has a part that every program acts, notes of what came of it, and a
//! look at the outcome when all is over.
//!
//! A part ends when everything works again and the program holds nothing any more. Whoever waits then has to
//! get on by itself.

mod barrier;
mod cache;
mod counter;
mod group;
mod latch;
mod locks;
mod queue;
mod register;
mod work;

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, RetryPolicy};
use ironkeeper_recipes::RecipeError;

use super::program::{Program, Waited};

/// See the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    Mutex,
    ReadWriteLock,
    Semaphore,
    Latch,
    SimpleQueue,
    WorkQueue,
    Barrier,
    Counter,
    Cache,
    Group,
}

impl Play {
    pub const ALL: &[Play] = &[
        Play::Mutex,
        Play::ReadWriteLock,
        Play::Semaphore,
        Play::Latch,
        Play::SimpleQueue,
        Play::WorkQueue,
        Play::Barrier,
        Play::Counter,
        Play::Cache,
        Play::Group,
    ];
}

/// What programs have noted, by play.
#[derive(Debug, Default)]
pub struct Records {
    register: register::Record,
    queue: queue::Record,
    work: work::Record,
    barrier: barrier::Record,
    counter: counter::Record,
    cache: cache::Record,
    group: group::Record,
}

/// A program's part, from beginning to end.
pub async fn act(mut program: Program) -> Program {
    let play = program.stage.plan.play;
    match play {
        Play::Mutex | Play::ReadWriteLock | Play::Semaphore => {
            locks::act(&mut program, play).await;
        }
        Play::Latch => latch::act(&mut program).await,
        Play::SimpleQueue => queue::act(&mut program).await,
        Play::WorkQueue => work::act(&mut program).await,
        Play::Barrier => barrier::act(&mut program).await,
        Play::Counter => counter::act(&mut program).await,
        Play::Cache => cache::act(&mut program).await,
        Play::Group => group::act(&mut program).await,
    }
    program.say("is at rest");
    program
}

/// What has come of everything, seen by a program that took no part.
pub async fn judge(program: &mut Program) -> Result<(), String> {
    match program.stage.plan.play {
        Play::SimpleQueue => queue::judge(program).await,
        Play::WorkQueue => work::judge(program).await,
        Play::Counter => counter::judge(program).await,
        // Judged as they go.
        _ => Ok(()),
    }
}

/// For requests that shall outlast broken connections.
fn patient() -> RetryPolicy {
    RetryPolicy::forever(Duration::from_millis(5))
}

/// Makes a node that stays, unless it is there.
async fn prepare(program: &mut Program, path: &str) {
    loop {
        let client = program.client().await;
        let created = async {
            let mode = CreateMode::Persistent;
            match client.retry(&patient(), || client.create(path, "", mode)).await {
                Err(error) if error.kind() != ErrorKind::NodeExists => {
                    Err(RecipeError::from(error))
                }
                _ => Ok(()),
            }
        };
        if let Waited::Got(()) = program.wait_long("prepare", created).await {
            return;
        }
    }
}

/// Somebody deletes one of the nodes below a path by hand.
async fn operate(program: &mut Program, client: &Client, path: &str) {
    let Ok(names) = client.children(path).await else { return };
    let Some(at) = names.get(program.random.below(names.len() as u64) as usize) else { return };
    let node = format!("{path}/{at}");
    program.say(format!("deletes {node} by hand"));
    // Whoever was faster is welcome.
    let _ = client.delete(&node, ironkeeper_client::Version::Any).await;
}
