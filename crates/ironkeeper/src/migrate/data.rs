//! Checks whether the data can be read, by a dry-run start on it.

use ironkeeper_config::Config;
use ironkeeper_server::{Rehearsal, rehearse};

use super::findings::{Findings, Weight};

pub fn check(config: &Config, findings: &mut Findings) {
    findings.section(format!("data in {}", config.data_dir.display()));
    if !config.data_dir.join("version-2").exists() {
        findings.add(Weight::Note, "there is none: a start would begin with an empty tree");
        return;
    }
    let found = match rehearse(config) {
        Ok(found) => found,
        Err(error) => return findings.add(Weight::Obstacle, error.to_string()),
    };
    let Rehearsal { files, last_zxid, nodes, sessions, digest_mismatches } = found;
    let snapshot = files.snapshot.as_ref().and_then(|(_, path)| path.file_name());
    let from = match snapshot {
        Some(name) => format!("{} and {} transactions", name.display(), files.txns),
        None => format!("{} transactions", files.txns),
    };
    findings.add(
        Weight::Good,
        format!("{from}: {nodes} nodes, {sessions} sessions, up to {last_zxid}"),
    );
    if digest_mismatches > 0 {
        let text = format!(
            "{digest_mismatches} transactions lead to another tree than the server had that wrote \
             them; compare the members' trees before you go on"
        );
        findings.add(Weight::Note, text);
    }
}
