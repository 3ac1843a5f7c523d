//! The part a member plays in its ensemble, as administrators see it.

use std::sync::{Mutex, PoisonError};

use ironkeeper_engine::Now;
use ironkeeper_proto::ServerId;
use ironkeeper_zab::{Reason, Status};

/// What a member is doing, and since when.
#[derive(Debug)]
pub struct Role {
    me: ServerId,
    now: Mutex<Current>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    status: Status,
    since_ms: u64,
    /// How often it has begun to look for a leader.
    looked: u64,
}

impl Role {
    pub fn new(me: ServerId) -> Role {
        Role { me, now: Mutex::new(Current { status: Status::Looking, since_ms: 0, looked: 0 }) }
    }

    pub fn me(&self) -> ServerId {
        self.me
    }

    fn current(&self) -> Current {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn status(&self) -> Status {
        self.current().status
    }

    /// How often this server has begun to look for a leader.
    pub fn looked(&self) -> u64 {
        self.current().looked
    }

    /// Notes a change and tells the operator.
    pub fn change(&self, status: Status, reason: Option<Reason>, now: Now) {
        let before = {
            let mut current = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            let looked = current.looked + u64::from(status == Status::Looking);
            std::mem::replace(&mut *current, Current { status, since_ms: now.mono_ms, looked })
        };
        let took_ms = now.mono_ms.saturating_sub(before.since_ms);
        let me = self.me;
        match (status, reason) {
            (Status::Looking, Some(reason)) => {
                tracing::info!("server {me} is looking for a leader: {reason}");
            }
            (Status::Looking, None) => tracing::info!("server {me} is looking for a leader"),
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

/// Apache's name for what a server is doing.
pub fn name(status: Status) -> &'static str {
    match status {
        Status::Looking => "looking",
        Status::Leading { .. } => "leader",
        Status::Following { .. } => "follower",
        Status::Observing { .. } => "observer",
    }
}
