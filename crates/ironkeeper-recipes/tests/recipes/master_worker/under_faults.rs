//! Connections lost before and after every request, and dropped futures.

use std::time::Duration;

use ironkeeper_recipes::master_worker::{Status, Tasks, Worker};
use ironkeeper_testing::Direction;

use super::{PATH, master, next, outcome, tasks, until_status, worker};
use crate::world::{World, children, drop_after_polls, until_children, while_away, with_every_cut};

#[tokio::test]
async fn a_worker_finishes_each_task_once_whatever_is_lost() {
    let world = World::start().await;
    let steady = world.client().await;
    let _master = master(&steady, "m").await;
    let tasks = tasks(&steady).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let (tasks, steady) = (&tasks, &steady);
            async move {
                let task = tasks.submit("work").await.unwrap();
                let worker = worker(&client, 1).await;
                let (_, attempt, assignment) = next(&worker).await;
                assert_eq!(attempt, 1);
                assignment.report("half").await.unwrap();
                assignment.done("done").await.unwrap();
                assert_eq!(outcome(&task).await, "done after 1");
                task.forget().await.unwrap();
                worker.leave().await.unwrap();
                assert_eq!(children(steady, "/jobs/workers").await, [""; 0]);
            }
        })
        .await;
    }
    assert_eq!(children(&steady, "/jobs/tasks").await, [""; 0]);
    assert_eq!(children(&steady, "/jobs/status").await, [""; 0]);
}

#[tokio::test]
async fn a_master_assigns_each_task_once_whatever_is_lost() {
    let world = World::start().await;
    let steady = world.client().await;
    let tasks = tasks(&steady).await;
    let worker = worker(&steady, 1).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let (tasks, worker, steady) = (&tasks, &worker, &steady);
            async move {
                let task = tasks.submit("work").await.unwrap();
                let master = master(&client, "m").await;
                let (_, attempt, assignment) = next(worker).await;
                assert_eq!(attempt, 1);
                assignment.done("done").await.unwrap();
                assert_eq!(outcome(&task).await, "done after 1");
                task.forget().await.unwrap();
                master.close().await.unwrap();
                assert_eq!(children(steady, "/jobs/master").await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_submitter_submits_and_cancels_once_whatever_is_lost() {
    let world = World::start().await;
    let steady = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let steady = &steady;
            async move {
                let task = tasks(&client).await.submit("work").await.unwrap();
                assert_eq!(children(steady, "/jobs/tasks").await, [task.name()]);
                task.cancel().await.unwrap();
                task.forget().await.unwrap();
                for path in ["/jobs/tasks", "/jobs/status"] {
                    assert_eq!(children(steady, path).await, [""; 0]);
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn joining_and_submitting_dropped_at_any_await_leave_nothing() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    for polls in 0.. {
        let joining = Worker::join(&client, PATH, "w", 1);
        let is_done = drop_after_polls(joining, polls).await.is_some();
        until_children(&watching, "/jobs/workers", 0).await;
        if is_done {
            break;
        }
    }
    let tasks = Tasks::open(&client, PATH).await.unwrap();
    for polls in 0.. {
        if drop_after_polls(tasks.submit("work"), polls).await.is_some() {
            break;
        }
        until_children(&watching, "/jobs/tasks", 0).await;
    }
    until_children(&watching, "/jobs/tasks", 1).await;
}

#[tokio::test]
async fn a_wait_for_tasks_dropped_at_any_await_loses_none() {
    let world = World::start().await;
    let client = world.client().await;
    let _master = master(&client, "m").await;
    let (worker, tasks) = (worker(&client, 1).await, tasks(&client).await);
    for polls in 0.. {
        let task = tasks.submit("work").await.unwrap();
        until_status(&task, |status| matches!(status, Status::Assigned { .. })).await;
        let got = drop_after_polls(worker.next(), polls).await;
        let is_done = got.is_some();
        let assignment = match got {
            Some(got) => got.unwrap(),
            None => {
                let again = tokio::time::timeout(Duration::from_secs(60), worker.next()).await;
                again.expect("the task is there for the next call").unwrap()
            }
        };
        assert_eq!((assignment.task(), assignment.attempt()), (task.name(), 1));
        assignment.done("done").await.unwrap();
        assert_eq!(outcome(&task).await, "done after 1");
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn a_task_given_back_with_a_lost_reply_is_not_taken_from_whoever_has_it_then() {
    let world = World::start().await;
    let steady = world.client().await;
    let _master = master(&steady, "m").await;
    let tasks = tasks(&steady).await;
    let mut was_handed_out = false;
    for bytes in (0..).step_by(7) {
        let (proxy, client) = world.proxied().await;
        let worker = worker(&client, 1).await;
        let task = tasks.submit("work").await.unwrap();
        let (_, _, assignment) = next(&worker).await;
        // The same worker is assigned the task again, at the same path.
        let is_second = |status: &Status| matches!(status, Status::Assigned { attempt: 2, .. });
        let meanwhile = async {
            let status = task.status().await.unwrap().unwrap();
            if !matches!(status, Status::Assigned { attempt: 1, .. }) {
                was_handed_out = true;
                until_status(&task, is_second).await;
            }
        };
        let giving_back = assignment.give_back("tired");
        let (given_back, was_cut) = while_away(&proxy, bytes, giving_back, meanwhile).await;
        given_back.unwrap();
        // Assigned, given back, and assigned again.
        let status = steady.exists(&format!("{PATH}/status/{}", task.name())).await.unwrap();
        assert!(status.unwrap().version <= 2, "after {bytes} bytes");
        let (_, attempt, assignment) = next(&worker).await;
        assert_eq!(attempt, 2);
        assignment.done("done").await.unwrap();
        assert_eq!(outcome(&task).await, "done after 2");
        worker.leave().await.unwrap();
        if !was_cut {
            break;
        }
    }
    assert!(was_handed_out);
}
