//! What a client was granted by the lists it has met.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ironkeeper_proto::Perms;
use ironkeeper_tree::AclList;

/// With so few ids they are looked up in the list, without remembering.
const IDS_MIN: usize = 16;
/// When so many lists are known, all of them are forgotten.
const LISTS_MAX: usize = 256;

/// Permissions by list. Belongs to one set of ids: a set that has grown begins anew.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// By address. The weak reference keeps the address from being used for another list.
    by_list: Mutex<BTreeMap<usize, (Weak<AclList>, Perms)>>,
}

impl Granted {
    /// What the list grants: remembered, or found out by `look`.
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

/// Of other ids, or about to be.
impl Clone for Granted {
    fn clone(&self) -> Granted {
        Granted::default()
    }
}
