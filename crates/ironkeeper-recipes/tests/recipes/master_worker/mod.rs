//! Masters, workers and tasks, against a real server, with and without faults.

mod tasks;
mod under_faults;

use ironkeeper_client::Client;
use ironkeeper_recipes::master_worker::{Assignment, Master, Outcome, Status, Task, Tasks, Worker};

const PATH: &str = "/jobs";

async fn master(client: &Client, id: &str) -> Master {
    Master::start(client, PATH, id).await.unwrap()
}

async fn worker(client: &Client, capacity: usize) -> Worker {
    Worker::join(client, PATH, "worker", capacity).await.unwrap()
}

async fn tasks(client: &Client) -> Tasks {
    Tasks::open(client, PATH).await.unwrap()
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

/// Returns the work and the attempt number of the next assignment, and the assignment.
async fn next(worker: &Worker) -> (String, u32, Assignment) {
    let assignment = worker.next().await.unwrap();
    (text(assignment.work()), assignment.attempt(), assignment)
}

/// Returns "result after attempts", or another outcome as text.
async fn outcome(task: &Task) -> String {
    match task.outcome().await.unwrap() {
        Outcome::Done { result, attempts, .. } => format!("{} after {attempts}", text(result)),
        Outcome::Failed { reason, attempts } => {
            format!("failed after {attempts}: {}", text(reason))
        }
        other => format!("{other:?}"),
    }
}

/// Waits until a task has a status. One check per round trip.
async fn until_status(task: &Task, is_it: impl Fn(&Status) -> bool) {
    while !task.status().await.unwrap().is_some_and(|status| is_it(&status)) {}
}
