//! One attack on one build, from the start of the server to the last measurement of its memory.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::attack::{Attack, On};
use super::limits::Limits;
use super::log::{self, Marks};
use super::memory;
use super::row::{self, Row};
use super::target::{Size, Target};
use super::victim::Victim;

/// The time for which the victim continues after the end of the attack.
const TAIL: Duration = Duration::from_millis(500);
/// The interval at which a server is checked while it may still recover.
const LOOK: Duration = Duration::from_millis(500);

/// The durations of a round.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub attack: Duration,
    pub after: Duration,
}

/// A build under attack.
#[derive(Debug, Clone)]
pub struct Build {
    /// Its name in the table.
    pub name: String,
    pub binary: PathBuf,
}

/// Attacks a fresh server. The returned thread measures the server's memory afterwards and returns
/// the complete row.
pub fn run(
    attack: &'static Attack,
    build: &Build,
    size: Size,
    times: Times,
    dir: &Path,
) -> Result<JoinHandle<Row>> {
    let target = match attack.on {
        On::Server => Target::alone(&build.binary, size, dir)?,
        On::Ensemble => Target::ensemble(&build.binary, size, dir)?,
    };
    let strike = (attack.prepare)(&target)?;
    let pids = target.pids();
    let marks = Marks::at_end(target.logs().iter().map(PathBuf::as_path));
    // The victim's first write is in the present epoch.
    let victim = Victim::start(target.ports())?;
    let epoch = target.epoch();
    let mut row = Row { attack: attack.name, build: build.name.clone(), ..Row::default() };
    row.before_mb = memory::resident_mb(&pids)?;
    memory::forget_peak(&pids)?;
    target.forget_syncs();
    let until = Instant::now() + times.attack;
    let result = thread::scope(|scope| {
        let strike = scope.spawn(|| strike.run(until));
        if attack.on == On::Ensemble {
            thread::sleep(times.attack.saturating_sub(LOOK / 2));
            let out = target.check_alive().err();
            row.broken.extend(out.map(|why| format!("{why:#} during the attack")));
        }
        strike.join().map_err(|_| anyhow!("the attacker panicked"))?
    });
    row.failures.extend(result.err().map(|why| format!("{why:#}")));
    thread::sleep(TAIL);
    let measured = victim.stop()?;
    (row.reads, row.writes) = (row::Times::of(&measured.reads), row::Times::of(&measured.writes));
    row.sync = target.longest_sync();
    row.during_mb = memory::peak_mb(&pids).unwrap_or(row.before_mb);
    let ended = Instant::now();
    let limits = Limits::of(size);
    Ok(thread::spawn(move || {
        loop {
            row.after_mb = memory::resident_mb(&pids).ok();
            let alive = target.check_alive();
            let is_back = |mb| limits.is_memory_back(attack, row.before_mb, mb);
            let is_well = alive.is_ok() && row.after_mb.is_none_or(is_back);
            if ended.elapsed() >= times.after || (is_well && size == Size::Short) {
                row.failures.extend(alive.err().map(|why| format!("{why:#}")));
                break;
            }
            thread::sleep(LOOK);
        }
        // During the attack there may have been no leader.
        row.epochs = target.epoch() - epoch;
        let text = marks.since();
        row.lines = text.lines().count();
        row.failures.extend(log::panics(&text).map(str::to_owned));
        row.broken.extend(limits.broken(attack, &row));
        row
    }))
}
