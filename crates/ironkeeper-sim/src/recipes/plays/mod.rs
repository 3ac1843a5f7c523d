//! The workloads of programs. Each has a function `act` that every program runs, a record of the
//! results, and in some cases a final check.
//!
//! `act` returns after the recovery phase has begun and the program holds nothing any more. A
//! program that still waits at that time must make progress without faults.

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

/// A workload.
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

/// The records of all programs, by workload.
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

/// Runs the workload of a program.
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

/// Checks the final state with a program that did not run the workload.
pub async fn judge(program: &mut Program) -> Result<(), String> {
    match program.stage.plan.play {
        Play::SimpleQueue => queue::judge(program).await,
        Play::WorkQueue => work::judge(program).await,
        Play::Counter => counter::judge(program).await,
        // These are checked during the run.
        _ => Ok(()),
    }
}

/// Returns the policy for requests that are retried after broken connections.
fn patient() -> RetryPolicy {
    RetryPolicy::forever(Duration::from_millis(5))
}

/// Creates a persistent node if it does not exist.
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

/// Deletes one of the children of a path, as an operator might.
async fn operate(program: &mut Program, client: &Client, path: &str) {
    let Ok(names) = client.children(path).await else { return };
    let Some(at) = names.get(program.random.below(names.len() as u64) as usize) else { return };
    let node = format!("{path}/{at}");
    program.say(format!("deletes {node} by hand"));
    // The node may have been deleted by its owner.
    let _ = client.delete(&node, ironkeeper_client::Version::Any).await;
}
