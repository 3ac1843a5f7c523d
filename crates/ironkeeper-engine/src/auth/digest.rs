//! The `digest` scheme: `user:base64(hash("user:password"))`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::Digest;

/// The hash function that turns `user:password` into an id.
///
/// The default is SHA-1. The variants are the functions of the SHA family that a Java server can be
/// configured to use; an id made with one function never matches an id made with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DigestAlgorithm {
    #[default]
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Sha512Truncated224,
    Sha512Truncated256,
    Sha3With224,
    Sha3With256,
    Sha3With384,
    Sha3With512,
}

impl DigestAlgorithm {
    /// Returns the algorithm that Java knows by `name`, in upper or lower case.
    ///
    /// ```
    /// use ironkeeper_engine::auth::DigestAlgorithm;
    /// assert_eq!(DigestAlgorithm::from_name("sha3-256"), Some(DigestAlgorithm::Sha3With256));
    /// assert_eq!(DigestAlgorithm::from_name("MD5"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<DigestAlgorithm> {
        Some(match name.to_ascii_uppercase().as_str() {
            "SHA1" | "SHA-1" | "SHA" => DigestAlgorithm::Sha1,
            "SHA-224" | "SHA224" => DigestAlgorithm::Sha224,
            "SHA-256" | "SHA256" => DigestAlgorithm::Sha256,
            "SHA-384" | "SHA384" => DigestAlgorithm::Sha384,
            "SHA-512" | "SHA512" => DigestAlgorithm::Sha512,
            "SHA-512/224" | "SHA512/224" => DigestAlgorithm::Sha512Truncated224,
            "SHA-512/256" | "SHA512/256" => DigestAlgorithm::Sha512Truncated256,
            "SHA3-224" => DigestAlgorithm::Sha3With224,
            "SHA3-256" => DigestAlgorithm::Sha3With256,
            "SHA3-384" => DigestAlgorithm::Sha3With384,
            "SHA3-512" => DigestAlgorithm::Sha3With512,
            _ => return None,
        })
    }

    /// Returns the id that proves knowledge of `user:password`. A text without a colon is all user
    /// name.
    pub fn id(self, user_and_password: &str) -> String {
        let user = user(user_and_password);
        format!("{user}:{}", self.hash(user_and_password.as_bytes()))
    }

    fn hash(self, secret: &[u8]) -> String {
        fn of<D: Digest>(secret: &[u8]) -> String {
            STANDARD.encode(D::digest(secret))
        }
        match self {
            DigestAlgorithm::Sha1 => of::<sha1::Sha1>(secret),
            DigestAlgorithm::Sha224 => of::<sha2::Sha224>(secret),
            DigestAlgorithm::Sha256 => of::<sha2::Sha256>(secret),
            DigestAlgorithm::Sha384 => of::<sha2::Sha384>(secret),
            DigestAlgorithm::Sha512 => of::<sha2::Sha512>(secret),
            DigestAlgorithm::Sha512Truncated224 => of::<sha2::Sha512_224>(secret),
            DigestAlgorithm::Sha512Truncated256 => of::<sha2::Sha512_256>(secret),
            DigestAlgorithm::Sha3With224 => of::<sha3::Sha3_224>(secret),
            DigestAlgorithm::Sha3With256 => of::<sha3::Sha3_256>(secret),
            DigestAlgorithm::Sha3With384 => of::<sha3::Sha3_384>(secret),
            DigestAlgorithm::Sha3With512 => of::<sha3::Sha3_512>(secret),
        }
    }
}

/// Returns the id of `user:password` under SHA-1, the default algorithm.
///
/// ```
/// use ironkeeper_engine::auth::digest_id;
/// assert_eq!(digest_id("u:p"), "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=");
/// ```
pub fn digest_id(user_and_password: &str) -> String {
    DigestAlgorithm::Sha1.id(user_and_password)
}

/// Returns the user in an id or in `user:password`.
pub(super) fn user(id: &str) -> &str {
    id.split(':').next().unwrap_or_default()
}

/// Returns whether `id` has exactly two parts separated by colons; empty parts at the end do not
/// count (Java's `split`).
pub(super) fn is_valid_id(id: &str) -> bool {
    let mut parts: Vec<&str> = id.split(':').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts.len() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_real_servers_made() {
        assert_eq!(digest_id("super:secret"), "super:lK75jTNcA+U9vtVEw5vB51mj/w4=");
        assert!(digest_id("nocolon").starts_with("nocolon:"));
        for (name, id) in [
            ("SHA1", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
            ("SHA-224", "u:buY2RDLG1qb161QWn3zO7zdHv1Jw5JzOzvoq8w=="),
            ("SHA-256", "u:/Y8xRBngpX5duYn15uUqIRaIaCviy5TEwSk419hCwuA="),
            ("SHA-384", "u:joW9fAMExHHjPTquSoLHR7yNt+hmUQSWOdXLQ1YgEw4t89oJD5tqLNcOJbpOm3hr"),
            (
                "SHA-512",
                "u:JuOwXdmk4f1omXNJj7k4ILDOHOlc+8PMyEaxl9nrWl6OmV83jKYivSqJWsp5PsMTda6BtnipueoU1r5DtBd7CA==",
            ),
            ("SHA-512/224", "u:uQhd9bjKXP6GHJndVVZ2qIjzcJFAYrjzPmzxOg=="),
            ("SHA-512/256", "u:GahcuEqKVDomB4u/ebwuUp9/SoZ9jjQVdblytNb5wPo="),
            ("SHA3-224", "u:VetFxgqKhf3M+E8Pj5X4NLMXFF7lPCr+KjMt9g=="),
            ("SHA3-256", "u:3+U94Pf1dSrKR/q5qu/huTFf1Fha6TtpdtpSdhWvIS0="),
            ("SHA3-384", "u:d4zgobLcJSLRER2rxMYl64bQqLziPCVxzKEWJoX+pEfq/zm0wPI8ZyXDgZrO/jZl"),
            (
                "SHA3-512",
                "u:CxK7PYZe5JmbxbczQTl9zOaNZXrjA0kC+0x9tzWMsGKrpYRMUAdSUKhye+ylfkRhhXm3ReL68pT1mUct81OUyQ==",
            ),
        ] {
            let algorithm = DigestAlgorithm::from_name(name).expect(name);
            assert_eq!(algorithm.id("u:p"), id, "{name}");
        }
    }

    #[test]
    fn valid_ids_have_two_parts() {
        assert!(is_valid_id("u:hash") && is_valid_id("u:hash::") && is_valid_id(":hash"));
        assert!(
            !is_valid_id("u") && !is_valid_id("u:") && !is_valid_id("a:b:c") && !is_valid_id("")
        );
    }
}
