//! Which of several settings of a key takes precedence.

use crate::known_keys::{self, Handler, KnownKey, Place};
use crate::setting::Setting;

/// The prefix that Apache puts before keys it does not read itself.
pub(crate) const PREFIX: &str = "zookeeper.";

/// The rank of the command line, which takes precedence over every other place.
const RANK_OF_SET: u8 = 5;

/// A setting that is in the table and may take precedence over others with the same key.
pub(crate) struct Candidate {
    pub(crate) row: &'static KnownKey,
    /// The key without prefixes; candidates with the same name compete.
    pub(crate) name: String,
    pub(crate) setting: Setting,
    /// The highest rank takes precedence; among equals the last.
    pub(crate) rank: u8,
    /// The only spelling that Apache reads, if it differs.
    pub(crate) apache_spelling: Option<String>,
}

impl Candidate {
    fn new(
        row: &'static KnownKey,
        name: &str,
        setting: &Setting,
        rank: u8,
        apache_spelling: Option<String>,
    ) -> Candidate {
        Candidate { row, name: name.to_owned(), setting: setting.clone(), rank, apache_spelling }
    }

    /// Returns the candidate of a line of `zoo.cfg`, if the table has its key.
    pub(crate) fn from_zoo_cfg(setting: &Setting) -> Option<Candidate> {
        let key = setting.key.as_str();
        if let Some(row) = known_keys::find(key) {
            let rank = if row.place == Place::JvmProperty { 1 } else { 4 };
            return Some(Candidate::new(row, key, setting, rank, None));
        }
        let name = key.strip_prefix(PREFIX)?;
        let row = known_keys::find(name).filter(|row| row.place.has_prefix())?;
        let spelling = Some(format!("{name} in zoo.cfg"));
        Some(Candidate::new(row, name, setting, 3, spelling))
    }

    /// Returns the candidate of the command line, if the table has its key.
    pub(crate) fn from_command_line(setting: &Setting) -> Option<Candidate> {
        let candidate = Candidate::from_zoo_cfg(setting)?;
        Some(Candidate { rank: RANK_OF_SET, ..candidate })
    }

    /// Returns the candidate of a Java flag, if the table has its key.
    pub(crate) fn from_flag(setting: &Setting) -> Option<Candidate> {
        let key = setting.key.as_str();
        if let Some(name) = key.strip_prefix(PREFIX)
            && let Some(row) = known_keys::find(name)
            // A key without effect is recognised in the wrong place as well.
            && (row.place.has_prefix()
                || matches!(row.handler, Handler::NotYet { .. } | Handler::NotNeeded { .. }))
        {
            return Some(Candidate::new(row, name, setting, 2, None));
        }
        let row = known_keys::find(key)?;
        match row.place {
            Place::JvmProperty => Some(Candidate::new(row, key, setting, 2, None)),
            Place::PropertyEitherName => Some(Candidate::new(row, key, setting, 1, None)),
            Place::Property => {
                let spelling = Some(format!("{PREFIX}{key} in flags"));
                Some(Candidate::new(row, key, setting, 1, spelling))
            }
            Place::ZooCfg => None,
        }
    }
}
