//! `ironkeeper lock`: runs a program while holding a lock, and stops it when the lock is lost; or shows
//! deadlocks, see `deadlocks.rs`.
//!
//! The lock is the fair mutex of `ironkeeper-recipes`, so programs of Curator's stand in the same line.
//!
//! When is it lost? A server gives a lock to the next one when it has not heard of the session for its
//! timeout T. A client that hears nothing takes the connection for broken after 2/3 T at the latest, so
//! that T/3 is left then: half of it to find another server, half of it for the program to end after
//! it has been told to. What is left of it by then, and of all that it has started, is killed.

mod holder;
mod program;

use std::io::ErrorKind;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ironkeeper_client::{Client, ConnectionState, Zxid};
use ironkeeper_recipes::lock::{LockEvent, LockEvents, Mutex};
use ironkeeper_recipes::{Guard, RecipeError};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use self::program::Program;
use crate::deadlocks;

/// The lock was not granted in time. The number is that of `EX_TEMPFAIL`.
const NOT_GRANTED: u8 = 75;
/// The lock was lost and the program stopped.
const LOST: u8 = 76;
/// With `--wait` a server has this long to answer, however short the wait for the lock is.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
/// How long to ask for the holder of a lock that was not granted.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(1);
/// There is such a program, but it cannot be run; and there is none. As shells have it.
const NOT_RUNNABLE: u8 = 126;
const NO_PROGRAM: u8 = 127;

/// Run a program while holding a lock, and stop it when the lock is lost
///
/// Waits for its turn, runs the program, and releases the lock when it has ended. The program finds the
/// node of the lock in IRONKEEPER_LOCK_NODE, and in IRONKEEPER_LOCK_TOKEN a number that grows with every
/// holder. Exits as the program does; with 75 if the lock was not granted in time, with 76 if it was lost
/// and the program, with everything that it had started, had to be stopped; with 127 if there is no
/// such program.
///
/// The lock is the one of Curator's InterProcessMutex and of ironkeeper-recipes' Mutex. Locks of
/// kazoo (Python) have other node names: use --kazoo on their paths. A path that is in use with the
/// other names is refused.
///
/// With --deadlocks it shows who waits for whom in a circle below some paths, and exits with 77 if there
/// is such a circle; with --resolve it ends each by telling the one that came last to give way.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ironkeeper lock /locks/report -- ./make-report
  ironkeeper lock --try --data 'nightly run' /locks/backup -- ./backup.sh
  ironkeeper lock --kazoo --wait 60 /locks/jobs -- python3 job.py
  ironkeeper lock --deadlocks /locks")]
pub struct Args {
    /// Servers to connect to, as host:port,host:port/chroot
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:2181")]
    server: String,
    /// Do not wait if somebody else holds the lock
    #[arg(long = "try", conflicts_with = "wait")]
    no_wait: bool,
    /// Wait this long at most; meanwhile a server that does not answer is no error
    #[arg(long, value_name = "SECONDS")]
    wait: Option<f64>,
    /// How long a holder may be out of touch before the next one gets the lock
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    session_timeout: u64,
    /// What others see about this holder [default: user, host and process]
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,
    /// Use the node names of kazoo's Lock: excludes programs of kazoo's, not those of Curator's
    #[arg(long, conflicts_with = "deadlocks")]
    kazoo: bool,
    /// Show the deadlocks among all locks and semaphores at and below these paths, and run nothing
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["path", "command"])]
    deadlocks: Vec<String>,
    /// End the deadlocks that are shown, and tell everybody who is a part of them
    #[arg(long, requires = "deadlocks", conflicts_with_all = ["path", "command"])]
    resolve: bool,
    /// The path of the lock
    #[arg(required_unless_present = "deadlocks")]
    path: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "deadlocks", value_name = "COMMAND")]
    command: Vec<String>,
}

/// Takes the lock and runs the program.
pub fn run(args: &Args) -> Result<ExitCode> {
    let patience = match args.wait {
        Some(seconds) => {
            Some(Duration::try_from_secs_f64(seconds).context("--wait needs a number of seconds")?)
        }
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect(args, patience).await?;
        let code = match &args.path {
            Some(path) => run_locked(&client, path, args, patience).await,
            None => deadlocks::show(&client, &args.deadlocks, args.resolve).await,
        };
        // In every case: a session that is left behind would keep its place in line until it
        // expires.
        let closed = client.close().await;
        let code = code?;
        closed?;
        Ok(code)
    })
}

/// A session. Without `--wait` a server has to be there now, as for the shell.
async fn connect(args: &Args, patience: Option<Duration>) -> Result<Client> {
    let builder =
        Client::builder(&args.server).session_timeout(Duration::from_millis(args.session_timeout));
    if let Some(patience) = patience {
        let connected = builder.connect_timeout(patience.max(CONNECTED_WITHIN)).connect().await;
        return connected.with_context(|| format!("cannot connect to {}", args.server));
    }
    let client = builder.start()?;
    match client.exists("/").await {
        Err(error) if client.state() == ConnectionState::Connecting => {
            let why = client.trouble().unwrap_or_else(|| error.to_string());
            bail!("cannot connect to {}: {why}", args.server)
        }
        // Any other failure is one of the lock, which names it.
        _ => Ok(client),
    }
}

async fn run_locked(
    client: &Client,
    path: &str,
    args: &Args,
    patience: Option<Duration>,
) -> Result<ExitCode> {
    let curator = Mutex::new(client, path);
    let kazoo = curator.clone().with_kazoo_names();
    let (mutex, other) = if args.kazoo { (kazoo, curator) } else { (curator, kazoo) };
    let mutex = mutex.with_data(args.data.clone().unwrap_or_else(holder::this_process));
    let taken = async {
        match patience {
            _ if args.no_wait => mutex.try_lock().await,
            Some(patience) => mutex.lock_within(patience).await,
            None => mutex.lock().await.map(Some),
        }
    };
    let mut signals = Signals::listen()?;
    let taken = tokio::select! {
        taken = taken => taken.map_err(|error| refusal(path, args.kazoo, error))?,
        // The end of the session gives the place in line back.
        _ = signals.next() => None,
        () = tell_of_waiting(&mutex, mutex.events()) => unreachable!("events end with the session"),
    };
    let Some(guard) = taken else {
        // Reads are repeated until a server answers; the exit code does not wait for that.
        let held = tokio::time::timeout(DESCRIBED_WITHIN, holder::describe(&mutex)).await;
        let held = held.ok().flatten().map(|by| format!(": {by}")).unwrap_or_default();
        eprintln!("{path} was not granted{held}");
        return Ok(ExitCode::from(NOT_GRANTED));
    };
    let code = run_under(&guard, &other, args, &mut signals).await;
    let released = guard.release().await;
    match released {
        Ok(()) | Err(RecipeError::Lost { .. }) => code,
        Err(error) => code.and(Err(error.into())),
    }
}

/// What to do about a lock that cannot be had.
fn refusal(path: &str, kazoo: bool, error: RecipeError) -> anyhow::Error {
    let hint = match (&error, kazoo) {
        (RecipeError::OtherRecipe { recipe, .. }, false) if recipe.contains("kazoo") => {
            "; `ironkeeper lock --kazoo` uses the same names, and waits for it"
        }
        (RecipeError::OtherRecipe { recipe, .. }, true) if recipe.contains("mutex") => {
            "; without --kazoo `ironkeeper lock` uses the same names, and waits for it"
        }
        _ => "",
    };
    anyhow::Error::new(error).context(format!("cannot lock {path}{hint}"))
}

/// Prints who holds the lock, each time that this process begins to wait. Never ends.
async fn tell_of_waiting(mutex: &Mutex, mut events: LockEvents) {
    while let Some(event) = events.next().await {
        if matches!(event, LockEvent::Waiting { .. }) {
            let held = holder::describe(mutex).await.unwrap_or_else(|| "held".to_owned());
            eprintln!("waiting for {}: {held}", mutex.path());
        }
    }
    std::future::pending::<()>().await;
}

/// Prints a warning when a lock with the other names is taken on the path. Such a lock does not
/// look for ours: only ours refuses a path that is in use. Never ends.
async fn warn_of_other_names(other: &Mutex, kazoo: bool) {
    loop {
        let Ok((_, _, watch)) = other.client().children_and_watch(other.path()).await else {
            return std::future::pending().await;
        };
        if other.participants().await.is_ok_and(|others| !others.is_empty()) {
            let (theirs, option) = match kazoo {
                false => ("kazoo's", "use --kazoo here"),
                true => ("Curator's", "do without --kazoo here"),
            };
            eprintln!(
                "WARNING: a lock with {theirs} names is asked for on {}: it does not look for this \
                 one, and may be held at the same time; {option}, or another path",
                other.path()
            );
            return std::future::pending().await;
        }
        if watch.await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn run_under(
    guard: &Guard,
    other: &Mutex,
    args: &Args,
    signals: &mut Signals,
) -> Result<ExitCode> {
    let [program, arguments @ ..] = &args.command[..] else { bail!("no program to run") };
    let Zxid(token) = guard.fencing_token();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("IRONKEEPER_LOCK_NODE", guard.path())
        .env("IRONKEEPER_LOCK_TOKEN", token.to_string());
    let mut running = match Program::start(&mut command) {
        Ok(running) => running,
        Err(error) => {
            eprintln!("error: cannot run {program}: {error}");
            let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            return Ok(ExitCode::from(match kind {
                Some(ErrorKind::NotFound) => NO_PROGRAM,
                _ => NOT_RUNNABLE,
            }));
        }
    };
    let mut warning = std::pin::pin!(warn_of_other_names(other, args.kazoo));
    let share = guard.client().session_timeout() / 6;
    loop {
        tokio::select! {
            status = running.ended() => return Ok(exit_code(status?)),
            // What becomes of us follows from what becomes of the program.
            signal = signals.next() => match signal {
                // A terminal sends these to the program as well.
                Signal::INT | Signal::QUIT => {}
                other => running.tell(other),
            },
            () = &mut warning => {}
            why = lost(guard, share) => {
                eprintln!("the lock was {why}; stopping {program}");
                running.stop(share).await?;
                return Ok(ExitCode::from(LOST));
            }
        }
    }
}

/// What would end this process, and leave the program running without a lock. Listened to from before the lock is
/// granted, so that none is missed.
struct Signals {
    terminated: tokio::signal::unix::Signal,
    interrupted: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    hung_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        Ok(Signals {
            terminated: signal(SignalKind::terminate())?,
            interrupted: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hung_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminated.recv() => Signal::TERM,
            _ = self.interrupted.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
            _ = self.hung_up.recv() => Signal::HUP,
        }
    }
}

/// Resolves when the lock is lost, or when the connection has been broken for too long to be sure.
async fn lost(guard: &Guard, doubt_max: Duration) -> String {
    let client = guard.client();
    let doubt = async {
        let mut states = client.states();
        loop {
            if client.state() == ConnectionState::Suspended
                && tokio::time::timeout(doubt_max, client.connected()).await.is_err()
            {
                return;
            }
            if states.next().await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        lost = guard.lost() => lost.to_string(),
        () = doubt => "put in doubt: no server can be reached".to_owned(),
    }
}

/// As shells do it: the code, or 128 and the signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
