//! `ironkeeper lock`: runs a program while holding a lock, and stops it when the lock is lost; or shows
//! deadlocks, see `deadlocks.rs`.
//!
//! The lock is the fair mutex of `ironkeeper-recipes`, so programs of Curator's stand in the same line.
//!
//! When is it lost? A server gives a lock to the next one when it has not heard of the session for its
//! timeout T. A client that hears nothing takes the connection for broken after 2/3 T at the latest, so
//! that T/3 is left then: half of it to find another server, half of it for the program to end after
//! it has been told to. What is left of it by then, and of all that it has started, is killed.

mod program;

use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ironkeeper_client::{Client, ConnectionState, Zxid};
use ironkeeper_recipes::{Guard, RecipeError, lock::Mutex};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use self::program::Program;
use crate::deadlocks;

/// The lock was not granted in time. The number is that of `EX_TEMPFAIL`.
const NOT_GRANTED: u8 = 75;
/// The lock was lost and the program stopped.
const LOST: u8 = 76;

/// Run a program while holding a lock, and stop it when the lock is lost
///
/// Waits for its turn, runs the program, and releases the lock when it has ended. The program finds the
/// node of the lock in IRONKEEPER_LOCK_NODE, and in IRONKEEPER_LOCK_TOKEN a number that grows with every
/// holder. Exits as the program does; with 75 if the lock was not granted in time, with 76 if it was lost
/// and the program, with everything that it had started, had to be stopped.
///
/// With --deadlocks it shows who waits for whom in a circle below some paths, and exits with 77 if there
/// is such a circle; with --resolve it ends each by telling the one that came last to give way.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Servers to connect to, as host:port,host:port/chroot
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:2181")]
    server: String,
    /// Do not wait if somebody else holds the lock
    #[arg(long = "try", conflicts_with = "wait")]
    no_wait: bool,
    /// Wait this long at most
    #[arg(long, value_name = "SECONDS")]
    wait: Option<f64>,
    /// How long a holder may be out of touch before the next one gets the lock
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    session_timeout: u64,
    /// What others see about this holder
    #[arg(long, value_name = "TEXT", default_value = "")]
    data: String,
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
        let client = Client::builder(&args.server)
            .session_timeout(Duration::from_millis(args.session_timeout))
            .connect()
            .await
            .with_context(|| format!("cannot connect to {}", args.server))?;
        match &args.path {
            Some(path) => run_locked(client, path, args, patience).await,
            None => deadlocks::show(client, &args.deadlocks, args.resolve).await,
        }
    })
}

async fn run_locked(
    client: Client,
    path: &str,
    args: &Args,
    patience: Option<Duration>,
) -> Result<ExitCode> {
    let mutex = Mutex::new(&client, path).with_data(args.data.clone());
    let taken = async {
        match patience {
            _ if args.no_wait => mutex.try_lock().await,
            Some(patience) => mutex.lock_within(patience).await,
            None => mutex.lock().await.map(Some),
        }
    };
    let mut signals = Signals::listen()?;
    let taken = tokio::select! {
        taken = taken => taken.with_context(|| format!("cannot lock {path}"))?,
        // Closing the session below gives the place in line back.
        _ = signals.next() => None,
    };
    let Some(guard) = taken else {
        eprintln!("{path} was not granted");
        client.close().await?;
        return Ok(ExitCode::from(NOT_GRANTED));
    };
    let code = run_under(&guard, &args.command, &mut signals).await;
    let released = guard.release().await;
    client.close().await?;
    match released {
        Ok(()) | Err(RecipeError::Lost { .. }) => code,
        Err(error) => code.and(Err(error.into())),
    }
}

async fn run_under(guard: &Guard, command: &[String], signals: &mut Signals) -> Result<ExitCode> {
    let [program, arguments @ ..] = command else { bail!("no program to run") };
    let Zxid(token) = guard.fencing_token();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("IRONKEEPER_LOCK_NODE", guard.path())
        .env("IRONKEEPER_LOCK_TOKEN", token.to_string());
    let mut running =
        Program::start(&mut command).with_context(|| format!("cannot run {program}"))?;
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
