//! `LeaderSelector`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ironkeeper_client::Version;
use ironkeeper_recipes::Lost;
use ironkeeper_recipes::election::{LeaderSelector, Led};

use crate::world::{World, drop_after_polls, until_children};

const PATH: &str = "/election/selector";

#[tokio::test]
async fn leaders_take_turns_and_never_overlap() {
    let world = World::start().await;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for at in 0..4 {
        let (client, inside) = (world.client().await, inside.clone());
        tasks.push(tokio::spawn(async move {
            let selector = LeaderSelector::new(&client, PATH, at.to_string());
            let stop = selector.interrupter();
            let mut turns = 0;
            let work = async |_| {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                client.exists("/").await.unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
            };
            selector
                .lead_repeatedly(work, |led| {
                    assert_eq!(led, Led::Done(()));
                    turns += 1;
                    if turns == 5 {
                        stop.stop();
                    }
                })
                .await
                .unwrap();
            turns
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), 5);
    }
    let client = world.client().await;
    until_children(&client, PATH, 0).await;
}

#[tokio::test]
async fn curator_15_16_73_104_171_188_202_518_671_a_candidate_goes_on_whatever_happens() {
    let world = World::start().await;
    let client = world.client().await;
    let selector = LeaderSelector::new(&client, PATH, "one");
    let interrupter = selector.interrupter();
    let mut seen = Vec::new();
    let mut turn = 0;
    let ended = selector
        .lead_repeatedly(
            |leadership| {
                turn += 1;
                let (turn, client, interrupter) = (turn, client.clone(), interrupter.clone());
                async move {
                    match turn {
                        // The work fails.
                        1 => return Err("failed"),
                        // The work is interrupted twice.
                        2 => {
                            interrupter.interrupt();
                            interrupter.interrupt();
                        }
                        // The leader's node is deleted.
                        3 => client.delete(leadership.path(), Version::Any).await.unwrap(),
                        // The work is done.
                        _ => return Ok(()),
                    }
                    std::future::pending().await
                }
            },
            |led| {
                let is_last = led == Led::Done(Ok(()));
                seen.push(led);
                if is_last {
                    interrupter.stop();
                }
            },
        )
        .await;
    assert!(ended.is_ok());
    assert_eq!(
        seen,
        [
            Led::Done(Err("failed")),
            Led::Interrupted,
            Led::Lost(Lost::NodeDeleted),
            Led::Done(Ok(()))
        ]
    );
}

#[tokio::test]
async fn the_end_of_the_session_ends_work_and_candidacy() {
    let world = World::start().await;
    let client = world.client().await;
    let selector = LeaderSelector::new(&client, PATH, "one");
    let mut ends = Vec::new();
    let (leads, led) = tokio::sync::oneshot::channel();
    let mut leads = Some(leads);
    let leading = selector.lead_repeatedly(
        |_| {
            let _ = leads.take().unwrap().send(());
            std::future::pending::<()>()
        },
        |led| ends.push(led),
    );
    let (ended, ()) = tokio::join!(leading, async {
        led.await.unwrap();
        world.end_session(&client).await;
    });
    assert!(ended.unwrap_err().is_session_over());
    assert_eq!(ends, [Led::Lost(Lost::SessionEnded)]);
}

#[tokio::test]
async fn a_broken_connection_ends_the_work_if_that_was_asked_for() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let selector = LeaderSelector::new(&client, PATH, "one").losing_on_suspend();
    let led = selector
        .lead(|_| async {
            proxy.cut();
            std::future::pending::<()>().await;
        })
        .await
        .unwrap();
    assert_eq!(led, Led::Lost(Lost::Suspended));
}

#[tokio::test]
async fn a_candidate_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let client = world.client().await;
    let selector = LeaderSelector::new(&client, PATH, "one");
    let mut polls = 0;
    while drop_after_polls(selector.lead(async |_| {}), polls).await.is_none() {
        until_children(&client, PATH, 0).await;
        polls += 1;
    }
    assert!(polls > 1, "{polls}");
}

#[tokio::test]
async fn candidates_are_seen() {
    let world = World::start().await;
    let client = world.client().await;
    let selector = LeaderSelector::new(&client, PATH, "one");
    assert!(selector.leader().await.unwrap().is_none());
    let led = selector.lead(async |_| selector.leader().await.unwrap().unwrap().id()).await;
    assert_eq!(led.unwrap(), Led::Done("one".to_owned()));
}
