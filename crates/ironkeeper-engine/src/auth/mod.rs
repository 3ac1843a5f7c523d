//! Who a connection is, and what that allows.

mod digest;
mod ip;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use ironkeeper_proto::acl::AclRef;
use ironkeeper_proto::jute;
use ironkeeper_proto::quorum_packet::{AUTH_BYTES_MAX, AUTH_IDS_MAX, AuthIds};
use ironkeeper_proto::{Acl, AclVec, ErrorCode, Perms};
use ironkeeper_tree::AclList;

pub use digest::{DigestAlgorithm, digest_id};

/// The most identities a connection may have ...
pub const IDENTITIES_MAX: usize = 1024;
/// ... and how many bytes they may take together. A learner tells them to its leader with every write,
/// and an ACL of the scheme `auth` repeats them in its node.
pub const IDENTITY_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(IDENTITIES_MAX <= AUTH_IDS_MAX && IDENTITY_BYTES_MAX < AUTH_BYTES_MAX);

/// Settings of authentication and of ACL checks.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// `skipACL=yes`: everybody may do everything.
    pub skip_acl: bool,
    pub digest_enabled: bool,
    pub digest_algorithm: DigestAlgorithm,
    /// The digest id that makes its owner super.
    pub super_digest: Option<String>,
    /// Schemes of which a connection must hold one before it may ask for anything.
    pub enforced_schemes: Option<Vec<String>>,
    /// The name that the `ensemble` scheme must present, if one is set.
    pub ensemble_names: Vec<String>,
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
        }
    }
}

/// One proven identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthId {
    pub scheme: Cow<'static, str>,
    pub id: String,
}

/// Everything a connection has proven so far, in order. Never shrinks.
#[derive(Clone, Debug)]
pub struct Identity {
    ids: Vec<AuthId>,
    is_super: bool,
    /// As a learner tells its leader, made when it is first wanted.
    told: OnceLock<AuthIds>,
}

impl Identity {
    /// Every connection starts with its address.
    pub fn of_address(address: IpAddr) -> Arc<Identity> {
        Arc::new(Identity::new(vec![AuthId { scheme: "ip".into(), id: ip::text(address) }]))
    }

    /// The server itself, which no ACL holds back.
    pub fn server() -> Arc<Identity> {
        Arc::new(Identity { is_super: true, ..Identity::new(Vec::new()) })
    }

    /// Somebody else's client, as its server vouches for it.
    pub fn of_learner(told: Option<&AuthIds>) -> Identity {
        let id = |(scheme, id): (Cow<'_, str>, Cow<'_, str>)| AuthId {
            scheme: known_scheme(&scheme).unwrap_or_else(|| Cow::Owned(scheme.into_owned())),
            id: id.into_owned(),
        };
        Identity::new(told.into_iter().flat_map(AuthIds::iter).map(id).collect())
    }

    fn new(ids: Vec<AuthId>) -> Identity {
        let is_super = ids.iter().any(|auth| auth.scheme == "super");
        Identity { ids, is_super, told: OnceLock::new() }
    }

    /// What a leader is told of this client.
    pub fn for_leader(&self) -> AuthIds {
        let told = || AuthIds::new(self.ids.iter().map(|auth| (&*auth.scheme, &*auth.id)));
        self.told.get_or_init(told).clone()
    }

    pub fn ids(&self) -> &[AuthId] {
        &self.ids
    }

    fn add(&mut self, scheme: &'static str, id: String) {
        let new = AuthId { scheme: scheme.into(), id };
        self.is_super |= scheme == "super";
        self.told = OnceLock::new();
        if !self.ids.contains(&new) {
            self.ids.push(new);
        }
    }

    /// Whether these are more than a connection may have.
    fn is_too_much(&self) -> bool {
        let bytes: usize = self.ids.iter().map(|auth| 8 + auth.scheme.len() + auth.id.len()).sum();
        self.ids.len() > IDENTITIES_MAX || bytes > IDENTITY_BYTES_MAX
    }

    /// What `whoAmI` shows of each id: the scheme and the user part.
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

/// Saves the copy of a name that everybody uses.
fn known_scheme(scheme: &str) -> Option<Cow<'static, str>> {
    const KNOWN: [&str; 6] = ["ip", "digest", "super", "sasl", "x509", "world"];
    KNOWN.into_iter().find(|known| *known == scheme).map(Cow::Borrowed)
}

/// Whether `identity` holds any of the wanted permissions by this list.
pub fn allowed(config: &AuthConfig, acl: &AclList, wanted: Perms, identity: &Identity) -> bool {
    if acl.allows_anyone(wanted) || config.skip_acl || identity.is_super {
        return true;
    }
    acl.entries().iter().filter(|entry| entry.perms.allows(wanted)).any(|entry| {
        identity.ids.iter().any(|auth| {
            auth.scheme == entry.scheme
                && match &*auth.scheme {
                    "ip" => ip::matches(&auth.id, &entry.id),
                    _ => auth.id == entry.id,
                }
        })
    })
}

/// Tries to add an identity by an `auth` request. An error means the reply `AuthFailed` and the end
/// of the connection.
pub fn authenticate(
    config: &AuthConfig,
    identity: &Identity,
    scheme: &str,
    auth: Option<&[u8]>,
) -> Result<Arc<Identity>, ErrorCode> {
    let mut grown = identity.clone();
    match scheme {
        "ip" => {}
        "digest" if config.digest_enabled => {
            let text = jute::text(auth.ok_or(ErrorCode::AuthFailed)?);
            let id = config.digest_algorithm.id(&text);
            if config.super_digest.as_deref() == Some(id.as_str()) {
                grown.add("super", String::new());
            }
            grown.add("digest", id);
        }
        "ensemble" if !config.ensemble_names.is_empty() => {
            let name = String::from_utf8_lossy(auth.unwrap_or_default());
            if !config.ensemble_names.iter().any(|known| *known == name) {
                return Err(ErrorCode::AuthFailed);
            }
        }
        _ => return Err(ErrorCode::AuthFailed),
    }
    match grown.is_too_much() {
        true => Err(ErrorCode::AuthFailed),
        false => Ok(Arc::new(grown)),
    }
}

/// Whether enforcement lets this identity ask for anything.
pub fn is_admitted(config: &AuthConfig, identity: &Identity) -> bool {
    match &config.enforced_schemes {
        None => true,
        Some(schemes) => identity.ids.iter().any(|auth| schemes.iter().any(|s| *s == auth.scheme)),
    }
}

/// Brings a client's list into the form that is stored: duplicates dropped, `auth` replaced by the
/// connection's own ids, every entry checked. The result is the encoded elements and their count.
pub fn normalize(
    config: &AuthConfig,
    list: Option<AclVec<'_>>,
    identity: &Identity,
) -> Result<Vec<Acl>, ErrorCode> {
    let list = list.filter(|list| !list.is_empty()).ok_or(ErrorCode::InvalidAcl)?;
    if list.has_null_id(&["world", "digest", "ip"]) {
        return Err(ErrorCode::MarshallingError);
    }
    // Duplicates are those of the list as it was sent; what `auth` stands for may repeat.
    let mut distinct: Vec<AclRef<'_>> = Vec::with_capacity(list.len().min(16));
    for entry in list.iter() {
        if !distinct.contains(&entry) {
            distinct.push(entry);
        }
    }
    let mut normal: Vec<Acl> = Vec::with_capacity(distinct.len());
    let mut add = |acl: Acl| normal.push(acl);
    for entry in distinct {
        match &*entry.scheme {
            "world" if entry.id == "anyone" => add(entry.to_owned()),
            "auth" => {
                let mut own = identity.ids.iter().filter(|auth| auth.scheme == "digest").peekable();
                if own.peek().is_none() {
                    return Err(ErrorCode::InvalidAcl);
                }
                own.for_each(|auth| add(Acl::new(entry.perms, &auth.scheme, &auth.id)));
            }
            _ if is_valid_id(config, &entry) => add(entry.to_owned()),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    Ok(normal)
}

fn is_valid_id(config: &AuthConfig, entry: &AclRef<'_>) -> bool {
    match &*entry.scheme {
        "digest" => config.digest_enabled && digest::is_valid_id(&entry.id),
        "ip" => ip::is_valid_id(&entry.id),
        _ => false,
    }
}

/// What `getACL` shows to those who may not administer the node: the user without the hash.
pub fn masked(acl: &Acl) -> Acl {
    match acl.scheme.as_str() {
        "digest" => {
            let user = acl.id.split(':').next().unwrap_or_default();
            Acl::new(acl.perms, "digest", &format!("{user}:x"))
        }
        _ => acl.clone(),
    }
}
