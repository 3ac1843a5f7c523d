//! A node that lock holders write to, with each write conditional on the lock.
//!
//! The server numbers the versions of the node. In the order of the versions, the holders' tokens
//! never decrease.

use std::collections::BTreeMap;

use ironkeeper_client::{Client, OpResult, Transaction, Version, Zxid};

use crate::recipes::plan::ProgramBug;
use crate::recipes::program::Program;

pub const REGISTER: &str = "/register";

/// The token and the program of each version for which a program received the reply.
#[derive(Debug, Default)]
pub struct Record {
    versions: BTreeMap<i32, (Zxid, usize)>,
}

impl Record {
    fn note(&mut self, version: i32, token: Zxid, program: usize) -> Result<(), String> {
        self.versions.insert(version, (token, program));
        let before = self.versions.range(..version).next_back();
        let behind = self.versions.range(version + 1..).next();
        if before.is_some_and(|(_, (before, _))| *before > token)
            || behind.is_some_and(|(_, (behind, _))| *behind < token)
        {
            return Err(format!(
                "fencing: program {program} wrote version {version} with {token}, between {before:?} and \
                 {behind:?}"
            ));
        }
        Ok(())
    }
}

/// Writes under a lock. A failed write was rejected or its result is unknown; neither violates a
/// rule.
pub async fn write(program: &Program, client: &Client, fenced: Transaction, token: Zxid) {
    let data = token.0.to_be_bytes();
    let written = match program.has_bug(ProgramBug::WriteUnfenced) {
        true => client.set(REGISTER, data, Version::Any).await,
        false => {
            let results = fenced.set(REGISTER, data, Version::Any).commit().await;
            results.map(|results| match results.last() {
                Some(OpResult::Set(stat)) => *stat,
                _ => Default::default(),
            })
        }
    };
    match written {
        Ok(stat) => {
            program.log(format!("has written version {} with {token}", stat.version));
            let mut observations = program.observations();
            let noted = observations.records.register.note(stat.version, token, program.number);
            observations.fail(noted);
        }
        Err(error) => program.log(format!("has not written with {token}: {error}")),
    }
}
