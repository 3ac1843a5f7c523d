//! Progress reports.

use ironkeeper_client::{CreateMode, Version};
use ironkeeper_recipes::group::{NoReport, ProgressBoard, ProgressReporter, Report, ReportState};
use ironkeeper_testing::Direction;

use crate::world::watch_events::counted;
use crate::world::{World, with_every_cut};

const PATH: &str = "/progress/p";

#[tokio::test]
async fn reports_are_seen_in_order_and_the_last_one_always() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let board = ProgressBoard::open(&two, PATH).await.unwrap();
    let mut changes = board.changes();
    let anna = ProgressReporter::start(&one, PATH, "anna", Some(100)).await.unwrap();
    assert_eq!(anna.id(), "anna");
    for done in 1..=50 {
        anna.report(done, format!("step {done}"));
    }
    anna.flush().await.unwrap();
    let mut before = 0;
    while before < 50 {
        let (id, part) = changes.next().await.unwrap();
        assert!(id == "anna" && part.is_alive && part.report.done >= before);
        before = part.report.done;
    }
    assert_eq!(board.parts()["anna"].report.note, "step 50");
    assert_eq!(board.overall(), (50, 100));
    anna.finish("done").await.unwrap();
    let parts = board.ended(1).await.unwrap();
    assert_eq!(parts["anna"].report.state, ReportState::Done);
    assert_eq!(board.overall(), (100, 100));
}

#[tokio::test]
async fn who_dies_leaves_its_last_report_and_counts_as_dead() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let board = ProgressBoard::open(&two, PATH).await.unwrap();
    let anna = ProgressReporter::start(&one, PATH, "anna", None).await.unwrap();
    let berta = ProgressReporter::start(&two, PATH, "berta", None).await.unwrap();
    anna.report(7, "seven");
    anna.flush().await.unwrap();
    world.end_session(&one).await;
    berta.fail("no space left").await.unwrap();
    let parts = board.ended(2).await.unwrap();
    assert!(parts["anna"].has_died() && !parts["berta"].has_died());
    assert_eq!((parts["anna"].report.done, &*parts["anna"].report.note), (7, "seven"));
    assert_eq!(parts["berta"].report.state, ReportState::Failed);
    assert!(anna.finish("").await.unwrap_err().is_session_over());
    // A new reporter with the same name continues.
    let again = ProgressReporter::start(&two, PATH, "anna", None).await.unwrap();
    again.finish("at last").await.unwrap();
    while board.parts()["anna"].report.note != "at last" {
        two.sync("/").await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_report_is_left_out() {
    let world = World::start().await;
    let client = world.client().await;
    let anna = ProgressReporter::start(&client, PATH, "anna", Some(1)).await.unwrap();
    let stranger = format!("{PATH}/known/stranger");
    client.create(&stranger, "hello", CreateMode::Persistent).await.unwrap();
    let board = ProgressBoard::open(&client, PATH).await.unwrap();
    assert_eq!(board.parts().len(), 1);
    client.set(&stranger, "done 1 1 ", Version::Any).await.unwrap();
    anna.finish("").await.unwrap();
    assert_eq!(board.ended(2).await.unwrap().len(), 2);
    for text in ["", "done", "done x -", "gone 1 1 ", "done 1 -1 ", "done 1"] {
        assert_eq!(text.parse::<Report>(), Err(NoReport), "{text}");
    }
}

#[tokio::test]
async fn the_end_of_the_session_ends_the_changes() {
    let world = World::start().await;
    let client = world.client().await;
    let board = ProgressBoard::open(&client, PATH).await.unwrap();
    let mut changes = board.changes();
    world.end_session(&client).await;
    assert!(changes.next().await.is_none());
    assert!(board.ended(1).await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_the_last_report() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let anna = ProgressReporter::start(&client, PATH, "anna", None).await.unwrap();
                anna.report(1, "on the way");
                anna.finish(round.to_string()).await.unwrap();
                let report = watching.get(&format!("{PATH}/known/anna")).await.unwrap().data;
                assert_eq!(report, format!("done 1 - {round}"));
                let alive = format!("{PATH}/alive/anna");
                assert!(watching.exists(&alive).await.unwrap().is_none());
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_report_costs_a_board_one_watch_event() {
    let world = World::start().await;
    let client = world.client().await;
    let anna = ProgressReporter::start(&client, PATH, "anna", None).await.unwrap();
    let (watching, events) = counted(&world).await;
    let board = ProgressBoard::open(&watching, PATH).await.unwrap();
    let mut changes = board.changes();
    changes.next().await.unwrap();
    for number in 1..=5 {
        anna.report(number, "");
        anna.flush().await.unwrap();
        while changes.next().await.unwrap().1.report.done < number {}
        assert_eq!(events.count() as u64, number);
    }
}
