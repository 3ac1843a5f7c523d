//! Queues.
//!
//! ```text
//! offer PATH ITEM...              -> PATH offered
//! poll NAME PATH                  -> NAME took ITEM, or NAME found nothing
//! await-item NAME PATH            -> NAME took ITEM, when there is one
//! drain NAME PATH                 -> NAME took ITEM,ITEM,ITEM: all items
//! put KIND PATH KEY ITEM,ITEM     -> PATH put: as one node
//! work NAME KIND PATH LOCKS       -> NAME has ITEM,ITEM, when there is a delivery; holds it
//! look NAME KIND PATH LOCKS       -> the same, or NAME found nothing
//! work-off NAME KIND PATH LOCKS   -> NAME took ITEM,ITEM,ITEM: all items
//! id-of NAME                      -> NAME is ID; still holds the delivery
//! requeue NAME                    -> NAME requeued
//! remove-id PATH LOCKS ID         -> PATH lost NUMBER
//! ```
//! The first four are for simple queues. KIND is plain, id, priority, delay or sharded. KEY is the
//! id, the priority, or the due time in milliseconds since 1970. LOCKS is the path of the locks, or
//! `-`.

use std::time::{Duration, UNIX_EPOCH};

use ironkeeper_client::Client;
use ironkeeper_recipes::queue::{
    ByDelay, ById, ByPriority, DelayQueue, Delivery, Fifo, IdQueue, Order, PriorityQueue, Queue,
    ShardedQueue, SimpleQueue, WorkQueue,
};

use crate::held::{Held, Names};
use crate::{Answer, Anything};

fn text(items: &[bytes::Bytes]) -> String {
    let items: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(item)).collect();
    items.join(",")
}

fn queue<O: Order>(client: &Client, path: &str, locks: &str) -> Anything<Queue<O>> {
    let queue = Queue::new(client, path)?;
    Ok(if locks == "-" { queue.without_locks() } else { queue.with_lock_path(locks) })
}

async fn put(client: &Client, kind: &str, path: &str, key: &str, items: &str) -> Anything<()> {
    let split: Vec<String> = items.split(',').map(str::to_owned).collect();
    match kind {
        "plain" => WorkQueue::new(client, path)?.put_all(split).await?,
        "id" => IdQueue::new(client, path)?.put(key, items.to_owned()).await?,
        "priority" => PriorityQueue::new(client, path)?.put_all(key.parse()?, split).await?,
        "delay" => {
            let due = UNIX_EPOCH + Duration::from_millis(key.parse()?);
            DelayQueue::new(client, path)?.put_all_at(due, split).await?;
        }
        "sharded" => ShardedQueue::new(client, path).put_all(split).await?,
        other => return Err(format!("no such kind: {other}").into()),
    }
    Ok(())
}

async fn work(client: &Client, kind: &str, path: &str, locks: &str) -> Anything<Delivery> {
    Ok(match kind {
        "plain" => queue::<Fifo>(client, path, locks)?.next().await?,
        "id" => queue::<ById>(client, path, locks)?.next().await?,
        "priority" => queue::<ByPriority>(client, path, locks)?.next().await?,
        "delay" => queue::<ByDelay>(client, path, locks)?.next().await?,
        "sharded" => ShardedQueue::new(client, path).next().await?,
        other => return Err(format!("no such kind: {other}").into()),
    })
}

async fn look(client: &Client, kind: &str, path: &str, locks: &str) -> Anything<Option<Delivery>> {
    Ok(match kind {
        "plain" => queue::<Fifo>(client, path, locks)?.try_next().await?,
        "id" => queue::<ById>(client, path, locks)?.try_next().await?,
        "priority" => queue::<ByPriority>(client, path, locks)?.try_next().await?,
        "delay" => queue::<ByDelay>(client, path, locks)?.try_next().await?,
        "sharded" => ShardedQueue::new(client, path).try_next().await?,
        other => return Err(format!("no such kind: {other}").into()),
    })
}

/// Removes all items of a simple queue.
async fn drain(client: &Client, path: &str) -> Anything<Vec<bytes::Bytes>> {
    let queue = SimpleQueue::new(client, path)?;
    let mut taken = Vec::new();
    while let Some(item) = queue.poll().await? {
        taken.push(item);
    }
    Ok(taken)
}

async fn work_off(
    client: &Client,
    kind: &str,
    path: &str,
    locks: &str,
) -> Anything<Vec<bytes::Bytes>> {
    let mut taken = Vec::new();
    while let Some(delivery) = look(client, kind, path, locks).await? {
        taken.extend_from_slice(delivery.items());
        delivery.done().await?;
    }
    Ok(taken)
}

fn has(names: &Names, name: &str, delivery: Delivery) -> String {
    let items = text(delivery.items());
    names.hold(name, Held::Delivered(delivery));
    format!("{name} has {items}")
}

fn delivery(names: &Names, name: &str) -> Anything<Delivery> {
    match names.take(name)? {
        Held::Delivered(delivery) => Ok(delivery),
        _ => Err("no delivery".into()),
    }
}

pub async fn obey(client: &Client, names: &Names, words: &[&str]) -> Answer {
    Ok(Some(match words[..] {
        ["offer", path, ref items @ ..] => {
            let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
            SimpleQueue::new(client, path)?.offer_all(items).await?;
            format!("{path} offered")
        }
        ["poll", name, path] => match SimpleQueue::new(client, path)?.poll().await? {
            Some(item) => format!("{name} took {}", text(&[item])),
            None => format!("{name} found nothing"),
        },
        ["await-item", name, path] => {
            let item = SimpleQueue::new(client, path)?.take().await?;
            format!("{name} took {}", text(&[item]))
        }
        ["drain", name, path] => format!("{name} took {}", text(&drain(client, path).await?)),
        ["put", kind, path, key, items] => {
            put(client, kind, path, key, items).await?;
            format!("{path} put")
        }
        ["work", name, kind, path, locks] => {
            has(names, name, work(client, kind, path, locks).await?)
        }
        ["look", name, kind, path, locks] => match look(client, kind, path, locks).await? {
            Some(delivery) => has(names, name, delivery),
            None => format!("{name} found nothing"),
        },
        ["work-off", name, kind, path, locks] => {
            format!("{name} took {}", text(&work_off(client, kind, path, locks).await?))
        }
        ["id-of", name] => {
            let delivery = delivery(names, name)?;
            let id = delivery.id().ok_or("it has no id")?.to_owned();
            names.hold(name, Held::Delivered(delivery));
            format!("{name} is {id}")
        }
        ["requeue", name] => {
            delivery(names, name)?.requeue().await?;
            format!("{name} requeued")
        }
        ["remove-id", path, locks, id] => {
            let removed = queue::<ById>(client, path, locks)?.remove(id).await?;
            format!("{path} lost {removed}")
        }
        _ => return Ok(None),
    }))
}
