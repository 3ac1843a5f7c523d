//! The identities of a connection, and the permissions that they have.

mod digest;
mod granted;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use hashbrown::HashSet;
use ironkeeper_proto::acl::AclRef;
use ironkeeper_proto::jute;
use ironkeeper_proto::quorum_packet::{AUTH_BYTES_MAX, AUTH_IDS_MAX, AuthIds};
use ironkeeper_proto::{Acl, AclVec, ErrorCode, IpRange, Perms};
use ironkeeper_tree::AclList;

pub use digest::{DigestAlgorithm, digest_id};
use granted::Granted;

use crate::database::Hasher;

/// The maximum number of identities of a connection.
pub const IDENTITIES_MAX: usize = 1024;
/// The maximum number of bytes of these identities together. A learner sends them to its leader
/// with every write, and an ACL of the scheme `auth` repeats them in its node.
pub const IDENTITY_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(IDENTITIES_MAX <= AUTH_IDS_MAX && IDENTITY_BYTES_MAX < AUTH_BYTES_MAX);

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

/// One proven identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthId {
    pub scheme: Cow<'static, str>,
    pub id: String,
}

/// All identities that a connection has proven so far, in order. Never shrinks.
#[derive(Clone, Debug)]
pub struct Identity {
    ids: Vec<AuthId>,
    is_super: bool,
    /// Encoded as a learner sends it to its leader, on first use.
    told: OnceLock<AuthIds>,
    granted: Granted,
}

impl Identity {
    /// Returns the identity that every connection starts with: its address.
    pub fn of_address(address: IpAddr) -> Arc<Identity> {
        Arc::new(Identity::new(vec![AuthId { scheme: "ip".into(), id: address_text(address) }]))
    }

    /// Returns the identity of the server itself, which passes every ACL check.
    pub fn server() -> Arc<Identity> {
        Arc::new(Identity { is_super: true, ..Identity::new(Vec::new()) })
    }

    /// Returns the identity of a learner's client, as the learner sent it.
    pub fn of_learner(told: Option<&AuthIds>) -> Identity {
        let id = |(scheme, id): (Cow<'_, str>, Cow<'_, str>)| AuthId {
            scheme: known_scheme(&scheme).unwrap_or_else(|| Cow::Owned(scheme.into_owned())),
            id: id.into_owned(),
        };
        Identity::new(told.into_iter().flat_map(AuthIds::iter).map(id).collect())
    }

    fn new(ids: Vec<AuthId>) -> Identity {
        let is_super = ids.iter().any(|auth| auth.scheme == "super");
        Identity { ids, is_super, told: OnceLock::new(), granted: Granted::default() }
    }

    /// Returns the ids in the form that a learner sends to its leader.
    pub fn for_leader(&self) -> AuthIds {
        let told = || AuthIds::new(self.ids.iter().map(|auth| (&*auth.scheme, &*auth.id)));
        self.told.get_or_init(told).clone()
    }

    pub fn ids(&self) -> &[AuthId] {
        &self.ids
    }

    fn has(&self, scheme: &str, id: &str) -> bool {
        self.ids.iter().any(|auth| auth.scheme == scheme && auth.id == id)
    }

    fn add(&mut self, scheme: &'static str, id: String) {
        self.is_super |= scheme == "super";
        self.told = OnceLock::new();
        if !self.has(scheme, &id) {
            self.ids.push(AuthId { scheme: scheme.into(), id });
        }
    }

    /// Returns the permissions that a list grants to this client.
    fn granted(&self, acl: &Arc<AclList>, seed: u64) -> Perms {
        self.granted.by(acl, self.ids.len(), || {
            acl.granted(self.ids.iter().map(|auth| (&*auth.scheme, auth.id.as_str())), seed)
        })
    }

    /// Returns whether the ids exceed `IDENTITIES_MAX` or `IDENTITY_BYTES_MAX`.
    fn is_too_much(&self) -> bool {
        let bytes: usize = self.ids.iter().map(|auth| 8 + auth.scheme.len() + auth.id.len()).sum();
        self.ids.len() > IDENTITIES_MAX || bytes > IDENTITY_BYTES_MAX
    }

    /// Returns what `whoAmI` shows of each id: the scheme and the user part.
    pub fn users(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ids.iter().map(|auth| {
            let user = match &*auth.scheme {
                "digest" => auth.id.split(':').next().unwrap_or_default(),
                _ => &auth.id,
            };
            (&*auth.scheme, user)
        })
    }
}

/// Returns the static name of a common scheme, which saves a copy.
fn known_scheme(scheme: &str) -> Option<Cow<'static, str>> {
    const KNOWN: [&str; 6] = ["ip", "digest", "super", "sasl", "x509", "world"];
    KNOWN.into_iter().find(|known| *known == scheme).map(Cow::Borrowed)
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
        || identity.is_super
        || identity.granted(acl, config.hash_seed).allows(wanted)
}

/// Tries to add an identity by an `auth` request. On an error the server replies `AuthFailed` and
/// closes the connection.
pub fn authenticate(
    config: &AuthConfig,
    identity: &Arc<Identity>,
    scheme: &str,
    auth: Option<&[u8]>,
) -> Result<Arc<Identity>, ErrorCode> {
    let mut grown = None;
    match scheme {
        "ip" => {}
        "digest" if config.digest_enabled => {
            let text = jute::text(auth.ok_or(ErrorCode::AuthFailed)?);
            let id = config.digest_algorithm.id(&text);
            // A client may prove the same id repeatedly.
            if !identity.has("digest", &id) {
                let grown = grown.insert(Identity::clone(identity));
                if config.super_digest.as_deref() == Some(id.as_str()) {
                    grown.add("super", String::new());
                }
                grown.add("digest", id);
            }
        }
        "ensemble" if !config.ensemble_names.is_empty() => {
            let name = String::from_utf8_lossy(auth.unwrap_or_default());
            if !config.ensemble_names.iter().any(|known| *known == name) {
                return Err(ErrorCode::AuthFailed);
            }
        }
        _ => return Err(ErrorCode::AuthFailed),
    }
    match grown {
        None => Ok(Arc::clone(identity)),
        Some(grown) if grown.is_too_much() => Err(ErrorCode::AuthFailed),
        Some(grown) => Ok(Arc::new(grown)),
    }
}

/// Returns whether `enforced_schemes` lets this identity send requests.
pub fn is_admitted(config: &AuthConfig, identity: &Identity) -> bool {
    match &config.enforced_schemes {
        None => true,
        Some(schemes) => identity.ids.iter().any(|auth| schemes.iter().any(|s| *s == auth.scheme)),
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
    if list.has_null_id(&["world", "digest", "ip"]) {
        return Err(ErrorCode::MarshallingError);
    }
    let own: Vec<&AuthId> = identity.ids.iter().filter(|auth| auth.scheme == "digest").collect();
    let own_bytes: usize = own.iter().map(|auth| encoded_len(&auth.scheme, &auth.id)).sum();
    // Duplicates are entries that were sent twice; the ids that replace `auth` may repeat.
    let mut seen = HashSet::with_hasher(Hasher::with_seed(config.hash_seed));
    let mut normal: Vec<Acl> = Vec::with_capacity(list.len().min(16));
    let mut bytes = 0;
    for entry in list.iter() {
        if list.len() > 1 && !seen.insert(entry.clone()) {
            continue;
        }
        bytes += match &*entry.scheme {
            "auth" => own_bytes,
            _ => encoded_len(&entry.scheme, &entry.id),
        };
        if bytes > bytes_max {
            return Err(ErrorCode::MarshallingError);
        }
        match &*entry.scheme {
            "world" if entry.id == "anyone" => normal.push(entry.to_owned()),
            "auth" if own.is_empty() => return Err(ErrorCode::InvalidAcl),
            "auth" => {
                let own = own.iter().map(|auth| Acl::new(entry.perms, &auth.scheme, &auth.id));
                normal.extend(own);
            }
            _ if is_valid_id(config, &entry) => normal.push(entry.to_owned()),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    Ok(normal)
}

/// Returns the encoded length of an entry: permissions, and two strings with their lengths.
fn encoded_len(scheme: &str, id: &str) -> usize {
    12 + scheme.len() + id.len()
}

/// Returns an address as Java prints it: IPv6 in full, groups without leading zeros.
fn address_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.to_string(),
            None => v6.segments().map(|group| format!("{group:x}")).join(":"),
        },
    }
}

fn is_valid_id(config: &AuthConfig, entry: &AclRef<'_>) -> bool {
    match &*entry.scheme {
        "digest" => config.digest_enabled && digest::is_valid_id(&entry.id),
        "ip" => IpRange::parse(&entry.id).is_some(),
        _ => false,
    }
}

/// Returns what `getACL` shows to a client without the admin permission: the user without the hash.
pub fn masked(acl: &Acl) -> Acl {
    match acl.scheme.as_str() {
        "digest" => {
            let user = acl.id.split(':').next().unwrap_or_default();
            Acl::new(acl.perms, "digest", &format!("{user}:x"))
        }
        _ => acl.clone(),
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
        let list = AclVec::decode(&mut jute::Reader::new(&bytes)).expect("encoded just now");
        normalize(&config(), list, identity, bytes_max)
    }

    fn identity_with(ids: usize) -> Arc<Identity> {
        let mut identity = Identity::of_address([127, 0, 0, 1].into());
        for n in 0..ids {
            let proof = format!("u{n}:p");
            let grown = authenticate(&config(), &identity, "digest", Some(proof.as_bytes()));
            identity = grown.expect("not too many");
        }
        identity
    }

    #[test]
    fn ipv6_is_printed_as_java_does() {
        assert_eq!(address_text("::1".parse().unwrap()), "0:0:0:0:0:0:0:1");
        assert_eq!(address_text("::ffff:127.0.0.1".parse().unwrap()), "127.0.0.1");
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
        let grown = authenticate(&config(), &before, "digest", Some(b"late:p")).expect("room");
        assert!(allowed(&config(), &list, Perms::READ, &grown));
        let again = authenticate(&config(), &grown, "digest", Some(b"late:p")).expect("the same");
        assert!(Arc::ptr_eq(&grown, &again), "nothing is copied for what is known");
    }
}
