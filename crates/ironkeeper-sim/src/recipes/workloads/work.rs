//! A work queue: one program at a time works on an item, and the item leaves the queue when the
//! work is done. No item is lost if a program ends, and no work is done twice: the result is
//! written in the transaction that removes the item.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::queue::{Delivery, WorkQueue};

use super::{patient, prepare};
use crate::recipes::claimed_holds::Share;
use crate::recipes::plan::ProgramBug;
use crate::recipes::program::{Program, Waited};

const QUEUE: &str = "/work";
const RESULTS: &str = "/results";

#[derive(Debug, Default)]
pub struct Record {
    last: u64,
    put: BTreeSet<u64>,
    /// How often programs have completed the work on an item.
    worked: BTreeMap<u64, u64>,
    done: BTreeSet<u64>,
}

pub async fn run(program: &mut Program) {
    prepare(program, RESULTS).await;
    while !program.must_finish() {
        program.pause_ms((0, 200)).await;
        let client = program.client().await;
        let queue = WorkQueue::new(&client, QUEUE).expect("it is not the root");
        let queue = queue.with_limit(6).expect("there is room");
        if program.random.chance(500) {
            put(program, &queue).await;
        } else {
            let patience = Duration::from_millis(program.random.between(100, 3_000));
            let next = program.wait("get work", queue.next_within(patience)).await;
            if let Waited::Got(Some(delivery)) = next {
                work_on(program, delivery).await;
            }
        }
    }
}

async fn put(program: &mut Program, queue: &WorkQueue) {
    let number = {
        let mut observations = program.observations();
        observations.records.work.last += 1;
        observations.records.work.last
    };
    program.log(format!("puts {number}"));
    let item = Bytes::copy_from_slice(&number.to_be_bytes());
    let putting = queue.put_within(item, Duration::from_secs(2));
    if let Waited::Got(true) = program.wait("put", putting).await {
        program.log(format!("has put {number}"));
        let mut observations = program.observations();
        observations.operations += 1;
        observations.records.work.put.insert(number);
    }
}

fn number_of(delivery: &Delivery) -> u64 {
    let item = delivery.items().first().and_then(|item| item[..].try_into().ok());
    item.map_or(u64::MAX, u64::from_be_bytes)
}

async fn work_on(program: &mut Program, delivery: Delivery) {
    let (number, node) = (number_of(&delivery), delivery.path().to_owned());
    let delivery = Arc::new(delivery);
    let Some(lock) = delivery.guard().map(|guard| guard.path().to_owned()) else { return };
    let seen = delivery.clone();
    let is_claimed = move || seen.guard().is_some_and(|guard| guard.is_valid());
    program.log(format!("works on {number}"));
    let token = delivery.guard().map(|guard| guard.fencing_token());
    let hold = program.hold(&node, Share::Alone, &lock, token, is_claimed);
    let (low, high) = program.context.plan.hold_ms;
    let long = Duration::from_millis(program.random.between(low, high));
    let lost = tokio::select! {
        biased;
        lost = delivery.lost() => Some(lost),
        () = tokio::time::sleep(long) => None,
    };
    let is_early = program.has_bug(ProgramBug::DoneBeforeWork);
    if !is_early && program.draws_crash() {
        return program.crash();
    }
    program.release_claim(hold);
    let delivery = Arc::into_inner(delivery).expect("the is_claimed is gone");
    if let Some(lost) = lost {
        return program.log(format!("has lost {number}: {lost}"));
    }
    match program.random.below(10) {
        0 => program.log(format!("drops {number}")),
        1 => {
            program.log(format!("puts {number} back"));
            program.wait_long("put work back", delivery.requeue()).await;
        }
        _ if is_early => {
            finish(program, delivery, number).await;
            if program.draws_crash() {
                return program.crash();
            }
            *program.observations().records.work.worked.entry(number).or_default() += 1;
        }
        _ => {
            *program.observations().records.work.worked.entry(number).or_default() += 1;
            finish(program, delivery, number).await;
        }
    }
}

async fn finish(program: &mut Program, delivery: Delivery, number: u64) {
    let result = format!("{RESULTS}/{number}");
    let mode = CreateMode::Persistent;
    let ending = delivery.done_with(|both| both.create(&result, "", mode));
    if let Waited::Got(()) = program.wait_long("end the work", ending).await {
        program.log(format!("is done with {number}"));
        let mut observations = program.observations();
        observations.operations += 1;
        let is_first = observations.records.work.done.insert(number);
        if !is_first {
            observations.fail(Err(format!("queue: item {number} was done twice")));
        }
    }
}

async fn results(client: &Client) -> ironkeeper_recipes::Result<Vec<String>> {
    client.retry(&patient(), || client.sync(RESULTS)).await?;
    Ok(client.retry(&patient(), || client.children(RESULTS)).await?)
}

pub async fn check(program: &mut Program) -> Result<(), String> {
    // An item of a program that ended becomes available when its session is over.
    let mut idle = 0;
    while idle < 3 {
        let client = program.client().await;
        let queue = WorkQueue::new(&client, QUEUE).expect("it is not the root");
        let next = queue.next_within(Duration::from_secs(20));
        match program.wait_long("empty the queue", next).await {
            Waited::Got(Some(delivery)) => {
                let number = number_of(&delivery);
                *program.observations().records.work.worked.entry(number).or_default() += 1;
                finish(program, delivery, number).await;
            }
            _ => idle += 1,
        }
    }
    let there = loop {
        let client = program.client().await;
        if let Waited::Got(names) = program.wait_long("read the results", results(&client)).await {
            break names.iter().filter_map(|name| name.parse().ok()).collect::<BTreeSet<u64>>();
        }
    };
    let observations = program.observations();
    let record = &observations.records.work;
    if let Some(lost) = record.put.iter().chain(&record.done).find(|item| !there.contains(item)) {
        return Err(format!("queue: item {lost} was put, and there is no result"));
    }
    match there.iter().find(|item| !record.worked.contains_key(item)) {
        Some(item) => Err(format!("queue: item {item} is done, but no program has worked on it")),
        None => Ok(()),
    }
}
