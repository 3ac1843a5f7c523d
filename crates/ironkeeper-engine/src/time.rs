//! Time as an argument: the engine reads no clock.

/// The two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds of a monotonic clock; used for deadlines.
    pub mono_ms: u64,
    /// Milliseconds since 1970, for values that users see (`ctime`, `mtime`).
    pub wall_ms: i64,
}
