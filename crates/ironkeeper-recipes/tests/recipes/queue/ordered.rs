//! Queues whose items have ids, priorities or due times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::queue::{DelayQueue, IdQueue, Order, PriorityQueue, Queue};

use crate::world::{World, children, until_children, until_watches};

const PATH: &str = "/queues/o";

async fn names(client: &Client) -> Vec<String> {
    children(client, PATH).await
}

async fn work_off<O: Order>(queue: &Queue<O>) -> Vec<bytes::Bytes> {
    let mut items = Vec::new();
    while let Some(delivery) = queue.try_next().await.unwrap() {
        items.extend(delivery.items().iter().cloned());
        delivery.done().await.unwrap();
    }
    items
}

#[tokio::test]
async fn items_are_removed_by_their_id_unless_somebody_works_on_them() {
    let world = World::start().await;
    let client = world.client().await;
    let queue = IdQueue::new(&client, PATH).unwrap();
    queue.put("a", "1").await.unwrap();
    queue.put("b/c", "2").await.unwrap();
    queue.put("a", "3").await.unwrap();
    assert_eq!(
        names(&client).await,
        ["queue-|a|0000000000", "queue-|a|0000000002", "queue-|b_c|0000000001"]
    );
    assert!(queue.contains("b/c").await.unwrap());
    assert!(!queue.contains("c").await.unwrap());
    let delivery = queue.next().await.unwrap();
    assert_eq!((delivery.id(), &delivery.items()[0][..]), (Some("a"), &b"1"[..]));
    assert_eq!(queue.remove("a").await.unwrap(), 1);
    assert_eq!(queue.remove("x").await.unwrap(), 0);
    delivery.done().await.unwrap();
    assert_eq!(work_off(&queue).await, ["2"]);
    assert!(matches!(queue.put("", "x").await, Err(RecipeError::Misuse(_))));
}

#[tokio::test]
async fn curator_56_224_an_item_queued_again_keeps_its_name_but_for_the_number() {
    let world = World::start().await;
    let client = world.client().await;
    let queue = IdQueue::new(&client, PATH).unwrap();
    queue.put("a", "1").await.unwrap();
    for number in 1..20 {
        queue.next().await.unwrap().requeue().await.unwrap();
        assert_eq!(names(&client).await, [format!("queue-|a|{number:010}")]);
    }
    assert_eq!(queue.remove("a").await.unwrap(), 1);
    let queue = PriorityQueue::new(&client, PATH).unwrap();
    queue.put(7, "1").await.unwrap();
    queue.next().await.unwrap().requeue().await.unwrap();
    assert_eq!(names(&client).await, ["queue-1000000070000000021"]);
    work_off(&queue).await;
    let queue = DelayQueue::new(&client, PATH).unwrap();
    queue.put_at(UNIX_EPOCH + Duration::from_millis(0xABC), "1").await.unwrap();
    queue.next().await.unwrap().requeue().await.unwrap();
    assert_eq!(names(&client).await, ["queue-|00000ABC|0000000023"]);
}

#[tokio::test]
async fn the_smaller_priority_comes_first_and_then_the_order_of_coming() {
    let world = World::start().await;
    let queue = PriorityQueue::new(&world.client().await, PATH).unwrap();
    for (priority, item) in [(5, "5"), (0, "0"), (-3, "-3"), (5, "5 again"), (i32::MAX, "max")] {
        queue.put(priority, item).await.unwrap();
    }
    queue.put_all(i32::MIN, ["min", "min too"]).await.unwrap();
    assert_eq!(work_off(&queue).await, ["min", "min too", "-3", "0", "5", "5 again", "max"]);
    // An urgent item put while another is being processed is the next one.
    queue.put(2, "a").await.unwrap();
    queue.put(2, "b").await.unwrap();
    let delivery = queue.next().await.unwrap();
    queue.put(1, "urgent").await.unwrap();
    assert_eq!(work_off(&queue).await, ["urgent", "b"]);
    delivery.done().await.unwrap();
}

#[tokio::test]
async fn curator_116_115_nothing_is_handed_out_before_its_time() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let queue = DelayQueue::new(&client, PATH).unwrap();
    let hour = Duration::from_secs(3600);
    queue.put_after(hour, "much later").await.unwrap();
    assert!(queue.try_next().await.unwrap().is_none());
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            let delivery = queue.next().await.unwrap();
            (delivery, SystemTime::now())
        }
    });
    until_watches(&client, 1).await;
    // An earlier item wakes a worker that waits for a later one.
    let due = SystemTime::now() + Duration::from_millis(50);
    let producer = DelayQueue::new(&other, PATH).unwrap();
    producer.put_all_at(due, ["sooner", "as well"]).await.unwrap();
    let (delivery, at) = waiting.await.unwrap();
    assert!(at >= due);
    assert_eq!(delivery.items(), ["sooner", "as well"]);
    delivery.done().await.unwrap();
    assert!(queue.try_next().await.unwrap().is_none());
    assert_eq!(queue.len().await.unwrap(), 1);
    // Items that were due long ago are delivered by due time.
    producer.put_at(UNIX_EPOCH + hour, "second").await.unwrap();
    producer.put_at(UNIX_EPOCH - hour, "first").await.unwrap();
    assert_eq!(work_off(&queue).await, ["first", "second"]);
    until_children(&other, "/queues/o.takers", 0).await;
}
