//! The settings of an ensemble. All members should have the same.

/// The settings; the names in parentheses are those of `zoo.cfg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The unit of the limits below (`tickTime`).
    pub tick_ms: u64,
    /// The maximum number of ticks for finding a leader and synchronizing with it (`initLimit`).
    pub init_limit: u64,
    /// The number of ticks without packets after which the link between leader and learner times
    /// out (`syncLimit`).
    pub sync_limit: u64,
    /// The first interval after which a vote is sent again (`fastleader.minNotificationInterval`).
    pub notification_min_ms: u64,
    /// The maximum interval, as it doubles each time (`fastleader.maxNotificationInterval`).
    pub notification_max_ms: u64,
    /// How long a quorum waits for a better vote of voters that have not voted.
    pub finalize_wait_ms: u64,
    /// The number of attempts to dial an elected leader.
    pub dial_tries: u32,
    /// The time between two attempts (`leaderConnectDelayDuringRetryMs`).
    pub dial_retry_ms: u64,
    /// The longest time an observer waits before it is LOOKING again (`observer.election.DelayMs`).
    pub observer_delay_ms_max: u64,
    /// The maximum number of transactions kept in memory for learners (`commitLogCount`).
    pub history_count_max: usize,
    /// The maximum number of bytes of these transactions.
    pub history_bytes_max: usize,
    /// The last counter that is used in an epoch. Apache never uses the very last one.
    pub counter_max: u32,
    /// Whether the membership can change while the ensemble runs (`reconfigEnabled`).
    pub reconfig_enabled: bool,
    /// A rule that is broken on purpose, in test builds.
    #[doc(hidden)]
    pub bug: Option<Bug>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tick_ms: 2000,
            init_limit: 10,
            sync_limit: 5,
            notification_min_ms: 200,
            notification_max_ms: 60_000,
            finalize_wait_ms: 200,
            dial_tries: 5,
            dial_retry_ms: 100,
            observer_delay_ms_max: 200,
            history_count_max: 500,
            history_bytes_max: 64 << 20,
            counter_max: u32::MAX - 1,
            reconfig_enabled: false,
            bug: None,
        }
    }
}

impl Settings {
    pub(crate) fn init_ms(&self) -> u64 {
        self.tick_ms * self.init_limit
    }

    pub(crate) fn sync_ms(&self) -> u64 {
        self.tick_ms * self.sync_limit
    }

    /// Returns whether a rule is broken. Always false outside of test builds, where the compiler
    /// removes the check.
    #[inline]
    pub(crate) fn has(&self, bug: Bug) -> bool {
        cfg!(feature = "seeded-bugs") && self.bug == Some(bug)
    }
}

/// Rules that a test breaks to check that the violation is detected.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A follower acknowledges before its log is durable.
    AckBeforeFlush,
    /// A leader does not truncate the transactions that only the learner has.
    SkipTrunc,
    /// A leader commits with one acknowledgement fewer than a quorum.
    MinorityCommit,
    /// The larger id wins before the longer history.
    VoteOrder,
    /// A learner accepts an epoch without storing acceptedEpoch.
    ForgetAcceptedEpoch,
    /// A learner acknowledges NEWLEADER without storing currentEpoch.
    ForgetCurrentEpoch,
    /// A learner acknowledges NEWLEADER before its history is durable.
    EarlyNewLeaderAck,
    /// A follower that has lost its leader drops transactions that it logged but did not commit.
    SkipFastForward,
    /// The counter overflows into the epoch.
    CounterOverflow,
    /// A leader replies to `sync`, and that a session is unknown, without leadership confirmation.
    SyncUnasked,
    /// A server keeps its provisional leader although votes and closed links show that it does not
    /// lead.
    KeepChoice,
    /// A server with a leader only replies to a LOOKING server, which has to send its vote again,
    /// at intervals that double.
    OnlyAnswer,
    /// A leader never begins a new epoch for a voter whose acceptedEpoch is larger.
    KeepEpoch,
}
