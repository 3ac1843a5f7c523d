//! A counter that many programs increment at the same time: no increment is lost or applied twice,
//! and no two programs reach the same value.

use std::collections::BTreeMap;
use std::time::Duration;

use ironkeeper_client::{Client, Happened};
use ironkeeper_recipes::shared::AtomicLong;

use crate::recipes::plan::ProgramBug;
use crate::recipes::program::{Program, Waited};

const COUNTER: &str = "/counter";

#[derive(Debug, Default)]
pub struct Record {
    /// The program that reached each value.
    values: BTreeMap<i64, usize>,
    /// The number of increments with an unknown result.
    doubtful: i64,
}

fn counter(program: &Program, client: &Client) -> AtomicLong {
    let counter = AtomicLong::new(client, COUNTER);
    match program.context.seed % 4 {
        _ if program.has_bug(ProgramBug::RepeatInDoubt) => counter,
        0 => counter,
        1 => counter.promoted_to("/counter-lock", Duration::from_secs(5)),
        2 => counter.with_receipts().promoted_to("/counter-lock", Duration::from_secs(5)),
        _ => counter.with_receipts(),
    }
}

pub async fn run(program: &mut Program) {
    while !program.must_finish() {
        program.pause_ms((0, 100)).await;
        let client = program.client().await;
        let counter = counter(program, &client);
        program.log("counts");
        let counting = async {
            loop {
                match counter.increment().await {
                    // The result is unknown after a lost reply, as documented; only receipts avoid
                    // this.
                    Err(error)
                        if error.client_error().is_some_and(|error| error.is_retriable()) =>
                    {
                        let is_doubtful = error.client_error().map(|error| error.happened());
                        if is_doubtful == Some(Happened::Maybe)
                            && !program.has_bug(ProgramBug::RepeatInDoubt)
                        {
                            return Ok(None);
                        }
                    }
                    counted => return counted.map(Some),
                }
            }
        };
        // The future borrows the program, and `Program::wait` needs it mutably.
        let patience = Duration::from_millis(program.context.plan.give_up_per_mille.max(1) * 20);
        let counted = match program.context.plan.give_up_per_mille {
            0 => Some(counting.await),
            _ => tokio::time::timeout(patience, counting).await.ok(),
        };
        match counted {
            Some(Ok(Some(change))) if change.applied => note(program, change.after),
            // The increment was not applied.
            Some(Ok(Some(_))) => {}
            Some(Ok(None)) | None => {
                program.log("does not know whether it has counted");
                program.observations().records.counter.doubtful += 1;
            }
            Some(Err(error)) => {
                program.observations().records.counter.doubtful += 1;
                let failed = async { Err::<(), _>(error) };
                let _: Waited<()> = program.wait_long("count", failed).await;
            }
        }
        if program.draws_crash() {
            program.crash();
        }
    }
}

fn note(program: &Program, after: Option<i64>) {
    let after = after.unwrap_or(0);
    program.log(format!("has counted to {after}"));
    let mut observations = program.observations();
    observations.operations += 1;
    if let Some(other) = observations.records.counter.values.insert(after, program.number) {
        let number = program.number;
        observations
            .fail(Err(format!("counter: programs {other} and {number} both counted to {after}")));
    }
}

pub async fn check(program: &mut Program) -> Result<(), String> {
    // Cancelled increments may still be in flight.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let value = loop {
        let client = program.client().await;
        let reading = async {
            client.retry(&super::patient(), || client.sync(COUNTER)).await?;
            AtomicLong::new(&client, COUNTER).get().await
        };
        if let Waited::Got(value) = program.wait_long("read the counter", reading).await {
            break value;
        }
    };
    let observations = program.observations();
    let record = &observations.records.counter;
    let (counted, doubtful) = (record.values.len() as i64, record.doubtful);
    let largest = record.values.last_key_value().map_or(0, |(value, _)| *value);
    match counted <= value && value <= counted + doubtful && largest <= value {
        true => Ok(()),
        false => Err(format!(
            "counter: it is {value}, and {counted} changes were made for certain, {doubtful} perhaps, up to \
             {largest}"
        )),
    }
}
