//! The authentication schemes, and the rules of each.
//!
//! One method for each rule that differs between schemes: what proves an id, which ids an ACL may
//! contain, what is shown of an id. A method is one match over all schemes, so a new scheme is a
//! new arm everywhere. Ids are matched in [`AclList`](ironkeeper_tree::AclList), which has an index
//! of them: an `ip` id names a range of addresses, ids of all other schemes are compared.

use std::borrow::Cow;

use ironkeeper_proto::{ErrorCode, IpRange, jute};

use super::exchange::Step;
use super::{AuthConfig, AuthId, digest};

/// A scheme that this server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Every client, in ACLs only.
    World,
    /// The ids of the client that sends the ACL, in ACLs only.
    Auth,
    /// The address of the client; every client has this id from the beginning.
    Ip,
    /// User and password.
    Digest,
    /// Passes every check. A client gets this id with the digest of `super_digest`.
    Super,
    /// The name of the ensemble that the client wants to use; proves no id.
    Ensemble,
    /// The name in a TLS certificate. Only clients of learners of other makes have such ids.
    X509,
    /// A SASL user. Only clients of learners of other makes have such ids.
    Sasl,
}

impl Scheme {
    const ALL: [Scheme; 8] = [
        Scheme::World,
        Scheme::Auth,
        Scheme::Ip,
        Scheme::Digest,
        Scheme::Super,
        Scheme::Ensemble,
        Scheme::X509,
        Scheme::Sasl,
    ];

    /// The schemes whose entries in an ACL must not have a null id.
    pub(super) const WITH_ID: [&str; 3] =
        [Scheme::World.name(), Scheme::Digest.name(), Scheme::Ip.name()];

    pub const fn name(self) -> &'static str {
        match self {
            Scheme::World => "world",
            Scheme::Auth => "auth",
            Scheme::Ip => "ip",
            Scheme::Digest => "digest",
            Scheme::Super => "super",
            Scheme::Ensemble => "ensemble",
            Scheme::X509 => "x509",
            Scheme::Sasl => "sasl",
        }
    }

    pub fn from_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Checks the proof in an `auth` request of a client.
    pub(super) fn prove(
        self,
        config: &AuthConfig,
        proof: Option<&[u8]>,
    ) -> Result<Step, ErrorCode> {
        let ids = match self {
            // Every client has its address already.
            Scheme::Ip => Vec::new(),
            Scheme::Digest if config.digest_enabled => {
                let text = jute::text(proof.ok_or(ErrorCode::AuthFailed)?);
                let id = config.digest_algorithm.id(&text);
                let is_super = config.super_digest.as_deref() == Some(id.as_str());
                let as_super = is_super.then(|| AuthId::new(Scheme::Super, String::new()));
                as_super.into_iter().chain([AuthId::new(Scheme::Digest, id)]).collect()
            }
            Scheme::Ensemble if !config.ensemble_names.is_empty() => {
                let name = String::from_utf8_lossy(proof.unwrap_or_default());
                if !config.ensemble_names.iter().any(|known| *known == name) {
                    return Err(ErrorCode::AuthFailed);
                }
                Vec::new()
            }
            Scheme::World
            | Scheme::Auth
            | Scheme::Digest
            | Scheme::Super
            | Scheme::Ensemble
            | Scheme::X509
            | Scheme::Sasl => return Err(ErrorCode::AuthFailed),
        };
        Ok(Step::Proven(ids))
    }

    /// Returns whether a client may write an entry with this id into an ACL. Entries of
    /// [`Scheme::Auth`] are replaced before.
    pub(super) fn is_valid_id(self, config: &AuthConfig, id: &str) -> bool {
        match self {
            Scheme::World => id == "anyone",
            Scheme::Ip => IpRange::parse(id).is_some(),
            Scheme::Digest => config.digest_enabled && digest::is_valid_id(id),
            Scheme::Auth | Scheme::Super | Scheme::Ensemble | Scheme::X509 | Scheme::Sasl => false,
        }
    }

    /// Returns whether ids of this scheme replace an `auth` entry of an ACL.
    pub(super) fn replaces_auth(self) -> bool {
        match self {
            Scheme::Digest => true,
            Scheme::World
            | Scheme::Auth
            | Scheme::Ip
            | Scheme::Super
            | Scheme::Ensemble
            | Scheme::X509
            | Scheme::Sasl => false,
        }
    }

    /// Returns the part of an id that `whoAmI` shows: not the hash of a password.
    pub(super) fn user(self, id: &str) -> &str {
        match self {
            Scheme::Digest => digest::user(id),
            Scheme::World
            | Scheme::Auth
            | Scheme::Ip
            | Scheme::Super
            | Scheme::Ensemble
            | Scheme::X509
            | Scheme::Sasl => id,
        }
    }

    /// Returns the id that `getACL` shows to a client without the admin permission.
    pub(super) fn masked(self, id: &str) -> Cow<'_, str> {
        match self {
            Scheme::Digest => Cow::Owned(format!("{}:x", digest::user(id))),
            Scheme::World
            | Scheme::Auth
            | Scheme::Ip
            | Scheme::Super
            | Scheme::Ensemble
            | Scheme::X509
            | Scheme::Sasl => Cow::Borrowed(id),
        }
    }

    /// Returns whether log lines about a client name its ids of this scheme; its address is in
    /// these lines anyway.
    pub(super) fn is_logged(self) -> bool {
        self != Scheme::Ip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prove(config: &AuthConfig, scheme: Scheme, proof: Option<&[u8]>) -> Option<Vec<String>> {
        match scheme.prove(config, proof) {
            Ok(Step::Proven(ids)) => {
                Some(ids.iter().map(|auth| format!("{}:{}", auth.scheme.name(), auth.id)).collect())
            }
            Ok(Step::Token(_)) => panic!("a proof is one step"),
            Err(error) => {
                assert_eq!(error, ErrorCode::AuthFailed);
                None
            }
        }
    }

    #[test]
    fn names_find_their_schemes() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::from_name(scheme.name()), Some(scheme));
        }
        assert_eq!((Scheme::from_name("Digest"), Scheme::from_name("")), (None, None));
    }

    #[test]
    fn a_digest_proves_its_id_and_the_super_digest_two() {
        let mut config = AuthConfig::default();
        let digest = "digest:u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=";
        let expected = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(prove(&config, Scheme::Digest, Some(b"u:p")), expected(&[digest]));
        assert_eq!(prove(&config, Scheme::Digest, None), None);
        config.super_digest = Some("u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=".to_owned());
        assert_eq!(prove(&config, Scheme::Digest, Some(b"u:p")), expected(&["super:", digest]));
        config.digest_enabled = false;
        assert_eq!(prove(&config, Scheme::Digest, Some(b"u:p")), None);
    }

    #[test]
    fn only_an_address_and_the_name_of_the_ensemble_prove_nothing_new() {
        let mut config = AuthConfig::default();
        assert_eq!(prove(&config, Scheme::Ip, None), Some(Vec::new()));
        assert_eq!(prove(&config, Scheme::Ensemble, Some(b"a")), None);
        config.ensemble_names = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(prove(&config, Scheme::Ensemble, Some(b"b")), Some(Vec::new()));
        assert_eq!(prove(&config, Scheme::Ensemble, Some(b"c")), None);
        let others = [Scheme::World, Scheme::Auth, Scheme::Super, Scheme::X509, Scheme::Sasl];
        for scheme in others {
            assert_eq!(prove(&config, scheme, Some(b"u:p")), None, "{scheme:?}");
        }
    }

    #[test]
    fn each_scheme_has_ids_that_an_acl_may_contain() {
        let config = AuthConfig::default();
        let valid = |id| -> Vec<Scheme> {
            Scheme::ALL.into_iter().filter(|scheme| scheme.is_valid_id(&config, id)).collect()
        };
        assert_eq!(valid("anyone"), [Scheme::World]);
        assert_eq!(valid("10.0.0.0/8"), [Scheme::Ip]);
        assert_eq!(valid("user:hash"), [Scheme::Digest]);
        assert_eq!(valid(""), []);
    }

    #[test]
    fn hashes_of_passwords_are_not_shown() {
        assert_eq!(Scheme::Digest.user("user:hash"), "user");
        assert_eq!(Scheme::Digest.masked("user:hash"), "user:x");
        assert_eq!(Scheme::Ip.user("0:0:0:0:0:0:0:1"), "0:0:0:0:0:0:0:1");
        assert_eq!(Scheme::Sasl.masked("user:realm"), "user:realm");
        assert!(Scheme::Digest.is_logged() && !Scheme::Ip.is_logged());
    }
}
