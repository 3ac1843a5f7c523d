//! One client of the load: the choice of its operations, and its records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ironkeeper_client::{
    Client, CreateMode, Error, ErrorKind, Happened, Node, OpResult, Stat, Version,
};
use ironkeeper_peers::rng::Rng;
use tokio::sync::watch;

use super::{PATIENCE, REGISTERS, Shared, register_path};
use crate::ensemble::history::{Action, Op, Outcome, Seen};

/// The pause between two operations of a client, which leaves CPU time to other processes.
const PAUSE: Duration = Duration::from_millis(2);
/// The number of nodes appended in one step.
const APPENDED: usize = 8;

/// A client and the replies it received.
pub struct LoadClient {
    pub number: usize,
    pub client: Client,
    pub ops: Vec<Op>,
    /// Names of appended nodes that were acknowledged, and the number of appends with unknown
    /// outcome.
    pub appended: Vec<String>,
    pub appended_unknown: usize,
    pub reconnects: usize,
    /// Events that must never happen.
    pub trouble: Vec<String>,
    rng: Rng,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
}

#[derive(Clone, Copy)]
enum Choice {
    Set,
    SetIfUnchanged,
    SetTwo,
    SyncedRead,
    Read,
    Append,
}

const CHOICES: [(usize, Choice); 6] = [
    (35, Choice::Set),
    (10, Choice::SetIfUnchanged),
    (10, Choice::SetTwo),
    (25, Choice::SyncedRead),
    (10, Choice::Read),
    (10, Choice::Append),
];

impl LoadClient {
    pub fn new(
        number: usize,
        client: Client,
        seed: u64,
        shared: Arc<Shared>,
        stopped: watch::Receiver<bool>,
    ) -> LoadClient {
        LoadClient {
            number,
            client,
            ops: Vec::new(),
            appended: Vec::new(),
            appended_unknown: 0,
            reconnects: 0,
            trouble: Vec::new(),
            rng: Rng::new(seed),
            shared,
            stopped,
        }
    }

    /// Runs until the load stops or the session is lost.
    pub async fn run(mut self) -> LoadClient {
        while !self.is_stopped() {
            let choice = self.rng.weighted(&CHOICES);
            let register = self.rng.below(REGISTERS);
            let done = match tokio::time::timeout(PATIENCE, self.act(choice, register)).await {
                Ok(done) => done,
                Err(_) => {
                    self.trouble.push(format!("no answer within {PATIENCE:?}"));
                    break;
                }
            };
            match done {
                Ok(()) => tokio::time::sleep(PAUSE).await,
                Err(error) if error.is_session_over() => {
                    self.trouble.push(format!("the session was lost: {error}"));
                    break;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionLoss => {
                    self.reconnects += 1;
                    tokio::select! {
                        // An error is ignored: the next request returns it again.
                        _ = self.client.connected() => {}
                        _ = self.stopped.changed() => {}
                    }
                }
                Err(error) if error.kind() == ErrorKind::BadVersion => {}
                Err(error) => {
                    self.trouble.push(format!("an answer nobody expects: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        self
    }

    /// Returns whether the load was stopped, or its sender was dropped.
    fn is_stopped(&self) -> bool {
        *self.stopped.borrow() || self.stopped.has_changed().is_err()
    }

    async fn act(&mut self, choice: Choice, register: usize) -> Result<(), Error> {
        let path = register_path(register);
        match choice {
            Choice::Set => self.set(register, Version::Any).await,
            Choice::SetIfUnchanged => {
                let node = self.client.get(&path).await?;
                self.set(register, Version::Exact(node.stat.version)).await
            }
            Choice::SetTwo => self.set_two(register).await,
            Choice::SyncedRead => {
                let began = self.shared.now();
                let synced = self.client.sync(&path);
                let node = self.client.get(&path);
                synced.await?;
                self.note_read(register, Action::SyncedRead, began, &node.await?);
                Ok(())
            }
            Choice::Read => {
                let began = self.shared.now();
                let node = self.client.get(&path).await?;
                self.note_read(register, Action::Read, began, &node);
                Ok(())
            }
            Choice::Append => self.append().await,
        }
    }

    async fn set(&mut self, register: usize, version: Version) -> Result<(), Error> {
        let value = self.shared.next_value.fetch_add(1, Ordering::Relaxed);
        let began = self.shared.now();
        let result = self.client.set(&register_path(register), value.to_string(), version).await;
        self.note_write(register, value, began, result.as_ref());
        result.map(drop)
    }

    async fn set_two(&mut self, first: usize) -> Result<(), Error> {
        let second = (first + 1) % REGISTERS;
        let value = self.shared.next_value.fetch_add(1, Ordering::Relaxed);
        let began = self.shared.now();
        let result = self
            .client
            .transaction()
            .set(&register_path(first), value.to_string(), Version::Any)
            .set(&register_path(second), value.to_string(), Version::Any)
            .commit()
            .await;
        match &result {
            Ok(results) => match results.as_slice() {
                [OpResult::Set(one), OpResult::Set(other)] => {
                    self.note_write(first, value, began, Ok(one));
                    self.note_write(second, value, began, Ok(other));
                }
                other => self.trouble.push(format!("two sets were answered with {other:?}")),
            },
            Err(error) => {
                self.note_write(first, value, began, Err(error));
                self.note_write(second, value, began, Err(error));
            }
        }
        result.map(drop)
    }

    async fn append(&mut self) -> Result<(), Error> {
        let began = self.shared.now();
        let data = self.number.to_string();
        let replies: Vec<_> = (0..APPENDED)
            .map(|_| self.client.create("/load/log/n-", &data, CreateMode::PersistentSequential))
            .collect();
        let mut last = Ok(());
        for reply in replies {
            match reply.await {
                Ok(path) => {
                    self.shared.acknowledge(began);
                    self.appended.push(path);
                }
                Err(error) => {
                    if error.happened() == Happened::Maybe {
                        self.appended_unknown += 1;
                    }
                    last = Err(error);
                }
            }
        }
        last
    }

    fn note_write(
        &mut self,
        register: usize,
        value: u64,
        began: u64,
        result: Result<&Stat, &Error>,
    ) {
        let outcome = match result {
            Ok(stat) => {
                self.shared.acknowledge(began);
                Outcome::Done(Seen { version: stat.version, zxid: stat.mzxid.0, value })
            }
            Err(error) if error.happened() == Happened::Maybe => Outcome::Unknown,
            Err(_) => Outcome::Refused,
        };
        self.note(register, Action::Write(value), began, outcome);
    }

    fn note_read(&mut self, register: usize, action: Action, began: u64, node: &Node) {
        match seen(&node.data, &node.stat) {
            Some(seen) => self.note(register, action, began, Outcome::Done(seen)),
            None => self.trouble.push(format!("register {register} holds {:?}", node.data)),
        }
    }

    fn note(&mut self, register: usize, action: Action, began: u64, outcome: Outcome) {
        let ended = self.shared.now();
        let server = self.client.server().map(|host| host.port());
        self.ops.push(Op { client: self.number, register, action, began, ended, outcome, server });
    }
}

/// Decodes a register from a read; `None` if the data was not written by a client of the load.
pub fn seen(data: &[u8], stat: &Stat) -> Option<Seen> {
    let value = std::str::from_utf8(data).ok()?.parse().ok()?;
    Some(Seen { version: stat.version, zxid: stat.mzxid.0, value })
}
