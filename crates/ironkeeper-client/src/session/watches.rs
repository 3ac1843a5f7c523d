//! The table of watchers by node.
//!
//! The server keeps watches per connection and drops them with it. After a reconnect the client
//! sets them again from this table. Paths are those of the server, chroot included.

use std::collections::HashMap;

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::watch_event::EventType;
use ironkeeper_proto::{OpCode, Zxid};

/// The identity of a watcher, unique within a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WatcherId(pub(crate) u64);

/// The five lists of watches in a `setWatches2` request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchKind {
    /// The data of an existing node.
    Data,
    /// A node that does not exist yet.
    Exist,
    Child,
    Persistent,
    Recursive,
}

impl WatchKind {
    const ALL: [WatchKind; 5] = [
        WatchKind::Data,
        WatchKind::Exist,
        WatchKind::Child,
        WatchKind::Persistent,
        WatchKind::Recursive,
    ];

    pub(crate) fn is_one_shot(self) -> bool {
        matches!(self, WatchKind::Data | WatchKind::Exist | WatchKind::Child)
    }

    /// Returns the kind as a `removeWatches` request encodes it.
    pub(crate) fn remove_code(self) -> i32 {
        match self {
            WatchKind::Child => 1,
            WatchKind::Data | WatchKind::Exist => 2,
            WatchKind::Persistent => 4,
            WatchKind::Recursive => 5,
        }
    }
}

/// A handle that the table stores to deliver events to.
pub(crate) trait Watcher: Clone {
    fn id(&self) -> WatcherId;
    /// Returns whether the owner still waits for events.
    fn is_wanted(&self) -> bool;
}

#[derive(Debug)]
pub(crate) struct WatchTable<W> {
    /// Indexed by kind. An entry without watchers is removed at once. Operations on all watches go
    /// in the order of their paths, so every reconnect sets the same watches in the same order.
    lists: [HashMap<Box<str>, Vec<W>>; 5],
}

/// The bytes of paths in one setWatches request. Apache rejects frames above 1 MiB; its own client
/// uses the same bound.
const BATCH_BYTES: usize = 128 * 1024;

impl<W: Watcher> WatchTable<W> {
    pub(crate) fn new() -> WatchTable<W> {
        WatchTable { lists: std::array::from_fn(|_| HashMap::new()) }
    }

    pub(crate) fn add(&mut self, kind: WatchKind, path: &str, watcher: W) {
        let list = &mut self.lists[kind as usize];
        match list.get_mut(path) {
            Some(watchers) => watchers.push(watcher),
            None => {
                list.insert(path.into(), vec![watcher]);
            }
        }
    }

    /// Removes a watcher. Returns whether it was there.
    pub(crate) fn remove(&mut self, kind: WatchKind, path: &str, id: WatcherId) -> bool {
        let list = &mut self.lists[kind as usize];
        let Some(watchers) = list.get_mut(path) else { return false };
        let before = watchers.len();
        watchers.retain(|watcher| watcher.id() != id);
        let found = watchers.len() < before;
        if watchers.is_empty() {
            list.remove(path);
        }
        found
    }

    /// Removes and returns all watchers of a node whose kind matches this code of a `removeWatches`
    /// request.
    pub(crate) fn take(&mut self, code: i32, path: &str) -> Vec<W> {
        const ANY: i32 = 3;
        let mut taken = Vec::new();
        for kind in WatchKind::ALL {
            if code == ANY || code == kind.remove_code() {
                taken.extend(self.lists[kind as usize].remove(path).unwrap_or_default());
            }
        }
        taken
    }

    /// Returns whether another watcher needs a watch that the server treats as the same one.
    pub(crate) fn is_watched(&self, kind: WatchKind, path: &str) -> bool {
        WatchKind::ALL.into_iter().any(|other| {
            other.remove_code() == kind.remove_code()
                && self.lists[other as usize].contains_key(path)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.lists.iter().flat_map(HashMap::values).map(Vec::len).sum()
    }

    /// Returns the watchers that receive an event, and removes the one-shot ones.
    pub(crate) fn fire(&mut self, event: EventType, path: &str) -> Vec<W> {
        let used_up: &[WatchKind] = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => {
                &[WatchKind::Data, WatchKind::Exist]
            }
            EventType::NodeDeleted => &[WatchKind::Data, WatchKind::Exist, WatchKind::Child],
            EventType::NodeChildrenChanged => &[WatchKind::Child],
        };
        let mut told = Vec::new();
        for kind in used_up {
            told.extend(self.lists[*kind as usize].remove(path).unwrap_or_default());
        }
        if let Some(watchers) = self.lists[WatchKind::Persistent as usize].get(path) {
            told.extend(watchers.iter().cloned());
        }
        let recursive = &self.lists[WatchKind::Recursive as usize];
        if event != EventType::NodeChildrenChanged && !recursive.is_empty() {
            let mut above = Some(path);
            while let Some(at) = above {
                told.extend(recursive.get(at).into_iter().flatten().cloned());
                above = ironkeeper_proto::path::parent(at);
            }
        }
        told
    }

    /// Returns the persistent watchers, which may miss events while the connection is lost.
    pub(crate) fn lasting(&self) -> Vec<W> {
        [WatchKind::Persistent, WatchKind::Recursive]
            .into_iter()
            .flat_map(|kind| sorted(self.lists[kind as usize].iter()))
            .flat_map(|(_, watchers)| watchers.iter().cloned())
            .collect()
    }

    /// Removes and returns all watchers.
    pub(crate) fn drain(&mut self) -> Vec<W> {
        self.lists
            .iter_mut()
            .flat_map(|list| sorted(list.drain()))
            .flat_map(|(_, watchers)| watchers)
            .collect()
    }

    /// Returns the requests that set all watches again: for each an operation and its body.
    pub(crate) fn set_watches(&self, relative_zxid: Zxid) -> Vec<(OpCode, Vec<u8>)> {
        let mut requests = Vec::new();
        let mut batch: [Vec<&str>; 5] = Default::default();
        let mut bytes = 0;
        for kind in WatchKind::ALL {
            for (path, _) in sorted(self.lists[kind as usize].iter()) {
                if bytes + path.len() > BATCH_BYTES && bytes > 0 {
                    requests.push(encode_batch(&batch, relative_zxid));
                    batch = Default::default();
                    bytes = 0;
                }
                bytes += path.len() + 4;
                batch[kind as usize].push(path);
            }
        }
        if bytes > 0 {
            requests.push(encode_batch(&batch, relative_zxid));
        }
        requests
    }
}

fn sorted<K: Ord, V>(entries: impl Iterator<Item = (K, V)>) -> Vec<(K, V)> {
    let mut entries: Vec<(K, V)> = entries.collect();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    entries
}

/// Encodes a batch. Servers before 3.6 do not know `SetWatches2`, so it is used only for persistent
/// watches.
fn encode_batch(batch: &[Vec<&str>; 5], relative_zxid: Zxid) -> (OpCode, Vec<u8>) {
    let lasting = batch[3..].iter().any(|paths| !paths.is_empty());
    let mut body = Vec::new();
    body.put_i64(relative_zxid.0);
    for paths in &batch[..if lasting { 5 } else { 3 }] {
        body.put_len(paths.len());
        for path in paths {
            body.put_str(path);
        }
    }
    (if lasting { OpCode::SetWatches2 } else { OpCode::SetWatches }, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::{Reader, Request};

    impl Watcher for u64 {
        fn id(&self) -> WatcherId {
            WatcherId(*self)
        }

        fn is_wanted(&self) -> bool {
            true
        }
    }

    #[test]
    fn an_event_finds_the_watches_it_concerns_and_uses_up_the_one_shot_ones() {
        let mut table = WatchTable::new();
        table.add(WatchKind::Data, "/a", 1);
        table.add(WatchKind::Exist, "/a", 2);
        table.add(WatchKind::Child, "/a", 3);
        table.add(WatchKind::Persistent, "/a", 4);
        table.add(WatchKind::Recursive, "/", 5);
        assert_eq!(table.fire(EventType::NodeChildrenChanged, "/a"), [3, 4]);
        assert_eq!(table.fire(EventType::NodeDataChanged, "/a"), [1, 2, 4, 5]);
        assert_eq!(table.fire(EventType::NodeDeleted, "/a"), [4, 5]);
        assert_eq!(table.fire(EventType::NodeCreated, "/a/b"), [5]);
        assert_eq!(table.fire(EventType::NodeChildrenChanged, "/"), [0u64; 0]);
    }

    #[test]
    fn a_watch_of_a_missing_node_counts_as_one_of_its_data() {
        let mut table = WatchTable::new();
        table.add(WatchKind::Exist, "/a", 1);
        assert!(table.is_watched(WatchKind::Data, "/a"));
        assert!(!table.is_watched(WatchKind::Child, "/a"));
        assert!(table.remove(WatchKind::Exist, "/a", WatcherId(1)));
        assert!(!table.remove(WatchKind::Exist, "/a", WatcherId(1)));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn batches_stay_below_the_frame_limit_and_hold_every_watch_once() {
        let mut table = WatchTable::new();
        for number in 0..20_000u64 {
            table.add(WatchKind::ALL[(number % 5) as usize], &format!("/w/{number:030}"), number);
        }
        let requests = table.set_watches(Zxid(9));
        assert!(requests.len() > 4);
        let mut seen = 0;
        for (op, body) in &requests {
            assert!(body.len() < 2 * BATCH_BYTES);
            match Request::decode(*op, Reader::new(body)).unwrap() {
                Request::SetWatches(watches) | Request::SetWatches2(watches) => {
                    assert_eq!(watches.relative_zxid, Zxid(9));
                    seen += watches.data.len() + watches.exist.len() + watches.child.len();
                    seen += watches.persistent.map_or(0, |list| list.len());
                    seen += watches.persistent_recursive.map_or(0, |list| list.len());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, 20_000);
    }

    #[test]
    fn watches_come_back_and_end_in_the_order_of_their_paths() {
        let mut table = WatchTable::new();
        for number in (0..100u64).rev() {
            table.add(WatchKind::Persistent, &format!("/w/{number:02}"), number);
        }
        let in_order: Vec<u64> = (0..100).collect();
        let [(op, body)] = &table.set_watches(Zxid(9))[..] else { panic!("one request") };
        let Ok(Request::SetWatches2(watches)) = Request::decode(*op, Reader::new(body)) else {
            panic!("a request for lasting watches")
        };
        let list = watches.persistent.expect("lasting watches");
        let paths: Vec<_> = list.iter().collect();
        assert!(paths.is_sorted() && paths.len() == 100, "{paths:?}");
        assert_eq!(table.lasting(), in_order);
        assert_eq!(table.drain(), in_order);
    }

    #[test]
    fn no_watches_need_no_request() {
        assert!(WatchTable::<u64>::new().set_watches(Zxid(9)).is_empty());
    }
}
