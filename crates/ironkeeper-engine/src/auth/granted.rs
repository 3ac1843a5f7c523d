//! A cache of the permissions that ACL lists grant to one client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ironkeeper_proto::Perms;
use ironkeeper_tree::AclList;

/// A client with fewer ids than this is matched against the list each time, without the cache.
const IDS_MIN: usize = 16;
/// At this number of cached lists the cache is cleared.
const LISTS_MAX: usize = 256;

/// Permissions by ACL list, for one set of ids. A set of ids that has grown starts with an empty
/// cache.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// Keyed by the address of the list. The weak reference keeps the address from being reused for
    /// another list.
    by_list: Mutex<BTreeMap<usize, (Weak<AclList>, Perms)>>,
}

impl Granted {
    /// Returns what the list grants: the cached permissions, or the result of `look`.
    pub(super) fn by(
        &self,
        list: &Arc<AclList>,
        ids: usize,
        look: impl FnOnce() -> Perms,
    ) -> Perms {
        if ids < IDS_MIN {
            return look();
        }
        let address = Arc::as_ptr(list) as usize;
        let mut by_list = self.by_list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, perms)) = by_list.get(&address) {
            return *perms;
        }
        if by_list.len() == LISTS_MAX {
            by_list.clear();
        }
        let perms = look();
        by_list.insert(address, (Arc::downgrade(list), perms));
        perms
    }
}

/// A clone is empty, because the clone of an identity has other ids or is about to get some.
impl Clone for Granted {
    fn clone(&self) -> Granted {
        Granted::default()
    }
}
