//! Errors of a configuration, with file, line and key.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ironkeeper_proto::ServerId;
use thiserror::Error;

use crate::notice::{FILE, Feature, Origin};

/// The reason why a value is rejected. Its text states what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ValueError {
    #[error("write true or false, not {value:?}")]
    NoBoolean { value: String },
    #[error("write yes or no, not {value:?}")]
    NoYesOrNo { value: String },
    #[error("must be a whole number between {min} and {max}, not {value:?}")]
    NoInteger { min: i64, max: i64, value: String },
    #[error("must be a whole number of at least 1, not {number}")]
    NotPositive { number: i32 },
    #[error(
        "must be a number of {unit} from {min} to {max}, without a unit, not {value:?}",
        max = i32::MAX
    )]
    NoNumberOf { unit: &'static str, min: u32, value: String },
    #[error("must be a number of at least 0 such as 0.02, not {value:?}")]
    NoFraction { value: String },
    #[error(
        "must be a number of hours, or a number with ms, s, m, h or d behind it, not {value:?}"
    )]
    NoInterval { value: String },
    #[error(
        "must be a number of milliseconds without a unit, or -1 for the default, not {value:?}"
    )]
    NoSessionTimeout { value: String },
    #[error("{value:?} is not a port: ports are numbers from 0 to 65535")]
    NoPort { value: String },
    #[error("must name a directory")]
    NoDirectory,
    #[error("must be a host name or an address")]
    NoHost,
    #[error("write gz, snappy or nothing, not {value:?}")]
    UnknownCompression { value: String },
    #[error("write SHA1, SHA-256, SHA3-256 or another of the SHA family, not {value:?}")]
    UnknownDigestAlgorithm { value: String },
    #[error("there is no election algorithm but 3, and it is set to {number}; remove the line")]
    UnknownElectionAlgorithm { number: i32 },
    #[error("a server line is named server.<number>, and {id:?} is not a number")]
    NoServerId { id: String },
    #[error("{0}")]
    NoMember(&'static str),
    #[error("{0}")]
    NoQuorumLine(&'static str),
    #[error("server {id} is listed twice")]
    RepeatedServer { id: ServerId },
    #[error("the role must be participant or observer, not {value:?}")]
    UnknownRole { value: String },
    /// A switch that demands authentication or encryption: a server that ignored it would serve the
    /// clients that it is meant to reject.
    #[error(
        "this version of Ironkeeper does not have {feature} yet, and starting without would \
         drop the protection that is asked for. Set it to false to start all the same"
    )]
    MissingProtection { feature: Feature },
    #[error(
        "this version of Ironkeeper does not ask oracles, and two servers of which one is away \
         would have no leader though the others of this ensemble expect one. Remove it to start \
         all the same"
    )]
    MissingOracle,
}

/// The kinds of errors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A text that is not in the format of its file or variable.
    Syntax(String),
    /// A value that the key cannot have.
    Value(ValueError),
    /// A key that does not exist, or one that may not be written in this place.
    Key(String),
    /// A setting or a file that is missing.
    Missing(String),
    /// Settings that cannot be combined.
    Conflict(String),
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProblemKind::Value(error) => error.fmt(f),
            ProblemKind::Syntax(text)
            | ProblemKind::Key(text)
            | ProblemKind::Missing(text)
            | ProblemKind::Conflict(text) => f.write_str(text),
        }
    }
}

/// An error in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key as it was written; `None` if a setting is missing or the line could not be parsed.
    pub key: Option<String>,
    /// Where the setting was written, or the line that could not be parsed.
    pub origin: Option<Origin>,
    /// The file of [`Problem::line`], if the configuration was read from files.
    pub file: Option<PathBuf>,
    /// What is wrong and what to do.
    pub kind: ProblemKind,
}

impl Problem {
    /// Returns an error that is not in one place.
    pub(crate) fn of_all(kind: ProblemKind) -> Problem {
        Problem { key: None, origin: None, file: None, kind }
    }

    /// Returns the line of the file, from 1; flags have none.
    pub fn line(&self) -> Option<usize> {
        self.origin.and_then(Origin::line)
    }

    /// Sets the file of a problem that has a line in one of these files.
    pub(crate) fn locate(&mut self, zoo_cfg: &Path, dynamic: Option<&Path>) {
        self.file = match self.origin {
            Some(Origin::ZooCfg { .. }) => Some(zoo_cfg.to_owned()),
            Some(Origin::DynamicFile { .. }) => dynamic.map(Path::to_owned),
            Some(Origin::Flags(_) | Origin::CommandLine) | None => None,
        };
    }

    fn shown_in(&self, file: &str) -> String {
        let Problem { key, origin, kind, .. } = self;
        match (origin.map(|origin| origin.shown_in(file)), key) {
            (None, _) => kind.to_string(),
            (Some(place), None) => format!("{place}: {kind}"),
            (Some(place), Some(key)) => format!("{place}: {key}: {kind}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_in(FILE))
    }
}

/// The reason why a server cannot start with a configuration. Contains all problems.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read the configuration file {}: {source}", .path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The files were read, and these settings are wrong.
    #[error("the configuration cannot be used{}", listed(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// Returns the text of the error, with the name of the file that was read.
    pub fn shown_in(&self, file: &str) -> String {
        match self {
            ConfigError::Unreadable { .. } => self.to_string(),
            ConfigError::Invalid(problems) => {
                let lines =
                    problems.iter().map(|problem| format!("\n  {}", problem.shown_in(file)));
                format!("{file} cannot be used:{}", lines.collect::<String>())
            }
        }
    }

    /// Adds the names of the files to the problems that have a line.
    pub(crate) fn located(mut self, zoo_cfg: &Path, dynamic: Option<&Path>) -> ConfigError {
        if let ConfigError::Invalid(problems) = &mut self {
            problems.iter_mut().for_each(|problem| problem.locate(zoo_cfg, dynamic));
        }
        self
    }

    /// Returns the problems of the settings; empty if the files could not be read.
    pub fn problems(&self) -> &[Problem] {
        match self {
            ConfigError::Unreadable { .. } => &[],
            ConfigError::Invalid(problems) => problems,
        }
    }
}

fn listed(problems: &[Problem]) -> String {
    match problems {
        [one] => format!(": {one}"),
        many => many.iter().map(|problem| format!("\n  {problem}")).collect(),
    }
}
