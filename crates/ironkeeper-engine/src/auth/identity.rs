//! The identities that a connection has proven.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use ironkeeper_proto::quorum_packet::{AUTH_BYTES_MAX, AUTH_IDS_MAX, AuthIds};
use ironkeeper_proto::{ErrorCode, Perms};
use ironkeeper_tree::AclList;

use super::granted::Granted;
use super::{Scheme, digest};

/// The maximum number of identities of a connection.
pub const IDENTITIES_MAX: usize = 1024;
/// The maximum number of bytes of these identities together. A learner sends them to its leader
/// with every write, and an ACL of the scheme `auth` repeats them in its node.
pub const IDENTITY_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(IDENTITIES_MAX <= AUTH_IDS_MAX && IDENTITY_BYTES_MAX < AUTH_BYTES_MAX);

/// One proven identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthId {
    pub scheme: AuthScheme,
    pub id: String,
}

impl AuthId {
    pub fn new(scheme: Scheme, id: String) -> AuthId {
        AuthId { scheme: AuthScheme::Known(scheme), id }
    }

    fn is_super(&self) -> bool {
        self.scheme == AuthScheme::Known(Scheme::Super)
    }
}

/// The scheme of an identity. A client of a learner of another make may have an identity of a
/// scheme that this server does not know; its ids are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthScheme {
    Known(Scheme),
    Other(Box<str>),
}

impl AuthScheme {
    fn from_name(name: &str) -> AuthScheme {
        Scheme::from_name(name).map_or_else(|| AuthScheme::Other(name.into()), AuthScheme::Known)
    }

    #[inline]
    pub fn name(&self) -> &str {
        match self {
            AuthScheme::Known(scheme) => scheme.name(),
            AuthScheme::Other(name) => name,
        }
    }

    fn is(&self, rule: impl FnOnce(Scheme) -> bool) -> bool {
        match self {
            AuthScheme::Known(scheme) => rule(*scheme),
            AuthScheme::Other(_) => false,
        }
    }
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
        Arc::new(Identity::new(vec![AuthId::new(Scheme::Ip, address_text(address))]))
    }

    /// Returns the identity of the server itself, which passes every ACL check.
    pub fn server() -> Arc<Identity> {
        Arc::new(Identity { is_super: true, ..Identity::new(Vec::new()) })
    }

    /// Returns the identity of a learner's client, as the learner sent it.
    pub fn of_learner(told: Option<&AuthIds>) -> Identity {
        let id = |(scheme, id): (Cow<'_, str>, Cow<'_, str>)| AuthId {
            scheme: AuthScheme::from_name(&scheme),
            id: id.into_owned(),
        };
        Identity::new(told.into_iter().flat_map(AuthIds::iter).map(id).collect())
    }

    fn new(ids: Vec<AuthId>) -> Identity {
        let is_super = ids.iter().any(AuthId::is_super);
        Identity { ids, is_super, told: OnceLock::new(), granted: Granted::default() }
    }

    /// Returns the ids in the form that a learner sends to its leader.
    pub fn for_leader(&self) -> AuthIds {
        let told = || AuthIds::new(self.ids.iter().map(|auth| (auth.scheme.name(), &*auth.id)));
        self.told.get_or_init(told).clone()
    }

    pub fn ids(&self) -> &[AuthId] {
        &self.ids
    }

    /// Returns whether the connection passes every ACL check.
    pub(super) fn is_super(&self) -> bool {
        self.is_super
    }

    /// Returns an identity with these ids as well. A client may prove the same id repeatedly; then
    /// nothing is copied.
    pub fn with(self: &Arc<Identity>, ids: Vec<AuthId>) -> Result<Arc<Identity>, ErrorCode> {
        let new: Vec<AuthId> = ids.into_iter().filter(|auth| !self.ids.contains(auth)).collect();
        if new.is_empty() {
            return Ok(Arc::clone(self));
        }
        let grown = Identity::new(self.ids.iter().cloned().chain(new).collect());
        match grown.is_too_much() {
            true => Err(ErrorCode::AuthFailed),
            false => Ok(Arc::new(grown)),
        }
    }

    /// Returns the ids that replace an `auth` entry of an ACL.
    pub(super) fn replacing_auth(&self) -> impl Iterator<Item = &AuthId> {
        self.ids.iter().filter(|auth| auth.scheme.is(Scheme::replaces_auth))
    }

    /// Returns the permissions that a list grants to this client.
    pub(super) fn granted(&self, acl: &Arc<AclList>, seed: u64) -> Perms {
        self.granted.by(acl, self.ids.len(), || {
            acl.granted(self.ids.iter().map(|auth| (auth.scheme.name(), auth.id.as_str())), seed)
        })
    }

    /// Returns whether the ids exceed `IDENTITIES_MAX` or `IDENTITY_BYTES_MAX`.
    fn is_too_much(&self) -> bool {
        let bytes: usize =
            self.ids.iter().map(|auth| 8 + auth.scheme.name().len() + auth.id.len()).sum();
        self.ids.len() > IDENTITIES_MAX || bytes > IDENTITY_BYTES_MAX
    }

    /// Returns what `whoAmI` shows of each id: the scheme and the user part.
    pub fn users(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ids.iter().map(|auth| {
            let user = match &auth.scheme {
                AuthScheme::Known(scheme) => scheme.user(&auth.id),
                AuthScheme::Other(_) => &auth.id,
            };
            (auth.scheme.name(), user)
        })
    }

    /// Returns the scheme and the user of the ids that log lines name, without secrets and without
    /// the address.
    pub fn logged_users(&self) -> impl Iterator<Item = (&str, &str)> {
        let logged = self.ids.iter().filter(|auth| !auth.scheme.is(|scheme| !scheme.is_logged()));
        logged.map(|auth| (auth.scheme.name(), digest::user(&auth.id)))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_printed_as_java_does() {
        assert_eq!(address_text("::1".parse().unwrap()), "0:0:0:0:0:0:0:1");
        assert_eq!(address_text("::ffff:127.0.0.1".parse().unwrap()), "127.0.0.1");
    }

    #[test]
    fn an_id_of_an_unknown_scheme_keeps_its_name_on_the_way_through_a_learner() {
        let sent = [("x509", "CN=a"), ("oauth", "b"), ("super", "")];
        let identity = Identity::of_learner(Some(&AuthIds::new(sent)));
        assert_eq!(identity.users().collect::<Vec<_>>(), sent);
        assert_eq!(identity.ids()[1].scheme, AuthScheme::Other("oauth".into()));
        assert!(identity.is_super());
        assert_eq!(identity.for_leader().iter().count(), 3);
    }

    #[test]
    fn what_is_proven_again_is_not_added_again() {
        let first = Identity::of_address([127, 0, 0, 1].into());
        let id = || AuthId::new(Scheme::Digest, "u:hash".to_owned());
        let grown = first.with(vec![id()]).expect("room");
        assert_eq!((first.ids().len(), grown.ids().len()), (1, 2));
        assert!(Arc::ptr_eq(&grown, &grown.with(vec![id()]).expect("the same")));
        assert!(Arc::ptr_eq(&grown, &grown.with(Vec::new()).expect("the same")));
        assert!(!grown.is_super());
        let super_id = AuthId::new(Scheme::Super, String::new());
        assert!(grown.with(vec![super_id]).expect("room").is_super());
    }
}
