//! Rate limits for log lines that a client, a peer or a lasting failure can cause in any number.
//!
//! Suppressed lines are counted, and a later line has the count in the field `suppressed`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironkeeper_proto::ServerId;

/// The same line is logged again after this time.
const PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of remembered lines. At it all are cleared, and may be logged once more.
const LINES_MAX: usize = 64;
/// The maximum number of different lines of one kind within [`PAUSE`].
const LINES_OF_A_KIND_MAX: u32 = 4;
/// The maximum number of lines about one member within [`PAUSE`].
const LINES_OF_A_MEMBER_MAX: u32 = 16;

/// The permission to log a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The number of lines suppressed before this one; `None` if there were none. For the field
    /// `suppressed`.
    pub suppressed: Option<u64>,
}

impl Admitted {
    fn after(suppressed: u64) -> Admitted {
        Admitted { suppressed: (suppressed > 0).then_some(suppressed) }
    }
}

/// The maximum number of lines in a period. Further lines are counted.
#[derive(Debug)]
pub struct RateLimit {
    lines_max: u32,
    period: Duration,
    state: Mutex<Period>,
}

#[derive(Debug, Default)]
struct Period {
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl RateLimit {
    pub fn new(lines_max: u32, period: Duration) -> RateLimit {
        RateLimit { lines_max, period, state: Mutex::default() }
    }

    /// Returns whether a line may be logged now. If not, counts it.
    pub fn admits(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= self.period) {
            state.since = Some(now);
            state.lines = 0;
        }
        let admitted = state.lines < self.lines_max;
        match admitted {
            true => state.lines += 1,
            false => state.suppressed += 1,
        }
        admitted
    }

    /// Returns the number of lines suppressed in a period that has ended; each is returned once.
    pub fn suppressed(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over =
            state.since.is_none_or(|since| now.saturating_duration_since(since) >= self.period);
        (is_over && state.suppressed > 0).then(|| std::mem::take(&mut state.suppressed))
    }
}

/// A limit by line: the same line at most once in [`PAUSE`]. A line is identified by a text that
/// contains what an operator would distinguish.
#[derive(Debug, Default)]
pub struct LineLimit {
    recent: Mutex<BTreeMap<String, Recent>>,
    kinds: Mutex<BTreeMap<&'static str, RateLimit>>,
}

/// A line that was logged.
#[derive(Debug)]
struct Recent {
    at: Instant,
    /// The number of repetitions suppressed since then.
    suppressed: u64,
}

impl LineLimit {
    /// Returns whether a line may be logged now: `None` if it was logged within [`PAUSE`].
    pub fn admit(&self, line: String, now: Instant) -> Option<Admitted> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = recent.get_mut(&line) {
            if now.saturating_duration_since(before.at) < PAUSE {
                before.suppressed += 1;
                return None;
            }
            before.at = now;
            return Some(Admitted::after(std::mem::take(&mut before.suppressed)));
        }
        if recent.len() >= LINES_MAX {
            recent.clear();
        }
        recent.insert(line, Recent { at: now, suppressed: 0 });
        Some(Admitted::after(0))
    }

    /// Does the same for lines with parts that a peer can choose, such as its address: in addition,
    /// at most [`LINES_OF_A_KIND_MAX`] lines of each kind are admitted within [`PAUSE`].
    pub fn admit_kind(&self, kind: &'static str, line: String, now: Instant) -> Option<Admitted> {
        let repeated = self.admit(line, now)?.suppressed.unwrap_or(0);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = kinds.entry(kind).or_insert_with(|| RateLimit::new(LINES_OF_A_KIND_MAX, PAUSE));
        let of_the_kind = limit.suppressed(now).unwrap_or(0);
        limit.admits(now).then(|| Admitted::after(repeated + of_the_kind))
    }
}

/// The limit of lines about the synchronization of learners; each connection causes some. Each
/// member has its own limit; non-members share one, because there can be any number of them.
#[derive(Debug, Default)]
pub struct LearnerLimit {
    /// By member; `None` for all others.
    limits: Mutex<BTreeMap<Option<ServerId>, RateLimit>>,
}

impl LearnerLimit {
    /// Returns whether a line may be logged now.
    pub fn admit(&self, member: Option<ServerId>, now: Instant) -> Option<Admitted> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if limits.len() >= LINES_MAX && !limits.contains_key(&member) {
            limits.clear();
        }
        let lines_max = match member {
            Some(_) => LINES_OF_A_MEMBER_MAX,
            None => LINES_OF_A_KIND_MAX,
        };
        let limit = limits.entry(member).or_insert_with(|| RateLimit::new(lines_max, PAUSE));
        let suppressed = limit.suppressed(now).unwrap_or(0);
        limit.admits(now).then(|| Admitted::after(suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Option<Admitted> = Some(Admitted { suppressed: None });

    fn after(suppressed: u64) -> Option<Admitted> {
        Some(Admitted { suppressed: Some(suppressed) })
    }

    #[test]
    fn a_line_is_admitted_once_a_minute_with_the_count_of_suppressed_ones() {
        let limit = LineLimit::default();
        let now = Instant::now();
        let admit = |line: &str, after: Duration| limit.admit(line.to_owned(), now + after);
        assert_eq!(admit("a", Duration::ZERO), FIRST);
        assert_eq!(admit("a", PAUSE / 2), None);
        assert_eq!(admit("b", PAUSE / 2), FIRST, "a different line");
        assert_eq!(admit("a", PAUSE / 2), None);
        assert_eq!(admit("a", PAUSE), after(2), "a minute has passed");
        assert_eq!(admit("a", 2 * PAUSE), FIRST);
    }

    #[test]
    fn a_few_lines_of_one_kind_are_admitted_in_a_minute_and_the_others_counted() {
        let limit = LineLimit::default();
        let now = Instant::now();
        let admit = |kind, number: u32, after| {
            limit.admit_kind(kind, format!("rejected {number}"), now + after)
        };
        let admitted = (0..1000).filter(|number| admit("a", *number, Duration::ZERO).is_some());
        assert_eq!(admitted.count(), LINES_OF_A_KIND_MAX as usize);
        assert_eq!(admit("b", 1000, Duration::ZERO), FIRST, "another kind");
        assert_eq!(admit("a", 1001, PAUSE), after(996), "a minute has passed");
    }

    #[test]
    fn a_rate_limit_admits_so_many_lines_in_a_period_and_counts_the_rest_once() {
        let limit = RateLimit::new(2, PAUSE);
        let now = Instant::now();
        let admitted = (0..5).filter(|_| limit.admits(now)).count();
        assert_eq!((admitted, limit.suppressed(now)), (2, None), "the period is not over");
        let later = now + PAUSE;
        assert_eq!((limit.suppressed(later), limit.suppressed(later)), (Some(3), None));
        assert!(limit.admits(later));
    }

    #[test]
    fn non_members_share_a_limit_and_take_no_lines_from_members() {
        let limit = LearnerLimit::default();
        let now = Instant::now();
        let admitted = |member, count: usize| {
            (0..count).filter(|_| limit.admit(member, now).is_some()).count()
        };
        assert_eq!(admitted(None, 1000), LINES_OF_A_KIND_MAX as usize);
        let members = [Some(ServerId(1)), Some(ServerId(2))];
        let of_a_member = LINES_OF_A_MEMBER_MAX as usize;
        assert_eq!(members.map(|member| admitted(member, 1000)), [of_a_member; 2]);
        let suppressed = 1000 - u64::from(LINES_OF_A_KIND_MAX);
        assert_eq!(limit.admit(None, now + PAUSE), after(suppressed), "counted in the next line");
        assert_eq!(limit.admit(None, now + PAUSE), FIRST);
    }

    #[test]
    fn the_number_of_remembered_lines_is_bounded() {
        let limit = LineLimit::default();
        for number in 0..10 * LINES_MAX {
            assert_eq!(limit.admit(number.to_string(), Instant::now()), FIRST);
        }
        assert!(limit.recent.lock().expect("no test panics with the lock").len() <= LINES_MAX);
    }
}
