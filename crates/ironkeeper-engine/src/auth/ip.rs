//! The `ip` scheme: an address, optionally with a prefix length.

use std::net::{IpAddr, Ipv6Addr};

/// An address as Java prints it: IPv6 in full, groups without leading zeros.
pub(super) fn text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.to_string(),
            None => v6.segments().map(|group| format!("{group:x}")).join(":"),
        },
    }
}

/// Splits `address[/bits]`; the bits default to the whole address.
fn parse(text: &str) -> Option<(Vec<u8>, u32)> {
    let (address, bits) = match text.split_once('/') {
        None => (text, None),
        Some((address, bits)) => (address, Some(bits)),
    };
    let bytes = if address.contains(':') { v6_bytes(address)? } else { v4_bytes(address)? };
    let most = bytes.len() as u32 * 8;
    let bits = match bits {
        None => most,
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
    };
    Some((bytes, bits))
}

/// Four numbers, which Java reads with leading zeros and a plus sign.
fn v4_bytes(address: &str) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = address.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    (bytes.len() == 4).then_some(bytes)
}

/// Groups of hexadecimal digits only: the dotted form of the last two is not known to Apache.
fn v6_bytes(address: &str) -> Option<Vec<u8>> {
    if address.contains('.') {
        return None;
    }
    Some(address.parse::<Ipv6Addr>().ok()?.octets().to_vec())
}

pub(super) fn is_valid_id(id: &str) -> bool {
    parse(id).is_some()
}

/// Whether the connection's address lies in the range of an ACL entry.
pub(super) fn matches(address: &str, range: &str) -> bool {
    let (Some((address, _)), Some((range, bits))) = (parse(address), parse(range)) else {
        return false;
    };
    address.len() == range.len()
        && (0..bits as usize).all(|bit| {
            let mask = 0x80 >> (bit % 8);
            address[bit / 8] & mask == range[bit / 8] & mask
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_match_by_their_prefix() {
        assert!(matches("127.0.0.1", "127.0.0.1") && matches("127.0.0.1", "127.0.0.0/8"));
        assert!(matches("10.1.2.3", "10.1.3.0/23") && !matches("10.1.2.3", "10.1.3.0/24"));
        assert!(matches("9.9.9.9", "1.1.1.1/0") && !matches("9.9.9.9", "::1/0"));
        assert!(matches("0:0:0:0:0:0:0:1", "::1"));
    }

    #[test]
    fn ids_a_server_accepts() {
        for good in ["1.2.3.4", "1.2.3.4/0", "1.2.3.4/32", "::1", "fe80::/10"] {
            assert!(is_valid_id(good), "{good}");
        }
        for bad in [
            "",
            "1.2.3",
            "1.2.3.4/33",
            "1.2.3.4/-1",
            "1.2.3.4/x",
            "host",
            "::1/129",
            "::ffff:1.2.3.4",
        ] {
            assert!(!is_valid_id(bad), "{bad}");
        }
    }

    #[test]
    fn ipv6_is_printed_as_java_does() {
        assert_eq!(text("::1".parse().unwrap()), "0:0:0:0:0:0:0:1");
        assert_eq!(text("::ffff:127.0.0.1".parse().unwrap()), "127.0.0.1");
    }
}
