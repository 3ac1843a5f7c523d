//! The choice between DIFF, TRUNC and SNAP for the synchronization of a learner, as a function.
//!
//! The rules are Apache's, so that both programs can take both sides, with two differences where
//! Apache's leaders are known to lose transactions: the log on disk is used only as far back as it
//! is known to have no gap, and only if it contains the learner's last transaction.

use ironkeeper_proto::Zxid;

use crate::history::History;

/// The first step of the synchronization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPlan {
    /// The learner has a prefix of our history: send the rest.
    Diff { after: Zxid },
    /// The learner has transactions that we do not have: it truncates to `to`, then receives the
    /// rest.
    Trunc { to: Zxid },
    /// Send a snapshot.
    Snap,
    /// Too old for the history in memory, perhaps not for the log on disk: read the log, then
    /// decide with [`plan_with_log`].
    ReadLog { after: Zxid },
}

/// Returns the plan for a learner whose last zxid is `learner`. The log on disk is known to be
/// complete from `log_from` on.
pub fn plan_sync(history: &History, log_from: Zxid, learner: Zxid) -> SyncPlan {
    let last = history.last();
    if learner == last {
        return SyncPlan::Diff { after: learner };
    }
    if learner > last {
        // A counter of zero belongs to no transaction, so there is nothing to truncate. Our own
        // learners also send it to request a snapshot. A learner that continued in another epoch
        // may not have our last transaction: Apache's learners would keep the first of their own
        // after it.
        let goes_back = learner.counter() != 0 && learner.epoch() == last.epoch();
        return if goes_back { SyncPlan::Trunc { to: last } } else { SyncPlan::Snap };
    }
    if learner < history.base() {
        return if learner >= log_from {
            SyncPlan::ReadLog { after: learner }
        } else {
            SyncPlan::Snap
        };
    }
    if history.contains(learner) || learner.counter() == 0 {
        return SyncPlan::Diff { after: learner };
    }
    match history.around(learner) {
        (before, Some(after)) if after.epoch() == learner.epoch() => SyncPlan::Trunc { to: before },
        // Apache's learners cannot truncate across the end of an epoch.
        _ => SyncPlan::Snap,
    }
}

/// The result of reading the log on disk.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LogRead {
    /// Whether the log contains the learner's last transaction, or begins directly after it.
    pub found: bool,
    /// The transactions that follow without a gap, as far as they were read.
    pub txns: Vec<(Zxid, bytes::Bytes)>,
}

/// Decides after the log was read, with the history as it is then.
pub fn plan_with_log(history: &History, read: &LogRead, learner: Zxid) -> SyncPlan {
    let reached = read.txns.last().map_or(learner, |(zxid, _)| *zxid);
    if read.found && history.contains(reached) {
        SyncPlan::Diff { after: learner }
    } else {
        SyncPlan::Snap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use ironkeeper_proto::Epoch;

    fn z(epoch: i64, counter: u32) -> Zxid {
        Zxid::new(Epoch(epoch), counter)
    }

    /// Returns a history that begins after 1:5 and contains 1:6 to 1:8 and 3:1 to 3:2. The log on
    /// disk begins at 1:2.
    fn history() -> History {
        let mut history = History::new(z(1, 5), 100, 1000);
        for zxid in [z(1, 6), z(1, 7), z(1, 8), z(3, 1), z(3, 2)] {
            history.push(zxid, &Bytes::new());
        }
        history
    }

    #[test]
    fn every_case_of_the_table() {
        for (learner, expected) in [
            (z(3, 2), SyncPlan::Diff { after: z(3, 2) }),
            (z(3, 3), SyncPlan::Trunc { to: z(3, 2) }),
            (z(4, 7), SyncPlan::Snap),
            (z(4, 0), SyncPlan::Snap),
            (z(3, 1), SyncPlan::Diff { after: z(3, 1) }),
            (z(3, 0), SyncPlan::Diff { after: z(3, 0) }),
            (z(2, 0), SyncPlan::Diff { after: z(2, 0) }),
            (z(1, 5), SyncPlan::Diff { after: z(1, 5) }),
            (z(1, 9), SyncPlan::Snap),
            (z(2, 4), SyncPlan::Snap),
            (z(1, 4), SyncPlan::ReadLog { after: z(1, 4) }),
            (z(1, 2), SyncPlan::ReadLog { after: z(1, 2) }),
            (z(1, 1), SyncPlan::Snap),
            (z(0, 0), SyncPlan::Snap),
        ] {
            assert_eq!(plan_sync(&history(), z(1, 2), learner), expected, "{learner}");
        }
    }

    #[test]
    fn the_log_is_used_only_if_it_knows_the_learner_and_reaches_memory() {
        let txns = |last: u32| (4..=last).map(|counter| (z(1, counter), Bytes::new())).collect();
        let learner = z(1, 3);
        for (read, expected) in [
            (LogRead { found: true, txns: txns(6) }, SyncPlan::Diff { after: learner }),
            (LogRead { found: true, txns: txns(5) }, SyncPlan::Diff { after: learner }),
            (LogRead { found: true, txns: txns(4) }, SyncPlan::Snap),
            (LogRead { found: false, txns: txns(6) }, SyncPlan::Snap),
            (LogRead::default(), SyncPlan::Snap),
        ] {
            assert_eq!(plan_with_log(&history(), &read, learner), expected);
        }
    }
}
