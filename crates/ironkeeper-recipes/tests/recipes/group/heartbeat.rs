//! Heartbeats and their monitors.

use std::time::Duration;

use ironkeeper_client::Version;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::group::{Health, Heartbeat, HeartbeatMonitor, Pulse};
use ironkeeper_testing::Direction;

use crate::world::watch_events::counted;
use crate::world::{World, children, with_every_cut};

const PATH: &str = "/heartbeats/h";
const FOR_EVER: Duration = Duration::MAX;

async fn told(monitor: &mut HeartbeatMonitor) -> String {
    match monitor.next().await.expect("the session lives") {
        Pulse::Alive { id, .. } => format!("{id} lives"),
        Pulse::Beat { id, number } => format!("{id} beats {number}"),
        Pulse::Silent { id } => format!("{id} is silent"),
        Pulse::Dead { id, about } => format!("{id} at {} is dead", String::from_utf8_lossy(&about)),
        Pulse::Left { id } => format!("{id} has left"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_dead_are_told_from_those_who_have_left() {
    let world = World::start().await;
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    let mut monitor = HeartbeatMonitor::open(&three, PATH, FOR_EVER).await.unwrap();
    let anna = Heartbeat::start(&one, PATH, "anna", "here").await.unwrap();
    assert_eq!(anna.id(), "anna");
    assert_eq!(told(&mut monitor).await, "anna lives");
    let berta = Heartbeat::start(&two, PATH, "berta/1", "there").await.unwrap();
    assert_eq!(told(&mut monitor).await, "berta/1 lives");
    anna.beat().await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna beats 1");
    anna.stop().await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna has left");
    world.end_session(&two).await;
    assert_eq!(told(&mut monitor).await, "berta/1 at there is dead");
    assert_eq!(monitor.health()["berta/1"], Health::Dead);
    assert!(berta.beat().await.unwrap_err().is_session_over());
    // A monitor opened later also reports the dead member, and its return.
    let mut late = HeartbeatMonitor::open(&one, PATH, FOR_EVER).await.unwrap();
    assert_eq!(told(&mut late).await, "berta/1 at there is dead");
    let back = Heartbeat::start(&one, PATH, "berta/1", "elsewhere").await.unwrap();
    assert_eq!(told(&mut late).await, "berta/1 lives");
    assert_eq!(late.health().len(), 1);
    drop(back);
    assert_eq!(told(&mut late).await, "berta/1 at elsewhere is dead");
}

#[tokio::test]
async fn who_lives_without_a_beat_is_silent_until_the_next_one() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let patience = Duration::from_millis(20);
    let mut monitor = HeartbeatMonitor::open(&two, PATH, patience).await.unwrap();
    let anna = Heartbeat::start(&one, PATH, "anna", "").await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna lives");
    assert_eq!(told(&mut monitor).await, "anna is silent");
    assert_eq!(monitor.health()["anna"], Health::Silent);
    anna.beat().await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna beats 1");
    assert_eq!(told(&mut monitor).await, "anna is silent");
    anna.stop().await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna has left");
    assert!(monitor.health().is_empty());
}

#[tokio::test]
async fn a_monitor_without_connection_accuses_nobody() {
    let world = World::start().await;
    let one = world.client().await;
    let (proxy, two) = world.proxied().await;
    let anna = Heartbeat::start(&one, PATH, "anna", "").await.unwrap();
    let mut monitor = HeartbeatMonitor::open(&two, PATH, Duration::from_millis(1)).await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna lives");
    let mut states = two.states();
    proxy.refuse();
    proxy.cut();
    while two.state().is_connected() {
        states.next().await.unwrap();
    }
    // Far longer than the monitor's limit; it reports nothing.
    let waited = tokio::time::timeout(Duration::from_millis(100), monitor.next()).await;
    assert!(waited.is_err(), "{waited:?}");
    anna.beat().await.unwrap();
    proxy.heal().unwrap();
    // "silent" may precede the beat, because both are measured from the reconnect on.
    let mut first = told(&mut monitor).await;
    if first == "anna is silent" {
        first = told(&mut monitor).await;
    }
    assert_eq!(first, "anna beats 1");
}

#[tokio::test]
async fn a_node_deleted_by_mistake_is_a_death_and_a_return() {
    let world = World::start().await;
    let client = world.client().await;
    let mut monitor = HeartbeatMonitor::open(&client, PATH, FOR_EVER).await.unwrap();
    let _anna = Heartbeat::start(&client, PATH, "anna", "here").await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna lives");
    let alive = format!("{PATH}/alive/anna");
    let first = client.exists(&alive).await.unwrap().unwrap().czxid;
    client.delete(&alive, Version::Any).await.unwrap();
    // Both changes precede the next read of the monitor, which reports both.
    while client.exists(&alive).await.unwrap().is_none_or(|stat| stat.czxid == first) {}
    assert_eq!(told(&mut monitor).await, "anna at here is dead");
    assert_eq!(told(&mut monitor).await, "anna lives");
}

#[tokio::test]
async fn the_end_of_the_monitors_session_ends_it() {
    let world = World::start().await;
    let client = world.client().await;
    let mut monitor = HeartbeatMonitor::open(&client, PATH, FOR_EVER).await.unwrap();
    world.end_session(&client).await;
    let Some(Pulse::Ended(why)) = monitor.next().await else { panic!("it goes on") };
    assert!(why.is_session_over(), "{why}");
    assert!(monitor.next().await.is_none());
    let refused = Heartbeat::start(&client, PATH, "", "").await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_one_life_and_then_none() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let watching = watching.clone();
            async move {
                let anna = Heartbeat::start(&client, PATH, "anna", "").await.unwrap();
                anna.beat().await.unwrap();
                let alive = watching.get(&format!("{PATH}/alive/anna")).await.unwrap();
                assert_eq!(alive.data, "1");
                anna.stop().await.unwrap();
                for part in ["alive", "known"] {
                    assert_eq!(children(&watching, &format!("{PATH}/{part}")).await, [""; 0]);
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_beat_costs_a_monitor_one_watch_event() {
    let world = World::start().await;
    let client = world.client().await;
    let anna = Heartbeat::start(&client, PATH, "anna", "").await.unwrap();
    let (watching, events) = counted(&world).await;
    let mut monitor = HeartbeatMonitor::open(&watching, PATH, FOR_EVER).await.unwrap();
    assert_eq!(told(&mut monitor).await, "anna lives");
    for number in 1..=5 {
        anna.beat().await.unwrap();
        assert_eq!(told(&mut monitor).await, format!("anna beats {number}"));
        assert_eq!(events.count(), number);
    }
}
