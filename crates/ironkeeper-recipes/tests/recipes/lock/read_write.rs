//! `ReadWriteLock`.

use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::lock::{Mutex, ReadWriteLock};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/locks/rw";

fn lock(client: &Client) -> ReadWriteLock {
    ReadWriteLock::new(client, PATH)
}

#[tokio::test]
async fn readers_share_and_writers_exclude() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (first, second) = (lock(&one).read().await.unwrap(), lock(&two).read().await.unwrap());
    assert!(lock(&two).try_write().await.unwrap().is_none());
    first.release().await.unwrap();
    second.release().await.unwrap();
    let writing = lock(&one).write().await.unwrap();
    assert!(lock(&two).try_read().await.unwrap().is_none());
    assert!(lock(&two).try_write().await.unwrap().is_none());
    writing.release().await.unwrap();
    assert!(lock(&two).try_write().await.unwrap().is_some());
}

#[tokio::test]
async fn kazoo_649_turns_follow_the_order_of_asking() {
    let world = World::start().await;
    let client = world.client().await;
    let first = lock(&client).write().await.unwrap();
    let mut waiting = Vec::new();
    for (at, writes) in [false, true, false, false].into_iter().enumerate() {
        let other = world.client().await;
        waiting.push(tokio::spawn(async move {
            if writes {
                let guard = lock(&other).write().await.unwrap();
                let token = guard.fencing_token();
                guard.release().await.unwrap();
                token
            } else {
                let guard = lock(&other).read().await.unwrap();
                let token = guard.fencing_token();
                guard.release().await.unwrap();
                token
            }
        }));
        until_children(&client, PATH, at + 2).await;
    }
    let seen = lock(&client).participants().await.unwrap();
    assert_eq!(seen.iter().filter(|one| one.is_granted).count(), 1);
    first.release().await.unwrap();
    let mut tokens = Vec::new();
    for task in waiting {
        tokens.push(task.await.unwrap());
    }
    assert!(tokens.is_sorted(), "{tokens:?}");
    until_children(&client, PATH, 0).await;
}

#[tokio::test]
async fn curator_621_no_writer_comes_in_between_a_downgrade() {
    let world = World::start().await;
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    let writing = lock(&one).write().await.unwrap();
    let token = writing.fencing_token();
    let waiting = tokio::spawn(async move { lock(&two).write().await });
    until_children(&one, PATH, 2).await;
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(reading.fencing_token(), token);
    // The waiting writer has read the children and still waits; readers behind it also wait.
    until_children(&one, PATH, 2).await;
    assert!(lock(&three).try_read().await.unwrap().is_none());
    assert!(!waiting.is_finished());
    reading.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_downgraded_lock_lets_readers_in() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let writing = lock(&one).write().await.unwrap();
    let waiting = tokio::spawn(async move { lock(&two).read().await });
    until_children(&one, PATH, 2).await;
    let reading = writing.downgrade().await.unwrap();
    let other = waiting.await.unwrap().unwrap();
    assert!(reading.is_valid() && other.is_valid());
}

#[tokio::test]
async fn curator_307_a_release_after_the_end_of_the_session_is_a_clear_error() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (reading, writing) = {
        let writing = lock(&one).write().await.unwrap();
        (writing.read_too().await.unwrap(), writing)
    };
    world.end_session(&one).await;
    for released in [reading.release().await, writing.release().await] {
        assert!(released.unwrap_err().is_session_over());
    }
    lock(&two).write().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_downgrade_after_a_loss_is_refused() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let writing = lock(&one).write().await.unwrap();
    two.delete(writing.path(), -1).await.unwrap();
    let lost = writing.downgrade().await.unwrap_err();
    assert!(matches!(lost, RecipeError::Lost { .. }), "{lost}");
    until_children(&two, PATH, 0).await;
}

#[tokio::test]
async fn host_names_show_who_it_is() {
    let world = World::start().await;
    let client = world.client().await;
    let named = ReadWriteLock::new(&client, PATH).with_host_names("db-R-7");
    let reading = named.read().await.unwrap();
    assert!(reading.node_name().ends_with("-db-R-7-R-0000000000"), "{reading:?}");
    assert!(named.try_write().await.unwrap().is_none());
    // The other naming scheme does not know these nodes and returns an error.
    let refused = lock(&client).try_write().await.unwrap_err();
    assert!(matches!(refused, RecipeError::OtherRecipe { .. }), "{refused}");
    let refused = Mutex::new(&client, PATH).try_lock().await.unwrap_err();
    assert!(matches!(refused, RecipeError::OtherRecipe { .. }), "{refused}");
    reading.release().await.unwrap();
    let writing = named.write().await.unwrap();
    assert!(writing.node_name().contains("-W-"));
    writing.downgrade().await.unwrap().release().await.unwrap();
    assert_eq!(children(&client, PATH).await, [""; 0]);
}

#[tokio::test]
async fn every_lost_request_and_reply_of_a_downgrade_leaves_no_orphan() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let lock = ReadWriteLock::new(&client, &path);
                let reading = lock.write().await.unwrap().downgrade().await.unwrap();
                assert_eq!(children(&watching, &path).await, [reading.node_name()]);
                reading.release().await.unwrap();
                assert_eq!(children(&watching, &path).await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_downgrade_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let client = world.client().await;
    let mut polls = 0;
    loop {
        let writing = lock(&client).write().await.unwrap();
        let done = drop_after_polls(writing.downgrade(), polls).await;
        let is_done = done.is_some();
        drop(done);
        until_children(&client, PATH, 0).await;
        if is_done {
            break;
        }
        polls += 1;
    }
    assert!(polls > 1, "{polls}");
}
