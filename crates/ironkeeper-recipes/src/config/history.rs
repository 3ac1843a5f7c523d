//! The changes that the revisions of a configuration made.
//!
//! In the tree a revision is readable text: a line with the author, a line with the note, and one
//! line per value with its key, old value and new value. All fields are escaped; `=` precedes a
//! value, and `-` means that there is no value.
//!
//! ```text
//! anna
//! more%20traffic
//! limit.max =10 =20
//! mode - =fast
//! ```

use std::fmt::Write as _;

use bytes::Bytes;
use ironkeeper_client::{Node, Zxid};

use crate::config::update::Update;
use crate::escape::{escape, unescape};

/// A change of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueChange {
    /// The key of the value.
    pub key: String,
    /// The old value; `None` if the key did not exist.
    pub before: Option<Bytes>,
    /// The new value; `None` if the key was removed.
    pub after: Option<Bytes>,
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revision {
    /// The number of the revision.
    pub number: u64,
    /// The transaction that published the revision.
    pub zxid: Zxid,
    /// The time of that transaction, in milliseconds since 1970, by the clock of the server.
    pub time_ms: i64,
    /// The author; empty if none was given.
    pub author: String,
    /// The reason; empty if none was given.
    pub note: String,
    /// The values that the revision changed.
    pub changes: Vec<ValueChange>,
}

pub(super) fn encode(update: &Update, changes: &[ValueChange]) -> String {
    let word = |text: &str| escape(text.as_bytes());
    let value = |value: &Option<Bytes>| match value {
        Some(value) => format!("={}", escape(value)),
        None => "-".to_owned(),
    };
    let mut text = format!("{}\n{}\n", word(&update.author), word(&update.note));
    for ValueChange { key, before, after } in changes {
        let _ = writeln!(text, "{} {} {}", word(key), value(before), value(after));
    }
    text
}

/// Returns `None` if the data of the node is not an encoded revision.
pub(super) fn decode(number: u64, node: &Node) -> Option<Revision> {
    let text = std::str::from_utf8(&node.data).ok()?;
    let word = |text: &str| String::from_utf8(unescape(text)?).ok();
    let value = |text: &str| match text.strip_prefix('=') {
        Some(value) => Some(Some(Bytes::from(unescape(value)?))),
        None => (text == "-").then_some(None),
    };
    let mut lines = text.lines();
    let (author, note) = (word(lines.next()?)?, word(lines.next()?)?);
    let mut changes = Vec::new();
    for line in lines {
        let mut words = line.split(' ');
        let key = word(words.next()?)?;
        let (before, after) = (value(words.next()?)?, value(words.next()?)?);
        changes.push(ValueChange { key, before, after });
    }
    let (zxid, time_ms) = (node.stat.czxid, node.stat.ctime);
    Some(Revision { number, zxid, time_ms, author, note, changes })
}

#[cfg(test)]
mod tests {
    use ironkeeper_client::Stat;
    use proptest::prelude::*;

    use super::*;

    fn node(data: impl Into<Bytes>) -> Node {
        let mut node = Node::default();
        node.data = data.into();
        node.stat = Stat::default();
        node
    }

    proptest! {
        #[test]
        fn any_revision_comes_back(
            author: String,
            note: String,
            changes: Vec<(String, Option<Vec<u8>>, Option<Vec<u8>>)>,
        ) {
            let changes: Vec<ValueChange> = changes
                .into_iter()
                .map(|(key, before, after)| ValueChange {
                    key,
                    before: before.map(Into::into),
                    after: after.map(Into::into),
                })
                .collect();
            let update = Update::new().by(author.clone()).because(note.clone());
            let told = decode(7, &node(encode(&update, &changes))).unwrap();
            prop_assert_eq!((told.number, told.author, told.note), (7, author, note));
            prop_assert_eq!(told.changes, changes);
        }

        #[test]
        fn any_bytes_are_told_from_a_revision(bytes: Vec<u8>) {
            let _ = decode(1, &node(bytes));
        }
    }
}
