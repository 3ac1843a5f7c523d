//! Masters and workers in any number of processes. The work: count the primes below a number. Start
//! a server, then some masters and workers, and kill any of them: the others continue.
//!
//! ```text
//! cargo run --release
//! cargo run -p ironkeeper-recipes --example master_worker 127.0.0.1:2181 master NAME
//! cargo run -p ironkeeper-recipes --example master_worker 127.0.0.1:2181 worker NAME
//! cargo run -p ironkeeper-recipes --example master_worker 127.0.0.1:2181 submit NUMBER...
//! ```

use std::error::Error;

use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::master_worker::{Assignment, Master, MasterState, Outcome, Tasks, Worker};

const PATH: &str = "/primes";
/// How many numbers are tested between two reports.
const STRIDE: u64 = 10_000;
/// A task fails after three attempts.
const ATTEMPTS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [server, "master", name] => manage(&Client::connect(server).await?, name).await,
        [server, "worker", name] => work(&Client::connect(server).await?, name).await,
        [server, "submit", ref numbers @ ..] => {
            submit(&Client::connect(server).await?, numbers).await
        }
        _ => Err("master_worker HOST:PORT master NAME | worker NAME | submit NUMBER...".into()),
    }
}

async fn manage(client: &Client, name: &str) -> Result<(), Box<dyn Error>> {
    let master = Master::with_attempts(client, PATH, name, ATTEMPTS).await?;
    let mut states = master.states();
    loop {
        match &*states.borrow_and_update() {
            MasterState::Backup => println!("{name} stands by"),
            MasterState::Active(leadership) => {
                println!(
                    "{name} is the master, with token {}",
                    leadership.fencing_token().as_i64()
                );
            }
            MasterState::Ended(why) => {
                return Err(why.clone().map_or("closed".into(), |why| why.to_string().into()));
            }
            _ => {}
        }
        states.changed().await?;
    }
}

async fn work(client: &Client, name: &str) -> Result<(), Box<dyn Error>> {
    let worker = Worker::join(client, PATH, name, 1).await?;
    loop {
        let assignment = worker.next().await?;
        println!("{name} has {} for the {}. time", assignment.task(), assignment.attempt());
        let counted = tokio::select! {
            counted = count(&assignment) => counted,
            // The task has another worker or was cancelled. Dropping the assignment is safe.
            lost = assignment.lost() => {
                println!("{name}: {lost}");
                continue;
            }
        };
        let ended = match counted {
            Ok(primes) => assignment.done(primes.to_string()).await,
            Err(why) => assignment.give_back(why.to_string()).await,
        };
        match ended {
            Err(error @ RecipeError::Lost { .. }) => println!("{name}: {error}"),
            other => other?,
        }
    }
}

async fn count(assignment: &Assignment) -> Result<u64, Box<dyn Error>> {
    let end: u64 = std::str::from_utf8(assignment.work())?.parse()?;
    let is_prime =
        |number: &u64| (2..).take_while(|d| d * d <= *number).all(|d| !number.is_multiple_of(d));
    let (mut primes, mut from) = (0, 2);
    while from < end {
        let to = end.min(from + STRIDE);
        primes += (from..to).filter(is_prime).count() as u64;
        // The server rejects the report as soon as the task has another worker.
        assignment.report(format!("{primes} below {to}")).await?;
        from = to;
    }
    Ok(primes)
}

async fn submit(client: &Client, numbers: &[&str]) -> Result<(), Box<dyn Error>> {
    let tasks = Tasks::open(client, PATH).await?;
    let mut submitted = Vec::new();
    for number in numbers {
        submitted.push((number, tasks.submit(number).await?));
    }
    for (number, task) in submitted {
        match task.outcome().await? {
            Outcome::Done { result, attempts, .. } => {
                let primes = String::from_utf8_lossy(&result);
                println!("{primes} primes below {number} ({attempts} attempts)");
            }
            other => println!("{number}: {other:?}"),
        }
        task.forget().await?;
    }
    Ok(())
}
