//! Notices about a usable configuration, and the places of settings.

use std::fmt;

use crate::system_properties::FlagVariable;

/// Where a setting was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In `zoo.cfg`.
    ZooCfg { line: usize },
    /// In the membership file that `dynamicConfigFile` names.
    DynamicFile { line: usize },
    /// As a flag in an environment variable.
    Flags(FlagVariable),
    /// With `--set` on the command line.
    CommandLine,
}

impl Origin {
    /// Returns the line of the file, from 1; flags have none.
    pub fn line(self) -> Option<usize> {
        match self {
            Origin::ZooCfg { line } | Origin::DynamicFile { line } => Some(line),
            Origin::Flags(_) | Origin::CommandLine => None,
        }
    }
}

impl Origin {
    /// Returns the place, with the name of the file that was read.
    pub(crate) fn shown_in(self, file: &str) -> String {
        match self {
            Origin::ZooCfg { line } => format!("{file} line {line}"),
            Origin::DynamicFile { line } => format!("dynamic configuration line {line}"),
            Origin::Flags(variable) => variable.name().to_owned(),
            Origin::CommandLine => "--set".to_owned(),
        }
    }
}

/// The name of the file where the real name is not known.
pub(crate) const FILE: &str = "zoo.cfg";

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_in(FILE))
    }
}

/// A feature of ZooKeeper that this version of Ironkeeper does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    ObserverMasters,
    Oracles,
    Tls,
    Sasl,
    AuthProviders,
    AdminServer,
    Metrics,
    Audit,
    RequestTracing,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::ObserverMasters => "followers that serve observers",
            Feature::Oracles => "oracles for ensembles of two",
            Feature::Tls => "TLS",
            Feature::Sasl => "SASL",
            Feature::AuthProviders => "authentication providers other than digest and ip",
            Feature::AdminServer => "the HTTP admin server",
            Feature::Metrics => "metrics export over HTTP",
            Feature::Audit => "the audit log",
            Feature::RequestTracing => "request tracing",
        })
    }
}

/// A remark for the user about one setting. The server can start.
///
/// Its [`Display`](fmt::Display) form is one line with the place, the setting and a full sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The key as it was written, or the whole flag if it is not a property.
    pub key: String,
    /// The value as it was written; passwords and digests are hidden.
    pub value: String,
    /// Where it was written.
    pub origin: Origin,
    /// The content of the notice.
    pub kind: NoticeKind,
}

/// The kinds of notices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoticeKind {
    /// A valid setting of a feature that does not exist yet. It has no effect.
    NotYet { feature: Feature },
    /// A setting for members of an ensemble, and this is a standalone server. It has no effect.
    EnsembleOnly,
    /// A setting that tunes something Ironkeeper does not have or need. It has no effect.
    NotNeeded { why: &'static str },
    /// Not a key of ZooKeeper's, perhaps misspelled. It has no effect.
    Unknown { nearest: Option<&'static str> },
    /// In effect, but not as written.
    Adjusted { how: String },
    /// Written more than once; another one is in effect.
    Overridden { by: Origin },
}

impl Notice {
    /// Returns the line of the file with the setting, from 1; flags have none.
    pub fn line(&self) -> Option<usize> {
        self.origin.line()
    }

    /// Returns whether the server behaves differently from what the setting requests, so that the
    /// notice should be shown. The others are for completeness: Apache ZooKeeper, started as a
    /// single server, would not behave differently because of the setting either.
    pub fn deserves_attention(&self) -> bool {
        match &self.kind {
            NoticeKind::EnsembleOnly | NoticeKind::NotNeeded { .. } => false,
            NoticeKind::NotYet { .. }
            | NoticeKind::Unknown { .. }
            | NoticeKind::Adjusted { .. }
            | NoticeKind::Overridden { .. } => true,
        }
    }
}

impl Notice {
    /// Returns the text of the notice, with the name of the file that was read.
    pub fn shown_in(&self, file: &str) -> String {
        let equals = if self.value.is_empty() { "" } else { "=" };
        let (place, key, value) = (self.origin.shown_in(file), &self.key, &self.value);
        format!("{place}: {key}{equals}{value}: {}", self.kind)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_in(FILE))
    }
}

impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoticeKind::EnsembleOnly => {
                f.write_str("no effect: it belongs to ensembles, and this is a standalone server.")
            }
            NoticeKind::NotYet { feature } => {
                write!(f, "no effect: this version of Ironkeeper does not have {feature} yet.")
            }
            NoticeKind::NotNeeded { why } => write!(f, "no effect and none needed: {why}."),
            NoticeKind::Unknown { nearest: Some(nearest) } => {
                write!(f, "no effect: not a key that is read here. Did you mean {nearest}?")
            }
            NoticeKind::Unknown { nearest: None } => {
                f.write_str("no effect: not a key that ZooKeeper or Ironkeeper knows.")
            }
            NoticeKind::Adjusted { how } => write!(f, "{how}."),
            NoticeKind::Overridden { by } => {
                write!(f, "no effect: it is set again in {by}, which wins.")
            }
        }
    }
}
