//! Assigns tasks to workers: a pure function of the state that the master has read.

use std::collections::{BTreeMap, BTreeSet};

use crate::master_worker::layout::TASK;
use crate::master_worker::status::{Record, State};
use crate::queue_of_waiters::line_up;

/// The state that the master has read.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The names of the unfinished tasks.
    pub(super) tasks: Vec<String>,
    /// The capacity of each worker.
    pub(super) workers: BTreeMap<String, usize>,
    /// The statuses of tasks, with their versions.
    pub(super) statuses: BTreeMap<String, (Record, i32)>,
}

/// A step of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Assign a task to a worker.
    Assign { task: String, worker: String, attempt: u32, before: Option<Before> },
    /// End a task as failed.
    GiveUp { task: String, before: Before, attempts: u32 },
    /// Delete the status of a task that does not exist: its submission was withdrawn.
    Forget { task: String, before: Before },
}

/// The previous attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Before {
    /// The version of the status.
    pub(super) version: i32,
    /// The worker whose assignment still exists.
    pub(super) worker: Option<String>,
    /// The payload of the status.
    pub(super) said: bytes::Bytes,
}

impl Before {
    fn of(record: &Record, version: i32) -> Before {
        Before {
            version,
            worker: (record.state == State::Assigned).then(|| record.worker.clone()),
            said: record.said.clone(),
        }
    }
}

/// Returns the steps to execute, in order. The server rejects those that are out of date.
pub(super) fn plan(view: &View, attempts_max: Option<u32>) -> Vec<Step> {
    let mut load: BTreeMap<&str, usize> =
        view.workers.keys().map(|worker| (&**worker, 0)).collect();
    let mut open = Vec::new();
    for contender in line_up(&view.tasks, TASK, None) {
        match view.statuses.get(contender.name) {
            Some((record, version)) => match record.state {
                State::Assigned => match load.get_mut(&*record.worker) {
                    Some(count) => *count += 1,
                    None => open.push((contender.name, Some((record, *version)))),
                },
                State::Returned => open.push((contender.name, Some((record, *version)))),
                // The event for the deletion of the task is in flight.
                State::Done | State::Failed | State::Cancelled => {}
            },
            None => open.push((contender.name, None)),
        }
    }
    let mut steps = Vec::new();
    let tasks: BTreeSet<&String> = view.tasks.iter().collect();
    for (task, (record, version)) in &view.statuses {
        // A final status stays until `Task::forget`.
        if matches!(record.state, State::Assigned | State::Returned) && !tasks.contains(task) {
            steps.push(Step::Forget { task: task.clone(), before: Before::of(record, *version) });
        }
    }
    for (task, last) in open {
        let task = task.to_owned();
        let attempts = last.map_or(0, |(record, _)| record.attempt);
        let before = last.map(|(record, version)| Before::of(record, version));
        match (before, attempts_max) {
            (Some(before), Some(max)) if attempts >= max => {
                steps.push(Step::GiveUp { task, before, attempts });
            }
            (before, _) => {
                let free = load
                    .iter_mut()
                    .filter(|(worker, count)| **count < view.workers[**worker])
                    .min_by_key(|(_, count)| **count);
                // No `break`: later tasks may still have to be given up, which needs no worker.
                let Some((worker, count)) = free else { continue };
                *count += 1;
                let (worker, attempt) = ((*worker).to_owned(), attempts.saturating_add(1));
                steps.push(Step::Assign { task, worker, attempt, before });
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks as "number" or "number=state attempt worker", with "==" if only the status exists;
    /// workers as "name:capacity".
    fn check(tasks: &[&str], workers: &[&str], attempts_max: Option<u32>, expected: &[&str]) {
        let mut view = View::default();
        for text in tasks {
            let (number, status) = text.split_once('=').unwrap_or((text, ""));
            let task = format!("task-{:0>10}", number);
            if !status.is_empty() {
                let status = status.trim_start_matches('=');
                let data = bytes::Bytes::from(format!("{status}\n"));
                view.statuses.insert(task.clone(), (Record::decode("/s", &data).unwrap(), 7));
            }
            if !text.contains("==") {
                view.tasks.push(task);
            }
        }
        for text in workers {
            let (worker, capacity) = text.split_once(':').unwrap();
            view.workers.insert(worker.to_owned(), capacity.parse().unwrap());
        }
        let number =
            |task: &str| task.trim_start_matches("task-").trim_start_matches('0').to_owned();
        let steps: Vec<String> = plan(&view, attempts_max)
            .iter()
            .map(|step| match step {
                Step::Assign { task, worker, attempt, before } => {
                    let from = before.as_ref().and_then(|before| before.worker.clone());
                    let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
                    format!("{} to {worker} as {attempt}{from}", number(task))
                }
                Step::GiveUp { task, attempts, .. } => {
                    format!("{} given up after {attempts}", number(task))
                }
                Step::Forget { task, before } => {
                    let from = before.worker.as_ref().map(|from| format!(" of {from}"));
                    format!("{} forgotten{}", number(task), from.unwrap_or_default())
                }
            })
            .collect();
        assert_eq!(steps, expected);
    }

    #[test]
    fn tasks_go_in_order_to_whoever_has_least_to_do() {
        check(
            &["3", "1", "2"],
            &["a:2", "b:1"],
            None,
            &["1 to a as 1", "2 to b as 1", "3 to a as 1"],
        );
        check(
            &["1=assigned 1 a", "2", "3"],
            &["a:2", "b:2"],
            None,
            &["2 to b as 1", "3 to a as 1"],
        );
    }

    #[test]
    fn nobody_gets_more_than_it_can_do() {
        check(&["1", "2"], &[], None, &[]);
        check(&["1", "2"], &["a:1"], None, &["1 to a as 1"]);
        check(&["1=assigned 1 a", "2"], &["a:1", "b:0"], None, &[]);
    }

    #[test]
    fn the_tasks_of_a_worker_that_is_gone_go_to_others_first() {
        check(
            &["1=assigned 1 gone", "2=returned 2 a", "3"],
            &["a:2"],
            None,
            &["1 to a as 2 from gone", "2 to a as 3"],
        );
    }

    #[test]
    fn what_is_finished_is_left_alone() {
        check(&["1=done 1 a", "2=cancelled 0 ", "3=failed 1 a"], &["a:9"], None, &[]);
    }

    #[test]
    fn what_is_known_about_a_task_that_is_not_there_is_forgotten() {
        check(
            &["1==assigned 1 a", "2==returned 1 a", "3==done 1 a", "4"],
            &["a:1"],
            None,
            &["1 forgotten of a", "2 forgotten", "4 to a as 1"],
        );
    }

    #[test]
    fn a_task_that_has_had_its_attempts_is_given_up_also_without_workers() {
        let tasks = ["1=assigned 2 gone", "2=returned 1 a", "3=returned 2 a", "4=assigned 2 a"];
        check(
            &tasks,
            &["a:2"],
            Some(2),
            &["1 given up after 2", "2 to a as 2", "3 given up after 2"],
        );
        check(&tasks[..1], &[], Some(2), &["1 given up after 2"]);
    }
}
