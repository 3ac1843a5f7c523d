//! The numbers an ensemble lives by. All members should have the same.

/// See the fields; the names are those of `zoo.cfg` where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The unit of the limits below (`tickTime`).
    pub tick_ms: u64,
    /// How many ticks finding and following a leader may take (`initLimit`).
    pub init_limit: u64,
    /// How many ticks leader and learner may be silent towards each other (`syncLimit`).
    pub sync_limit: u64,
    /// After how long a vote is said again (`fastleader.minNotificationInterval`) ...
    pub notification_min_ms: u64,
    /// ... and how rare that may become (`fastleader.maxNotificationInterval`).
    pub notification_max_ms: u64,
    /// How long a quorum waits for a better vote of those who have not spoken.
    pub finalize_wait_ms: u64,
    /// How often a chosen leader is dialled in vain ...
    pub dial_tries: u32,
    /// ... and how long is waited in between (`leaderConnectDelayDuringRetryMs`).
    pub dial_retry_ms: u64,
    /// The longest time an observer waits before it looks for a leader again
    /// (`observer.election.DelayMs`).
    pub observer_delay_ms_max: u64,
    /// How many transactions are kept in memory for learners (`commitLogCount`) ...
    pub history_count_max: usize,
    /// ... and how many bytes of them.
    pub history_bytes_max: usize,
    /// The last counter that is handed out in an epoch. Apache never uses the very last one.
    pub counter_max: u32,
    /// Whether the members can change while the ensemble runs (`reconfigEnabled`).
    pub reconfig_enabled: bool,
    /// A rule to be broken, in test builds.
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

    /// Always false outside of test builds, and gone from the code there.
    #[inline]
    pub(crate) fn has(&self, bug: Bug) -> bool {
        cfg!(feature = "seeded-bugs") && self.bug == Some(bug)
    }
}

/// Rules that a test can break to see that somebody notices.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A follower acknowledges before its log is durable.
    AckBeforeFlush,
    /// A leader leaves a learner the transactions it does not have itself.
    SkipTrunc,
    /// A leader commits what one server less than a quorum has.
    MinorityCommit,
    /// The larger id wins before the longer history.
    VoteOrder,
    /// A learner promises an epoch without writing it down.
    ForgetAcceptedEpoch,
    /// A learner takes over a history without writing its epoch down.
    ForgetCurrentEpoch,
    /// A learner acknowledges NEWLEADER before its history is durable.
    EarlyNewLeaderAck,
    /// A follower that has lost its leader forgets what it logged but did not commit.
    SkipFastForward,
    /// The counter walks into the epoch.
    CounterOverflow,
    /// A leader answers a `sync`, and calls sessions gone, without asking whether it still leads.
    SyncUnasked,
    /// A server stays with its choice though votes and hang-ups show that the chosen server does
    /// not lead.
    KeepChoice,
    /// A server that looks for a leader is answered and nothing else: it has to ask again, which
    /// becomes rarer.
    OnlyAnswer,
    /// A leader never begins a new epoch for a voter that has promised a later one.
    KeepEpoch,
}
