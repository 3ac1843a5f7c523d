//! Connections lost before and after every request, ended sessions, and dropped futures.

use std::sync::atomic::{AtomicI64, Ordering};

use ironkeeper_testing::Direction;

use super::{look, number, open, put};
use crate::world::{World, drop_after_polls, until_children, with_every_cut};

#[tokio::test]
async fn a_transaction_is_committed_once_whatever_is_lost() {
    let world = World::start().await;
    let steady = open(&world.client().await).await;
    let done = AtomicI64::new(0);
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let (steady, done) = (&steady, &done);
            async move {
                let memory = open(&client).await;
                let count = memory
                    .atomically(|now| async move {
                        let count = number(&now, "/bank/count").await? + 1;
                        now.put_as("/bank/count", &count).await?;
                        Ok(count)
                    })
                    .await
                    .unwrap();
                assert_eq!(count, done.fetch_add(1, Ordering::SeqCst) + 1);
                assert_eq!(look(steady, "/bank/count").await, count);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_transaction_dropped_at_any_await_took_place_once_or_not() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let (memory, other) = (open(&client).await, open(&watching).await);
    put(&memory, "/bank/a", 0).await;
    put(&memory, "/bank/b", 0).await;
    let mut before = 0;
    for polls in 0.. {
        let adding = memory.atomically(|now| async move {
            let a = number(&now, "/bank/a").await? + 1;
            now.put_as("/bank/a", &a).await?;
            now.put_as("/bank/b", &a).await
        });
        let is_done = drop_after_polls(adding, polls).await.is_some();
        // Sent after all requests of the dropped future.
        client.sync("/").await.unwrap();
        let (a, b) = (look(&other, "/bank/a").await, look(&other, "/bank/b").await);
        assert!(a == b && (a == before || a == before + 1), "{before}: {a} {b}");
        before = a;
        if is_done {
            break;
        }
    }
    drop(memory);
    drop(other);
    // No receipt is left.
    until_children(&watching, "/bank.receipts", 0).await;
}

#[tokio::test]
async fn at_the_end_of_the_session_there_is_an_error_and_nothing_is_left() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let memory = open(&client).await;
    put(&memory, "/bank/a", 1).await;
    let failed = memory
        .atomically(|now| {
            let (world, client) = (&world, &client);
            async move {
                now.put_as("/bank/a", &2).await?;
                world.end_session(client).await;
                Ok(())
            }
        })
        .await
        .unwrap_err();
    assert!(failed.is_session_over(), "{failed}");
    assert_eq!(look(&open(&watching).await, "/bank/a").await, 1);
    until_children(&watching, "/bank.receipts", 0).await;
}
