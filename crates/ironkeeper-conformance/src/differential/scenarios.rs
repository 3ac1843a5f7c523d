//! Scripts written by hand, in `testdata/scenarios`: each one covers one table of the protocol, so
//! that a difference has a name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;

use super::Arrangement;
use super::scenario_file;
use super::script::Script;

/// A named script and the configuration it needs.
#[derive(Debug)]
pub struct Scenario {
    pub name: String,
    pub arrangement: Arrangement,
    pub script: Script,
    /// The line of each step.
    pub sources: Vec<String>,
}

/// Returns the directory of the scenarios and their expected transcripts.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

/// Reads all scenarios, once for each of their arrangements.
pub fn all() -> Result<Vec<Scenario>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder().join("scenarios"))? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut scenarios = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let file = scenario_file::parse(&path.display().to_string(), &text)?;
        let name = path.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        for arrangement in &file.arrangements {
            let arrangement = Arrangement::from_str(arrangement, false)
                .map_err(|_| anyhow!("{name} names no arrangement with {arrangement:?}"))?;
            scenarios.push(Scenario {
                name: name.clone(),
                arrangement,
                script: file.script.clone(),
                sources: file.sources.clone(),
            });
        }
    }
    Ok(scenarios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_read_and_has_steps() {
        let scenarios = all().unwrap();
        assert!(scenarios.len() >= 70, "{} scenarios", scenarios.len());
        for scenario in scenarios {
            assert!(!scenario.script.steps.is_empty(), "{}", scenario.name);
            assert_eq!(scenario.script.steps.len(), scenario.sources.len(), "{}", scenario.name);
        }
    }

    #[test]
    fn every_recorded_transcript_has_its_scenario_and_the_other_way_round() {
        let mut wanted: Vec<String> = all()
            .unwrap()
            .iter()
            .filter(|scenario| scenario.arrangement != Arrangement::Quick)
            .map(|scenario| format!("{}.{}.txt", scenario.name, scenario.arrangement.name()))
            .collect();
        let recorded = fs::read_dir(folder().join("expected")).unwrap();
        let mut recorded: Vec<String> =
            recorded.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        wanted.sort();
        recorded.sort();
        assert_eq!(recorded, wanted);
    }
}
