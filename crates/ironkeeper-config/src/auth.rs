//! Authentication schemes.

use std::fmt;

use ironkeeper_engine::auth::DigestAlgorithm;

/// An authentication scheme that clients can be required to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthScheme {
    Digest,
    Ip,
}

impl AuthScheme {
    /// Returns the name in ACLs and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            AuthScheme::Digest => "digest",
            AuthScheme::Ip => "ip",
        }
    }
}

/// The digest authentication scheme.
#[derive(Clone, PartialEq, Eq)]
pub struct DigestAuth {
    /// Whether the scheme exists.
    pub enabled: bool,
    /// The id, `user:base64(hash)`, whose holder bypasses every ACL.
    pub super_digest: Option<String>,
    /// How passwords are hashed.
    pub algorithm: DigestAlgorithm,
}

impl Default for DigestAuth {
    fn default() -> Self {
        DigestAuth { enabled: true, super_digest: None, algorithm: DigestAlgorithm::Sha1 }
    }
}

/// Hides the super user's hash, because configurations are logged.
impl fmt::Debug for DigestAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestAuth")
            .field("enabled", &self.enabled)
            .field("super_digest", &self.super_digest.as_ref().map(|_| "(hidden)"))
            .field("algorithm", &self.algorithm)
            .finish()
    }
}
