//! Changes of several values that are published atomically.

use std::collections::BTreeMap;
use std::fmt::Display;

use bytes::Bytes;

use crate::config::history::ValueChange;

/// Changes of several values that are published in one transaction.
///
/// ```
/// use ironkeeper_recipes::config::Update;
///
/// let update = Update::new()
///     .set("limit.max", 20)
///     .set("mode", "fast")
///     .remove("limit.min")
///     .by("anna")
///     .because("more traffic than ever");
/// assert_eq!(update.len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens before it is published"]
pub struct Update {
    changes: BTreeMap<String, Option<Bytes>>,
    pub(super) author: String,
    pub(super) note: String,
}

impl Update {
    /// Creates an update without changes.
    pub fn new() -> Update {
        Update::default()
    }

    /// Sets a value, as text.
    pub fn set(self, key: impl Into<String>, value: impl Display) -> Update {
        self.set_bytes(key, value.to_string())
    }

    /// Sets a value to the given bytes.
    pub fn set_bytes(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Update {
        self.changes.insert(key.into(), Some(value.into()));
        self
    }

    /// Removes a value, if it exists.
    pub fn remove(mut self, key: impl Into<String>) -> Update {
        self.changes.insert(key.into(), None);
        self
    }

    /// Sets the author, for the history.
    pub fn by(mut self, author: impl Into<String>) -> Update {
        self.author = author.into();
        self
    }

    /// Sets the reason, for the history.
    pub fn because(mut self, note: impl Into<String>) -> Update {
        self.note = note.into();
        self
    }

    /// Returns the number of values that the update sets or removes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns whether the update is empty.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the changes of this update to `values`, without those that have no effect.
    pub(super) fn against(&self, values: &BTreeMap<String, Bytes>) -> Vec<ValueChange> {
        self.changes
            .iter()
            .map(|(key, after)| ValueChange {
                key: key.clone(),
                before: values.get(key).cloned(),
                after: after.clone(),
            })
            .filter(|change| change.before != change.after)
            .collect()
    }

    /// Returns the update that changes the values `from` into `to`.
    pub(super) fn between(from: &BTreeMap<String, Bytes>, to: &BTreeMap<String, Bytes>) -> Update {
        let gone = from.keys().filter(|key| !to.contains_key(*key));
        let update = gone.fold(Update::new(), |update, key| update.remove(key));
        to.iter().fold(update, |update, (key, value)| update.set_bytes(key, value.clone()))
    }
}
