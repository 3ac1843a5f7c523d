//! Descriptions of lock holders: the data that this process writes to its node, and the text
//! printed about another holder.

use ironkeeper_recipes::lock::Mutex;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The number of characters of a holder's data that are printed.
const DATA_CHARS_MAX: usize = 100;

/// Returns the default data of the lock's node, `anna@db1, process 4711`.
pub fn this_process() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    let host = host.or_else(|| variable("HOSTNAME")).unwrap_or_else(|| "localhost".to_owned());
    format!("{user}@{host}, process {}", std::process::id())
}

/// Returns `held by 'anna@db1, process 4711' (session 0x1…, in line since 2026-11-18 00:20:11)` and
/// the number of waiting contenders; `None` if the lock is free.
pub async fn describe(mutex: &Mutex) -> Option<String> {
    let line = mutex.participants().await.ok()?;
    let holder = line.iter().find(|one| one.is_granted)?;
    let said: String =
        holder.id().chars().filter(|c| !c.is_control()).take(DATA_CHARS_MAX).collect();
    let by = if said.is_empty() { "a holder without data".to_owned() } else { format!("'{said}'") };
    let stat = mutex.client().exists(&holder.path).await.ok().flatten();
    let since = stat.and_then(|stat| Timestamp::from_millisecond(stat.ctime).ok()).map(|time| {
        format!(", in line since {}", time.to_zoned(TimeZone::system()).strftime("%F %T"))
    });
    let waiting = line.iter().filter(|one| !one.is_granted).count();
    let waiting = if waiting > 0 { format!("; {waiting} waiting") } else { String::new() };
    let (session, since) = (holder.session.0, since.unwrap_or_default());
    Some(format!("held by {by} (session 0x{session:x}{since}){waiting}"))
}
