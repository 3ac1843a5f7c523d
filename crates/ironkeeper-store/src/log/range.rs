//! A bounded part of the log.

use ironkeeper_proto::Zxid;

use super::reader::LogRecord;

/// Which records of the log are read, for [`Store::read_log`](crate::Store::read_log).
///
/// ```
/// use ironkeeper_proto::Zxid;
/// use ironkeeper_store::LogRange;
///
/// // The transactions that take a snapshot to the state at a time.
/// let range = LogRange::after(Zxid(0x1_0000_0007)).up_to_time(1_700_000_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// Records below this zxid are skipped.
    pub(crate) from: Zxid,
    /// The zxid that the first record must follow.
    pub(crate) after: Option<Zxid>,
    until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    End,
    Zxid(Zxid),
    /// In milliseconds since 1970.
    Time(i64),
}

impl LogRange {
    /// All records. The first one may have any zxid.
    pub fn all() -> LogRange {
        LogRange::from(Zxid(i64::MIN))
    }

    /// The records at `zxid` and above. The first one may have any such zxid.
    pub fn from(zxid: Zxid) -> LogRange {
        LogRange { from: zxid, after: None, until: Until::End }
    }

    /// The records above `zxid`, the first of which must follow it, as the log after a snapshot.
    pub fn after(zxid: Zxid) -> LogRange {
        let from = Zxid(zxid.0.saturating_add(1));
        LogRange { from, after: Some(zxid), until: Until::End }
    }

    /// Ends the range with the record of this zxid, instead of the end of the log.
    #[must_use]
    pub fn up_to(self, zxid: Zxid) -> LogRange {
        LogRange { until: Until::Zxid(zxid), ..self }
    }

    /// Ends the range before the first transaction with a later time, in milliseconds since 1970,
    /// instead of the end of the log. The times are those of the leaders' clocks, so a transaction
    /// after the end of the range may have an earlier time.
    #[must_use]
    pub fn up_to_time(self, time_ms: i64) -> LogRange {
        LogRange { until: Until::Time(time_ms), ..self }
    }

    /// Returns whether the range ends before this record.
    pub(crate) fn ends_before(&self, record: &LogRecord<'_>) -> bool {
        match self.until {
            Until::End => false,
            Until::Zxid(zxid) => record.zxid > zxid,
            Until::Time(time_ms) => record.time_ms > time_ms,
        }
    }
}
