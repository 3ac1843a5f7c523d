//! The workloads of programs. Each has a function `run` that every program runs, a record of the
//! results, and in some cases a final check.
//!
//! `run` returns after the recovery phase has begun and the program holds nothing any more. A
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
pub enum Workload {
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

impl Workload {
    pub const ALL: &[Workload] = &[
        Workload::Mutex,
        Workload::ReadWriteLock,
        Workload::Semaphore,
        Workload::Latch,
        Workload::SimpleQueue,
        Workload::WorkQueue,
        Workload::Barrier,
        Workload::Counter,
        Workload::Cache,
        Workload::Group,
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
pub async fn run(mut program: Program) -> Program {
    let workload = program.context.plan.workload;
    match workload {
        Workload::Mutex | Workload::ReadWriteLock | Workload::Semaphore => {
            locks::run(&mut program, workload).await;
        }
        Workload::Latch => latch::run(&mut program).await,
        Workload::SimpleQueue => queue::run(&mut program).await,
        Workload::WorkQueue => work::run(&mut program).await,
        Workload::Barrier => barrier::run(&mut program).await,
        Workload::Counter => counter::run(&mut program).await,
        Workload::Cache => cache::run(&mut program).await,
        Workload::Group => group::run(&mut program).await,
    }
    program.log("has finished");
    program
}

/// Checks the final state with a program that did not run the workload.
pub async fn check(program: &mut Program) -> Result<(), String> {
    match program.context.plan.workload {
        Workload::SimpleQueue => queue::check(program).await,
        Workload::WorkQueue => work::check(program).await,
        Workload::Counter => counter::check(program).await,
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
    program.log(format!("deletes {node} by hand"));
    // The node may have been deleted by its owner.
    let _ = client.delete(&node, ironkeeper_client::Version::Any).await;
}
