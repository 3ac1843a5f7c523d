//! Bulk writes in few transactions, for `cp`, `mv` and `import`.
//!
//! If all changes fit into one transaction, they are written atomically. Otherwise several
//! transactions are in flight; the session keeps their order, so parents are created before their
//! children, and the first failure ends the write.

use std::collections::{HashSet, VecDeque};
use std::io::Read;
use std::time::Duration;

use ironkeeper_client::{
    Acl, Client, CreateOptions, Error, ErrorKind, Happened, OpResult, Perms, Reply, RetryPolicy,
    Stat, Transaction, Version,
};

use super::failure::{Failure, Outcome};
use super::progress::Progress;

/// The size limit of a transaction: servers reject packets of a megabyte, and the rest is headroom
/// for the request around the changes.
const BATCH_BYTES: usize = 256 * 1024;
const BATCH_OPS: usize = 1000;
/// The size limit of a single atomic transaction.
const WHOLE_BYTES_MAX: usize = 900 * 1024;
/// The number of transactions in flight.
const BATCHES_MAX: usize = 8;
/// The user name of the temporary identity.
const LENT_TO: &str = "ironkeeper-shell";
/// How often an ACL is set again after the connection was lost.
const LIST_TRIES: u32 = 5;
/// The number of requests in flight that are not transactions.
const IN_FLIGHT_MAX: usize = 64;

/// A change of one node.
#[derive(Clone, Debug)]
pub enum Change {
    Create {
        path: String,
        data: Option<bytes::Bytes>,
        options: CreateOptions,
        acl: Vec<Acl>,
    },
    Set {
        path: String,
        data: bytes::Bytes,
        version: Version,
    },
    Delete {
        path: String,
        version: i32,
    },
    /// No change; fails unless the node has this version.
    Check {
        path: String,
        version: i32,
    },
}

impl Change {
    /// Returns the creation of a node with this ACL; `mode` contains no ACL.
    pub fn create(
        path: String,
        data: Option<bytes::Bytes>,
        mode: CreateOptions,
        acl: &[Acl],
    ) -> Change {
        let mut options = mode.acl(acl.to_vec());
        if data.is_none() {
            options = options.null_data();
        }
        Change::Create { path, data, options, acl: acl.to_vec() }
    }

    fn path(&self) -> &str {
        match self {
            Change::Create { path, .. }
            | Change::Set { path, .. }
            | Change::Delete { path, .. }
            | Change::Check { path, .. } => path,
        }
    }

    /// Returns the approximate size in a request, including the chroot.
    fn bytes(&self, chroot: usize) -> usize {
        let body = match self {
            Change::Create { data, acl, .. } => {
                let acl: usize = acl.iter().map(|acl| acl.scheme.len() + acl.id.len() + 12).sum();
                data.as_ref().map_or(0, |data| data.len()) + acl
            }
            Change::Set { data, .. } => data.len(),
            Change::Delete { .. } | Change::Check { .. } => 0,
        };
        32 + chroot + self.path().len() + body
    }

    fn add_to(&self, transaction: Transaction) -> Transaction {
        match self {
            Change::Create { path, data, options, .. } => {
                transaction.create(path, data.clone().unwrap_or_default(), options.clone())
            }
            Change::Set { path, data, version } => transaction.set(path, data, *version),
            Change::Delete { path, version } => transaction.delete(path, *version),
            Change::Check { path, version } => transaction.check(path, *version),
        }
    }
}

/// Writes all changes in one transaction. Returns `Ok(false)`, and writes nothing, if they do not
/// fit.
pub async fn at_once(client: &Client, changes: &[Change]) -> Result<bool, Error> {
    let bytes: usize = changes.iter().map(|change| change.bytes(client.chroot().len())).sum();
    if bytes > WHOLE_BYTES_MAX {
        return Ok(false);
    }
    let transaction = changes.iter().fold(client.transaction(), |all, change| change.add_to(all));
    transaction.commit().await?;
    Ok(true)
}

/// Writes the changes in as many transactions as necessary, and returns their number. Changes
/// before a failed transaction remain.
pub async fn in_batches(
    client: &Client,
    changes: &[Change],
    progress: &mut Progress,
) -> Outcome<u64> {
    let mut left = changes;
    let mut number = 0;
    let mut under_way: VecDeque<(usize, Reply<Vec<OpResult>>)> = VecDeque::new();
    loop {
        while !left.is_empty() && under_way.len() < BATCHES_MAX {
            let size = batch_size(left, client.chroot().len());
            let (batch, rest) = left.split_at(size);
            let transaction = batch.iter().fold(client.transaction(), |all, one| one.add_to(all));
            under_way.push_back((size, transaction.commit()));
            left = rest;
            number += 1;
        }
        let Some((size, reply)) = under_way.pop_front() else { return Ok(number) };
        if let Err(error) = reply.await {
            return Err(partly(error, progress.done()));
        }
        progress.add(size as u64);
    }
}

fn batch_size(changes: &[Change], chroot: usize) -> usize {
    let mut bytes = 0;
    let fits = |change: &&Change| {
        bytes += change.bytes(chroot);
        bytes <= BATCH_BYTES
    };
    changes.iter().take(BATCH_OPS).take_while(fits).count().max(1)
}

/// Adds the number of completed changes to an error: they are not rolled back.
fn partly(error: Error, done: u64) -> Failure {
    let failure = Failure::from(error);
    match done {
        0 => failure,
        _ => Failure::message(format!("{} (after {done} changes were made)", failure.text(""))),
    }
}

/// Modifies the changes so that they succeed even if an ACL denies access to the session that
/// creates the node: a parent whose ACL would deny the creation of its children is created with an
/// additional entry for this session. Returns the original ACLs, which are to be set at the end.
async fn lend_access(client: &Client, changes: &mut [Change]) -> Outcome<Vec<(String, Vec<Acl>)>> {
    let parents: HashSet<String> = changes
        .iter()
        .filter(|change| matches!(change, Change::Create { .. }))
        .filter_map(|change| Some(change.path().rsplit_once('/')?.0.to_owned()))
        .collect();
    let mut own = Vec::new();
    let mut lent = None;
    for change in changes {
        let Change::Create { path, options, acl, .. } = change else { continue };
        if !parents.contains(path.as_str()) || is_open(acl) {
            continue;
        }
        let entry = match &lent {
            Some(entry) => entry,
            None => lent.insert(entry_for_us(client).await?),
        };
        let list: Vec<Acl> = acl.iter().cloned().chain([entry.clone()]).collect();
        *options = options.clone().acl(list);
        own.push((path.clone(), acl.clone()));
    }
    Ok(own)
}

/// Returns whether every client may create children.
fn is_open(acl: &[Acl]) -> bool {
    acl.iter()
        .any(|acl| acl.scheme == "world" && acl.id == "anyone" && acl.perms.allows(Perms::CREATE))
}

/// Returns an ACL entry for this session only: for its authenticated identities or, if it has none,
/// for a new identity with a random secret that is discarded with the session. The client's address
/// is not used, because other clients may share it. If the process ends before the entry is
/// removed, no client can use the entry.
async fn entry_for_us(client: &Client) -> Outcome<Acl> {
    let identities = match client.who_am_i().await {
        Ok(identities) => identities,
        // Servers before 3.7 do not implement whoAmI.
        Err(error) if error.kind() == ErrorKind::Unimplemented => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let is_proven = |scheme: &str| scheme != "ip" && scheme != "world";
    if !identities.iter().any(|identity| is_proven(&identity.scheme)) {
        let secret = secret().map_err(|error| {
            Failure::message(format!("The operating system has no random numbers: {error}"))
        })?;
        client.add_auth("digest", format!("{LENT_TO}:{secret}")).await?;
    }
    // The server replaces the scheme `auth` by the identities of the session.
    Ok(Acl::new(Perms::CREATE.or(Perms::ADMIN), "auth", ""))
}

fn secret() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Sets ACLs, children before their parents, because the session may lose access afterwards. All of
/// them are tried; the first failure is returned.
pub async fn set_acls(client: &Client, lists: &[(String, Vec<Acl>)]) -> Outcome {
    let mut outcome = Ok(());
    let mut under_way: VecDeque<(&str, &[Acl], Reply<Stat>)> = VecDeque::new();
    let mut left = lists.iter().rev();
    loop {
        while under_way.len() < IN_FLIGHT_MAX
            && let Some((path, acl)) = left.next()
        {
            under_way.push_back((path, acl, client.set_acl(path, acl, Version::Any)));
        }
        let Some((path, acl, reply)) = under_way.pop_front() else { return outcome };
        let set = match reply.await {
            Err(error) if error.is_retriable() => set_again(client, path, acl, &error).await,
            other => other.map(drop),
        };
        outcome = outcome.and(set.map_err(Failure::from));
    }
}

/// Sets an ACL again after a lost connection, so that no node keeps its temporary ACL.
async fn set_again(client: &Client, path: &str, acl: &[Acl], first: &Error) -> Result<(), Error> {
    let policy = RetryPolicy::times(LIST_TRIES, Duration::from_millis(500));
    match client.retry(&policy, || client.set_acl(path, acl, Version::Any)).await {
        // The ACL was set before the reply was lost, and denies access to this session now.
        Err(error) if error.kind() == ErrorKind::NoAuth && first.happened() == Happened::Maybe => {
            Ok(())
        }
        other => other.map(drop),
    }
}

/// Writes the changes in as many transactions as necessary, even if parents deny access to this
/// session, and returns the number of transactions. Restores all ACLs afterwards, also after a
/// failure.
pub async fn with_lent_access(
    client: &Client,
    changes: &mut [Change],
    progress: &mut Progress,
) -> Outcome<u64> {
    let lent = lend_access(client, changes).await?;
    let written = in_batches(client, changes, progress).await;
    // After a failure some of these nodes do not exist.
    let restored = set_acls(client, &lent).await;
    let transactions = written?;
    restored?;
    Ok(transactions)
}

/// Returns whether the error is the rejection of a create because the ACL of its parent denies
/// access to this session.
pub fn is_closed_to_us(error: &Error, changes: &[Change]) -> bool {
    let failed = error.failed_operation().and_then(|at| changes.get(at));
    error.kind() == ErrorKind::NoAuth && matches!(failed, Some(Change::Create { .. }))
}

/// Returns whether the server has masked an ACL because the reader has no ADMIN permission: digests
/// become `x`. Such an ACL must not be written.
pub fn is_masked(acl: &[Acl]) -> bool {
    acl.iter().any(|acl| acl.scheme == "digest" && acl.id.ends_with(":x"))
}

/// Returns the failure of a command that would have to write a masked ACL.
pub fn masked(path: &str) -> Failure {
    Failure::message(format!(
        "The server hides the digests in the ACL of {path} from whoever has no ADMIN permission there, so it \
         cannot be copied. Use addauth first, or -noacl for copies that are open to everybody."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bytes: usize) -> Change {
        let data = vec![0; bytes].into();
        Change::Set { path: "/a".to_owned(), data, version: Version::Any }
    }

    #[test]
    fn batches_are_bounded_and_never_empty() {
        let check = Change::Check { path: "/a".to_owned(), version: 0 };
        assert_eq!(batch_size(&vec![check; 3000], 0), BATCH_OPS);
        assert_eq!(batch_size(&[set(BATCH_BYTES), set(1)], 0), 1);
        assert_eq!(batch_size(&[set(1), set(BATCH_BYTES)], 0), 1);
        assert_eq!(batch_size(&[set(1), set(1)], 0), 2);
    }

    #[test]
    fn hidden_digests_are_recognised() {
        let acl = |scheme, id| vec![Acl::new(Perms::ALL, scheme, id)];
        assert!(is_masked(&acl("digest", "user:x")));
        assert!(!is_masked(&acl("digest", "user:aGFzaA==")));
        assert!(!is_masked(&acl("sasl", "user:x")));
        assert!(is_open(&acl("world", "anyone")) && !is_open(&acl("digest", "user:x")));
    }
}
