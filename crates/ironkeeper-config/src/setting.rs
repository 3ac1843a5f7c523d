//! One setting with its place, and Java's rules for values.
//!
//! Apache reads keys in two ways. The keys it reads from `zoo.cfg` must be plain decimal numbers or
//! `true`/`false`, or the server does not start. The keys that become system properties may also be
//! hexadecimal (`0x…`, `#…`) or octal (`0…`), and Apache silently uses the default when they are
//! malformed. Ironkeeper reads both notations but rejects malformed values everywhere: a typing
//! error should not silently change a limit.

use crate::notice::Origin;
use crate::problem::ValueError;

/// A key with its value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// As written, including prefixes.
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

impl Setting {
    /// Returns the value for messages, without secrets.
    pub(crate) fn shown_value(&self) -> String {
        let key = self.key.to_ascii_lowercase();
        let secret = (key.contains("password") && !key.ends_with("passwordpath"))
            || key.contains("superdigest");
        if secret && !self.value.is_empty() { "(hidden)".to_owned() } else { self.value.clone() }
    }

    /// Parses `true` or `false` in any case.
    pub(crate) fn boolean(&self) -> Result<bool, ValueError> {
        if self.value.eq_ignore_ascii_case("true") {
            Ok(true)
        } else if self.value.eq_ignore_ascii_case("false") {
            Ok(false)
        } else {
            Err(ValueError::NoBoolean { value: self.value.clone() })
        }
    }

    /// Parses `yes` or `no`.
    pub(crate) fn yes_or_no(&self) -> Result<bool, ValueError> {
        match self.value.as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            other => Err(ValueError::NoYesOrNo { value: other.to_owned() }),
        }
    }

    /// Parses a plain decimal number, for keys read directly from `zoo.cfg`.
    pub(crate) fn int(&self) -> Result<i32, ValueError> {
        self.value.parse().map_err(|_| self.no_integer(i32::MIN.into(), i32::MAX.into()))
    }

    /// Parses a plain decimal number of at least `min`.
    pub(crate) fn int_from(&self, min: u32, unit: &'static str) -> Result<u32, ValueError> {
        let number = self.int().ok().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| *number >= min).ok_or_else(|| ValueError::NoNumberOf {
            unit,
            min,
            value: self.value.clone(),
        })
    }

    /// Parses a plain decimal number of 64 bits.
    pub(crate) fn long(&self) -> Result<i64, ValueError> {
        self.value.parse().map_err(|_| self.no_integer(i64::MIN, i64::MAX))
    }

    /// Parses a number as Java decodes it in a system property.
    pub(crate) fn property_int(&self) -> Result<i32, ValueError> {
        decode(&self.value)
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| self.no_integer(i32::MIN.into(), i32::MAX.into()))
    }

    /// Parses a 64-bit number as Java decodes it in a system property.
    pub(crate) fn property_long(&self) -> Result<i64, ValueError> {
        decode(&self.value)
            .and_then(|number| i64::try_from(number).ok())
            .ok_or_else(|| self.no_integer(i64::MIN, i64::MAX))
    }

    /// Parses a number that must be at least 1.
    pub(crate) fn positive_property_int(&self) -> Result<u32, ValueError> {
        let number = self.property_int()?;
        u32::try_from(number)
            .ok()
            .filter(|&number| number > 0)
            .ok_or(ValueError::NotPositive { number })
    }

    /// Parses a number; every value below 1 means "off".
    pub(crate) fn property_int_or_off(&self) -> Result<Option<u32>, ValueError> {
        Ok(u32::try_from(self.property_int()?).ok().filter(|&number| number > 0))
    }

    /// Parses a 64-bit number; every value below 1 means "off".
    pub(crate) fn property_long_or_off(&self) -> Result<Option<u64>, ValueError> {
        Ok(u64::try_from(self.property_long()?).ok().filter(|&number| number > 0))
    }

    /// Parses a fraction that cannot be negative.
    pub(crate) fn fraction(&self) -> Result<f64, ValueError> {
        self.value
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| ValueError::NoFraction { value: self.value.clone() })
    }

    /// Parses a time with one of the suffixes ms, s, m, h and d, or in hours without one. A value
    /// below 1 means "off".
    pub(crate) fn interval_ms_or_off(&self) -> Result<Option<u64>, ValueError> {
        const SECOND: i64 = 1000;
        const HOUR: i64 = 3600 * SECOND;
        let text = self.value.to_ascii_lowercase();
        let (number, unit_ms) = if let Some(number) = text.strip_suffix("ms") {
            (number, 1)
        } else if let Some(number) = text.strip_suffix('s') {
            (number, SECOND)
        } else if let Some(number) = text.strip_suffix('m') {
            (number, 60 * SECOND)
        } else if let Some(number) = text.strip_suffix('h') {
            (number, HOUR)
        } else if let Some(number) = text.strip_suffix('d') {
            (number, 24 * HOUR)
        } else {
            (text.as_str(), HOUR)
        };
        let number: i32 =
            number.parse().map_err(|_| ValueError::NoInterval { value: self.value.clone() })?;
        Ok(u64::try_from(i64::from(number) * unit_ms).ok().filter(|&ms| ms > 0))
    }

    /// Parses a port.
    pub(crate) fn port(&self) -> Result<u16, ValueError> {
        self.value.parse().map_err(|_| ValueError::NoPort { value: self.value.clone() })
    }

    fn no_integer(&self, min: i64, max: i64) -> ValueError {
        ValueError::NoInteger { min, max, value: self.value.clone() }
    }
}

/// Parses a decimal, `0x`/`0X`/`#` hexadecimal or `0` octal number with an optional sign.
fn decode(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) =
        if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            (hex, 16)
        } else if let Some(hex) = digits.strip_prefix('#') {
            (hex, 16)
        } else if digits.len() > 1 && digits.starts_with('0') {
            (&digits[1..], 8)
        } else {
            (digits, 10)
        };
    // Rust's parser would accept a second sign.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(value: &str) -> Setting {
        Setting { key: "key".into(), value: value.into(), origin: Origin::ZooCfg { line: 1 } }
    }

    #[test]
    fn properties_may_be_hexadecimal_or_octal() {
        for (text, number) in [
            ("0", 0),
            ("42", 42),
            ("-1", -1),
            ("+7", 7),
            ("0x9fffff", 0x9f_ffff),
            ("0XFF", 255),
            ("#ff", 255),
            ("-0x10", -16),
            ("010", 8),
            ("2147483647", i32::MAX),
        ] {
            assert_eq!(setting(text).property_int(), Ok(number), "{text}");
        }
    }

    #[test]
    fn malformed_and_oversize_numbers_are_refused() {
        for text in
            ["", "x", "1k", "1.5", "--1", "+-1", "0x", "#", "08", "-", "2147483648", "1 000"]
        {
            assert!(setting(text).property_int().is_err(), "{text:?} was accepted");
        }
        for text in ["", "0x10", "2147483648", "1s"] {
            assert!(setting(text).int().is_err(), "{text:?} was accepted");
        }
        assert_eq!(setting("4294967296").property_long(), Ok(1 << 32));
        assert!(setting("9223372036854775808").property_long().is_err());
    }

    #[test]
    fn booleans_are_true_or_false_in_any_case() {
        assert_eq!(setting("True").boolean(), Ok(true));
        assert_eq!(setting("FALSE").boolean(), Ok(false));
        for text in ["", "yes", "1", "on"] {
            assert!(setting(text).boolean().is_err(), "{text:?} was accepted");
        }
        assert_eq!(setting("yes").yes_or_no(), Ok(true));
        assert!(setting("true").yes_or_no().is_err());
    }

    #[test]
    fn intervals_have_units_and_default_to_hours() {
        for (text, ms) in [
            ("1", Some(3_600_000)),
            ("0", None),
            ("-5", None),
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2H", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("2147483647d", Some(2_147_483_647 * 86_400_000)),
        ] {
            assert_eq!(setting(text).interval_ms_or_off(), Ok(ms), "{text}");
        }
        for text in ["", "m", "1w", "1.5h", "h1"] {
            assert!(setting(text).interval_ms_or_off().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn fractions_are_finite_and_not_negative() {
        assert_eq!(setting("0.02").fraction(), Ok(0.02));
        for text in ["", "-0.1", "NaN", "inf", "half"] {
            assert!(setting(text).fraction().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for (key, hidden) in [
            ("ssl.keyStore.password", true),
            ("ssl.quorum.trustStore.password", true),
            ("zookeeper.DigestAuthenticationProvider.superDigest", true),
            ("SASLAuthenticationProvider.superPassword", true),
            ("ssl.keyStore.passwordPath", false),
            ("dataDir", false),
        ] {
            let shown = Setting { key: key.into(), ..setting("s3cret") }.shown_value();
            assert_eq!(shown != "s3cret", hidden, "{key}");
        }
    }
}
