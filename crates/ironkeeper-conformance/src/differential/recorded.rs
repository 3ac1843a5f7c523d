//! The scenarios on one server, compared with the replies that Apache gave (`testdata/expected`).
//!
//! Each scenario runs on a fresh server, so that its text depends on no other script. Scenarios
//! that wait for a clock ([`Arrangement::Quick`]) are only compared live.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use ironkeeper_peers::ports;
use ironkeeper_peers::server::{Program, Server};
use ironkeeper_steps::count::Count;
use ironkeeper_steps::slots::Slots;

use super::player::Transcript;
use super::scenarios::{self, Scenario};
use super::transcript::Purpose;
use super::{Arrangement, played, report};

/// The number of scenarios that run at a time.
const AT_ONCE: usize = 3;

/// What to do with a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Compare,
    Record,
}

/// Runs the scenarios that `is_wanted` selects.
pub fn play(program: &Program, mode: Mode, is_wanted: impl Fn(&Scenario) -> bool) -> Result<Count> {
    let mut scenarios = scenarios::all()?;
    scenarios.retain(|scenario| scenario.arrangement != Arrangement::Quick && is_wanted(scenario));
    ensure!(!scenarios.is_empty(), "no such scenario is recorded");
    let results = Slots::new(AT_ONCE).run(&scenarios, |scenario| {
        let text = transcript(program, scenario)?;
        let path = path(scenario);
        if mode == Mode::Record {
            fs::write(&path, text)?;
            return Ok(true);
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if text != expected {
            println!("DIFFERENCE in scenario {} ({})", scenario.name, scenario.arrangement.name());
            println!("{}", report::lines(&expected, &text, &["recorded", program.name()]));
        }
        Ok(text == expected)
    })?;
    let passed = results.iter().filter(|is_equal| **is_equal).count();
    let count = Count { passed, failed: results.len() - passed, ..Count::default() };
    println!("{count}");
    Ok(count)
}

fn path(scenario: &Scenario) -> PathBuf {
    let name = format!("{}.{}.txt", scenario.name, scenario.arrangement.name());
    scenarios::folder().join("expected").join(name)
}

fn transcript(program: &Program, scenario: &Scenario) -> Result<String> {
    let dir = tempfile::Builder::new().prefix("ironkeeper-scenario-").tempdir()?;
    let setup = scenario.arrangement.setup(ports::one()?);
    let server = Server::start(program, setup, dir.path())?;
    let transcript = played(&server, &scenario.script, Purpose::Compare);
    if transcript.world.is_empty() {
        bail!("scenario {}: {}", scenario.name, transcript.remains.join("\n"));
    }
    Ok(text(scenario, &transcript))
}

/// Formats a transcript: each line of the scenario, and its replies indented. The zxid that a
/// connection has seen at the end of a step is left out if it is that of the step before.
fn text(scenario: &Scenario, transcript: &Transcript) -> String {
    let mut text = String::new();
    let mut seen = std::collections::HashMap::new();
    for (source, replies) in scenario.sources.iter().zip(&transcript.steps) {
        text += &format!("{source}\n");
        for reply in replies {
            if let Some((connection, zxid)) = reply.split_once(" at ")
                && seen.insert(connection, zxid) == Some(zxid)
            {
                continue;
            }
            text += &format!("    {reply}\n");
        }
    }
    for (title, lines) in
        [("at the end", &transcript.remains), ("after cleaning up", &transcript.world)]
    {
        text += &format!("{title}\n");
        lines.iter().for_each(|line| text += &format!("    {line}\n"));
    }
    text
}
