//! The variants with a timeout wait as long as specified, and no longer.

use std::time::{Duration, SystemTime};

use ironkeeper_client::Client;
use ironkeeper_recipes::lock::Semaphore;
use ironkeeper_recipes::queue::{DelayQueue, IdQueue, PriorityQueue};
use ironkeeper_recipes::{RecipeError, Result};

use crate::world::{World, until_children};

/// Far longer than any of these takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Puts an item into a full queue.
async fn full<F: Future<Output = Result<bool>>>(client: &Client, put: impl Fn(Duration) -> F) {
    assert!(put(PATIENCE).await.unwrap());
    assert!(!put(Duration::from_millis(1)).await.unwrap());
    until_children(client, "/full.putters", 0).await;
    until_children(client, "/full", 1).await;
    client.delete_recursive("/full").await.unwrap();
}

#[tokio::test]
async fn puts_and_leases_are_waited_for_as_long_as_is_said() {
    let world = World::start().await;
    let client = world.client().await;
    let ids = IdQueue::new(&client, "/full").unwrap().with_limit(1).unwrap();
    full(&client, |patience| ids.put_within("a", "x", patience)).await;
    let urgent = PriorityQueue::new(&client, "/full").unwrap().with_limit(1).unwrap();
    full(&client, |patience| urgent.put_within(1, "x", patience)).await;
    let due = DelayQueue::new(&client, "/full").unwrap().with_limit(1).unwrap();
    full(&client, |patience| due.put_at_within(SystemTime::now(), "x", patience)).await;
    ids.put_all("b", ["1", "2"]).await.unwrap();
    let delivery = ids.next().await.unwrap();
    assert_eq!((delivery.id(), delivery.items().len()), (Some("b"), 2));
    delivery.done().await.unwrap();
    for refused in [
        ids.put_all("", ["1"]).await.map(|()| true),
        ids.put_all("b", [""; 0]).await.map(|()| true),
        ids.put_within("", "1", PATIENCE).await,
    ] {
        assert!(matches!(refused, Err(RecipeError::Misuse(_))), "{refused:?}");
    }
    let semaphore = Semaphore::new(&client, "/semaphore", 2).unwrap();
    let one = semaphore.acquire().await.unwrap();
    let short = Duration::from_millis(1);
    assert!(semaphore.acquire_many_within(2, short).await.unwrap().is_none());
    until_children(&client, "/semaphore/leases", 1).await;
    one.release().await.unwrap();
    assert_eq!(semaphore.acquire_many_within(2, PATIENCE).await.unwrap().unwrap().len(), 2);
    assert!(semaphore.acquire_many_within(3, PATIENCE).await.is_err());
}
