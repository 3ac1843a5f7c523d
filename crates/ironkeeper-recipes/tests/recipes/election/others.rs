//! `StaticElection` (one node), `ElectionSupport` (an event for every step), and observers.

use ironkeeper_client::Version;
use ironkeeper_recipes::election::{
    Election, ElectionEvent, ElectionSupport, LeaderLatch, LeaderObserver, LeaderSelector, Offer,
    StaticElection,
};
use ironkeeper_recipes::lock::revoke;
use ironkeeper_recipes::{Lost, RecipeError};

use crate::world::{World, until_children};

fn step(event: &ElectionEvent) -> &'static str {
    match event {
        ElectionEvent::OfferStart => "offer start",
        ElectionEvent::OfferComplete { .. } => "offer complete",
        ElectionEvent::DetermineStart => "determine start",
        ElectionEvent::DetermineComplete => "determine complete",
        ElectionEvent::ElectedStart => "elected start",
        ElectionEvent::ElectedComplete(_) => "elected complete",
        ElectionEvent::ReadyStart => "ready start",
        ElectionEvent::ReadyComplete { .. } => "ready complete",
        ElectionEvent::Failed(_) => "failed",
        ElectionEvent::StopStart => "stop start",
        ElectionEvent::StopComplete => "stop complete",
        _ => "unknown",
    }
}

async fn steps_until(election: &mut ElectionSupport, last: &str) -> Vec<&'static str> {
    let mut steps = Vec::new();
    while let Some(event) = election.next().await {
        steps.push(step(&event));
        if step(&event) == last {
            break;
        }
    }
    steps
}

#[tokio::test]
async fn every_step_of_an_election_is_told_in_order() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let mut first = ElectionSupport::start(&one, "/election/support", "host-1");
    assert_eq!(
        steps_until(&mut first, "elected complete").await,
        [
            "offer start",
            "offer complete",
            "determine start",
            "determine complete",
            "elected start",
            "elected complete"
        ]
    );
    let mut second = ElectionSupport::start(&two, "/election/support", "host-2");
    assert_eq!(
        steps_until(&mut second, "ready complete").await,
        [
            "offer start",
            "offer complete",
            "determine start",
            "determine complete",
            "ready start",
            "ready complete"
        ]
    );
    assert_eq!(second.leader_host().await.unwrap().as_deref(), Some("host-1"));
    first.stop();
    assert_eq!(steps_until(&mut first, "stop complete").await, ["stop start", "stop complete"]);
    assert!(first.next().await.is_none());
    assert_eq!(
        steps_until(&mut second, "elected complete").await,
        ["determine start", "determine complete", "elected start", "elected complete"]
    );
    world.end_session(&two).await;
    let Some(ElectionEvent::Failed(error)) = second.next().await else { panic!() };
    assert!(error.is_session_over());
    assert!(second.next().await.is_none());
}

#[tokio::test]
async fn one_node_elects_one() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = StaticElection::new(&one, "/election/static", "a#b");
    let Offer::Elected(guard) = first.offer().await.unwrap() else { panic!() };
    let second = StaticElection::new(&two, "/election/static", "two");
    let Offer::Leader(leader) = second.offer().await.unwrap() else { panic!() };
    assert_eq!(leader, "a#b");
    let waiting = tokio::spawn(async move { second.elected().await });
    let (lost, ()) = tokio::join!(guard.lost(), world.end_session(&one));
    assert_eq!(lost, Lost::SessionEnded);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    let watching = StaticElection::new(&two, "/election/static", "");
    assert_eq!(watching.leader().await.unwrap().as_deref(), Some("two"));
    next.release().await.unwrap();
    assert!(watching.leader().await.unwrap().is_none());
    // The container of the election is empty now, and the server may delete it at any time.
    let mode = ironkeeper_client::CreateMode::Persistent;
    two.create_recursive("/election/other", "x", mode).await.unwrap();
    let refused = StaticElection::new(&two, "/election/other", "two").offer().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Malformed { .. }), "{refused}");
}

#[tokio::test]
async fn candidates_wait_on_when_the_one_node_leader_is_asked_to_go() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let leading = StaticElection::new(&one, "/election/static", "one").elected().await.unwrap();
    let candidate = StaticElection::new(&two, "/election/static", "two");
    assert!(revoke(&two, leading.path()).await.unwrap());
    let offered = candidate.offer().await.unwrap();
    assert!(matches!(offered, Offer::Leader(id) if id == "__REVOKE__"));
    let waiting = tokio::spawn(async move { candidate.elected().await });
    leading.revocation().await.unwrap();
    leading.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().check().await.unwrap());
}

#[tokio::test]
async fn an_observer_sees_every_change_of_leader() {
    let world = World::start().await;
    let (client, observing) = (world.client().await, world.client().await);
    let path = "/election/observed";
    let mut observer = LeaderObserver::new(&observing, path, Election::Latch);
    assert!(observer.next().await.unwrap().is_none());
    let first = LeaderLatch::start(&client, path, "one");
    assert_eq!(observer.next().await.unwrap().unwrap().id(), "one");
    first.leading().await.unwrap();
    let second = LeaderLatch::start(&client, path, "two");
    until_children(&client, path, 2).await;
    first.close().await.unwrap();
    let seen = observer.next().await.unwrap().unwrap();
    assert_eq!((seen.id(), seen.session), ("two".to_owned(), client.session_id()));
    assert_eq!(seen.czxid, second.leading().await.unwrap().fencing_token());
    drop(second);
    assert!(observer.next().await.unwrap().is_none());
    assert!(observing.watch_count() <= 2);
}

#[tokio::test]
async fn observers_understand_every_kind_of_election() {
    let world = World::start().await;
    let client = world.client().await;
    let observe = |path: &str, election| LeaderObserver::new(&client, path, election);
    let Offer::Elected(_guard) =
        StaticElection::new(&client, "/e/static", "s").offer().await.unwrap()
    else {
        panic!()
    };
    let mut observer = observe("/e/static", Election::SingleNode);
    assert_eq!(observer.next().await.unwrap().unwrap().id(), "s");
    client.delete("/e/static", Version::Any).await.unwrap();
    assert!(observer.next().await.unwrap().is_none());
    let mut support = ElectionSupport::start(&client, "/e/support", "h");
    steps_until(&mut support, "elected complete").await;
    let leader = observe("/e/support", Election::Support).leader().await.unwrap().unwrap();
    assert_eq!(leader.id(), "h");
    let selector = LeaderSelector::new(&client, "/e/selector", "x");
    selector
        .lead(async |_| {
            let leader = observe("/e/selector", Election::Selector).leader().await.unwrap();
            assert_eq!(leader.unwrap().id(), "x");
        })
        .await
        .unwrap();
}
