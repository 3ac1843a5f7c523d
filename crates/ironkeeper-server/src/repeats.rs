//! Rate limits for log lines that would repeat for as long as a failure lasts.

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

/// The part of the server that a line is about, for log filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum About {
    #[default]
    Role,
    Peers,
}

/// The lines that were logged recently.
#[derive(Debug, Default)]
pub struct Repeats {
    about: About,
    said: Mutex<BTreeMap<String, Said>>,
    kinds: Mutex<BTreeMap<&'static str, Budget>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    /// The number of repetitions suppressed since then.
    kept_back: u64,
}

impl Repeats {
    pub fn about(about: About) -> Repeats {
        Repeats { about, ..Repeats::default() }
    }

    /// Returns the line to log now, or `None` if it was logged within `PAUSE`.
    pub fn line(&self, line: String, now: Instant) -> Option<String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = said.get_mut(&line) {
            if now.saturating_duration_since(before.at) < PAUSE {
                before.kept_back += 1;
                return None;
            }
            let kept_back = std::mem::take(&mut before.kept_back);
            before.at = now;
            return Some(match kept_back {
                0 => line,
                more => format!("{line} (and {more} times since this was last said)"),
            });
        }
        if said.len() >= LINES_MAX {
            said.clear();
        }
        said.insert(line.clone(), Said { at: now, kept_back: 0 });
        Some(line)
    }

    /// Does the same for lines with parts that a peer can choose, such as its address: a few of
    /// each kind are logged in a minute, and the others are counted.
    pub fn line_of(&self, kind: &'static str, line: String, now: Instant) -> Option<String> {
        let line = self.line(line, now)?;
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = kinds.entry(kind).or_insert_with(|| Budget::new(LINES_OF_A_KIND_MAX, PAUSE));
        let held_back = budget.held_back(now);
        budget.admits(now).then(|| match held_back {
            None => line,
            Some(more) => format!("{line} (and {more} lines like this one before it)"),
        })
    }

    /// Warns of a failure for which a peer can cause many lines.
    pub fn warn_of(&self, kind: &'static str, line: String) {
        self.write(self.line_of(kind, line, Instant::now()));
    }

    /// Warns of a failure.
    pub fn warn(&self, line: String) {
        self.write(self.line(line, Instant::now()));
    }

    fn write(&self, line: Option<String>) {
        let Some(line) = line else { return };
        match self.about {
            About::Role => tracing::warn!(target: "ironkeeper_server::role", "{line}"),
            About::Peers => tracing::warn!(target: "ironkeeper_server::peer", "{line}"),
        }
    }
}

/// Limits of lines about the synchronization of learners; each connection causes some. Each member
/// has its own limit; non-members share one, because there can be any number of them.
#[derive(Debug, Default)]
pub struct LearnerLines {
    /// By member; `None` for all others.
    budgets: Mutex<BTreeMap<Option<ServerId>, Budget>>,
}

/// The maximum number of lines about one member within [`PAUSE`].
const LINES_OF_A_MEMBER_MAX: u32 = 16;

impl LearnerLines {
    /// Returns whether a line may be logged now: `Some` with the number of lines suppressed in the
    /// period before.
    pub fn admits(&self, member: Option<ServerId>, now: Instant) -> Option<u64> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if budgets.len() >= LINES_MAX && !budgets.contains_key(&member) {
            budgets.clear();
        }
        let lines_max = match member {
            Some(_) => LINES_OF_A_MEMBER_MAX,
            None => LINES_OF_A_KIND_MAX,
        };
        let budget = budgets.entry(member).or_insert_with(|| Budget::new(lines_max, PAUSE));
        let held_back = budget.held_back(now).unwrap_or(0);
        budget.admits(now).then_some(held_back)
    }
}

/// A limit of lines in a period that counts the others.
#[derive(Debug)]
pub struct Budget {
    lines_max: u32,
    period: Duration,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    since: Option<Instant>,
    lines: u32,
    held_back: u64,
}

impl Budget {
    pub fn new(lines_max: u32, period: Duration) -> Budget {
        Budget { lines_max, period, spent: Mutex::default() }
    }

    /// Returns whether a line may be logged now. If not, counts it.
    pub fn admits(&self, now: Instant) -> bool {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.since.is_none_or(|since| now.saturating_duration_since(since) >= self.period) {
            spent.since = Some(now);
            spent.lines = 0;
        }
        let admitted = spent.lines < self.lines_max;
        match admitted {
            true => spent.lines += 1,
            false => spent.held_back += 1,
        }
        admitted
    }

    /// Returns the number of lines suppressed in a period that has ended; each is returned once.
    pub fn held_back(&self, now: Instant) -> Option<u64> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over =
            spent.since.is_none_or(|since| now.saturating_duration_since(since) >= self.period);
        (is_over && spent.held_back > 0).then(|| std::mem::take(&mut spent.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_once_a_minute_with_the_count_of_those_kept_back() {
        let repeats = Repeats::default();
        let now = Instant::now();
        let say = |line: &str, after: Duration| repeats.line(line.to_owned(), now + after);
        assert_eq!(say("a", Duration::ZERO).as_deref(), Some("a"));
        assert_eq!(say("a", PAUSE / 2), None);
        assert_eq!(say("b", PAUSE / 2).as_deref(), Some("b"), "another line is news");
        assert_eq!(say("a", PAUSE / 2), None);
        let again = say("a", PAUSE).expect("a minute has passed");
        assert_eq!(again, "a (and 2 times since this was last said)");
        assert_eq!(say("a", 2 * PAUSE).as_deref(), Some("a"));
    }

    #[test]
    fn of_one_kind_a_few_lines_are_said_in_a_minute_and_the_others_counted() {
        let repeats = Repeats::default();
        let now = Instant::now();
        let say = |kind, number: u32, after| {
            repeats.line_of(kind, format!("refused {number}"), now + after)
        };
        let said = (0..1000).filter(|number| say("a", *number, Duration::ZERO).is_some());
        assert_eq!(said.count(), LINES_OF_A_KIND_MAX as usize);
        assert!(say("b", 1000, Duration::ZERO).is_some(), "another kind");
        let again = say("a", 1001, PAUSE).expect("a minute has passed");
        assert_eq!(again, "refused 1001 (and 996 lines like this one before it)");
    }

    #[test]
    fn a_budget_admits_so_many_lines_in_a_period_and_counts_the_rest_once() {
        let budget = Budget::new(2, PAUSE);
        let now = Instant::now();
        let admitted = (0..5).filter(|_| budget.admits(now)).count();
        assert_eq!((admitted, budget.held_back(now)), (2, None), "the period is not over");
        let later = now + PAUSE;
        assert_eq!((budget.held_back(later), budget.held_back(later)), (Some(3), None));
        assert!(budget.admits(later));
    }

    #[test]
    fn strangers_share_a_few_lines_and_take_none_from_members() {
        let lines = LearnerLines::default();
        let now = Instant::now();
        let written = |member, count: usize| {
            (0..count).filter(|_| lines.admits(member, now).is_some()).count()
        };
        assert_eq!(written(None, 1000), LINES_OF_A_KIND_MAX as usize);
        let members = [Some(ServerId(1)), Some(ServerId(2))];
        let of_a_member = LINES_OF_A_MEMBER_MAX as usize;
        assert_eq!(members.map(|member| written(member, 1000)), [of_a_member; 2]);
        let held_back = 1000 - u64::from(LINES_OF_A_KIND_MAX);
        assert_eq!(lines.admits(None, now + PAUSE), Some(held_back), "counted in the next line");
        assert_eq!(lines.admits(None, now + PAUSE), Some(0));
    }

    #[test]
    fn no_more_is_remembered_however_many_lines_there_are() {
        let repeats = Repeats::default();
        for number in 0..10 * LINES_MAX {
            assert!(repeats.line(number.to_string(), Instant::now()).is_some());
        }
        assert!(repeats.said.lock().expect("nobody panics").len() <= LINES_MAX);
    }
}
