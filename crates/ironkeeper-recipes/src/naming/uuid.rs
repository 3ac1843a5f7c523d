//! Universally unique ids, as specified by RFC 9562.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

/// A universally unique id. The order is that of the text.
///
/// ```
/// use ironkeeper_recipes::naming::Uuid;
///
/// let id = Uuid::random();
/// assert_eq!(id.version(), 4);
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(u128);

impl Uuid {
    /// Creates a random id (version 4). The randomness is that of the hash keys of the standard
    /// library, which the operating system provides: do not use the id as a secret.
    pub fn random() -> Uuid {
        Uuid(random_bits()).with_version(4)
    }

    /// Creates an id that sorts by time (version 7): milliseconds since 1970, then the 40 bits of
    /// `distinct`, which differ between all ids of one millisecond, then random bits.
    pub(super) fn by_time(ms: u64, distinct: u64) -> Uuid {
        let distinct = u128::from(distinct) & ((1 << 40) - 1);
        // 48 bits of time, 4 of version, 12 + 28 of `distinct` around 2 of variant, 34 random.
        let (high, low) = (distinct >> 28, distinct & ((1 << 28) - 1));
        let chance = random_bits() & ((1 << 34) - 1);
        Uuid((u128::from(ms) << 80) | (high << 64) | (low << 34) | chance).with_version(7)
    }

    fn with_version(self, version: u128) -> Uuid {
        Uuid((self.0 & !(0xf << 76) & !(0x3 << 62)) | (version << 76) | (0x2 << 62))
    }

    /// Returns the version: 4 is random, 7 sorts by time.
    pub fn version(self) -> u8 {
        ((self.0 >> 76) & 0xf) as u8
    }

    /// Returns the time of creation in milliseconds since 1970, for an id of version 7.
    pub fn time_ms(self) -> Option<u64> {
        (self.version() == 7).then_some((self.0 >> 80) as u64)
    }

    /// Returns the 16 bytes, in big-endian order.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Creates an id from 16 bytes in big-endian order.
    pub fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(u128::from_be_bytes(bytes))
    }
}

fn random_bits() -> u128 {
    let (high, low) = (RandomState::new().hash_one(1), RandomState::new().hash_one(2));
    (u128::from(high) << 64) | u128::from(low)
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        f.write_str(&parts.join("-"))
    }
}

/// The error for a text that is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID: expected 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12")]
pub struct NoUuid;

impl FromStr for Uuid {
    type Err = NoUuid;

    fn from_str(text: &str) -> Result<Uuid, NoUuid> {
        let is_right = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        if !is_right {
            return Err(NoUuid);
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Uuid).map_err(|_| NoUuid)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_read_back_and_other_text_is_refused() {
        let text = "53345f98-9423-4e0c-a7b5-9f819e3ec2e1";
        assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
        for wrong in ["", "53345f98", "53345f98-9423-4e0c-a7b5-9f819e3ec2eg", &text[1..], "ü"] {
            assert_eq!(wrong.parse::<Uuid>(), Err(NoUuid), "{wrong}");
        }
        let id = Uuid::random();
        assert_eq!(Uuid::from_bytes(id.to_bytes()), id);
        assert_eq!((id.version(), id.time_ms()), (4, None));
    }

    proptest! {
        #[test]
        fn ids_by_time_sort_by_time_and_then_by_what_is_distinct(
            one in (0_u64..1 << 48, 0_u64..1 << 40),
            other in (0_u64..1 << 48, 0_u64..1 << 40),
        ) {
            let (a, b) = (Uuid::by_time(one.0, one.1), Uuid::by_time(other.0, other.1));
            if one != other {
                prop_assert_eq!(a.cmp(&b), one.cmp(&other));
                prop_assert_eq!(a.to_string().cmp(&b.to_string()), one.cmp(&other));
            }
            prop_assert_eq!((a.version(), a.time_ms()), (7, Some(one.0)));
            // The variant of the RFC.
            prop_assert_eq!(a.to_bytes()[8] >> 6, 2);
        }
    }
}
