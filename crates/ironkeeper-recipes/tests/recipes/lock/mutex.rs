//! `Mutex`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ironkeeper_client::{Client, ConnectionState, CreateMode, ErrorKind, Version, WatchType};
use ironkeeper_recipes::lock::{self, LockEvent, Mutex};
use ironkeeper_recipes::{Guard, Lost, RecipeError};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/locks/m";
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn one_holds_and_the_next_follows() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = Mutex::new(&one, PATH).lock().await.unwrap();
    assert!(first.is_valid());
    let waiting = tokio::spawn(async move { Mutex::new(&two, PATH).lock().await });
    until_children(&one, PATH, 2).await;
    assert!(!waiting.is_finished());
    let token = first.fencing_token();
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert!(second.fencing_token() > token);
    second.release().await.unwrap();
    assert_eq!(children(&one, PATH).await, [""; 0]);
}

#[tokio::test]
async fn whoever_is_removed_during_a_lock_delay_is_not_granted_the_lock() {
    let world = World::start().await;
    let (one, watching) = (world.client().await, world.client().await);
    let marker = format!("{PATH}/lock-delay");
    watching.create_parents(&marker).await.unwrap();
    watching.create(&marker, "somebody who has gone", CreateMode::Persistent).await.unwrap();
    let delay = Duration::from_secs(5);
    let waiting =
        tokio::spawn(async move { Mutex::new(&one, PATH).with_lock_delay(delay).lock().await });
    until_children(&watching, PATH, 2).await;
    for name in children(&watching, PATH).await.iter().filter(|name| *name != "lock-delay") {
        watching.delete(&format!("{PATH}/{name}"), Version::Any).await.unwrap();
    }
    tokio::time::pause();
    tokio::time::advance(delay).await;
    tokio::time::resume();
    let refused = waiting.await.unwrap().unwrap_err();
    assert!(matches!(refused, RecipeError::NodeGone { .. }), "{refused}");
}

#[tokio::test]
async fn a_connection_that_broke_while_nobody_looked_is_a_loss_if_it_counts_as_one() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let guard = Mutex::new(&client, PATH).losing_on_suspend().lock().await.unwrap();
    let patient = Mutex::new(&client, "/locks/patient").lock().await.unwrap();
    let mut states = client.states();
    proxy.cut();
    while states.next().await != Some(ConnectionState::Reconnected) {}
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, Lost::Suspended);
    assert!(patient.is_valid());
}

#[tokio::test]
async fn a_node_in_line_that_would_never_go_is_an_error() {
    let world = World::start().await;
    let client = world.client().await;
    let foreign = format!("{PATH}/x-lock-0000000000");
    client.create_parents(&foreign).await.unwrap();
    client.create(&foreign, "", CreateMode::Persistent).await.unwrap();
    let waited = tokio::time::timeout(PATIENCE, Mutex::new(&client, PATH).lock()).await;
    let refused = waited.expect("it is not waited for").unwrap_err();
    assert!(matches!(&refused, RecipeError::Malformed { path, .. } if *path == foreign));
    until_children(&client, PATH, 1).await;
}

#[tokio::test]
async fn a_watch_that_somebody_removes_is_no_loss() {
    let world = World::start().await;
    let client = world.client().await;
    let guard = Mutex::new(&client, PATH).lock().await.unwrap();
    let path = guard.path().to_owned();
    let mut lost = std::pin::pin!(guard.lost());
    for _ in 0..2 {
        let watched = async {
            while client.check_watches(&path, WatchType::Data).await.is_err() {}
            client.remove_watches(&path, WatchType::Data).await.unwrap();
        };
        tokio::select! {
            biased;
            why = &mut lost => panic!("{why}"),
            () = watched => {}
        }
    }
    client.delete(&path, Version::Any).await.unwrap();
    assert_eq!(lost.await, Lost::NodeDeleted);
}

#[tokio::test]
async fn grants_follow_the_order_of_asking_and_never_overlap() {
    let world = World::start().await;
    let watching = world.client().await;
    let gate = Mutex::new(&watching, PATH).lock().await.unwrap();
    let (inside, order) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(vec![])));
    let mut tasks = Vec::new();
    for number in 0..10 {
        let client = world.client().await;
        let (inside, order) = (inside.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = Mutex::new(&client, PATH).lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            order.lock().unwrap().push((number, guard.fencing_token()));
            client.exists("/").await.unwrap();
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
            guard.release().await.unwrap();
        }));
        until_children(&watching, PATH, number + 2).await;
    }
    gate.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(order.len(), 10);
}

#[tokio::test]
async fn try_lock_takes_a_free_lock_only() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let held = Mutex::new(&one, PATH).try_lock().await.unwrap().unwrap();
    assert!(Mutex::new(&two, PATH).try_lock().await.unwrap().is_none());
    assert_eq!(children(&one, PATH).await.len(), 1);
    held.release().await.unwrap();
    assert!(Mutex::new(&two, PATH).try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn zk_ruby_49_a_waiter_that_gives_up_leaves_nothing() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let held = Mutex::new(&one, PATH).lock().await.unwrap();
    let late = Mutex::new(&two, PATH).lock_within(Duration::from_millis(30)).await.unwrap();
    assert!(late.is_none());
    // If the attempt ends before the server has replied, a background task deletes the node.
    until_children(&two, PATH, 1).await;
    assert_eq!(children(&two, PATH).await, [held.node_name()]);
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_dropped_guard_gives_the_lock_back() {
    let world = World::start().await;
    let client = world.client().await;
    let mutex = Mutex::new(&client, PATH);
    drop(mutex.lock().await.unwrap());
    mutex.lock().await.unwrap().release().await.unwrap();
    // Also outside of a runtime.
    let guard = mutex.lock().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_stale_holder_cannot_write() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    one.create("/target", "", CreateMode::Persistent).await.unwrap();
    let guard = Mutex::new(&one, PATH).lock().await.unwrap();
    guard.transaction().set("/target", "1", Version::Any).commit().await.unwrap();
    two.delete(guard.path(), Version::Any).await.unwrap();
    let stale = guard.transaction().set("/target", "2", Version::Any).commit().await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::NoNode);
    assert_eq!(one.get("/target").await.unwrap().data, "1");
    assert_eq!(guard.lost().await, Lost::NodeDeleted);
    assert!(!guard.is_valid());
    assert!(!guard.check().await.unwrap());
    let lost = guard.release().await.unwrap_err();
    assert!(matches!(lost, RecipeError::Lost { why: Lost::NodeDeleted, .. }), "{lost}");
}

#[tokio::test]
async fn curator_206_the_holder_is_told_of_the_end_of_its_session() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let guard = Mutex::new(&one, PATH).lock().await.unwrap();
    let (lost, ()) = tokio::join!(guard.lost(), world.end_session(&one));
    assert_eq!(lost, Lost::SessionEnded);
    assert!(!guard.is_valid());
    let next = Mutex::new(&two, PATH).lock().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    let late = guard.release().await.unwrap_err();
    assert!(late.is_session_over(), "{late}");
    // The late release did not affect the next holder.
    assert!(next.check().await.unwrap());
}

#[tokio::test]
async fn curator_604_a_lock_is_not_granted_on_the_node_of_a_dead_session() {
    let world = World::start().await;
    let (one, two, watching) = (world.client().await, world.client().await, world.client().await);
    let held = Mutex::new(&one, PATH).lock().await.unwrap();
    let waiter = two.clone();
    let waiting = tokio::spawn(async move { Mutex::new(&waiter, PATH).lock().await });
    until_children(&watching, PATH, 2).await;
    world.end_session(&two).await;
    let refused = waiting.await.unwrap().unwrap_err();
    assert!(refused.is_session_over(), "{refused}");
    assert_eq!(children(&watching, PATH).await, [held.node_name()]);
    held.release().await.unwrap();
}

#[tokio::test]
async fn curator_527_a_predecessor_that_vanishes_is_not_waited_for() {
    let world = World::start().await;
    let client = world.client().await;
    // The predecessor is deleted at every point of the acquisition.
    for polls in 1..12 {
        let held = Mutex::new(&client, PATH).lock().await.unwrap();
        let mutex = Mutex::new(&client, PATH);
        let mut locking = Box::pin(mutex.lock());
        let early = drop_after_polls(&mut locking, polls);
        let early = tokio::time::timeout(Duration::from_millis(20), early).await.ok().flatten();
        assert!(early.is_none());
        drop(held);
        locking.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_whose_node_is_deleted_gets_an_error() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let held = Mutex::new(&one, PATH).lock().await.unwrap();
    let waiting = tokio::spawn(async move { Mutex::new(&two, PATH).lock().await });
    until_children(&one, PATH, 2).await;
    let names = children(&one, PATH).await;
    let other = names.iter().find(|name| *name != held.node_name()).unwrap();
    one.delete(&format!("{PATH}/{other}"), Version::Any).await.unwrap();
    held.release().await.unwrap();
    let gone = waiting.await.unwrap().unwrap_err();
    assert!(matches!(gone, RecipeError::NodeGone { .. }), "{gone}");
}

#[tokio::test]
async fn curator_43_foreign_children_do_not_block() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive(&format!("{PATH}/readme"), "", CreateMode::Persistent).await.unwrap();
    client.create(&format!("{PATH}/-lock-x"), "", CreateMode::Persistent).await.unwrap();
    Mutex::new(&client, PATH).lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_path_of_another_recipe_is_refused_and_left_clean() {
    let world = World::start().await;
    let client = world.client().await;
    let writer = "_c_53345f98-9423-4e0c-a7b5-9f819e3ec2e1-__WRIT__0000000001";
    client.create_recursive(&format!("{PATH}/{writer}"), "", CreateMode::Persistent).await.unwrap();
    let refused = Mutex::new(&client, PATH).lock().await.unwrap_err();
    assert!(matches!(refused, RecipeError::OtherRecipe { .. }), "{refused}");
    assert_eq!(children(&client, PATH).await, [writer]);
    // The node is deleted before the error is returned, so another session does not see it either.
    let looking = world.client().await;
    for _ in 0..20 {
        let refused = Mutex::new(&client, PATH).try_lock().await.unwrap_err();
        assert!(matches!(refused, RecipeError::OtherRecipe { .. }), "{refused}");
        assert_eq!(children(&looking, PATH).await, [writer]);
        Mutex::new(&client, PATH).lock().await.unwrap_err();
        assert_eq!(children(&looking, PATH).await, [writer]);
    }
    // Ephemeral nodes have no children.
    client.create("/ephemeral", "", CreateMode::Ephemeral).await.unwrap();
    let refused = Mutex::new(&client, "/ephemeral").lock().await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::NoChildrenForEphemerals));
    let refused = Mutex::new(&client, "no/path").lock().await.unwrap_err();
    assert!(matches!(refused.kind(), Some(ErrorKind::InvalidPath(_))), "{refused}");
}

#[tokio::test]
async fn a_broken_connection_leaves_a_guard_in_doubt_not_lost() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let mutex = Mutex::new(&client, PATH);
    let guard = mutex.lock().await.unwrap();
    let mut states = client.states();
    proxy.refuse();
    proxy.cut();
    assert_eq!(states.next().await, Some(ConnectionState::Suspended));
    assert!(!guard.is_valid());
    proxy.heal().unwrap();
    assert_eq!(states.next().await, Some(ConnectionState::Reconnected));
    assert!(guard.is_valid());
    assert!(guard.check().await.unwrap());
    guard.release().await.unwrap();
    // With `losing_on_suspend`, a lost connection is a loss.
    let guard = mutex.clone().losing_on_suspend().lock().await.unwrap();
    let (lost, _) = tokio::join!(guard.lost(), async { proxy.cut() });
    assert_eq!(lost, Lost::Suspended);
}

#[tokio::test]
async fn curator_45_79_264_489_every_lost_request_and_reply_leaves_one_holder_and_no_orphan() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let guard = Mutex::new(&client, &path).lock().await.unwrap();
                assert_eq!(children(&watching, &path).await, [guard.node_name()]);
                // CURATOR-678: a release that loses its connection retries until the node is
                // deleted.
                guard.release().await.unwrap();
                assert_eq!(children(&watching, &path).await, [""; 0]);
            }
        })
        .await;
        assert!(cuts > 10, "{cuts}");
    }
}

#[tokio::test]
async fn kazoo_429_412_every_lost_request_of_try_lock_leaves_no_zombie() {
    let world = World::start().await;
    let watching = world.client().await;
    let held = Mutex::new(&watching, PATH).lock().await.unwrap();
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let (watching, held) = (watching.clone(), held.node_name().to_owned());
            async move {
                assert!(Mutex::new(&client, PATH).try_lock().await.unwrap().is_none());
                assert_eq!(children(&watching, PATH).await, [held]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn curator_62_205_208_109_a_future_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let client = world.client().await;
    let mutex = Mutex::new(&client, PATH);
    let mut polls = 0;
    let guard = loop {
        match drop_after_polls(mutex.lock(), polls).await {
            Some(guard) => break guard.unwrap(),
            None => until_children(&client, PATH, 0).await,
        }
        polls += 1;
    };
    assert!(polls > 1, "{polls}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_waiting_future_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let client = world.client().await;
    let held = Mutex::new(&client, PATH).lock().await.unwrap();
    let mutex = Mutex::new(&client, PATH);
    let mut polls = 0;
    loop {
        let mut events = mutex.events();
        let waits =
            async { while !matches!(events.next().await, Some(LockEvent::Waiting { .. })) {} };
        let waits = tokio::select! {
            dropped = drop_after_polls(mutex.lock(), polls) => { assert!(dropped.is_none()); false }
            () = waits => true,
        };
        until_children(&client, PATH, 1).await;
        if waits {
            break;
        }
        polls += 1;
    }
    assert!(polls > 1, "{polls}");
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_release_dropped_at_any_await_releases() {
    let world = World::start().await;
    let client = world.client().await;
    for polls in 0..4 {
        let guard = Mutex::new(&client, PATH).lock().await.unwrap();
        drop(drop_after_polls(guard.release(), polls).await);
        until_children(&client, PATH, 0).await;
    }
}

#[tokio::test]
async fn the_holder_can_be_asked_to_give_way() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let guard = Mutex::new(&one, PATH).lock().await.unwrap();
    assert!(Mutex::new(&two, PATH).revoke_holder().await.unwrap());
    guard.revocation().await.unwrap();
    guard.release().await.unwrap();
    assert!(!lock::revoke(&two, "/locks/m/nobody").await.unwrap());
}

#[tokio::test]
async fn participants_are_seen_in_order() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let held = Mutex::new(&one, PATH).with_data("first").lock().await.unwrap();
    let waiter = two.clone();
    let waiting =
        tokio::spawn(async move { Mutex::new(&waiter, PATH).with_data("second").lock().await });
    until_children(&one, PATH, 2).await;
    let seen = Mutex::new(&two, PATH).participants().await.unwrap();
    assert_eq!(
        seen.iter().map(|p| (p.id(), p.is_granted)).collect::<Vec<_>>(),
        [("first".to_owned(), true), ("second".to_owned(), false)]
    );
    assert_eq!((seen[0].session, seen[1].session), (one.session_id(), two.session_id()));
    assert_eq!(seen[0].path, held.path());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(Mutex::new(&two, "/nowhere").participants().await.unwrap().is_empty());
}

#[tokio::test]
async fn listeners_hear_of_everything() {
    let world = World::start().await;
    let client = world.client().await;
    let mutex = Mutex::new(&client, PATH);
    let held = mutex.lock().await.unwrap();
    let other = Mutex::new(&client, PATH);
    let mut events = other.events();
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.lock().await }
    });
    let Some(LockEvent::Queued { path }) = events.next().await else { panic!() };
    let Some(LockEvent::Waiting { behind, .. }) = events.next().await else { panic!() };
    assert_eq!(behind, held.path());
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let token = guard.fencing_token();
    assert_eq!(events.next().await, Some(LockEvent::Granted { path: path.clone(), token }));
    guard.release().await.unwrap();
    assert_eq!(events.next().await, Some(LockEvent::Released { path }));
}

#[tokio::test]
async fn a_holder_that_dies_keeps_the_lock_closed_for_the_delay() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let delay = Duration::from_millis(200);
    let lock = |client: &Client| Mutex::new(client, PATH).with_lock_delay(delay);
    let ask = async |client: &Client| {
        let started = std::time::Instant::now();
        let guard: Guard = lock(client).lock().await.unwrap();
        (guard, started.elapsed())
    };
    // After a release, the next contender gets the lock without delay.
    lock(&one).lock().await.unwrap().release().await.unwrap();
    assert_eq!(children(&two, PATH).await, [""; 0]);
    // After the holder's session ended, the next contender waits for the delay.
    let (_dead, _) = ask(&one).await;
    world.end_session(&one).await;
    let (guard, waited) = ask(&two).await;
    assert!(waited >= delay, "{waited:?}");
    guard.release().await.unwrap();
    assert_eq!(children(&two, PATH).await, [""; 0]);
}

#[tokio::test]
async fn the_path_may_be_the_root_of_the_client() {
    let world = World::start().await;
    let client = world.client().await;
    let guard = Mutex::new(&client, "/").lock().await.unwrap();
    let tokens: BTreeSet<_> = [guard.fencing_token()].into();
    assert_eq!(tokens.len(), 1);
    guard.release().await.unwrap();
}
