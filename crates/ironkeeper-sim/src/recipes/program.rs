//! A program: a process with a session. It can lose the session or end, and restarts with a new
//! session.

use std::future::Future;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use tokio::sync::watch;

use super::holdings::{Holding, Share};
use super::ledger::{Ledger, SharedLedger};
use super::plan::{Misconduct, Plan};
use super::wire::Wires;
use crate::random::{Random, mix};

/// The run context, shared by all programs.
#[derive(Clone, Debug)]
pub struct Stage {
    pub seed: u64,
    pub plan: Plan,
    pub wires: Wires,
    pub ledger: SharedLedger,
    /// Becomes true when the recovery phase begins; programs then finish.
    pub is_over: watch::Receiver<bool>,
}

/// A process with a session.
#[derive(Debug)]
pub struct Program {
    pub number: usize,
    pub random: Random,
    pub stage: Stage,
    life: u64,
    timeout_ms: u64,
    client: Option<Client>,
}

/// The result of waiting for a recipe.
#[derive(Debug)]
pub enum Waited<T> {
    Got(T),
    /// The program has cancelled the wait and dropped the future.
    GaveUp,
    /// The session is over. The next client has another one.
    SessionOver,
    /// Another client deleted a node of this program.
    NodeGone,
}

impl Program {
    pub fn new(number: usize, stage: Stage) -> Program {
        let mut random = Random::new(mix(stage.seed ^ ((number as u64 + 1) << 40)));
        let (low, high) = stage.plan.session_timeout_ms;
        let timeout_ms = random.between(low, high);
        Program { number, random, stage, life: 0, timeout_ms, client: None }
    }

    pub fn ledger(&self) -> impl std::ops::DerefMut<Target = Ledger> + '_ {
        self.stage.ledger.open()
    }

    pub fn say(&self, what: impl Into<String>) {
        self.ledger().say(self.number, what.into());
    }

    pub fn has_misconduct(&self, misconduct: Misconduct) -> bool {
        self.stage.plan.misconduct == Some(misconduct)
    }

    /// Returns whether the program must finish.
    pub fn is_over(&self) -> bool {
        *self.stage.is_over.borrow()
    }

    pub async fn pause_ms(&mut self, (low, high): (u64, u64)) {
        let ms = self.random.between(low, high);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Returns the client of this boot. If its session is over, starts the next boot.
    pub async fn client(&mut self) -> Client {
        loop {
            if let Some(client) = self.client.as_ref().filter(|client| !client.state().is_final()) {
                return client.clone();
            }
            self.life += 1;
            let hosts: Vec<String> =
                (1..=self.stage.plan.servers.servers).map(|id| format!("h{id}:2181")).collect();
            let connected = Client::builder(&hosts.join(","))
                .transport(self.stage.wires.transport(self.number, self.life))
                .session_timeout(Duration::from_millis(self.timeout_ms))
                .connect_timeout(Duration::from_secs(30))
                .seed(self.random.draw())
                .connect()
                .await;
            match connected {
                Ok(client) => {
                    self.say(format!("has session {:x}", client.session_id().0));
                    self.client = Some(client);
                }
                Err(error) => self.say(format!("cannot connect: {error}")),
            }
        }
    }

    /// Returns the client if its session is not over.
    pub fn living_client(&self) -> Option<&Client> {
        self.client.as_ref().filter(|client| !client.state().is_final())
    }

    /// Ends the process abruptly. The caller drops the futures in progress; they send nothing any
    /// more.
    pub fn crash(&mut self) {
        self.say("crashes");
        self.stage.wires.pull_plug(self.number, self.life);
        self.ledger().holdings.forget(self.number);
        self.client = None;
    }

    /// Returns whether the program is to crash now.
    pub fn shall_crash(&mut self) -> bool {
        !self.is_over() && self.random.chance(self.stage.plan.crash_per_mille)
    }

    /// Waits for a recipe. With the plan's probability the wait is cancelled after a random time.
    pub async fn wait<T>(
        &mut self,
        what: &str,
        waiting: impl Future<Output = Result<T, RecipeError>>,
    ) -> Waited<T> {
        let give_up_ms = match self.random.chance(self.stage.plan.give_up_per_mille) {
            true => self.random.between(0, 2_000),
            false => u64::MAX / 4,
        };
        let patience = Duration::from_millis(give_up_ms);
        match tokio::time::timeout(patience, waiting).await {
            Ok(Ok(got)) => Waited::Got(got),
            Ok(Err(error)) => self.judge_error(what, &error),
            Err(_) => {
                self.say(format!("gives up: {what}"));
                Waited::GaveUp
            }
        }
    }

    /// Waits for a recipe without cancelling.
    pub async fn wait_long<T>(
        &mut self,
        what: &str,
        waiting: impl Future<Output = Result<T, RecipeError>>,
    ) -> Waited<T> {
        match waiting.await {
            Ok(got) => Waited::Got(got),
            Err(error) => self.judge_error(what, &error),
        }
    }

    /// Classifies an error of a recipe. An error that the faults do not explain is a violation.
    fn judge_error<T>(&mut self, what: &str, error: &RecipeError) -> Waited<T> {
        self.say(format!("fails to {what}: {error}"));
        if error.is_session_over() {
            if let Some(client) = self.client.take() {
                self.ledger().losses += 1;
                if !client.state().is_final() {
                    let told = format!("errors: {what}: {error}, but the session lives");
                    self.ledger().fail(Err(told));
                }
            }
            return Waited::SessionOver;
        }
        let is_deleted = matches!(error, RecipeError::NodeGone { .. } | RecipeError::Lost { .. });
        if !(is_deleted && self.stage.plan.has_operator) {
            let told = format!("errors: program {} cannot {what}: {error}", self.number);
            self.ledger().fail(Err(told));
        }
        Waited::NodeGone
    }

    /// Registers a hold. `belief` returns whether the recipe still claims it.
    pub fn hold(
        &self,
        what: &str,
        share: Share,
        node: &str,
        token: Option<ironkeeper_client::Zxid>,
        belief: impl Fn() -> bool + Send + 'static,
    ) -> u64 {
        self.say(format!("holds {what} by {node}"));
        let holding = Holding {
            what: what.to_owned(),
            program: self.number,
            share,
            node: node.to_owned(),
            token,
            belief: Box::new(belief),
            session_timeout_us: self.timeout_ms * 1000,
        };
        let mut ledger = self.ledger();
        ledger.deeds += 1;
        ledger.holdings.begin(holding)
    }

    pub fn let_go(&self, hold: u64) {
        self.ledger().holdings.end(hold);
    }

    /// Closes the session.
    pub async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            // An error means that the session is already over.
            let _ = client.close().await;
        }
    }
}
