//! The role of a member in its ensemble, as administrators see it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ironkeeper_engine::Now;
use ironkeeper_proto::ServerId;
use ironkeeper_zab::{Reason, Status};

use crate::metrics::Metrics;
use crate::rate_limited::{Admitted, LineLimit};

/// The role of a member, and the time of its last change.
#[derive(Debug)]
pub struct Role {
    me: ServerId,
    metrics: Arc<Metrics>,
    now: Mutex<Current>,
    limit: LineLimit,
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
        Role { me, metrics, now: Mutex::new(now), limit: LineLimit::default() }
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

    /// Records a change and logs it. During a lasting failure the same line is logged at most once
    /// a minute.
    pub fn change(&self, status: Status, reason: Option<Reason>, now: Now) {
        if let (Status::Looking, Status::Looking, Some(reason)) =
            (self.status(), status, reason.filter(|reason| *reason != Reason::Started))
        {
            // A leader was elected, but was not established.
            self.now.lock().unwrap_or_else(PoisonError::into_inner).reason = Some(reason);
            let line = format!("still looking: {reason}");
            if let Some(Admitted { suppressed }) = self.limit.admit(line, Instant::now()) {
                let server = self.me.0;
                tracing::warn!(server, %reason, suppressed, "still looking for a leader");
            }
            return;
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
        self.log(status, reason, took_ms);
    }

    /// Logs the present role. `took_ms` is the time without one.
    fn log(&self, status: Status, reason: Option<Reason>, took_ms: u64) {
        let server = self.me.0;
        match status {
            Status::Looking => match reason.filter(|reason| *reason != Reason::Started) {
                None => tracing::info!(server, "looking for a leader"),
                Some(reason) => {
                    let line = format!("looking: {reason}");
                    if let Some(Admitted { suppressed }) = self.limit.admit(line, Instant::now()) {
                        tracing::info!(server, %reason, suppressed, "looking for a leader");
                    }
                }
            },
            Status::Leading { epoch } => {
                tracing::info!(server, epoch = epoch.0, took_ms, "leading");
            }
            Status::Following { leader, epoch } => {
                tracing::info!(server, leader = leader.0, epoch = epoch.0, took_ms, "following");
            }
            Status::Observing { leader, epoch } => {
                tracing::info!(server, leader = leader.0, epoch = epoch.0, took_ms, "observing");
            }
        }
    }
}
