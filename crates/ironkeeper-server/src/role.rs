//! The role of a member in its ensemble, as administrators see it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use ironkeeper_engine::Now;
use ironkeeper_proto::ServerId;
use ironkeeper_zab::{Reason, Status};

use crate::metrics::Metrics;
use crate::repeats::Repeats;

/// The role of a member, and the time of its last change.
#[derive(Debug)]
pub struct Role {
    me: ServerId,
    metrics: Arc<Metrics>,
    now: Mutex<Current>,
    repeats: Repeats,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    status: Status,
    since_ms: u64,
    /// The leader when clients were served last.
    leader: Option<ServerId>,
    /// Why there is no leader.
    reason: Option<Reason>,
}

impl Role {
    pub fn new(me: ServerId, metrics: Arc<Metrics>) -> Role {
        let now = Current { status: Status::Looking, since_ms: 0, leader: None, reason: None };
        Role { me, metrics, now: Mutex::new(now), repeats: Repeats::default() }
    }

    fn current(&self) -> Current {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn status(&self) -> Status {
        self.current().status
    }

    /// Returns why the last attempt to lead or to follow ended.
    pub fn reason(&self) -> Option<Reason> {
        self.current().reason
    }

    /// Returns the age of the present role in milliseconds.
    pub fn age_ms(&self, now: Now) -> u64 {
        now.mono_ms.saturating_sub(self.current().since_ms)
    }

    /// Records a change and logs it. These few lines are shown by default, and at most once a
    /// minute during a lasting failure.
    pub fn change(&self, status: Status, reason: Option<Reason>, now: Now) {
        if let (Status::Looking, Status::Looking, Some(reason)) =
            (self.status(), status, reason.filter(|reason| *reason != Reason::Started))
        {
            // A leader was elected, but was not established.
            self.now.lock().unwrap_or_else(PoisonError::into_inner).reason = Some(reason);
            let line = format!("server {} looks for a leader again: {reason}", self.me);
            return self.repeats.warn(line);
        }
        let leader = match status {
            Status::Looking => None,
            Status::Leading { .. } => Some(self.me),
            Status::Following { leader, .. } | Status::Observing { leader, .. } => Some(leader),
        };
        let before = {
            let mut current = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            let leader = leader.or(current.leader);
            let since_ms = now.mono_ms;
            std::mem::replace(&mut *current, Current { status, since_ms, leader, reason })
        };
        let took_ms = now.mono_ms.saturating_sub(before.since_ms);
        match leader {
            None => drop(self.metrics.lookings.fetch_add(1, Relaxed)),
            Some(_) => self.metrics.unavailable.add(took_ms),
        }
        if leader.is_some() && leader != before.leader {
            self.metrics.leader_unavailable.add(took_ms);
        }
        let me = self.me;
        match (status, reason) {
            (Status::Looking, Some(Reason::Started) | None) => {
                tracing::info!("server {me} is looking for a leader");
            }
            (Status::Looking, Some(reason)) => {
                self.repeats.warn(format!("server {me} is looking for a leader: {reason}"));
            }
            (Status::Leading { epoch }, _) => {
                tracing::info!("server {me} leads in epoch {epoch}, after {took_ms} ms of looking");
            }
            (Status::Following { leader, epoch }, _) => tracing::info!(
                "server {me} follows server {leader} in epoch {epoch}, after {took_ms} ms of looking"
            ),
            (Status::Observing { leader, epoch }, _) => tracing::info!(
                "server {me} observes server {leader} in epoch {epoch}, after {took_ms} ms of looking"
            ),
        }
    }
}
