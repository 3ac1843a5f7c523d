//! Deadlocks among real waiters.

use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::lock::{
    DeadlockDetector, LockEvent, LockEvents, Mutex, ReadWriteLock, Victim,
};

use crate::world::{World, until_children};

#[tokio::test]
async fn a_cycle_over_two_sessions_is_found_and_ended() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let a = Mutex::new(&one, "/locks/a").lock().await.unwrap();
    let b = Mutex::new(&two, "/locks/b").lock().await.unwrap();
    let detector = DeadlockDetector::new(&one, "/locks");
    let second = {
        let lock = Mutex::new(&two, "/locks/a").heeding_deadlocks();
        tokio::spawn(async move { lock.lock().await })
    };
    until_children(&one, "/locks/a", 2).await;
    assert_eq!(detector.graph().await.unwrap().waits.len(), 1);
    assert!(detector.detect().await.unwrap().is_empty());
    let first = {
        let lock = Mutex::new(&one, "/locks/b").heeding_deadlocks();
        tokio::spawn(async move { lock.lock().await })
    };
    until_children(&one, "/locks/b", 2).await;

    let found = detector.detect().await.unwrap();
    assert_eq!(found.len(), 1);
    let text = found[0].to_string();
    assert!(text.contains("/locks/a") && text.contains("/locks/b"), "{text}");
    // The youngest waiter is the victim; its error contains the cycle.
    assert!(detector.resolve(&found[0], Victim::Youngest).await.unwrap());
    let gave_way = first.await.unwrap().unwrap_err();
    assert!(matches!(&gave_way, RecipeError::Deadlock { cycle, .. } if *cycle == text));
    a.release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
    b.release().await.unwrap();
    assert!(detector.detect().await.unwrap().is_empty());
}

#[tokio::test]
async fn readers_and_writers_can_wait_in_a_circle_too() {
    let world = World::start().await;
    let client = world.client().await;
    let lock = |path: &str, who: &'static str| {
        ReadWriteLock::new(&client, path).with_data(who).heeding_deadlocks()
    };
    let _a = lock("/locks/a", "one").read().await.unwrap();
    let _also_a = lock("/locks/a", "bystander").read().await.unwrap();
    let _b = lock("/locks/b", "two").write().await.unwrap();
    let writing = tokio::spawn({
        let lock = lock("/locks/a", "two");
        async move { lock.write().await }
    });
    until_children(&client, "/locks/a", 3).await;
    let reading = tokio::spawn({
        let lock = lock("/locks/b", "one");
        async move { lock.read().await }
    });
    until_children(&client, "/locks/b", 2).await;
    let detector = DeadlockDetector::new(&client, "/");
    let found = detector.detect().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(detector.resolve(&found[0], Victim::Oldest).await.unwrap());
    assert!(matches!(writing.await.unwrap(), Err(RecipeError::Deadlock { .. })));
    reading.abort();
}

#[tokio::test]
async fn two_tasks_of_one_session_without_names_are_no_deadlock() {
    let world = World::start().await;
    let client = world.client().await;
    let _a = Mutex::new(&client, "/locks/a").lock().await.unwrap();
    let other = client.clone();
    let waiting = tokio::spawn(async move { Mutex::new(&other, "/locks/a").lock().await });
    until_children(&client, "/locks/a", 2).await;
    let detector = DeadlockDetector::new(&client, "/locks");
    assert!(detector.detect().await.unwrap().is_empty());
    assert!(DeadlockDetector::new(&client, "/nowhere").detect().await.unwrap().is_empty());
    waiting.abort();
}

/// Waits for the next deadlock notice of a waiter and returns its cycle.
async fn told(events: &mut LockEvents) -> String {
    loop {
        match events.next().await.expect("the lock is there") {
            LockEvent::Deadlocked { cycle, .. } => return cycle,
            _ => continue,
        }
    }
}

#[tokio::test]
async fn everybody_in_a_cycle_is_told_of_it_and_keeps_its_words_and_its_place() {
    let world = World::start().await;
    let client = world.client().await;
    let lock = |path: &str, who: &'static str| {
        Mutex::new(&client, path).with_data(who).heeding_deadlocks()
    };
    // Each of three owners holds one lock (two below one path, one below another) and waits for the
    // next.
    let paths = ["/locks/a", "/locks/b", "/other/c"];
    let names = ["one", "two", "three"];
    let mut held = Vec::new();
    for (path, name) in paths.iter().zip(names) {
        held.push(lock(path, name).lock().await.unwrap());
    }
    let (mut waiting, mut events) = (Vec::new(), Vec::new());
    for (at, name) in names.into_iter().enumerate() {
        let next = lock(paths[(at + 1) % 3], name);
        events.push(next.events());
        let path = next.path().to_owned();
        waiting.push(tokio::spawn(async move { next.lock().await }));
        until_children(&client, &path, 2).await;
    }
    assert!(DeadlockDetector::new(&client, "/locks").detect().await.unwrap().is_empty());
    let detector = DeadlockDetector::new(&client, "/locks").and("/other");
    let found = detector.detect().await.unwrap();
    assert_eq!(found.len(), 1);
    let text = found[0].to_string();
    for _ in 0..2 {
        assert_eq!(detector.announce(&found[0]).await.unwrap(), 3);
        for events in &mut events {
            assert_eq!(told(events).await, text);
        }
        // The nodes are unchanged, for the detector and for `participants`.
        let again = detector.detect().await.unwrap();
        assert_eq!(again[0].to_string(), text);
        let line = lock(paths[0], "").participants().await.unwrap();
        assert_eq!(line.iter().map(|one| one.id()).collect::<Vec<_>>(), ["one", "three"]);
    }
    // When a victim is chosen, the other waiters are notified as well.
    assert!(detector.resolve(&found[0], Victim::Youngest).await.unwrap());
    let gave_way = waiting.pop().unwrap().await.unwrap().unwrap_err();
    assert!(matches!(gave_way, RecipeError::Deadlock { cycle, .. } if cycle == text));
    for events in &mut events[..2] {
        assert_eq!(told(events).await, text);
    }
    // The victim releases its lock, and the others are granted one after the other.
    held.pop().unwrap().release().await.unwrap();
    let mut second = waiting.pop().unwrap().await.unwrap().unwrap();
    held.pop().unwrap().release().await.unwrap();
    second.release().await.unwrap();
    second = waiting.pop().unwrap().await.unwrap().unwrap();
    second.release().await.unwrap();
    assert!(detector.detect().await.unwrap().is_empty());
}
