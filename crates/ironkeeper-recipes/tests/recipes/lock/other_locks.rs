//! `Reentrant`, `MultiLock`, `SingleNodeLock`, `Optimistic` and `NonBlockingLease`.

use std::time::Duration;

use ironkeeper_client::{CreateMode, ErrorKind, Version};
use ironkeeper_recipes::lock::{
    MultiLock, Mutex, NonBlockingLease, Optimistic, Reentrant, SingleNodeLock, revoke,
};
use ironkeeper_recipes::{Lost, RecipeError};
use ironkeeper_testing::Direction;

use crate::world::requests::{self, followed};
use crate::world::{
    World, children, drop_after_polls, drop_elsewhere, until_children, while_away, with_every_cut,
};

#[tokio::test]
async fn a_handle_may_take_its_lock_again() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut handle = Reentrant::new(Mutex::new(&one, "/lock"));
    assert!(matches!(handle.release().await.unwrap_err(), RecipeError::NotHeld { .. }));
    handle.acquire().await.unwrap();
    assert!(handle.try_acquire().await.unwrap());
    assert!(handle.acquire_within(Duration::ZERO).await.unwrap());
    assert_eq!((handle.count(), children(&one, "/lock").await.len()), (3, 1));
    handle.release().await.unwrap();
    handle.release().await.unwrap();
    let mut other = Reentrant::new(Mutex::new(&two, "/lock"));
    assert!(!other.try_acquire().await.unwrap());
    handle.release().await.unwrap();
    assert!(other.try_acquire().await.unwrap());
    assert!(other.guard().is_some() && handle.guard().is_none());
}

#[tokio::test]
async fn a_lost_lock_is_not_taken_again_in_silence() {
    let world = World::start().await;
    let client = world.client().await;
    let mut handle = Reentrant::new(Mutex::new(&client, "/lock"));
    handle.acquire().await.unwrap();
    world.end_session(&client).await;
    assert!(matches!(handle.acquire().await.unwrap_err(), RecipeError::Lost { .. }));
    assert!(handle.release().await.unwrap_err().is_session_over());
    assert!(matches!(handle.release().await.unwrap_err(), RecipeError::NotHeld { .. }));
}

#[tokio::test]
async fn a_lock_whose_node_was_deleted_is_not_taken_again_although_nobody_has_noticed() {
    let world = World::start().await;
    let client = world.client().await;
    let mut handle = Reentrant::new(Mutex::new(&client, "/lock"));
    handle.acquire().await.unwrap();
    let path = handle.guard().unwrap().path().to_owned();
    client.delete(&path, Version::Any).await.unwrap();
    let refused = handle.acquire().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Lost { why: Lost::NodeDeleted, .. }), "{refused}");
    assert_eq!(handle.count(), 1);
}

#[tokio::test]
async fn every_release_of_a_lost_lock_says_so() {
    let world = World::start().await;
    let client = world.client().await;
    let mut handle = Reentrant::new(Mutex::new(&client, "/lock"));
    for _ in 0..3 {
        handle.acquire().await.unwrap();
    }
    let path = handle.guard().unwrap().path().to_owned();
    client.delete(&path, Version::Any).await.unwrap();
    handle.acquire().await.unwrap_err();
    for left in [2, 1, 0] {
        let refused = handle.release().await.unwrap_err();
        assert!(matches!(refused, RecipeError::Lost { why: Lost::NodeDeleted, .. }), "{refused}");
        assert_eq!(handle.count(), left);
    }
    assert!(matches!(handle.release().await.unwrap_err(), RecipeError::NotHeld { .. }));
}

#[tokio::test]
async fn overlapping_sets_of_locks_do_not_wait_for_each_other() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for order in [["/m/a", "/m/b", "/m/c"], ["/m/c", "/m/b", "/m/a"], ["/m/b", "/m/c", "/m/a"]] {
        let client = world.client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = MultiLock::new(&client, order).unwrap().lock().await.unwrap();
                assert!(guard.is_valid());
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn several_locks_are_had_all_or_none() {
    let world = World::start().await;
    let client = world.client().await;
    let held = Mutex::new(&client, "/m/b").lock().await.unwrap();
    let multi = MultiLock::new(&client, ["/m/a", "/m/b"]).unwrap();
    assert!(multi.try_lock().await.unwrap().is_none());
    assert!(multi.lock_within(Duration::from_millis(20)).await.unwrap().is_none());
    until_children(&client, "/m/a", 0).await;
    held.release().await.unwrap();
    let guard = multi.lock().await.unwrap();
    assert_eq!(guard.fencing_tokens().len(), 2);
    client.delete(guard.guards()[1].path(), Version::Any).await.unwrap();
    guard.lost().await;
    assert!(!guard.is_valid());
    let stale = guard
        .fence(client.transaction())
        .create("/x", "", CreateMode::Persistent)
        .commit()
        .await
        .unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::NoNode);
    assert!(guard.release().await.is_err());
    assert_eq!(children(&client, "/m/a").await, [""; 0]);
    assert!(MultiLock::new(&client, ["/m/a", "/m/a"]).is_err());
    assert!(MultiLock::new(&client, [""; 0]).is_err());
}

#[tokio::test]
async fn a_single_node_excludes() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let held = SingleNodeLock::new(&one, "/locks/single").lock().await.unwrap();
    assert!(SingleNodeLock::new(&two, "/locks/single").try_lock().await.unwrap().is_none());
    let waiter = two.clone();
    let waiting =
        tokio::spawn(async move { SingleNodeLock::new(&waiter, "/locks/single").lock().await });
    let token = held.fencing_token();
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    // A guard whose node was deleted does not delete the node of the next holder.
    two.delete(next.path(), Version::Any).await.unwrap();
    let third = SingleNodeLock::new(&one, "/locks/single").lock().await.unwrap();
    assert!(matches!(next.release().await.unwrap_err(), RecipeError::Lost { .. }));
    assert!(third.check().await.unwrap());
    drop(third);
    SingleNodeLock::new(&one, "/locks/single").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_single_node_survives_every_cut_and_every_drop() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let watching = watching.clone();
            async move {
                let guard = SingleNodeLock::new(&client, "/locks/single").lock().await.unwrap();
                guard.release().await.unwrap();
                assert!(watching.exists("/locks/single").await.unwrap().is_none());
            }
        })
        .await;
    }
    for polls in 0..6 {
        let lock = SingleNodeLock::new(&watching, "/locks/single");
        drop(drop_after_polls(lock.lock(), polls).await);
        until_children(&watching, "/locks", 0).await;
    }
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_leaves_the_next_holder_alone() {
    let world = World::start().await;
    let two = world.client().await;
    let mut was_handed_over = false;
    for bytes in (0..).step_by(7) {
        let (proxy, one) = world.proxied().await;
        let held = SingleNodeLock::new(&one, "/locks/single").lock().await.unwrap();
        let lock = SingleNodeLock::new(&two, "/locks/single");
        let mut next = None;
        let meanwhile = async { next = lock.try_lock().await.unwrap() };
        let (released, was_cut) = while_away(&proxy, bytes, held.release(), meanwhile).await;
        released.unwrap();
        if let Some(next) = next {
            was_handed_over = true;
            assert!(next.check().await.unwrap(), "after {bytes} bytes");
            next.release().await.unwrap();
        }
        if !was_cut {
            break;
        }
    }
    assert!(was_handed_over);
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_finds_its_node_although_it_was_revoked_meanwhile() {
    let world = World::start().await;
    let two = world.client().await;
    let mut was_revoked = false;
    for bytes in (0..).step_by(7) {
        let (proxy, one) = world.proxied().await;
        let lock = SingleNodeLock::new(&one, "/locks/single");
        let mut revoked = false;
        let meanwhile = async { revoked = revoke(&two, "/locks/single").await.unwrap() };
        let (locked, was_cut) = while_away(&proxy, bytes, lock.lock(), meanwhile).await;
        let held = locked.unwrap();
        assert!(held.check().await.unwrap(), "after {bytes} bytes");
        if revoked {
            was_revoked = true;
            held.revocation().await.unwrap();
        }
        held.release().await.unwrap();
        assert_eq!(children(&two, "/locks").await, [""; 0]);
        if !was_cut {
            break;
        }
    }
    assert!(was_revoked);
}

#[tokio::test]
async fn a_wait_whose_reply_is_lost_and_which_is_dropped_leaves_no_revoked_node() {
    let world = World::start().await;
    let two = world.client().await;
    let mut was_revoked = false;
    for bytes in (0..).step_by(7) {
        let (proxy, one) = world.proxied().await;
        let lock = SingleNodeLock::new(&one, "/locks/single");
        let given_up = tokio::sync::Notify::new();
        let work = async {
            tokio::select! {
                biased;
                () = given_up.notified() => {}
                held = lock.lock() => held.unwrap().release().await.unwrap(),
            }
        };
        let meanwhile = async {
            was_revoked |= revoke(&two, "/locks/single").await.unwrap();
            given_up.notify_one();
        };
        let ((), was_cut) = while_away(&proxy, bytes, work, meanwhile).await;
        until_children(&two, "/locks", 0).await;
        if !was_cut {
            break;
        }
    }
    assert!(was_revoked);
}

#[tokio::test]
async fn a_claim_in_doubt_does_not_take_the_revoked_node_of_its_own_session_from_its_holder() {
    let world = World::start().await;
    let two = world.client().await;
    let mut was_in_doubt = false;
    for bytes in (0..).step_by(7) {
        let (proxy, one) = world.proxied().await;
        let lock = SingleNodeLock::new(&one, "/locks/single");
        let held = lock.lock().await.unwrap();
        assert!(revoke(&two, held.path()).await.unwrap());
        let (locked, was_cut) = while_away(&proxy, bytes, lock.try_lock(), async {}).await;
        assert!(locked.unwrap().is_none(), "after {bytes} bytes");
        held.release().await.unwrap();
        if !was_cut {
            break;
        }
        was_in_doubt = true;
    }
    assert!(was_in_doubt);
}

#[tokio::test]
async fn a_guard_whose_node_is_anothers_by_now_is_lost() {
    let world = World::start().await;
    let client = world.client().await;
    let lock = SingleNodeLock::new(&client, "/locks/single");
    let stale = lock.lock().await.unwrap();
    client.delete(stale.path(), Version::Any).await.unwrap();
    // Created by the same session, so the ephemeral owner does not distinguish the nodes.
    let next = lock.lock().await.unwrap();
    assert_eq!(stale.lost().await, Lost::NodeDeleted);
    assert!(!stale.is_valid() && next.is_valid());
    let (stale, held) = (next, client.clone());
    held.delete(stale.path(), Version::Any).await.unwrap();
    let next = lock.lock().await.unwrap();
    assert!(!stale.check().await.unwrap() && !stale.is_valid());
    assert!(next.check().await.unwrap());
}

#[tokio::test]
async fn a_dropped_wait_looks_for_its_node_on_a_server_that_has_caught_up() {
    let world = World::start().await;
    let (client, requests) = followed(&world).await;
    let watching = world.client().await;
    let lock = SingleNodeLock::new(&client, "/locks/single");
    lock.lock().await.unwrap().release().await.unwrap();
    requests.take();
    // The create is in flight.
    assert!(drop_after_polls(lock.lock(), 1).await.is_none());
    let mut seen = Vec::new();
    while !seen.contains(&requests::DELETE) {
        seen.extend(requests.take());
        client.exists("/").await.unwrap();
    }
    let at = |op| seen.iter().position(|seen| *seen == op);
    assert!(at(requests::SYNC).is_some() && at(requests::SYNC) < at(requests::GET), "{seen:?}");
    until_children(&watching, "/locks", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_dropped_on_a_thread_of_no_runtime_leaves_nothing() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    for parent in ["/locks", "/fair"] {
        client.create(parent, "", CreateMode::Persistent).await.unwrap();
    }
    for polls in 1..6 {
        let asking = client.clone();
        let single = async move { SingleNodeLock::new(&asking, "/locks/single").lock().await };
        drop_elsewhere(single, polls).await;
        // All requests of the dropped future have been applied.
        client.exists("/").await.unwrap();
        until_children(&watching, "/locks", 0).await;
        let asking = client.clone();
        let fair = async move { Mutex::new(&asking, "/fair").lock().await };
        drop_elsewhere(fair, polls).await;
        // All requests of the dropped future have been applied.
        client.exists("/").await.unwrap();
        until_children(&watching, "/fair", 0).await;
    }
}

#[tokio::test]
async fn no_optimistic_update_is_lost() {
    let world = World::start().await;
    let client = world.client().await;
    client.create("/n", "0", CreateMode::Persistent).await.unwrap();
    let add_one = |old: &[u8]| {
        let old: u64 = std::str::from_utf8(old).unwrap().parse().unwrap();
        (old + 1).to_string()
    };
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = world.client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                Optimistic::new(&client, "/n").update(add_one).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let node = Optimistic::new(&client, "/n");
    let seen = node.read().await.unwrap();
    assert_eq!((&seen.data[..], seen.version), (&b"40"[..], 40));
    assert!(node.write(&seen, "41").await.unwrap().is_some());
    assert!(node.write(&seen, "41").await.unwrap().is_none());
}

#[tokio::test]
async fn a_lease_is_had_at_once_or_not_at_all() {
    let world = World::start().await;
    let client = world.client().await;
    let long = NonBlockingLease::new(&client, "/leases/l", Duration::from_secs(600));
    let first = long.obtain("one").await.unwrap().unwrap();
    assert!(long.obtain("two").await.unwrap().is_none());
    let again = long.obtain("one").await.unwrap().unwrap();
    assert!(again.fencing_token() > first.fencing_token());
    assert!(!first.end().await.unwrap());
    assert!(again.end().await.unwrap());
    // The lease expires by itself, by the clock of the servers.
    let short = NonBlockingLease::new(&client, "/leases/l", Duration::from_millis(30));
    let first = short.obtain("one").await.unwrap().unwrap();
    let taken_over = loop {
        if let Some(lease) = short.obtain("two").await.unwrap() {
            break lease;
        }
    };
    assert!(taken_over.fencing_token() > first.fencing_token());
    assert!(!first.is_valid());
}

#[tokio::test]
async fn several_slots_have_several_holders() {
    let world = World::start().await;
    let client = world.client().await;
    let lease = NonBlockingLease::new(&client, "/leases/l", Duration::from_secs(600))
        .with_slots(2)
        .unwrap();
    assert!(lease.obtain("one").await.unwrap().is_some());
    assert!(lease.obtain("one").await.unwrap().is_some());
    assert!(lease.obtain("two").await.unwrap().is_some());
    assert!(lease.obtain("three").await.unwrap().is_none());
    assert!(lease.with_slots(0).is_err());
}

#[tokio::test]
async fn a_lease_that_is_ended_with_a_lost_reply_leaves_the_next_one_alone() {
    let world = World::start().await;
    let two = world.client().await;
    let day = Duration::from_secs(24 * 60 * 60);
    let mut was_handed_over = false;
    for bytes in (0..).step_by(7) {
        let (proxy, one) = world.proxied().await;
        let lease = NonBlockingLease::new(&one, "/leases/l", day);
        let held = lease.obtain("one").await.unwrap().unwrap();
        let others = NonBlockingLease::new(&two, "/leases/l", day);
        let mut next = None;
        let meanwhile = async { next = others.obtain("two").await.unwrap() };
        let (ended, was_cut) = while_away(&proxy, bytes, held.end(), meanwhile).await;
        assert!(ended.unwrap());
        if let Some(next) = next {
            was_handed_over = true;
            assert!(lease.obtain("three").await.unwrap().is_none(), "after {bytes} bytes");
            assert!(next.end().await.unwrap());
        }
        if !was_cut {
            break;
        }
    }
    assert!(was_handed_over);
}

#[tokio::test]
async fn a_lease_may_be_for_ever_and_anothers_beyond_all_counting() {
    let world = World::start().await;
    let client = world.client().await;
    let lease = NonBlockingLease::new(&client, "/leases/l", Duration::MAX);
    let held = lease.obtain("one").await.unwrap().unwrap();
    assert!(held.is_valid());
    assert!(lease.obtain("two").await.unwrap().is_none());
    let foreign = format!("{} three", i64::MAX);
    client.set("/leases/l/lease_holder", foreign, Version::Any).await.unwrap();
    assert!(lease.obtain("two").await.unwrap().is_none());
}
