//! A FIFO queue of plain data: every item is delivered exactly once. Only a session that ends
//! during a removal may lose an item.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_recipes::queue::SimpleQueue;

use crate::recipes::program::{Program, Waited};

const QUEUE: &str = "/queue";

#[derive(Debug, Default)]
pub struct Record {
    last: u64,
    /// Items that were put, and items whose put has an unknown result.
    put: BTreeSet<u64>,
    doubtful: BTreeSet<u64>,
    /// The program that received each item.
    taken: BTreeMap<u64, usize>,
    /// The number of removals with an unknown result.
    doubtful_removals: usize,
}

impl Record {
    fn take(&mut self, item: &Bytes, program: usize) -> Result<u64, String> {
        let number = item[..].try_into().map_or(u64::MAX, u64::from_be_bytes);
        if !self.put.contains(&number) && !self.doubtful.contains(&number) {
            return Err(format!(
                "queue: program {program} received {number}, which no program has put"
            ));
        }
        match self.taken.insert(number, program) {
            None => Ok(number),
            Some(other) => Err(format!(
                "queue: item {number} was given to program {other}, and to program {program} again"
            )),
        }
    }
}

pub async fn run(program: &mut Program) {
    // Removals that were cancelled in this session. They are undone only if the session survives.
    let mut given_up = 0;
    let mut session = None;
    while !program.must_finish() {
        program.pause_ms((0, 200)).await;
        let client = program.client().await;
        if session.replace(client.session_id()).is_some_and(|before| before != client.session_id())
        {
            program.observations().records.queue.doubtful_removals += given_up;
            given_up = 0;
        }
        let queue = SimpleQueue::new(&client, QUEUE).expect("it is not the root");
        if program.random.chance(500) {
            put(program, &queue).await;
        } else {
            let patience = Duration::from_millis(program.random.between(1, 3_000));
            let taken = program.wait("take", queue.poll_within(patience)).await;
            match taken {
                Waited::Got(Some(item)) => note_taken(program, &item),
                Waited::Got(None) | Waited::GaveUp => given_up += 1,
                Waited::SessionOver | Waited::NodeGone => {
                    program.observations().records.queue.doubtful_removals += 1;
                }
            }
        }
        if program.draws_crash() {
            program.crash();
        }
    }
    // The last cancelled removals are undone if the session survives; otherwise their result is
    // unknown.
    let is_alive = program.live_client().map(|client| client.session_id()) == session;
    if !is_alive {
        program.observations().records.queue.doubtful_removals += given_up;
    }
}

async fn put(program: &mut Program, queue: &SimpleQueue) {
    let number = {
        let mut observations = program.observations();
        observations.records.queue.last += 1;
        let number = observations.records.queue.last;
        // The item may be taken before the reply to its put arrives.
        observations.records.queue.doubtful.insert(number);
        number
    };
    program.log(format!("puts {number}"));
    let item = Bytes::copy_from_slice(&number.to_be_bytes());
    if let Waited::Got(()) = program.wait("put", queue.offer(item)).await {
        program.log(format!("has put {number}"));
        let mut observations = program.observations();
        observations.operations += 1;
        observations.records.queue.doubtful.remove(&number);
        observations.records.queue.put.insert(number);
    }
}

fn note_taken(program: &Program, item: &Bytes) {
    let taken = program.observations().records.queue.take(item, program.number);
    match taken {
        Ok(number) => program.log(format!("has taken {number}")),
        Err(what) => program.observations().fail(Err(what)),
    }
}

pub async fn check(program: &mut Program) -> Result<(), String> {
    // Removals are undone in the background, within a short time if the session survives.
    for _ in 0..3 {
        let mut is_empty = false;
        while !is_empty {
            let client = program.client().await;
            let queue = SimpleQueue::new(&client, QUEUE).expect("it is not the root");
            match program.wait_long("empty the queue", queue.poll()).await {
                Waited::Got(Some(item)) => note_taken(program, &item),
                Waited::Got(None) => is_empty = true,
                _ => program.observations().records.queue.doubtful_removals += 1,
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let observations = program.observations();
    let record = &observations.records.queue;
    let lost: Vec<&u64> =
        record.put.iter().filter(|item| !record.taken.contains_key(item)).collect();
    match lost.len() <= record.doubtful_removals {
        true => Ok(()),
        false => Err(format!(
            "queue: {lost:?} were put and never taken, {} removals are in doubt",
            record.doubtful_removals
        )),
    }
}
