//! A program: a process with a session. It can lose the session or end, and restarts with a new
//! session.

use std::future::Future;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use tokio::sync::watch;

use super::claimed_holds::{ClaimedHold, Share};
use super::observations::{Observations, SharedObservations};
use super::plan::{Plan, ProgramBug};
use super::wire::Wires;
use crate::random::{Random, mix};

/// The run context, shared by all programs.
#[derive(Clone, Debug)]
pub struct RunContext {
    pub seed: u64,
    pub plan: Plan,
    pub wires: Wires,
    pub observations: SharedObservations,
    /// Becomes true when the recovery phase begins; programs then finish.
    pub must_finish: watch::Receiver<bool>,
}

/// A process with a session.
#[derive(Debug)]
pub struct Program {
    pub number: usize,
    pub random: Random,
    pub context: RunContext,
    boot: u64,
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
    pub fn new(number: usize, context: RunContext) -> Program {
        let mut random = Random::new(mix(context.seed ^ ((number as u64 + 1) << 40)));
        let (low, high) = context.plan.session_timeout_ms;
        let timeout_ms = random.between(low, high);
        Program { number, random, context, boot: 0, timeout_ms, client: None }
    }

    pub fn observations(&self) -> impl std::ops::DerefMut<Target = Observations> + '_ {
        self.context.observations.open()
    }

    pub fn log(&self, what: impl Into<String>) {
        self.observations().log(self.number, what.into());
    }

    pub fn has_bug(&self, bug: ProgramBug) -> bool {
        self.context.plan.program_bug == Some(bug)
    }

    /// Returns whether the program must finish.
    pub fn must_finish(&self) -> bool {
        *self.context.must_finish.borrow()
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
            self.boot += 1;
            let hosts: Vec<String> =
                (1..=self.context.plan.servers.servers).map(|id| format!("h{id}:2181")).collect();
            let connected = Client::builder(&hosts.join(","))
                .transport(self.context.wires.transport(self.number, self.boot))
                .session_timeout(Duration::from_millis(self.timeout_ms))
                .connect_timeout(Duration::from_secs(30))
                .seed(self.random.draw())
                .connect()
                .await;
            match connected {
                Ok(client) => {
                    self.log(format!("has session {:x}", client.session_id().0));
                    self.client = Some(client);
                }
                Err(error) => self.log(format!("cannot connect: {error}")),
            }
        }
    }

    /// Returns the client if its session is not over.
    pub fn live_client(&self) -> Option<&Client> {
        self.client.as_ref().filter(|client| !client.state().is_final())
    }

    /// Ends the process abruptly. The caller drops the futures in progress; they send nothing any
    /// more.
    pub fn crash(&mut self) {
        self.log("crashes");
        self.context.wires.end_process(self.number, self.boot);
        self.observations().claimed_holds.forget(self.number);
        self.client = None;
    }

    /// Returns whether the program is to crash now.
    pub fn draws_crash(&mut self) -> bool {
        !self.must_finish() && self.random.chance(self.context.plan.crash_per_mille)
    }

    /// Waits for a recipe. With the plan's probability the wait is cancelled after a random time.
    pub async fn wait<T>(
        &mut self,
        what: &str,
        waiting: impl Future<Output = Result<T, RecipeError>>,
    ) -> Waited<T> {
        let give_up_ms = match self.random.chance(self.context.plan.give_up_per_mille) {
            true => self.random.between(0, 2_000),
            false => u64::MAX / 4,
        };
        let patience = Duration::from_millis(give_up_ms);
        match tokio::time::timeout(patience, waiting).await {
            Ok(Ok(got)) => Waited::Got(got),
            Ok(Err(error)) => self.classify_error(what, &error),
            Err(_) => {
                self.log(format!("gives up: {what}"));
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
            Err(error) => self.classify_error(what, &error),
        }
    }

    /// Classifies an error of a recipe. An error that the faults do not explain is a violation.
    fn classify_error<T>(&mut self, what: &str, error: &RecipeError) -> Waited<T> {
        self.log(format!("fails to {what}: {error}"));
        if error.is_session_over() {
            if let Some(client) = self.client.take() {
                self.observations().losses += 1;
                if !client.state().is_final() {
                    let violation = format!("errors: {what}: {error}, but the session is alive");
                    self.observations().fail(Err(violation));
                }
            }
            return Waited::SessionOver;
        }
        let is_deleted = matches!(error, RecipeError::NodeGone { .. } | RecipeError::Lost { .. });
        if !(is_deleted && self.context.plan.has_operator) {
            let violation = format!("errors: program {} cannot {what}: {error}", self.number);
            self.observations().fail(Err(violation));
        }
        Waited::NodeGone
    }

    /// Registers a hold. `is_claimed` returns whether the recipe still claims it.
    pub fn hold(
        &self,
        what: &str,
        share: Share,
        node: &str,
        token: Option<ironkeeper_client::Zxid>,
        is_claimed: impl Fn() -> bool + Send + 'static,
    ) -> u64 {
        self.log(format!("holds {what} by {node}"));
        let claim = ClaimedHold {
            what: what.to_owned(),
            program: self.number,
            share,
            node: node.to_owned(),
            token,
            is_claimed: Box::new(is_claimed),
            session_timeout_us: self.timeout_ms * 1000,
        };
        let mut observations = self.observations();
        observations.operations += 1;
        observations.claimed_holds.begin(claim)
    }

    pub fn release_claim(&self, hold: u64) {
        self.observations().claimed_holds.end(hold);
    }

    /// Closes the session.
    pub async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            // An error means that the session is already over.
            let _ = client.close().await;
        }
    }
}
