//! Connections that break before and after every request, and futures that are dropped.

use ironkeeper_recipes::master_worker::{Tasks, Worker};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};
use crate::{PATH, master, next, outcome, tasks, worker};

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
