//! Limits on how fast sessions are opened and on requests in progress.

use crate::defaults;

/// The settings of the token bucket for new sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConnectionThrottle {
    /// Size of the bucket in new sessions; no throttle if not set.
    pub tokens: Option<u32>,
    pub fill_time_ms: u32,
    /// The tokens, in new sessions, that are returned every `fill_time_ms`.
    pub fill_count: u32,
    /// Minimum time between changes of the probability of dropping a connection at random; no
    /// random drops if not set.
    pub freeze_time_ms: Option<u32>,
    pub drop_increase: f64,
    pub drop_decrease: f64,
    /// The probability falls while at most this fraction of the bucket is missing.
    pub decrease_ratio: f64,
    /// The costs of sessions if they differ; one token each if not set.
    pub weights: Option<SessionWeights>,
}

impl ConnectionThrottle {
    /// Returns the tokens in a full bucket. With weights, `tokens` counts new sessions, which cost
    /// several.
    pub fn bucket_tokens(&self) -> Option<u32> {
        self.tokens.map(|tokens| tokens.saturating_mul(self.cost_of_new_session()))
    }

    /// Returns the tokens that are returned every `fill_time_ms`.
    pub fn tokens_per_filling(&self) -> u32 {
        self.fill_count.saturating_mul(self.cost_of_new_session())
    }

    /// Returns the tokens that a new session costs.
    pub fn cost_of_new_session(&self) -> u32 {
        self.weights.map_or(1, |weights| weights.global)
    }

    /// Returns the tokens that resuming a session costs.
    pub fn cost_of_renewal(&self) -> u32 {
        self.weights.map_or(1, |weights| weights.renew)
    }
}

impl Default for ConnectionThrottle {
    fn default() -> Self {
        ConnectionThrottle {
            tokens: None,
            fill_time_ms: defaults::CONNECTION_THROTTLE_FILL_TIME_MS,
            fill_count: defaults::CONNECTION_THROTTLE_FILL_COUNT,
            freeze_time_ms: None,
            drop_increase: defaults::CONNECTION_THROTTLE_DROP_INCREASE,
            drop_decrease: defaults::CONNECTION_THROTTLE_DROP_DECREASE,
            decrease_ratio: defaults::CONNECTION_THROTTLE_DECREASE_RATIO,
            weights: None,
        }
    }
}

/// The costs of kinds of sessions in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionWeights {
    pub global: u32,
    pub local: u32,
    pub renew: u32,
}

impl Default for SessionWeights {
    fn default() -> Self {
        SessionWeights {
            global: defaults::CONNECTION_THROTTLE_GLOBAL_WEIGHT,
            local: defaults::CONNECTION_THROTTLE_LOCAL_WEIGHT,
            renew: defaults::CONNECTION_THROTTLE_RENEW_WEIGHT,
        }
    }
}

/// A limit on requests in progress; further requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestThrottle {
    /// No throttle if not set.
    pub max_requests: Option<u32>,
    /// Time between two checks of the waiting requests for stale ones.
    pub stall_time_ms: u32,
    /// Whether stale requests are dropped rather than served.
    pub drop_stale: bool,
    /// Whether a request is stale when its connection is closed.
    pub stale_connection_check: bool,
    /// Whether a request is stale when it is older than its session's timeout.
    pub stale_latency_check: bool,
}

impl Default for RequestThrottle {
    fn default() -> Self {
        RequestThrottle {
            max_requests: None,
            stall_time_ms: defaults::REQUEST_THROTTLE_STALL_TIME_MS,
            drop_stale: true,
            stale_connection_check: true,
            stale_latency_check: false,
        }
    }
}
