//! The names of items, and the order that follows from them. All as in Curator.
//!
//! ```text
//! queue-0000000007                    by sequence number
//! queue-|<id>|0000000007              with an id, by sequence number
//! queue-100000005 0000000007          (without the space) with a priority: a digit for the sign, eight
//!                                     hexadecimal digits, then the sequence number
//! queue-|18F3A5B2C00|0000000007       with the due time, in hexadecimal milliseconds
//! ```

use std::fmt::Debug;

use crate::error::Result;
use crate::other_recipes;
use crate::queue_of_waiters::Contender;

/// The order of the items of a queue: [`Fifo`](super::Fifo), [`ById`](super::ById),
/// [`ByPriority`](super::ByPriority) or [`ByDelay`](super::ByDelay).
pub trait Order: Clone + Debug + Send + Sync + 'static + sealed::Sealed {}

pub(super) mod sealed {
    pub trait Sealed {
        const NAMING: super::Naming;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    Plain,
    Id,
    Priority,
    Delay,
}

pub(super) const PREFIX: &str = "queue-";
const SEPARATOR: char = '|';
/// The digit of the sign, and the hexadecimal digits.
const PRIORITY_LENGTH: usize = 9;

/// Sequence numbers are padded to this number of digits.
const NUMBER_LENGTH: usize = 10;

/// A parsed name of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemName {
    pub(super) name: String,
    /// The part before the sequence number. An item that is queued again gets a new number after
    /// it.
    pub(super) base: String,
    /// Sorted before the sequence number: the due time, or the priority with the digit of its sign.
    rank: i64,
    sequence: i32,
}

impl ItemName {
    /// Returns `None` if the name is not that of an item.
    fn parse(name: &str, naming: Naming) -> Option<ItemName> {
        let rest = name.strip_prefix(PREFIX)?;
        let (rank, number) = match naming {
            Naming::Plain => (0, rest),
            // A name without separators is an item as well, as in Curator.
            Naming::Id | Naming::Delay => match between_separators(rest) {
                Some((_, number)) if naming == Naming::Id => (0, number),
                Some((due, number)) => (i64::from_str_radix(due, 16).unwrap_or(0), number),
                None => (0, rest),
            },
            Naming::Priority => match rest.split_at_checked(PRIORITY_LENGTH)? {
                // Curator queues an item whose work failed again without its priority. Such a name
                // sorts first.
                (_, number) if number.len() < NUMBER_LENGTH => (0, rest),
                (priority, number) => (i64::from_str_radix(priority, 16).ok()?, number),
            },
        };
        let sequence = number.parse().ok().filter(|_| number.len() >= NUMBER_LENGTH)?;
        let base = name[..name.len() - number.len()].to_owned();
        Some(ItemName { name: name.to_owned(), base, rank, sequence })
    }

    pub(super) fn id(&self) -> Option<&str> {
        between_separators(self.name.strip_prefix(PREFIX)?).map(|(id, _)| id)
    }

    /// Returns the due time in milliseconds since 1970, for names that contain one.
    pub(super) fn due_ms(&self) -> i64 {
        self.rank
    }
}

/// Returns the kind of queue that uses this name, if it is the name of an item.
pub(crate) fn recipe_of_item(name: &str) -> Option<&'static str> {
    if name.starts_with(super::simple::BASES[0])
        && Contender::parse(name, super::simple::BASES).is_some()
    {
        return Some("simple queue");
    }
    let is_item = |naming| ItemName::parse(name, naming).is_some();
    if is_item(Naming::Plain) {
        Some("queue of work")
    } else if is_item(Naming::Id) {
        Some("queue of work with ids or due times")
    } else if is_item(Naming::Priority) {
        Some("queue of work with priorities")
    } else {
        None
    }
}

/// Returns an error for names of another recipe, or of a queue with another order, because no
/// consumer of this queue would see them.
pub(super) fn refuse_others(path: &str, names: &[String], naming: Naming) -> Result<()> {
    other_recipes::refuse(path, names, |name| ItemName::parse(name, naming).is_some())
}

/// Returns the text between the first two separators, and the text after them.
fn between_separators(rest: &str) -> Option<(&str, &str)> {
    rest.strip_prefix(SEPARATOR)?.split_once(SEPARATOR)
}

/// Returns the items among the names, sorted. A pure function of the names, without a clock.
pub(super) fn in_order(names: &[String], naming: Naming) -> Vec<ItemName> {
    let mut items: Vec<ItemName> =
        names.iter().filter_map(|name| ItemName::parse(name, naming)).collect();
    // Sequence numbers may have wrapped around.
    let reference = items.first().map_or(0, |item| item.sequence);
    items.sort_by_key(|item| (item.rank, item.sequence.wrapping_sub(reference)));
    items
}

pub(super) fn with_id(id: &str) -> String {
    let id = id.replace(['/', SEPARATOR], "_");
    format!("{PREFIX}{SEPARATOR}{id}{SEPARATOR}")
}

pub(super) fn with_priority(priority: i32) -> String {
    let sign = if priority >= 0 { 1 } else { 0 };
    format!("{PREFIX}{sign}{priority:08X}")
}

pub(super) fn with_due_ms(due_ms: i64) -> String {
    format!("{PREFIX}{SEPARATOR}{due_ms:08X}{SEPARATOR}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(naming: Naming, names: &[&str], expected: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let items = in_order(&names, naming);
        let ordered: Vec<&str> = items.iter().map(|item| &*item.name).collect();
        assert_eq!(ordered, expected);
        for item in &items {
            let again = format!("{}0000000099", item.base);
            assert_eq!(ItemName::parse(&again, naming).unwrap().base, item.base);
        }
    }

    #[test]
    fn plain_items_follow_their_numbers() {
        check(
            Naming::Plain,
            &["queue-0000000002", "readme", "queue-x", "queue-0000000001", "queue-1"],
            &["queue-0000000001", "queue-0000000002"],
        );
        check(
            Naming::Plain,
            &["queue--2147483648", "queue-2147483647"],
            &["queue-2147483647", "queue--2147483648"],
        );
    }

    #[test]
    fn ids_do_not_change_the_order() {
        check(
            Naming::Id,
            &["queue-|a|0000000002", "queue-|b|0000000001", "queue-0000000000"],
            &["queue-0000000000", "queue-|b|0000000001", "queue-|a|0000000002"],
        );
        assert_eq!(with_id("a/b|c"), "queue-|a_b_c|");
        let item = ItemName::parse("queue-|x|0000000001", Naming::Id).unwrap();
        assert_eq!(item.id(), Some("x"));
    }

    #[test]
    fn priorities_order_before_numbers() {
        assert_eq!(with_priority(5), "queue-100000005");
        assert_eq!(with_priority(-1), "queue-0FFFFFFFF");
        let name = |priority, number: u32| format!("{}{number:010}", with_priority(priority));
        let names = [name(5, 1), name(-1, 2), name(0, 3), name(i32::MIN, 4), name(-1, 0)];
        let refs: Vec<&str> = names.iter().map(String::as_str).collect();
        check(Naming::Priority, &refs, &[refs[3], refs[4], refs[1], refs[2], refs[0]]);
        // The name that Curator gives to an item that is queued again, and its order.
        let names = [refs[3], "queue-0000000007", "queue-7"];
        check(Naming::Priority, &names, &["queue-0000000007", refs[3]]);
    }

    #[test]
    fn curator_116_115_due_times_are_compared_without_a_clock() {
        assert_eq!(with_due_ms(0x18F_3A5B_2C00), "queue-|18F3A5B2C00|");
        check(
            Naming::Delay,
            &[
                "queue-|18F3A5B2C00|0000000001",
                "queue-|FFFF|0000000003",
                "queue-|0000FFFF|0000000002",
            ],
            &[
                "queue-|0000FFFF|0000000002",
                "queue-|FFFF|0000000003",
                "queue-|18F3A5B2C00|0000000001",
            ],
        );
    }
}
