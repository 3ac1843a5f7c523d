//! Tasks, with and without the failure of masters and workers.

use std::time::Duration;

use ironkeeper_client::{CreateMode, Version};
use ironkeeper_recipes::master_worker::{Master, Outcome, Status, Worker};
use ironkeeper_recipes::{Lost, RecipeError};

use super::{PATH, master, next, outcome, tasks, text, until_status, worker};
use crate::world::watch_events::counted;
use crate::world::{World, children, until_children};

#[tokio::test]
async fn tasks_are_done_in_order_and_their_results_are_told() {
    let world = World::start().await;
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    // A task can be submitted before there is a master or a worker.
    let tasks = tasks(&one).await;
    let (first, second) = (tasks.submit("1").await.unwrap(), tasks.submit("2").await.unwrap());
    assert_eq!(first.status().await.unwrap(), Some(Status::Waiting));
    assert_eq!(first.work().await.unwrap().unwrap(), "1");
    let names: Vec<String> =
        tasks.unfinished().await.unwrap().iter().map(|task| task.name().to_owned()).collect();
    assert_eq!(names, [first.name(), second.name()]);

    let worker = worker(&two, 1).await;
    let _master = master(&three, "m").await;
    let (work, attempt, assignment) = next(&worker).await;
    assert_eq!((&*work, attempt, assignment.task()), ("1", 1, first.name()));
    assignment.report("half").await.unwrap();
    match first.status().await.unwrap() {
        Some(Status::Assigned { attempt: 1, worker: by, progress }) => {
            assert_eq!((by, text(progress)), (worker.name().to_owned(), "half".to_owned()));
        }
        other => panic!("{other:?}"),
    }
    // One task at a time: the second task waits until the first is done.
    assert_eq!(second.status().await.unwrap(), Some(Status::Waiting));
    assignment.done("one").await.unwrap();
    let (work, _, assignment) = next(&worker).await;
    assert_eq!(work, "2");
    assignment.done("two").await.unwrap();
    assert_eq!(outcome(&first).await, "one after 1");
    assert_eq!(outcome(&second).await, "two after 1");
    assert_eq!(tasks.unfinished().await.unwrap().len(), 0);
    assert_eq!(first.work().await.unwrap(), None);
    first.clone().forget().await.unwrap();
    second.forget().await.unwrap();
    assert_eq!(first.status().await.unwrap(), None);
    assert_eq!(children(&one, "/jobs/status").await, [""; 0]);
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn the_tasks_of_a_worker_that_dies_are_done_by_others_and_it_can_write_nothing_more() {
    let world = World::start().await;
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    let _master = master(&one, "m").await;
    let task = tasks(&one).await.submit("work").await.unwrap();
    let first = worker(&two, 1).await;
    let (_, _, stale) = next(&first).await;
    let second = worker(&three, 1).await;
    world.end_session(&two).await;
    assert_eq!(stale.lost().await, Lost::SessionEnded);
    let (work, attempt, assignment) = next(&second).await;
    assert_eq!((&*work, attempt), ("work", 2));
    // The expired worker still has its assignment, and its writes are rejected.
    let late = three.clone();
    let by_hand = stale.transaction().create("/stale", "", CreateMode::Persistent).commit().await;
    assert!(by_hand.is_err());
    assert!(matches!(stale.done("wrong").await, Err(RecipeError::Lost { .. })));
    assert!(matches!(first.next().await, Err(error) if error.is_session_over()));
    assignment
        .done_with("right", |all| all.create("/written", "", CreateMode::Persistent))
        .await
        .unwrap();
    assert_eq!(outcome(&task).await, "right after 2");
    assert!(late.exists("/stale").await.unwrap().is_none());
    assert!(late.exists("/written").await.unwrap().is_some());
}

#[tokio::test]
async fn a_worker_whose_node_was_deleted_is_fenced_although_its_session_lives() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let _master = master(&one, "m").await;
    let task = tasks(&one).await.submit("work").await.unwrap();
    let first = worker(&two, 1).await;
    let (_, _, stale) = next(&first).await;
    one.delete(first.guard().path(), Version::Any).await.unwrap();
    assert_eq!(first.lost().await, Lost::NodeDeleted);
    let second = worker(&one, 1).await;
    let (_, attempt, assignment) = next(&second).await;
    assert_eq!(attempt, 2);
    for refused in [stale.report("late").await, stale.done("late").await] {
        assert!(matches!(refused, Err(RecipeError::Lost { .. })), "{refused:?}");
    }
    assert!(matches!(first.next().await, Err(RecipeError::Lost { .. })));
    assignment.done("in time").await.unwrap();
    assert_eq!(outcome(&task).await, "in time after 2");
}

#[tokio::test]
async fn a_backup_takes_over_when_the_active_master_dies() {
    let world = World::start().await;
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    let active = master(&one, "one").await;
    let old = active.active().await.unwrap();
    let backup = master(&two, "two").await;
    let worker = worker(&three, 3).await;
    let tasks = tasks(&three).await;
    let first = tasks.submit("1").await.unwrap();
    let (_, _, held) = next(&worker).await;
    world.end_session(&one).await;
    let new = backup.active().await.unwrap();
    assert!(new.fencing_token() > old.fencing_token());
    let second = tasks.submit("2").await.unwrap();
    let (work, attempt, assignment) = next(&worker).await;
    assert_eq!((&*work, attempt), ("2", 1));
    assignment.done("two").await.unwrap();
    // Assignments of the old master stay valid.
    held.done("one").await.unwrap();
    assert_eq!(
        (outcome(&first).await, outcome(&second).await),
        ("one after 1".into(), "two after 1".into())
    );
    assert!(active.active().await.unwrap_err().is_session_over());
    backup.close().await.unwrap();
    assert_eq!(children(&three, "/jobs/master").await, [""; 0]);
}

#[tokio::test]
async fn a_task_given_back_or_dropped_is_handed_out_again_until_its_attempts_are_used_up() {
    let world = World::start().await;
    let client = world.client().await;
    let _master = Master::with_attempts(&client, PATH, "m", 3).await.unwrap();
    let worker = worker(&client, 1).await;
    let task = tasks(&client).await.submit("work").await.unwrap();
    let (_, attempt, assignment) = next(&worker).await;
    assert_eq!(attempt, 1);
    drop(assignment);
    let (_, attempt, assignment) = next(&worker).await;
    assert_eq!(attempt, 2);
    assignment.give_back("no disk").await.unwrap();
    let (_, attempt, assignment) = next(&worker).await;
    assert_eq!(attempt, 3);
    assignment.give_back("no disk either").await.unwrap();
    assert_eq!(outcome(&task).await, "failed after 3: no disk either");
    assert_eq!(children(&client, "/jobs/tasks").await, [""; 0]);
}

#[tokio::test]
async fn a_task_can_be_cancelled_as_long_as_it_is_not_finished() {
    let world = World::start().await;
    let client = world.client().await;
    let tasks = tasks(&client).await;
    let waiting = tasks.submit("1").await.unwrap();
    assert_eq!(waiting.cancel().await.unwrap(), Outcome::Cancelled);
    let _master = master(&client, "m").await;
    let worker = worker(&client, 1).await;
    let assigned = tasks.submit("2").await.unwrap();
    let (work, _, assignment) = next(&worker).await;
    assert_eq!(work, "2");
    assert_eq!(assigned.cancel().await.unwrap(), Outcome::Cancelled);
    assert_eq!(assignment.lost().await, Lost::NodeDeleted);
    assert!(matches!(assignment.done("late").await, Err(RecipeError::Lost { .. })));
    let done = tasks.submit("3").await.unwrap();
    next(&worker).await.2.done("three").await.unwrap();
    assert!(matches!(done.cancel().await.unwrap(), Outcome::Done { .. }));
    for task in [waiting, assigned] {
        assert_eq!(task.outcome().await.unwrap(), Outcome::Cancelled);
        task.clone().forget().await.unwrap();
        assert_eq!(task.outcome().await.unwrap(), Outcome::Cancelled);
    }
    assert_eq!(children(&client, "/jobs/status").await.len(), 1);
}

#[tokio::test]
async fn many_tasks_are_spread_over_workers_and_each_is_finished_once() {
    let world = World::start().await;
    let client = world.client().await;
    let _master = master(&client, "m").await;
    let tasks = tasks(&client).await;
    let mut submitted = Vec::new();
    for number in 0..30 {
        submitted.push(tasks.submit(number.to_string()).await.unwrap());
    }
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = world.client().await;
        workers.spawn(async move {
            let worker = worker(&client, 2).await;
            loop {
                let assignment = worker.next().await.unwrap();
                let path = format!("/done-{}", text(assignment.work()));
                // A second create of the same node would fail.
                let write = |all: ironkeeper_client::Transaction| {
                    all.create(&path, "", CreateMode::Persistent)
                };
                assignment.done_with("", write).await.unwrap();
            }
        });
    }
    for task in &submitted {
        assert_eq!(outcome(task).await, " after 1");
    }
    assert_eq!(
        children(&client, "/").await.iter().filter(|name| name.starts_with("done-")).count(),
        30
    );
    workers.shutdown().await;
}

#[tokio::test]
async fn a_task_costs_as_many_watch_events_as_the_documentation_says() {
    let world = World::start().await;
    let (managing, at_master) = counted(&world).await;
    let (standing_by, at_backup) = counted(&world).await;
    let (working, at_worker) = counted(&world).await;
    let (idle, at_idle) = counted(&world).await;
    let (asking, at_submitter) = counted(&world).await;
    let active = master(&managing, "active").await;
    active.active().await.unwrap();
    let _backup = master(&standing_by, "backup").await;
    let tasks = tasks(&asking).await;
    // A worker without free capacity, so that the next tasks go to the other worker.
    let full = worker(&idle, 1).await;
    tasks.submit("held").await.unwrap();
    let (_, _, _held) = next(&full).await;
    let busy = worker(&working, 2).await;
    // The first task creates all parent nodes; its additional events are not counted. It stays
    // unfinished: the server could delete an empty container, and its creation would be another
    // event.
    tasks.submit("first").await.unwrap();
    let (_, _, _first) = next(&busy).await;
    let members = [&managing, &standing_by, &working, &idle, &asking];
    for client in members {
        client.sync("/").await.unwrap();
    }
    let counts =
        || [&at_master, &at_backup, &at_worker, &at_idle, &at_submitter].map(|c| c.count());
    let before = counts();
    let task = tasks.submit("second").await.unwrap();
    let (_, _, assignment) = next(&busy).await;
    until_status(&task, |status| matches!(status, Status::Assigned { .. })).await;
    let (awaited, done) = tokio::join!(task.outcome(), async {
        // The watch of `outcome` is set.
        while asking.watch_count() == 0 {
            asking.sync("/").await.unwrap();
        }
        assignment.done("").await
    });
    awaited.unwrap();
    done.unwrap();
    for client in members {
        client.sync("/").await.unwrap();
    }
    let spent: Vec<usize> = counts().iter().zip(before).map(|(now, then)| now - then).collect();
    assert_eq!(spent, [4, 0, 2, 0, 1]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let refused = Worker::join(&client, PATH, "w", 0).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    let refused = Master::with_attempts(&client, PATH, "m", 0).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    // A malformed status is an error with its path, and does not block other tasks.
    let tasks = tasks(&client).await;
    let task = tasks.submit("work").await.unwrap();
    let status = format!("/jobs/status/{}", task.name());
    client.create(&status, "?", CreateMode::Persistent).await.unwrap();
    let error = task.status().await.unwrap_err();
    assert!(error.to_string().starts_with(&status), "{error}");
    let _master = master(&client, "m").await;
    let worker = worker(&client, 1).await;
    let other = tasks.submit("other").await.unwrap();
    next(&worker).await.2.done("done").await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), outcome(&other)).await.unwrap();
    assert_eq!(told, "done after 1");
}

#[tokio::test]
async fn what_is_known_about_a_task_whose_submission_is_taken_back_goes_with_it() {
    let world = World::start().await;
    let client = world.client().await;
    let _master = master(&client, "m").await;
    let (worker, tasks) = (worker(&client, 1).await, tasks(&client).await);
    let task = tasks.submit("work").await.unwrap();
    let (_, _, assignment) = next(&worker).await;
    // As the client does when the future of `submit` is dropped.
    client.delete(&format!("{PATH}/tasks/{}", task.name()), Version::Any).await.unwrap();
    until_children(&client, &format!("{PATH}/status"), 0).await;
    assert_eq!(assignment.lost().await, Lost::NodeDeleted);
    assert!(matches!(assignment.done("late").await.unwrap_err(), RecipeError::Lost { .. }));
    // The worker has capacity for the next task.
    let task = tasks.submit("more").await.unwrap();
    let (work, _, assignment) = next(&worker).await;
    assert_eq!(work, "more");
    assignment.done("done").await.unwrap();
    assert_eq!(outcome(&task).await, "done after 1");
}

#[tokio::test]
async fn an_assignment_that_somebody_deleted_by_hand_stops_nobody() {
    let world = World::start().await;
    let (client, mortal) = (world.client().await, world.client().await);
    let _master = master(&client, "m").await;
    let tasks = tasks(&client).await;
    let first = worker(&mortal, 2).await;
    let (handed_on, cancelled) =
        (tasks.submit("work").await.unwrap(), tasks.submit("vain").await.unwrap());
    for _ in 0..2 {
        let (_, _, assignment) = next(&first).await;
        let path = format!("{PATH}/assign/{}/{}", first.name(), assignment.task());
        client.delete(&path, Version::Any).await.unwrap();
        assert_eq!(assignment.lost().await, Lost::NodeDeleted);
    }
    assert_eq!(cancelled.cancel().await.unwrap(), Outcome::Cancelled);
    first.leave().await.unwrap();
    let second = worker(&client, 1).await;
    let (_, attempt, assignment) = next(&second).await;
    assert_eq!(attempt, 2);
    assignment.done("done").await.unwrap();
    assert_eq!(outcome(&handed_on).await, "done after 2");
}
