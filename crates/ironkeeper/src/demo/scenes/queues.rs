//! Demos of queues.

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use ironkeeper_recipes::queue::{
    BlockingQueue, DelayQueue, Delivery, ErrorMode, IdQueue, PriorityQueue, ShardedQueue,
    SimpleQueue, WorkQueue,
};

use crate::demo::stage::{Stage, done, meanwhile};

pub async fn simple(stage: &mut Stage) -> Result<()> {
    let (maker, taker) = (stage.enter("maker").await?, stage.enter("taker").await?);
    let taking = SimpleQueue::new(&taker.client, "/queue")?;
    let first = meanwhile({
        let taking = taking.clone();
        async move { taking.take().await }
    });
    let queue = SimpleQueue::new(&maker.client, "/queue")?;
    queue.offer_all(["bread", "butter"]).await?;
    stage.says(&maker, "has put two things in, in one transaction").await?;
    let things = [done(first).await?, taking.take().await?];
    stage.says(&taker, format!("has taken {}", things.map(|t| text(&t)).join(", then "))).await?;
    Ok(())
}

pub async fn work(stage: &mut Stage) -> Result<()> {
    let (boss, anna, bob) =
        (stage.enter("boss").await?, stage.enter("anna").await?, stage.enter("bob").await?);
    WorkQueue::new(&boss.client, "/orders")?.put("a cake").await?;
    stage.says(&boss, "orders a cake").await?;
    let delivery = WorkQueue::new(&anna.client, "/orders")?.next().await?;
    stage.says(&anna, format!("bakes {}; a lock says that she does", items(&delivery))).await?;
    stage.kill(&anna).await?;
    let delivery = WorkQueue::new(&bob.client, "/orders")?.next().await?;
    stage.says(&bob, format!("gets {} instead", items(&delivery))).await?;
    delivery.done().await?;
    stage.says(&bob, "is done: order and lock go in one transaction").await?;
    Ok(())
}

pub async fn ids(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let queue = IdQueue::new(&anna.client, "/mails")?;
    queue.put("41", "dear Ada").await?;
    queue.put("42", "dear Bob").await?;
    stage.says(&anna, "has written two letters; the names of their nodes say which").await?;
    let removed = queue.remove("41").await?;
    stage.says(&anna, format!("has thought better of {removed}")).await?;
    let delivery = queue.next().await?;
    stage.says(&anna, format!("sends the other one: {}", items(&delivery))).await?;
    delivery.done().await?;
    Ok(())
}

pub async fn bounded(stage: &mut Stage) -> Result<()> {
    let (boss, anna) = (stage.enter("boss").await?, stage.enter("anna").await?);
    let orders = WorkQueue::new(&boss.client, "/orders")?.with_limit(1)?;
    orders.put("a cake").await?;
    ensure!(!orders.put_within("a pie", Duration::ZERO).await?, "the queue was not full");
    stage.says(&boss, "has ordered as much as there is room for").await?;
    let queue = WorkQueue::new(&anna.client, "/orders")?;
    for (mode, what) in [
        (ErrorMode::Requeue, "lets it fall; it is queued again"),
        (ErrorMode::Delete, "lets it fall once more; such orders are dropped now"),
    ] {
        let (fail, mut failed) = tokio::sync::mpsc::channel(1);
        let work = |_| async {
            let _ = fail.send(()).await;
            Err("it fell")
        };
        let ended = async {
            failed.recv().await;
            match mode {
                ErrorMode::Requeue => stage.until_created("/orders/queue-").await,
                ErrorMode::Delete => until_empty(&queue).await,
            }
        };
        tokio::select! {
            working = queue.consume(mode, work) => match working? {},
            ended = ended => ended?,
        }
        stage.says(&anna, what).await?;
    }
    Ok(())
}

async fn until_empty(queue: &WorkQueue) -> Result<()> {
    while !queue.is_empty().await? {}
    Ok(())
}

pub async fn priority(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let queue = PriorityQueue::new(&anna.client, "/jobs")?;
    queue.put(5, "tidy up").await?;
    queue.put(-1, "put out the fire").await?;
    stage.tells("the priority is part of the name, so that names sort by it").await?;
    for _ in 0..2 {
        let delivery = queue.next().await?;
        stage.says(&anna, format!("does: {}", items(&delivery))).await?;
        delivery.done().await?;
    }
    Ok(())
}

pub async fn delay(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let queue = DelayQueue::new(&anna.client, "/reminders")?;
    let due = SystemTime::now() + Duration::from_millis(500);
    queue.put_at(due, "feed the cat").await?;
    let delivery = match queue.try_next().await? {
        None => {
            stage.says(&anna, "sees nothing yet").await?;
            queue.next().await?
        }
        Some(delivery) => delivery,
    };
    ensure!(SystemTime::now() >= due, "it came before its time");
    stage.says(&anna, format!("is reminded: {}", items(&delivery))).await?;
    delivery.done().await?;
    Ok(())
}

pub async fn blocking(stage: &mut Stage) -> Result<()> {
    let (maker, taker) = (stage.enter("maker").await?, stage.enter("taker").await?);
    let making = BlockingQueue::new(&maker.client, "/belt", 1)?;
    making.put("first").await?;
    ensure!(!making.offer("second").await?, "there was room for two");
    stage.says(&maker, "finds the belt full and waits for room").await?;
    let waiting = meanwhile(async move { making.put("third").await });
    let taking = BlockingQueue::new(&taker.client, "/belt", 1)?;
    let first = text(&taking.take().await?);
    stage.says(&taker, format!("takes the {first}")).await?;
    done(waiting).await?;
    let third = text(&taking.take().await?);
    stage.says(&taker, format!("takes the {third}")).await?;
    Ok(())
}

pub async fn sharded(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let queue = ShardedQueue::new(&anna.client, "/clicks").with_threshold(1)?;
    queue.put("one").await?;
    queue.put("two").await?;
    let shards = queue.shards().await?.len();
    stage.tells(format!("more than one item in a shard, so there are {shards} now")).await?;
    for _ in 0..2 {
        let delivery = queue.next().await?;
        stage.says(&anna, format!("takes {}", items(&delivery))).await?;
        delivery.done().await?;
    }
    Ok(())
}

fn items(delivery: &Delivery) -> String {
    delivery.items().iter().map(|item| text(item)).collect::<Vec<_>>().join(", ")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
