//! The metrics of the server.

use ironkeeper_metrics::Sample;

use crate::Mode;

/// The role of the server, and its metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    /// See [`version`](crate::version()).
    pub version: String,
    pub mode: Mode,
    /// The measured metrics, in the order of `mntr`.
    pub samples: Vec<Sample>,
}
