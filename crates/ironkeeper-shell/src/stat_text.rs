//! The printed form of a Stat: eleven lines in zkCli's format, or numbers in JSON.

use std::fmt::{self, Display};

use ironkeeper_client::Stat;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};

/// A Stat to be printed.
#[derive(Clone, Copy, Debug)]
pub struct StatText(pub Stat);

impl Display for StatText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stat = &self.0;
        writeln!(f, "cZxid = 0x{:x}", stat.czxid.0)?;
        writeln!(f, "ctime = {}", JavaDate(stat.ctime))?;
        writeln!(f, "mZxid = 0x{:x}", stat.mzxid.0)?;
        writeln!(f, "mtime = {}", JavaDate(stat.mtime))?;
        writeln!(f, "pZxid = 0x{:x}", stat.pzxid.0)?;
        writeln!(f, "cversion = {}", stat.cversion)?;
        writeln!(f, "dataVersion = {}", stat.version)?;
        writeln!(f, "aclVersion = {}", stat.aversion)?;
        writeln!(f, "ephemeralOwner = 0x{:x}", stat.ephemeral_owner)?;
        writeln!(f, "dataLength = {}", stat.data_length)?;
        write!(f, "numChildren = {}", stat.num_children)
    }
}

impl Serialize for StatText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// 64-bit ids are text, because many JSON parsers have 53-bit integers only.
        #[derive(Serialize)]
        struct Fields {
            czxid: String,
            mzxid: String,
            pzxid: String,
            ctime_ms: i64,
            mtime_ms: i64,
            version: i32,
            cversion: i32,
            aversion: i32,
            ephemeral_owner: String,
            data_length: i32,
            num_children: i32,
        }
        let stat = &self.0;
        Fields {
            czxid: format!("0x{:x}", stat.czxid.0),
            mzxid: format!("0x{:x}", stat.mzxid.0),
            pzxid: format!("0x{:x}", stat.pzxid.0),
            ctime_ms: stat.ctime,
            mtime_ms: stat.mtime,
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: format!("0x{:x}", stat.ephemeral_owner),
            data_length: stat.data_length,
            num_children: stat.num_children,
        }
        .serialize(serializer)
    }
}

/// A time in the format of Java's `Date`, in the local time zone: `Sun Nov 15 18:00:08 UTC 2026`.
struct JavaDate(i64);

impl Display for JavaDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A server can send any number; a number that is not a valid time is printed unchanged.
        match Timestamp::from_millisecond(self.0) {
            Ok(time) => {
                let local = time.to_zoned(TimeZone::system());
                write!(f, "{}", local.strftime("%a %b %d %H:%M:%S %Z %Y"))
            }
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_javas_form_and_nonsense_is_no_panic() {
        let shown = JavaDate(0).to_string();
        let parts: Vec<&str> = shown.split(' ').collect();
        assert_eq!(parts.len(), 6, "{shown}");
        assert!(["1969", "1970"].contains(&parts[5]), "{shown}");
        assert_eq!(JavaDate(i64::MAX).to_string(), format!("{} ms", i64::MAX));
    }

    #[test]
    fn ids_are_text_in_json() {
        let json = serde_json::to_value(StatText(Stat { ephemeral_owner: -1, ..Stat::default() }))
            .unwrap();
        assert_eq!(json["ephemeral_owner"], "0xffffffffffffffff");
        assert_eq!(json["version"], 0);
    }
}
