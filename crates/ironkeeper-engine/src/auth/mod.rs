//! The identities of a connection, and the permissions that they have.

mod digest;
mod exchange;
mod granted;
mod identity;
mod scheme;

use std::sync::Arc;

use hashbrown::HashSet;
use ironkeeper_proto::{Acl, AclVec, ErrorCode, Perms};
use ironkeeper_tree::AclList;

pub use digest::{DigestAlgorithm, digest_id};
pub use exchange::{AuthMessage, Exchange, Step};
pub use identity::{AuthId, AuthScheme, IDENTITIES_MAX, IDENTITY_BYTES_MAX, Identity};
pub use scheme::Scheme;

use crate::database::Hasher;

/// Settings of authentication and of ACL checks.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// `skipACL=yes`: no request is checked against ACLs.
    pub skip_acl: bool,
    pub digest_enabled: bool,
    pub digest_algorithm: DigestAlgorithm,
    /// The digest id that makes a connection super.
    pub super_digest: Option<String>,
    /// A connection must hold an identity of one of these schemes before its requests are accepted.
    pub enforced_schemes: Option<Vec<String>>,
    /// The name that the `ensemble` scheme must present, if one is set.
    pub ensemble_names: Vec<String>,
    /// Keeps clients from choosing ids whose hashes collide. Does not influence results.
    pub hash_seed: u64,
}

impl Default for AuthConfig {
    fn default() -> AuthConfig {
        AuthConfig {
            skip_acl: false,
            digest_enabled: true,
            digest_algorithm: DigestAlgorithm::Sha1,
            super_digest: None,
            enforced_schemes: None,
            ensemble_names: Vec::new(),
            hash_seed: 0,
        }
    }
}

/// Returns whether the list grants `identity` any of the wanted permissions.
pub fn allowed(
    config: &AuthConfig,
    acl: &Arc<AclList>,
    wanted: Perms,
    identity: &Identity,
) -> bool {
    acl.allows_anyone(wanted)
        || config.skip_acl
        || identity.is_super()
        || identity.granted(acl, config.hash_seed).allows(wanted)
}

/// Returns whether `enforced_schemes` lets this identity send requests.
pub fn is_admitted(config: &AuthConfig, identity: &Identity) -> bool {
    match &config.enforced_schemes {
        None => true,
        Some(schemes) => identity.ids().iter().any(|auth| {
            let name = auth.scheme.name();
            schemes.iter().any(|scheme| scheme == name)
        }),
    }
}

/// Converts a client's list to the form that is stored: drops duplicates, replaces `auth` by the
/// connection's own ids, checks every entry. Rejects a list whose encoding would be longer than
/// `bytes_max` before building it.
pub fn normalize(
    config: &AuthConfig,
    list: Option<AclVec<'_>>,
    identity: &Identity,
    bytes_max: usize,
) -> Result<Vec<Acl>, ErrorCode> {
    let list = list.filter(|list| !list.is_empty()).ok_or(ErrorCode::InvalidAcl)?;
    if list.has_null_id(&Scheme::WITH_ID) {
        return Err(ErrorCode::MarshallingError);
    }
    let own: Vec<&AuthId> = identity.replacing_auth().collect();
    let own_bytes: usize = own.iter().map(|auth| encoded_len(auth.scheme.name(), &auth.id)).sum();
    // Duplicates are entries that were sent twice; the ids that replace `auth` may repeat.
    let mut seen = HashSet::with_hasher(Hasher::with_seed(config.hash_seed));
    let mut normal: Vec<Acl> = Vec::with_capacity(list.len().min(16));
    let mut bytes = 0;
    for entry in list.iter() {
        if list.len() > 1 && !seen.insert(entry.clone()) {
            continue;
        }
        let scheme = Scheme::from_name(&entry.scheme);
        bytes += match scheme {
            Some(Scheme::Auth) => own_bytes,
            _ => encoded_len(&entry.scheme, &entry.id),
        };
        if bytes > bytes_max {
            return Err(ErrorCode::MarshallingError);
        }
        match scheme {
            Some(Scheme::Auth) if own.is_empty() => return Err(ErrorCode::InvalidAcl),
            Some(Scheme::Auth) => {
                let own =
                    own.iter().map(|auth| Acl::new(entry.perms, auth.scheme.name(), &auth.id));
                normal.extend(own);
            }
            Some(scheme) if scheme.is_valid_id(config, &entry.id) => normal.push(entry.to_owned()),
            Some(_) | None => return Err(ErrorCode::InvalidAcl),
        }
    }
    Ok(normal)
}

/// Returns the encoded length of an entry: permissions, and two strings with their lengths.
fn encoded_len(scheme: &str, id: &str) -> usize {
    12 + scheme.len() + id.len()
}

/// Returns what `getACL` shows to a client without the admin permission: the user without the hash.
pub fn masked(acl: &Acl) -> Acl {
    match Scheme::from_name(&acl.scheme) {
        Some(scheme) => Acl::new(acl.perms, &acl.scheme, &scheme.masked(&acl.id)),
        None => acl.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AuthConfig {
        AuthConfig::default()
    }

    fn encoded(entries: &[Acl]) -> Vec<u8> {
        let mut bytes = Vec::new();
        ironkeeper_proto::acl::encode_list(entries, &mut bytes);
        bytes
    }

    fn normalized(
        entries: &[Acl],
        identity: &Identity,
        bytes_max: usize,
    ) -> Result<Vec<Acl>, ErrorCode> {
        let bytes = encoded(entries);
        let list =
            AclVec::decode(&mut ironkeeper_proto::Reader::new(&bytes)).expect("encoded just now");
        normalize(&config(), list, identity, bytes_max)
    }

    fn proven(proof: &str) -> Vec<AuthId> {
        vec![AuthId::new(Scheme::Digest, digest_id(proof))]
    }

    fn identity_with(ids: usize) -> Arc<Identity> {
        let mut identity = Identity::of_address([127, 0, 0, 1].into());
        for n in 0..ids {
            identity = identity.with(proven(&format!("u{n}:p"))).expect("not too many");
        }
        identity
    }

    #[test]
    fn duplicates_are_dropped_and_the_first_of_each_stays_in_its_place() {
        let [a, b] = ["a:h", "b:h"].map(|id| Acl::new(Perms::READ, "digest", id));
        let other = Acl::new(Perms::WRITE, "digest", "a:h");
        let list = [b.clone(), a.clone(), b.clone(), other.clone(), a.clone(), other.clone()];
        assert_eq!(normalized(&list, &identity_with(0), usize::MAX), Ok(vec![b, a, other]));
    }

    #[test]
    fn a_long_list_is_not_searched_for_duplicates_in_pairs() {
        // Comparing pairs would take fifteen thousand million comparisons.
        let entry = |n: u32| Acl::new(Perms::READ, "digest", &format!("user{n}:h"));
        let list: Vec<Acl> = (0..100_000).chain(0..100_000).map(entry).collect();
        let normal = normalized(&list, &identity_with(0), usize::MAX).expect("a valid list");
        assert_eq!(normal[..], list[..100_000]);
    }

    #[test]
    fn what_auth_stands_for_is_bounded_before_it_is_written_down() {
        let identity = identity_with(200);
        let one = normalized(&[Acl::new(Perms::ALL, "auth", "")], &identity, usize::MAX);
        let one = encoded(&one.expect("the client's own ids")).len() - 4;
        let list = |count| (0..count).map(|n| Acl::new(Perms(n), "auth", "")).collect::<Vec<_>>();
        assert_eq!(normalized(&list(3), &identity, 3 * one).map(|list| list.len()), Ok(600));
        let refused = Err(ErrorCode::MarshallingError);
        assert_eq!(normalized(&list(3), &identity, 3 * one - 1), refused);
        // More entries than fit into the machine's memory.
        assert_eq!(normalized(&list(1_000_000), &identity, 4 << 20), refused);
    }

    #[test]
    fn many_ids_on_a_long_list_are_matched_once() {
        let identity = identity_with(1000);
        let entry = |n: u32| Acl::new(Perms::READ, "digest", &format!("stranger{n}:h"));
        let list = Arc::new(AclList::of_entries((0..20_000).map(entry).collect()));
        // Comparing pairs would take two million million comparisons.
        for _ in 0..100_000 {
            assert!(!allowed(&config(), &list, Perms::READ, &identity));
        }
    }

    #[test]
    fn what_was_granted_by_a_list_that_is_gone_is_not_granted_by_the_next() {
        let identity = identity_with(100);
        let own = digest_id("u7:p");
        for round in 0..10_000 {
            let id = if round % 2 == 0 { own.as_str() } else { "stranger:h" };
            let list = Arc::new(AclList::of_entries(vec![Acl::new(Perms::READ, "digest", id)]));
            assert_eq!(allowed(&config(), &list, Perms::READ, &identity), round % 2 == 0);
        }
    }

    #[test]
    fn an_identity_that_grows_is_granted_more() {
        let before = identity_with(100);
        let new = digest_id("late:p");
        let list = Arc::new(AclList::of_entries(vec![Acl::new(Perms::READ, "digest", &new)]));
        assert!(!allowed(&config(), &list, Perms::READ, &before));
        let grown = before.with(proven("late:p")).expect("room");
        assert!(allowed(&config(), &list, Perms::READ, &grown));
        let again = grown.with(proven("late:p")).expect("the same");
        assert!(Arc::ptr_eq(&grown, &again), "nothing is copied for what is known");
    }
}
