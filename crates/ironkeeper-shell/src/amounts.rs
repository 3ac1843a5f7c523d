//! Sizes and times in readable notation: `10k`, `2h`, `1.5 MiB`, `3d 4h`.

use std::cmp::Ordering;
use std::time::Duration;

/// A limit with the syntax of find(1): `+10k` is more than that, `-10k` is less, `10k` exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T> {
    side: Ordering,
    amount: T,
}

impl<T: Ord + Copy> Limit<T> {
    pub fn parse(text: &str, amount: impl Fn(&str) -> Option<T>) -> Option<Limit<T>> {
        let (side, rest) = match text.as_bytes().first()? {
            b'+' => (Ordering::Greater, &text[1..]),
            b'-' => (Ordering::Less, &text[1..]),
            _ => (Ordering::Equal, text),
        };
        Some(Limit { side, amount: amount(rest)? })
    }

    pub fn holds(&self, amount: T) -> bool {
        amount.cmp(&self.amount) == self.side
    }
}

/// Parses `512`, `10k`, `3M`, `1G`: powers of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    number(digits)?.checked_mul(1 << shift)
}

/// Parses `90`, `90s`, `5m`, `2h`, `3d`; the default unit is seconds.
pub fn parse_seconds(text: &str) -> Option<u64> {
    let (digits, seconds) = match text.char_indices().next_back()? {
        (at, 's') => (&text[..at], 1),
        (at, 'm') => (&text[..at], 60),
        (at, 'h') => (&text[..at], 3600),
        (at, 'd') => (&text[..at], 86_400),
        _ => (text, 1),
    };
    number(digits)?.checked_mul(seconds)
}

/// Parses digits only: `str::parse` would accept a sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Formats as `0 B`, `1023 B`, `1.0 KiB`, `17 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    // A value that would be rounded to 1024 uses the next unit.
    while amount >= 1023.5 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    match amount < 9.95 {
        true => format!("{amount:.1} {}", UNITS[unit]),
        false => format!("{amount:.0} {}", UNITS[unit]),
    }
}

/// Formats the two largest units: `12s`, `5m 2s`, `3d 4h`.
pub fn human_time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days}d {}h", hours % 24),
        () if hours > 0 => format!("{hours}h {}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m {}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

/// Formats as `1 node`, `2 nodes`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read() {
        assert_eq!(parse_bytes("10k"), Some(10_240));
        assert_eq!(parse_bytes("7"), Some(7));
        assert_eq!(parse_seconds("2h"), Some(7200));
        assert_eq!(parse_seconds("30"), Some(30));
        for bad in ["", "k", "-1", "+1", "1x", "99999999999G", "é"] {
            assert_eq!((parse_bytes(bad), bad), (None, bad));
        }
    }

    #[test]
    fn limits_have_a_side() {
        let limit = |text| Limit::parse(text, parse_bytes).unwrap();
        assert!(limit("+1k").holds(1025) && !limit("+1k").holds(1024));
        assert!(limit("-1k").holds(1023) && !limit("-1k").holds(1024));
        assert!(limit("1k").holds(1024) && !limit("1k").holds(1));
        assert_eq!(Limit::parse("+", parse_bytes), None);
    }

    #[test]
    fn amounts_are_shown() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10_240, "10 KiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
        assert_eq!(human_time(Duration::from_secs(59)), "59s");
        assert_eq!(human_time(Duration::from_secs(302)), "5m 2s");
        assert_eq!(human_time(Duration::from_secs(90_000)), "1d 1h");
        assert_eq!(count(1, "node"), "1 node");
        assert_eq!(count(0, "node"), "0 nodes");
    }
}
