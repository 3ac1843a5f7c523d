//! Numbers, dates and addresses as Java prints them.

use std::net::{IpAddr, SocketAddr};

use ironkeeper_metrics::four_decimals;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats an average as Apache does: four decimals, then the shortest form.
pub(crate) fn average(value: f64) -> String {
    double(four_decimals(value))
}

/// Formats a number as `Double.toString` does.
pub(crate) fn double(value: f64) -> String {
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => format!("{mantissa}E{exponent}"),
        Some((mantissa, exponent)) => format!("{mantissa}.0E{exponent}"),
        None => text,
    }
}

/// Formats a time as `Date.toString` does on a server whose zone is UTC.
pub(crate) fn date(wall_ms: i64) -> String {
    let Moment { year, month, day, hour, minute, second, days } = Moment::of(wall_ms);
    let weekday = DAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[month as usize - 1];
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

/// Formats a time as in Apache's version string.
pub(crate) fn build_date(wall_ms: i64) -> String {
    let Moment { year, month, day, hour, minute, .. } = Moment::of(wall_ms);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

struct Moment {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    /// Days since 1970-01-01, which was a Thursday.
    days: i64,
}

impl Moment {
    fn of(wall_ms: i64) -> Moment {
        let seconds = wall_ms.div_euclid(1000);
        let (days, in_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years are counted from March, so that the leap day is last, in eras of 400 years.
        let shifted = days + 719_468;
        let (era, in_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * in_year + 2) / 153;
        let day = in_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
        Moment { year, month, day, hour, minute, second, days }
    }
}

/// Formats the address of a socket as Java does without a reverse lookup.
pub(crate) fn socket_address(address: SocketAddr) -> String {
    let port = address.port();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => format!("/{ip}:{port}"),
        IpAddr::V6(ip) => {
            let groups = ip.segments().map(|group| format!("{group:x}")).join(":");
            match address {
                SocketAddr::V6(v6) if v6.scope_id() != 0 => {
                    format!("/[{groups}%{}]:{port}", v6.scope_id())
                }
                _ => format!("/[{groups}]:{port}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_have_four_places_and_java_s_shape() {
        for (value, text) in [
            (0.0, "0.0"),
            (14.8, "14.8"),
            (27.0, "27.0"),
            (94.0 / 3.0, "31.3333"),
            (343.0 / 146.0, "2.3493"),
            (2.0 / 3.0, "0.6667"),
            (1.0 / 32.0, "0.0313"),
            (3.0 / 32.0, "0.0938"),
            (1.0 / 146.0, "0.0068"),
            (0.001, "0.001"),
            (0.0007, "7.0E-4"),
            (0.000_12, "1.0E-4"),
            (0.000_04, "0.0"),
            (12_345_678.9, "1.23456789E7"),
            (10_000_000.0, "1.0E7"),
            (9_999_999.999_99, "1.0E7"),
        ] {
            assert_eq!(average(value), text, "{value}");
        }
    }

    #[test]
    fn dates_are_those_of_java_in_utc() {
        for (wall_ms, text) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_794_765_379_999, "Sun Nov 15 17:56:19 UTC 2026"),
            (4_107_542_399_000, "Sun Feb 28 23:59:59 UTC 2100"),
            (4_107_542_400_000, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(date(wall_ms), text);
        }
        assert_eq!(build_date(1_794_765_379_999), "2026-11-15 17:56 UTC");
    }

    #[test]
    fn addresses_have_a_slash_and_ipv6_all_its_groups() {
        for (address, text) in [
            ("127.0.0.1:39794", "/127.0.0.1:39794"),
            ("[::1]:36310", "/[0:0:0:0:0:0:0:1]:36310"),
            ("[::ffff:10.0.0.7]:1", "/10.0.0.7:1"),
            ("[fe80::ab:1%3]:80", "/[fe80:0:0:0:0:0:ab:1%3]:80"),
        ] {
            assert_eq!(socket_address(address.parse().unwrap()), text);
        }
    }
}
