//! Retries: how many, and the pauses between them.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::Client;
use crate::error::{ErrorKind, Result};
use crate::random::Random;
use crate::state::ConnectionState;

/// The number of retries, and the pauses between them. The policies are Curator's.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::{Client, RetryPolicy};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let policy = RetryPolicy::exponential(Duration::from_millis(100), 5);
///     let node = client.retry(&policy, || client.get("/zookeeper")).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ExponentialBackoffRetry")]
#[doc(alias = "KazooRetry")]
pub struct RetryPolicy {
    pause: Pause,
    /// Attempts after the first.
    times: Option<u32>,
    elapsed: Option<Duration>,
    seed: Option<u64>,
}

#[derive(Clone, Debug)]
enum Pause {
    Fixed(Duration),
    /// Random, growing with each attempt.
    Exponential {
        base: Duration,
        max: Duration,
    },
}

/// Curator's bound for the exponent; the pause does not grow beyond it.
const EXPONENT_MAX: u32 = 29;

impl RetryPolicy {
    fn new(pause: Pause, times: Option<u32>) -> RetryPolicy {
        RetryPolicy { pause, times, elapsed: None, seed: None }
    }

    /// Does not retry.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// assert_eq!(RetryPolicy::never().pauses().next_after(Duration::ZERO), None);
    /// ```
    pub fn never() -> RetryPolicy {
        RetryPolicy::times(0, Duration::ZERO)
    }

    /// Retries once.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let pause = Duration::from_millis(5);
    /// assert_eq!(RetryPolicy::once(pause).pauses().next_after(Duration::ZERO), Some(pause));
    /// ```
    #[doc(alias = "RetryOneTime")]
    pub fn once(pause: Duration) -> RetryPolicy {
        RetryPolicy::times(1, pause)
    }

    /// Retries up to `times` times.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let mut pauses = RetryPolicy::times(2, Duration::ZERO).pauses();
    /// assert!(pauses.next_after(Duration::ZERO).is_some());
    /// assert!(pauses.next_after(Duration::ZERO).is_some());
    /// assert!(pauses.next_after(Duration::ZERO).is_none());
    /// ```
    #[doc(alias = "RetryNTimes")]
    pub fn times(times: u32, pause: Duration) -> RetryPolicy {
        RetryPolicy::new(Pause::Fixed(pause), Some(times))
    }

    /// Retries until the request succeeds or the session ends.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let policy = RetryPolicy::forever(Duration::from_millis(100));
    /// ```
    #[doc(alias = "RetryForever")]
    pub fn forever(pause: Duration) -> RetryPolicy {
        RetryPolicy::new(Pause::Fixed(pause), None)
    }

    /// Retries while less than `max` has passed since the first attempt.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let policy = RetryPolicy::until_elapsed(Duration::from_secs(10), Duration::from_millis(100));
    /// assert_eq!(policy.pauses().next_after(Duration::from_secs(11)), None);
    /// ```
    #[doc(alias = "RetryUntilElapsed")]
    pub fn until_elapsed(max: Duration, pause: Duration) -> RetryPolicy {
        RetryPolicy { elapsed: Some(max), ..RetryPolicy::forever(pause) }
    }

    /// Retries up to `times` times, with random pauses that double on average.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let policy = RetryPolicy::exponential(Duration::from_millis(100), 3);
    /// let first = policy.pauses().next_after(Duration::ZERO).unwrap();
    /// assert!(first >= Duration::from_millis(100) && first < Duration::from_millis(200));
    /// ```
    #[doc(alias = "ExponentialBackoffRetry")]
    pub fn exponential(base: Duration, times: u32) -> RetryPolicy {
        RetryPolicy::bounded_exponential(base, Duration::MAX, times)
    }

    /// Does the same as [`RetryPolicy::exponential`], with no pause longer than `max`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let (base, max) = (Duration::from_millis(100), Duration::from_secs(1));
    /// let mut pauses = RetryPolicy::bounded_exponential(base, max, 50).pauses();
    /// assert!((0..50).all(|_| pauses.next_after(Duration::ZERO).unwrap() <= max));
    /// ```
    #[doc(alias = "BoundedExponentialBackoffRetry")]
    pub fn bounded_exponential(base: Duration, max: Duration, times: u32) -> RetryPolicy {
        RetryPolicy::new(Pause::Exponential { base, max }, Some(times))
    }

    /// Fixes the seed of the random pauses.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let policy = RetryPolicy::exponential(Duration::from_millis(10), 9).with_seed(7);
    /// let (mut one, mut two) = (policy.pauses(), policy.pauses());
    /// assert!((0..9).all(|_| one.next_after(Duration::ZERO) == two.next_after(Duration::ZERO)));
    /// ```
    pub fn with_seed(mut self, seed: u64) -> RetryPolicy {
        self.seed = Some(seed);
        self
    }

    /// Returns the pauses for one use of the policy, for a caller with its own loop.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let mut pauses = RetryPolicy::once(Duration::from_millis(5)).pauses();
    /// assert!(pauses.next_after(Duration::ZERO).is_some());
    /// assert!(pauses.next_after(Duration::ZERO).is_none());
    /// ```
    pub fn pauses(&self) -> Pauses {
        self.pauses_by(Random::from_os)
    }

    fn pauses_by(&self, chance: impl FnOnce() -> Random) -> Pauses {
        let random = self.seed.map_or_else(chance, Random::from_seed);
        Pauses { policy: self.clone(), random, done: 0 }
    }
}

/// One use of a [`RetryPolicy`], with an example at [`RetryPolicy::pauses`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use ironkeeper_client::{Pauses, RetryPolicy};
///
/// let started = Instant::now();
/// let mut pauses: Pauses = RetryPolicy::times(2, Duration::ZERO).pauses();
/// let mut tries = 1;
/// while let Some(pause) = pauses.next_after(started.elapsed()) {
///     std::thread::sleep(pause);
///     tries += 1;
/// }
/// assert_eq!(tries, 3);
/// ```
#[derive(Debug)]
pub struct Pauses {
    policy: RetryPolicy,
    random: Random,
    done: u32,
}

impl Pauses {
    /// Returns the pause before the next attempt; `None` if the policy permits no further attempt.
    /// `elapsed` is the time since the first attempt.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::RetryPolicy;
    /// let pause = Duration::from_millis(7);
    /// assert_eq!(RetryPolicy::forever(pause).pauses().next_after(Duration::ZERO), Some(pause));
    /// ```
    pub fn next_after(&mut self, elapsed: Duration) -> Option<Duration> {
        let tries_are_over = self.policy.times.is_some_and(|times| self.done >= times);
        let time_is_over = self.policy.elapsed.is_some_and(|max| elapsed >= max);
        if tries_are_over || time_is_over {
            return None;
        }
        let exponent = (self.done + 1).min(EXPONENT_MAX);
        self.done = self.done.saturating_add(1);
        Some(match self.policy.pause {
            Pause::Fixed(pause) => pause,
            Pause::Exponential { base, max } => {
                let factor = self.random.below(1 << exponent).max(1) as u32;
                base.saturating_mul(factor).min(max)
            }
        })
    }
}

impl Client {
    /// Repeats a request until it succeeds, fails with an error that is not retriable, or the
    /// policy permits no further attempt. After a lost connection it waits for the next connection
    /// before it retries, and after a rejection by a read-only server it waits for a server that
    /// accepts writes.
    ///
    /// A write may be applied more than once, because the outcome is unknown after a lost reply.
    /// Where that matters, use [`Client::create_protected`] and the idempotent operations.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::{Client, RetryPolicy};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let policy = RetryPolicy::times(3, Duration::from_millis(100));
    ///     let children = client.retry(&policy, || client.children("/")).await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "RetryLoop")]
    #[doc(alias = "KazooRetry")]
    pub async fn retry<T, F>(
        &self,
        policy: &RetryPolicy,
        mut request: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut retries = Retries::new(self, policy);
        loop {
            match request().await {
                Err(error) if error.is_retriable() => retries.pause(error).await?,
                other => return other,
            }
        }
    }
}

/// The state of a retry loop.
pub(crate) struct Retries<'a> {
    client: &'a Client,
    pauses: Pauses,
    started: Instant,
}

impl Retries<'_> {
    pub(crate) fn new<'a>(client: &'a Client, policy: &RetryPolicy) -> Retries<'a> {
        let pauses = policy.pauses_by(|| client.shared().chance());
        Retries { client, pauses, started: Instant::now() }
    }

    /// Waits before the next attempt, and for a connection; returns the error if no attempt is
    /// left.
    pub(crate) async fn pause(&mut self, error: crate::Error) -> Result<()> {
        let Some(pause) = self.pauses.next_after(self.started.elapsed()) else { return Err(error) };
        tokio::time::sleep(pause).await;
        let wanted = match error.kind() {
            ErrorKind::ConnectionLoss => ConnectionState::is_connected,
            ErrorKind::NotReadOnly => ConnectionState::takes_writes,
            _ => return Ok(()),
        };
        // An attempt without a connection is pointless. The wait is bounded by the session timeout,
        // or by the requested one before the first connection.
        let patience = self.client.session_timeout();
        match tokio::time::timeout(patience, self.client.reaches(wanted)).await {
            Ok(reached) => reached,
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(policy: &RetryPolicy, count: usize) -> Vec<Option<u128>> {
        let mut pauses = policy.pauses();
        (0..count)
            .map(|_| pauses.next_after(Duration::ZERO).map(|pause| pause.as_millis()))
            .collect()
    }

    #[test]
    fn policies_stop_when_they_say() {
        let ms = Duration::from_millis;
        assert_eq!(pauses(&RetryPolicy::times(2, ms(3)), 3), [Some(3), Some(3), None]);
        assert_eq!(pauses(&RetryPolicy::never(), 1), [None]);
        let mut elapsed = RetryPolicy::until_elapsed(ms(10), ms(1)).pauses();
        assert!(elapsed.next_after(ms(9)).is_some());
        assert!(elapsed.next_after(ms(10)).is_none());
    }

    #[test]
    fn exponential_pauses_stay_in_their_range() {
        let policy = RetryPolicy::exponential(Duration::from_millis(10), 40).with_seed(1);
        for (at, pause) in pauses(&policy, 40).into_iter().enumerate() {
            let pause = pause.unwrap();
            assert!(
                pause >= 10 && pause < 10 << (at as u32 + 1).min(EXPONENT_MAX),
                "{at}: {pause}"
            );
        }
    }
}
