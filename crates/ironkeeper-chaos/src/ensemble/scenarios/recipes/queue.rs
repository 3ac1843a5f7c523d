//! Queues: every item is taken exactly once. The first user offers, the others take.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::queue::{SimpleQueue, WorkQueue};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{Shift, all, patient, same};

/// The largest number of items in the queue: the producer is faster than the consumers.
const ITEMS_MAX: usize = 20;

/// The item after which a consumer receives no more items.
const END: &str = "end";

/// Checks the work queue. The work on an item is the creation of a node with its name, in the
/// transaction that completes the item: a second worker on the same item would fail.
pub async fn work(clients: Vec<Client>, shift: Shift) -> Result<()> {
    let (producer, workers) = clients.split_first().context("nobody works")?;
    producer.create("/worked", "", CreateMode::Persistent).await?;
    let mut users = JoinSet::new();
    for worker in workers {
        let (queue, shift) = (WorkQueue::new(worker, "/work-queue")?, shift.clone());
        users.spawn(async move {
            loop {
                let delivery = queue.next().await?;
                let item = String::from_utf8(delivery.items().concat())?;
                if item == END {
                    delivery.done().await?;
                    return Ok(());
                }
                let node = format!("/worked/{item}");
                delivery.done_with(|both| both.create(&node, "", CreateMode::Persistent)).await?;
                shift.done_round();
            }
        });
    }
    let queue = WorkQueue::new(producer, "/work-queue")?.with_limit(ITEMS_MAX)?;
    let producing = async {
        let mut put = Vec::new();
        while !shift.is_over() {
            let item = format!("item-{}", put.len());
            queue.put(item.clone()).await?;
            put.push(item);
        }
        for _ in workers {
            queue.put(END).await?;
        }
        Ok(put)
    };
    let (put, ()) = tokio::try_join!(producing, all(users))?;
    producer.retry(&patient(), || producer.sync("/worked")).await?;
    ensure!(queue.is_empty().await?, "something is left in the queue");
    same(put, producer.retry(&patient(), || producer.children("/worked")).await?)
}

/// Checks the simple queue. An item counts as taken when `take` has returned it.
pub async fn simple(clients: Vec<Client>, shift: Shift) -> Result<()> {
    let (producer, takers) = clients.split_first().context("nobody works")?;
    let taken = Arc::new(Mutex::new(Vec::new()));
    let room = Arc::new(Semaphore::new(ITEMS_MAX));
    let mut users = JoinSet::new();
    for taker in takers {
        let (queue, shift) = (SimpleQueue::new(taker, "/simple-queue")?, shift.clone());
        let (taken, room) = (taken.clone(), room.clone());
        users.spawn(async move {
            loop {
                let item = String::from_utf8(queue.take().await?.to_vec())?;
                if item == END {
                    return Ok(());
                }
                taken.lock().unwrap_or_else(PoisonError::into_inner).push(item);
                room.add_permits(1);
                shift.done_round();
            }
        });
    }
    let queue = SimpleQueue::new(producer, "/simple-queue")?;
    let producing = async {
        let mut put = Vec::new();
        while !shift.is_over() {
            let item = format!("item-{}", put.len());
            // The consumer of the item returns the permit.
            room.acquire().await?.forget();
            queue.offer(item.clone()).await?;
            put.push(item);
        }
        for _ in takers {
            queue.offer(END).await?;
        }
        Ok(put)
    };
    let (put, ()) = tokio::try_join!(producing, all(users))?;
    let taken = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
    same(put, taken)
}
