//! Chores that consist of steps: `cargo xtask test` and `cargo xtask conformance`.
//!
//! The tracks of a [`Stage`] run concurrently, the steps of a track one after the other. The table
//! at the end of a run contains the time and the counts of every step, the checks that passed only
//! at the second attempt, and the sum of all counts on the last line.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::count::Count;
use crate::limited::{self, End};
use crate::{process, repo};

/// The longest time of a command.
const COMMAND_MAX: Duration = Duration::from_secs(1800);

/// The number of printed output lines of a command that timed out.
const TAIL_LINES: usize = 40;

type Work<'a> = Box<dyn FnOnce() -> Result<Count> + Send + 'a>;

/// A named piece of work.
pub struct Step<'a> {
    what: &'static str,
    work: Work<'a>,
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Step").field(&self.what).finish()
    }
}

impl<'a> Step<'a> {
    pub fn new(what: &'static str, work: impl FnOnce() -> Result<Count> + Send + 'a) -> Step<'a> {
        Step { what, work: Box::new(work) }
    }

    /// Runs the step; any error counts as a failure of this step.
    fn play(self) -> Row {
        println!("== {}", self.what);
        let began = Instant::now();
        let count = (self.work)().unwrap_or_else(|why| {
            println!("{}: {why:#}", self.what);
            Count::failure()
        });
        let took = began.elapsed();
        let verdict = if count.is_good() { "" } else { "FAILED " };
        println!("== {verdict}{}: {count}, {:.0} s", self.what, took.as_secs_f64());
        Row { what: self.what, count, took }
    }
}

/// Tracks that run concurrently.
pub type Stage<'a> = Vec<Vec<Step<'a>>>;

/// The result of a step.
struct Row {
    what: &'static str,
    count: Count,
    took: Duration,
}

/// Runs the stages in order and prints the table. A failed step ends its track, and its stage is
/// the last one of the run.
pub fn run(stages: Vec<Stage<'_>>) -> bool {
    let began = Instant::now();
    let mut rows = Vec::new();
    for stage in stages {
        rows.extend(play(stage));
        if rows.iter().any(|row: &Row| !row.count.is_good()) {
            break;
        }
    }
    print!("\n{}", table(&rows, began.elapsed()));
    rows.iter().all(|row| row.count.is_good())
}

fn play(stage: Stage<'_>) -> Vec<Row> {
    let play_track = |track: Vec<Step<'_>>| {
        let mut rows: Vec<Row> = Vec::new();
        for step in track {
            rows.push(step.play());
            if rows.last().is_some_and(|row| !row.count.is_good()) {
                break;
            }
        }
        rows
    };
    thread::scope(|scope| {
        let tracks: Vec<_> =
            stage.into_iter().map(|track| scope.spawn(|| play_track(track))).collect();
        let join = |track: thread::ScopedJoinHandle<'_, Vec<Row>>| {
            track.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        tracks.into_iter().flat_map(join).collect()
    })
}

fn table(rows: &[Row], took: Duration) -> String {
    let mut text = format!("{:>8} {:>7} {:>7}  step\n", "seconds", "passed", "failed");
    let mut all = Count::default();
    for Row { what, count, took } in rows {
        let seconds = took.as_secs_f64();
        text += &format!("{seconds:>8.0} {:>7} {:>7}  {what}\n", count.passed, count.failed);
        all.add(count.clone());
    }
    text += &format!("{:>8.0} {:>15}  altogether\n", took.as_secs_f64(), "");
    for again in &all.second_tries {
        text += &format!("passed at the second try only: {} ({})\n", again.check, again.cause);
    }
    text += &format!("{} second tries\n{all}\n", all.second_tries.len());
    text
}

/// Runs a command in the root of the repository. Its output is printed if it fails.
pub fn command(mut command: Command, logs: &Path) -> Result<Count> {
    let log_path = tempfile::Builder::new().prefix("step-").tempfile_in(logs)?.into_temp_path();
    let ran = limited::run_to_file(command.current_dir(repo::root()), &log_path, COMMAND_MAX)?;
    let mut count = Count::of_output(&ran.text);
    if ran.end == End::Well && count.is_good() {
        return Ok(count);
    }
    match ran.end {
        End::Hung => {
            let tail = process::tail(&ran.text, TAIL_LINES);
            println!("{tail}\nit hangs: ended after {} s", COMMAND_MAX.as_secs());
        }
        _ => println!("{}", ran.text),
    }
    count.failed = count.failed.max(1);
    Ok(count)
}

/// Parses the options of a chore from arguments separated by spaces.
pub fn options<T: clap::Args>(arguments: &str) -> T {
    let words = ["chore"].into_iter().chain(arguments.split_whitespace());
    let matches = T::augment_args(clap::Command::new("chore")).get_matches_from(words);
    T::from_arg_matches(&matches).expect("the steps know what chores take")
}

/// Returns cargo with these arguments, separated by spaces.
pub fn cargo(arguments: &str) -> Command {
    let mut command = crate::cargo::command();
    command.args(arguments.split(' '));
    command
}

/// Returns the same command with a low priority, for computation while tests wait.
pub fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

/// Returns the cargo setting that runs every test binary with a timeout.
pub fn limited_runner(limit: Duration) -> Result<String> {
    let this = std::env::current_exe()?;
    let this = this.to_str().context("the path of this program is not readable text")?;
    let runner = serde_json::to_string(&[this, "limited", &limit.as_secs().to_string()])?;
    Ok(format!("target.'cfg(all())'.runner = {runner}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::count::SecondTry;

    #[test]
    fn a_failed_step_ends_its_track_and_the_run() {
        let played = Mutex::new(Vec::new());
        let step = |what: &'static str, failed| {
            let played = &played;
            Step::new(what, move || {
                played.lock().unwrap().push(what);
                Ok(Count { passed: 1, failed, ..Count::default() })
            })
        };
        let stages = || {
            vec![
                vec![vec![step("a", 0)]],
                vec![vec![step("b", 1), step("after b", 0)], vec![step("c", 0), step("d", 0)]],
                vec![vec![step("e", 0)]],
            ]
        };
        assert!(!run(stages()));
        let mut played = played.into_inner().unwrap();
        played.sort_unstable();
        assert_eq!(played, ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_error_fails_its_step() {
        let broken = Step::new("broken", || anyhow::bail!("no disk"));
        assert!(!run(vec![vec![vec![broken]]]));
    }

    #[test]
    fn the_table_names_second_tries_and_ends_with_the_sum() {
        let again = SecondTry { check: "kazoo: x".to_owned(), cause: "five seconds" };
        let row = |passed, second_tries| Row {
            what: "step",
            count: Count { passed, failed: 0, second_tries },
            took: Duration::from_secs(2),
        };
        let text = table(&[row(3, vec![again]), row(4, Vec::new())], Duration::from_secs(5));
        assert!(
            text.contains("\npassed at the second try only: kazoo: x (five seconds)\n"),
            "{text}"
        );
        assert!(text.ends_with("\n1 second tries\n7 passed, 0 failed\n"), "{text}");
    }

    #[test]
    fn a_command_that_fails_without_counts_is_one_failure() {
        let logs = tempfile::tempdir().unwrap();
        assert_eq!(command(Command::new("false"), logs.path()).unwrap(), Count::failure());
        assert_eq!(command(Command::new("true"), logs.path()).unwrap(), Count::default());
        let mut prints = Command::new("echo");
        prints.arg("3 passed, 0 failed");
        assert_eq!(command(nice(&prints), logs.path()).unwrap().passed, 3);
    }
}
