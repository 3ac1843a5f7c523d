//! All values of a configuration at one revision.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use ironkeeper_client::Zxid;

use crate::config::read::Paths;
use crate::error::{RecipeError, Result};

/// All values of a configuration at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(super) paths: Paths,
    pub(super) revision: u64,
    pub(super) zxid: Zxid,
    pub(super) version: i32,
    pub(super) values: BTreeMap<String, Bytes>,
}

impl Snapshot {
    /// Returns the number of the revision; 0 before the first publication.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the transaction that published the revision. Snapshots are ordered by it.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Parses a value from text. Returns `None` if the key does not exist.
    pub fn get<T>(&self, key: &str) -> Result<Option<T>>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        let Some(bytes) = self.values.get(key) else { return Ok(None) };
        parse(bytes).map(Some).map_err(|why| {
            let path = self.paths.value(key);
            RecipeError::Malformed { path, why: format!("the value of {key:?}: {why}") }
        })
    }

    /// Parses a value as [`Snapshot::get`] does. Returns `default` if the key does not exist.
    pub fn get_or<T>(&self, key: &str, default: T) -> Result<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        Ok(self.get(key)?.unwrap_or(default))
    }

    /// Returns the bytes of a value.
    pub fn bytes(&self, key: &str) -> Option<&Bytes> {
        self.values.get(key)
    }

    /// Returns all values by their keys.
    pub fn values(&self) -> &BTreeMap<String, Bytes> {
        &self.values
    }
}

/// Parses a value from UTF-8 text.
pub(super) fn parse<T>(bytes: &[u8]) -> Result<T, String>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    text.parse().map_err(|why| format!("{text:?} is not of the type asked for: {why}"))
}
