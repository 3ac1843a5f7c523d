//! `ironkeeper lock`: runs a program while holding a lock, and stops it when the lock is lost; or
//! prints deadlocks, see `deadlocks.rs`.
//!
//! The lock is the fair mutex of `ironkeeper-recipes`, so Curator programs wait in the same queue.
//!
//! When the lock is lost: a server grants the lock to the next contender when it has received no
//! packet of the session for its timeout T. A client that receives nothing considers the connection
//! broken after 2/3 T at the latest, so T/3 remains: half of it to connect to another server, half
//! of it for the program to end after SIGTERM. Then the program and all its descendants are killed.

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

/// Exit code: the lock was not granted in time. The number of `EX_TEMPFAIL`.
const NOT_GRANTED: u8 = 75;
/// Exit code: the lock was lost and the program was stopped.
const LOST: u8 = 76;
/// With `--wait`: the minimal timeout for the connection, even if the wait for the lock is shorter.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
/// The timeout of the read that determines the holder of a lock that was not granted.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(1);
/// Exit codes of shells: the program exists but cannot be run; the program does not exist.
const NOT_RUNNABLE: u8 = 126;
const NO_PROGRAM: u8 = 127;

/// Run a program while holding a lock, and stop it when the lock is lost
///
/// Waits until the lock is granted, runs the program, and releases the lock when the program has
/// ended. The environment of the program contains the path of the lock's node in
/// IRONKEEPER_LOCK_NODE and a fencing token, a number that grows with every holder, in
/// IRONKEEPER_LOCK_TOKEN. Exits with the code of the program; with 75 if the lock was not granted
/// in time; with 76 if the lock was lost and the program, with all its descendants, had to be
/// stopped; with 127 if the program does not exist.
///
/// The lock is compatible with Curator's InterProcessMutex and ironkeeper-recipes' Mutex. Locks of
/// kazoo (Python) have other node names: use --kazoo on their paths. A path that is in use with the
/// other names is rejected.
///
/// With --deadlocks it shows the cycles of waiting contenders below some paths, and exits with 77
/// if there is one; with --resolve it resolves each deadlock by making its youngest contender give
/// way.
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
    /// Do not wait if the lock is held
    #[arg(long = "try", conflicts_with = "wait")]
    no_wait: bool,
    /// Wait at most this long; until then an unreachable server is no error
    #[arg(long, value_name = "SECONDS")]
    wait: Option<f64>,
    /// The session timeout: how long a holder may be disconnected before the next contender gets
    /// the lock
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    session_timeout: u64,
    /// The data of the lock's node, visible to others [default: user, host and process]
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,
    /// Use the node names of kazoo's Lock: excludes kazoo programs, not Curator programs
    #[arg(long, conflicts_with = "deadlocks")]
    kazoo: bool,
    /// Show the deadlocks among all locks and semaphores at and below these paths, and run nothing
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["path", "command"])]
    deadlocks: Vec<String>,
    /// Resolve the deadlocks that are shown, and notify all their contenders
    #[arg(long, requires = "deadlocks", conflicts_with_all = ["path", "command"])]
    resolve: bool,
    /// The path of the lock
    #[arg(required_unless_present = "deadlocks")]
    path: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "deadlocks", value_name = "COMMAND")]
    command: Vec<String>,
}

/// Acquires the lock and runs the program, or shows deadlocks.
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
        // Always close the session: otherwise its contender stays in the queue until the session
        // expires.
        let closed = client.close().await;
        let code = code?;
        closed?;
        Ok(code)
    })
}

/// Opens a session. Without `--wait` a server must be reachable now, as for the shell.
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
        // Other failures also fail the lock, which reports them.
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
        // The contender is deleted when the session closes.
        _ = signals.next() => None,
        () = tell_of_waiting(&mutex, mutex.events()) => unreachable!("events end with the session"),
    };
    let Some(guard) = taken else {
        // The client repeats reads until a server replies; the timeout keeps the exit from waiting
        // for that.
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

/// Adds a hint to the error of a lock that cannot be acquired.
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

/// Prints the holder of the lock each time this process begins to wait. Never returns.
async fn tell_of_waiting(mutex: &Mutex, mut events: LockEvents) {
    while let Some(event) = events.next().await {
        if matches!(event, LockEvent::Waiting { .. }) {
            let held = holder::describe(mutex).await.unwrap_or_else(|| "held".to_owned());
            eprintln!("waiting for {}: {held}", mutex.path());
        }
    }
    std::future::pending::<()>().await;
}

/// Prints a warning when a lock with the other node names is requested on the path. Such a lock
/// ignores the nodes of this one; only `ironkeeper lock` rejects a path that is in use. Never
/// returns.
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
            // This process exits when the program exits.
            signal = signals.next() => match signal {
                // A terminal sends these signals to the program as well.
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

/// The signals that would end this process and leave the program running without a lock. They are
/// handled from before the lock is granted, so that none is missed.
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

/// Resolves when the lock is lost, or when the connection has been broken for longer than
/// `doubt_max`, so that the lock may be lost.
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

/// Returns the exit code as shells do: the code of the program, or 128 plus the signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
