//! Conflicting transactions.

use std::sync::atomic::{AtomicUsize, Ordering};

use ironkeeper_client::{CreateMode, ErrorKind};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::stm::{CONFLICTS_MAX, Memory};

use super::{ROOT, look, number, open, put, transfer};
use crate::world::{World, children};

#[tokio::test]
async fn an_attempt_sees_its_own_writes_and_others_see_all_or_nothing() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (here, there) = (open(&one).await, open(&two).await);
    let seen = here
        .atomically(|now| async move {
            now.put("/bank/a/b", "1").await?;
            assert_eq!(now.get("/bank/a").await?.unwrap(), "");
            assert_eq!(now.children(ROOT).await?, ["a"]);
            now.put("/bank/c", "2").await?;
            assert!(now.delete("/bank/c").await?);
            assert!(!now.delete("/bank/d").await?);
            assert_eq!(now.get("/bank/c").await?, None);
            now.put("/bank/a/b", "3").await?;
            now.children("/bank/a").await
        })
        .await
        .unwrap();
    assert_eq!(seen, ["b"]);
    let read = there.atomically(|now| async move { now.get("/bank/a/b").await }).await.unwrap();
    assert_eq!(read.unwrap(), "3");
    assert_eq!(children(&two, ROOT).await, ["a"]);
    // A failed transaction writes nothing.
    let failed = here
        .atomically(|now| async move {
            now.put("/bank/x", "1").await?;
            now.delete("/bank/a").await?;
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(failed.kind(), Some(ErrorKind::NotEmpty));
    assert_eq!(children(&two, ROOT).await, ["a"]);
    let gone = here
        .atomically(|now| async move {
            now.delete("/bank/a/b").await?;
            now.delete("/bank/a").await
        })
        .await;
    assert!(gone.unwrap());
    assert_eq!(children(&two, ROOT).await, [""; 0]);
}

#[tokio::test]
async fn transfers_of_many_clients_keep_the_sum() {
    let world = World::start().await;
    let memory = open(&world.client().await).await;
    let accounts = ["/bank/a", "/bank/b", "/bank/c"];
    for account in accounts {
        put(&memory, account, 100).await;
    }
    let mut clients = tokio::task::JoinSet::new();
    for at in 0..4 {
        let client = world.client().await;
        clients.spawn(async move {
            let memory = open(&client).await;
            for step in 0..15 {
                let (from, to) = (accounts[(at + step) % 3], accounts[(at + step * 2 + 1) % 3]);
                if from != to {
                    match transfer(&memory, from, to, 7).await {
                        Ok(()) | Err(RecipeError::Misuse(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    // A concurrent transaction always reads the whole sum.
    while !clients.is_empty() {
        let sum = memory
            .atomically(|now| async move {
                let mut sum = 0;
                for account in accounts {
                    sum += number(&now, account).await?;
                }
                Ok(sum)
            })
            .await
            .unwrap();
        assert_eq!(sum, 300);
        while clients.try_join_next().is_some_and(|done| done.is_ok()) {}
        tokio::task::yield_now().await;
    }
}

/// Runs a transaction on `/bank/out`; another client commits between its first read and write.
/// Returns the number of attempts.
async fn disturbed<A, B>(
    world: &World,
    read: impl Fn(ironkeeper_recipes::stm::Attempt) -> A,
    disturb: impl Fn(Memory) -> B,
) -> usize
where
    A: Future<Output = ironkeeper_recipes::Result<String>>,
    B: Future<Output = ()>,
{
    let (here, there) = (open(&world.client().await).await, open(&world.client().await).await);
    let runs = AtomicUsize::new(0);
    let (runs_seen, read, disturb, there) = (&runs, &read, &disturb, &there);
    let seen = here
        .atomically(|now| async move {
            let seen = read(now.clone()).await?;
            if runs_seen.fetch_add(1, Ordering::SeqCst) == 0 {
                disturb(there.clone()).await;
            }
            now.put("/bank/out", seen.clone()).await?;
            Ok(seen)
        })
        .await
        .unwrap();
    // The value that was written equals a new read.
    let again = here.atomically(|now| async move { read(now).await }).await.unwrap();
    assert_eq!(seen, again);
    runs.into_inner()
}

#[tokio::test]
async fn a_write_between_read_and_commit_is_noticed() {
    let world = World::start().await;
    put(&open(&world.client().await).await, "/bank/x", 1).await;
    let read = |now: ironkeeper_recipes::stm::Attempt| async move {
        Ok(number(&now, "/bank/x").await?.to_string())
    };
    let runs = disturbed(&world, read, |other| async move { put(&other, "/bank/x", 2).await });
    assert_eq!(runs.await, 2);
    // A write to a node that was not read is no conflict.
    put(&open(&world.client().await).await, "/bank/y", 1).await;
    let runs = disturbed(&world, read, |other| async move { put(&other, "/bank/y", 2).await });
    assert_eq!(runs.await, 1);
}

#[tokio::test]
async fn a_cell_that_was_not_there_and_comes_is_noticed() {
    let world = World::start().await;
    let read = |now: ironkeeper_recipes::stm::Attempt| async move {
        Ok(format!("{:?}", now.get("/bank/deep/x").await?))
    };
    let come = |other: Memory| async move { put(&other, "/bank/deep/x", 2).await };
    assert_eq!(disturbed(&world, read, come).await, 2);
}

#[tokio::test]
async fn a_child_that_comes_after_the_list_was_read_is_noticed() {
    let world = World::start().await;
    put(&open(&world.client().await).await, "/bank/list/a", 1).await;
    let read = |now: ironkeeper_recipes::stm::Attempt| async move {
        Ok(now.children("/bank/list").await?.join(" "))
    };
    let come = |other: Memory| async move { put(&other, "/bank/list/b", 2).await };
    assert_eq!(disturbed(&world, read, come).await, 2);
}

#[tokio::test]
async fn a_cell_deleted_and_created_again_with_its_old_version_is_noticed() {
    let world = World::start().await;
    put(&open(&world.client().await).await, "/bank/x", 1).await;
    let read = |now: ironkeeper_recipes::stm::Attempt| async move {
        Ok(number(&now, "/bank/x").await?.to_string())
    };
    let anew = |other: Memory| async move {
        let delete =
            |now: ironkeeper_recipes::stm::Attempt| async move { now.delete("/bank/x").await };
        other.atomically(delete).await.unwrap();
        put(&other, "/bank/x", 9).await;
    };
    assert_eq!(disturbed(&world, read, anew).await, 2);
}

#[tokio::test]
async fn an_error_from_a_state_that_never_was_is_not_believed() {
    let world = World::start().await;
    let (here, there) = (open(&world.client().await).await, open(&world.client().await).await);
    put(&here, "/bank/a", 50).await;
    put(&here, "/bank/b", 50).await;
    let (runs, other) = (AtomicUsize::new(0), &there);
    let runs_seen = &runs;
    let sum = here
        .atomically(|now| async move {
            let a = number(&now, "/bank/a").await?;
            if runs_seen.fetch_add(1, Ordering::SeqCst) == 0 {
                transfer(other, "/bank/a", "/bank/b", 10).await?;
            }
            let b = number(&now, "/bank/b").await?;
            if a + b == 100 { Ok(a + b) } else { Err(RecipeError::Misuse("torn".to_owned())) }
        })
        .await
        .unwrap();
    assert_eq!((sum, runs.into_inner()), (100, 2));
    // An error from a consistent state is returned.
    assert!(matches!(
        transfer(&here, "/bank/a", "/bank/b", 1000).await,
        Err(RecipeError::Misuse(_))
    ));
}

#[tokio::test]
async fn whoever_loses_often_stands_in_line_and_is_done_at_last() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let (here, there) = (open(&client).await, open(&watching).await);
    put(&here, "/bank/x", 0).await;
    let (runs, other, watching) = (AtomicUsize::new(0), &there, &watching);
    let runs_seen = &runs;
    here.atomically(|now| async move {
        let x = number(&now, "/bank/x").await?;
        let run = runs_seen.fetch_add(1, Ordering::SeqCst);
        let in_line = children(watching, "/bank.turns").await.len();
        assert_eq!(in_line, usize::from(run >= CONFLICTS_MAX), "{run}");
        if run < CONFLICTS_MAX + 2 {
            put(other, "/bank/x", x + 1).await;
        }
        now.put_as("/bank/x", &-1).await
    })
    .await
    .unwrap();
    assert_eq!(runs.into_inner(), CONFLICTS_MAX + 3);
    assert_eq!(look(&here, "/bank/x").await, -1);
    assert_eq!(children(watching, "/bank.turns").await, [""; 0]);
}

#[tokio::test]
async fn what_is_not_in_the_memory_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let memory = open(&client).await;
    assert!(matches!(Memory::open(&client, "/").await, Err(RecipeError::Misuse(_))));
    for path in ["/", "/other", "/bankrupt", "/bank/", "/bank/../x", "/bank//x", "bank"] {
        let refused = memory.atomically(|now| async move { now.put(path, "").await }).await;
        assert!(matches!(refused, Err(RecipeError::Misuse(_))), "{path}: {refused:?}");
    }
    let refused = memory.atomically(|now| async move { now.delete(ROOT).await }).await;
    assert!(matches!(refused, Err(RecipeError::Misuse(_))), "{refused:?}");
    let kept = memory.atomically(|now| async move { Ok(now) }).await.unwrap();
    assert!(matches!(kept.put("/bank/x", "").await, Err(RecipeError::Misuse(_))));
    client.create("/bank/text", "no number", CreateMode::Persistent).await.unwrap();
    let malformed = memory.atomically(|now| async move { number(&now, "/bank/text").await }).await;
    assert!(matches!(malformed, Err(RecipeError::Malformed { .. })), "{malformed:?}");
}
