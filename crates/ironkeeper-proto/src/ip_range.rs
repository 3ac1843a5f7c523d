//! The id of the ACL scheme `ip`: an address, optionally with a prefix length.

use std::net::Ipv6Addr;

/// The number of bits of `IpRange::address`.
const BITS: u32 = u128::BITS;

/// An address and the length of its prefix in bits.
///
/// ```
/// use ironkeeper_proto::IpRange;
///
/// let range = IpRange::parse("10.1.0.0/16").unwrap();
/// assert!(range.contains(&IpRange::parse("10.1.2.3").unwrap()));
/// assert!(!range.contains(&IpRange::parse("10.2.2.3").unwrap()));
/// assert_eq!(IpRange::parse("10.1.0.0/33"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpRange {
    is_v6: bool,
    bits: u8,
    /// Left-aligned, also for IPv4.
    address: u128,
}

impl IpRange {
    /// Parses `address[/bits]`. Without `/bits` the prefix is the whole address.
    pub fn parse(text: &str) -> Option<IpRange> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let is_v6 = address.contains(':');
        let (address, most) = match is_v6 {
            true => (v6(address)?, 128),
            false => (u128::from(v4(address)?) << 96, 32),
        };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
        };
        Some(IpRange { is_v6, bits, address })
    }

    /// Returns whether an address is in the range. The prefix length of `address` is ignored.
    pub fn contains(&self, address: &IpRange) -> bool {
        address.is_v6 == self.is_v6 && address.prefix(self.bits) == self.prefix(self.bits)
    }

    /// Returns a number that identifies the kind of address and the prefix length together.
    pub fn shape(&self) -> u8 {
        if self.is_v6 { 33 + self.bits } else { self.bits }
    }

    /// Returns the prefix that a range of this shape compares, or `None` if the shape is for the
    /// other kind of address.
    pub fn prefix_for(&self, shape: u8) -> Option<u128> {
        let bits = if self.is_v6 { shape.checked_sub(33)? } else { shape };
        (self.is_v6 || shape < 33).then(|| self.prefix(bits))
    }

    fn prefix(&self, bits: u8) -> u128 {
        let rest = BITS - u32::from(bits);
        self.address.checked_shr(rest).unwrap_or(0)
    }
}

/// Parses four numbers. As in Java, leading zeros and a plus sign are accepted.
fn v4(address: &str) -> Option<u32> {
    let mut bytes = [0; 4];
    let mut parts = address.split('.');
    for byte in &mut bytes {
        *byte = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then(|| u32::from_be_bytes(bytes))
}

/// Parses groups of hexadecimal digits only: Apache does not accept the dotted form of the last two
/// groups.
fn v6(address: &str) -> Option<u128> {
    if address.contains('.') {
        return None;
    }
    Some(address.parse::<Ipv6Addr>().ok()?.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(address: &str, range: &str) -> bool {
        let parse = |text| IpRange::parse(text).expect("an address or range");
        let (address, range) = (parse(address), parse(range));
        let found = range.contains(&address);
        let by_shape = address.prefix_for(range.shape());
        assert_eq!(found, by_shape.is_some() && by_shape == range.prefix_for(range.shape()));
        found
    }

    #[test]
    fn ranges_match_by_their_prefix() {
        assert!(matches("127.0.0.1", "127.0.0.1") && matches("127.0.0.1", "127.0.0.0/8"));
        assert!(matches("10.1.2.3", "10.1.3.0/23") && !matches("10.1.2.3", "10.1.3.0/24"));
        assert!(matches("9.9.9.9", "1.1.1.1/0") && !matches("9.9.9.9", "::1/0"));
        assert!(matches("0:0:0:0:0:0:0:1", "::1") && matches("fe80::1", "fe80::2/10"));
        assert!(!matches("fe80::1", "fe80::2") && !matches("::", "0.0.0.0"));
    }

    #[test]
    fn what_a_server_accepts() {
        for good in ["1.2.3.4", "1.2.3.4/0", "1.2.3.4/32", "::1", "fe80::/10", "+1.02.3.4"] {
            assert!(IpRange::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.4/33",
            "1.2.3.4/-1",
            "1.2.3.4/x",
            "host",
            "::1/129",
            "::ffff:1.2.3.4",
        ] {
            assert!(IpRange::parse(bad).is_none(), "{bad}");
        }
    }
}
