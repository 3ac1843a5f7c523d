//! A configuration under construction: collects settings from every source, decides which one takes
//! precedence, and applies them through the table of known keys.
//!
//! Two rules: every setting is either applied, reported as a notice, or reported as a problem; and
//! all problems are collected, so that a user sees them together.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::candidate::{Candidate, PREFIX};
use crate::known_keys::{self, Handler};
use crate::members::{MembersDraft, is_membership};
use crate::notice::{Feature, Notice, NoticeKind, Origin};
use crate::problem::{Problem, ProblemKind};
use crate::properties;
use crate::setting::Setting;
use crate::system_properties::{self, Flag, FlagVariable};
use crate::{Config, SessionWeights};

/// A configuration under construction. Handlers in the table of known keys write to it.
pub(crate) struct Draft {
    pub(crate) config: Config,
    pub(crate) client_host: Option<String>,
    pub(crate) client_port: Option<u16>,
    /// -1 means the multiple of the tick, as in Apache.
    pub(crate) min_session_timeout: i32,
    pub(crate) max_session_timeout: i32,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) data_log_dir: Option<PathBuf>,
    pub(crate) members: MembersDraft,
    pub(crate) extra_size: Option<u32>,
    pub(crate) enforce_auth: bool,
    pub(crate) session_weights: SessionWeights,
    pub(crate) weigh_sessions: bool,
    pub(crate) flush_quiet_ms: Option<u64>,
    pub(crate) read_only_mode: bool,
    /// The settings in force, by the name in the table, for messages about several keys.
    pub(crate) in_force: BTreeMap<String, Setting>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) problems: Vec<Problem>,
}

impl Draft {
    pub(crate) fn new(config: Config) -> Draft {
        Draft {
            config,
            client_host: None,
            client_port: None,
            min_session_timeout: -1,
            max_session_timeout: -1,
            data_dir: None,
            data_log_dir: None,
            members: MembersDraft::default(),
            extra_size: None,
            enforce_auth: false,
            session_weights: SessionWeights::default(),
            weigh_sessions: false,
            flush_quiet_ms: None,
            read_only_mode: false,
            in_force: BTreeMap::new(),
            notices: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(crate) fn notice(&mut self, setting: &Setting, kind: NoticeKind) {
        self.notices.push(Notice {
            key: setting.key.clone(),
            value: setting.shown_value(),
            origin: setting.origin,
            kind,
        });
    }

    pub(crate) fn not_yet(&mut self, setting: &Setting, feature: Feature) {
        self.notice(setting, NoticeKind::NotYet { feature });
    }

    pub(crate) fn ensemble_only(&mut self, setting: &Setting) {
        self.notice(setting, NoticeKind::EnsembleOnly);
    }

    pub(crate) fn adjusted(&mut self, setting: &Setting, how: impl Into<String>) {
        self.notice(setting, NoticeKind::Adjusted { how: how.into() });
    }

    /// Returns the setting in force for a key, if there is one.
    pub(crate) fn in_force(&self, key: &str) -> Option<Setting> {
        self.in_force.get(key).cloned()
    }

    fn report(&mut self, setting: Option<&Setting>, kind: ProblemKind) {
        let (key, origin) = setting.map(|setting| (setting.key.clone(), setting.origin)).unzip();
        self.problems.push(Problem { key, origin, file: None, kind });
    }

    /// Reports a text that cannot be parsed.
    pub(crate) fn syntax(&mut self, setting: Option<&Setting>, text: impl Into<String>) {
        self.report(setting, ProblemKind::Syntax(text.into()));
    }

    /// Reports a key that does not exist or may not be written in this place.
    fn key(&mut self, setting: Option<&Setting>, text: impl Into<String>) {
        self.report(setting, ProblemKind::Key(text.into()));
    }

    /// Reports that something is missing.
    pub(crate) fn missing(&mut self, setting: Option<&Setting>, text: impl Into<String>) {
        self.report(setting, ProblemKind::Missing(text.into()));
    }

    /// Reports settings that cannot be combined.
    pub(crate) fn conflict(&mut self, setting: Option<&Setting>, text: impl Into<String>) {
        self.report(setting, ProblemKind::Conflict(text.into()));
    }

    pub(crate) fn gather_zoo_cfg(&mut self, text: &str, candidates: &mut Vec<Candidate>) {
        let entries = match properties::parse(text) {
            Ok(entries) => entries,
            Err(error) => {
                let origin = Some(Origin::ZooCfg { line: error.line });
                let kind = ProblemKind::Syntax(error.message);
                return self.problems.push(Problem { key: None, origin, file: None, kind });
            }
        };
        for entry in entries {
            let setting = Setting {
                key: entry.key,
                value: entry.value,
                origin: Origin::ZooCfg { line: entry.line },
            };
            if entry.beyond_ascii {
                self.adjusted(
                    &setting,
                    "read as UTF-8, where Apache ZooKeeper reads ISO-8859-1 and may see another \
                     value; write characters beyond ASCII as \\uXXXX to mean the same to both",
                );
            }
            match Candidate::from_zoo_cfg(&setting) {
                Some(candidate) => candidates.push(candidate),
                None => self.unknown(&setting),
            }
        }
    }

    pub(crate) fn gather_flags(
        &mut self,
        text: &str,
        variable: FlagVariable,
        candidates: &mut Vec<Candidate>,
    ) {
        let flags = match system_properties::parse(text, variable) {
            Ok(flags) => flags,
            Err(error) => return self.syntax(None, error.to_string()),
        };
        let origin = Origin::Flags(variable);
        for flag in flags {
            match flag {
                Flag::Property { name, value } => {
                    let setting = Setting { key: name, value, origin };
                    match Candidate::from_flag(&setting) {
                        Some(candidate) => candidates.push(candidate),
                        None => self.unknown(&setting),
                    }
                }
                Flag::Other(text) => {
                    let setting = Setting { key: text, value: String::new(), origin };
                    self.notice(&setting, NoticeKind::NotNeeded { why: known_keys::NO_JVM });
                }
            }
        }
    }

    pub(crate) fn gather_set(&mut self, set: &[(String, String)], candidates: &mut Vec<Candidate>) {
        for (key, value) in set {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            let setting = Setting { key, value, origin: Origin::CommandLine };
            match Candidate::from_command_line(&setting) {
                Some(candidate) => candidates.push(candidate),
                // An unknown key on the command line is an error that prevents the start.
                None => {
                    let meant = match nearest(&setting) {
                        Some(nearest) => format!("; did you mean {nearest}?"),
                        None => ".".to_owned(),
                    };
                    let message =
                        format!("there is no such key{meant} See `serve --list-config-keys`");
                    self.key(Some(&setting), message);
                }
            }
        }
    }

    /// Applies the listening address of a server without a file, which is no member of an ensemble.
    pub(crate) fn decide_alone(&mut self) {
        if let Some(port) = self.client_port {
            self.config.client_address.port = port;
        }
        if let Some(host) = self.client_host.take() {
            self.config.listen_on(Some(host));
        }
        let members = self.in_force.values().find(|setting| is_membership(&setting.key)).cloned();
        if let Some(setting) = members {
            return self.key(
                Some(&setting),
                "the members of an ensemble belong in a zoo.cfg: give it with --config",
            );
        }
        for setting in std::mem::take(&mut self.members.ensemble_only) {
            self.ensemble_only(&setting);
        }
    }

    fn unknown(&mut self, setting: &Setting) {
        self.notice(setting, NoticeKind::Unknown { nearest: nearest(setting) });
    }

    pub(crate) fn apply(&mut self, candidates: &[Candidate]) {
        let mut winners: HashMap<String, usize> = HashMap::new();
        for (index, candidate) in candidates.iter().enumerate() {
            let winner = winners.entry(candidate.name.clone()).or_insert(index);
            if candidate.rank >= candidates[*winner].rank {
                *winner = index;
            }
        }
        for candidate in candidates {
            let winner = &candidates[winners[&candidate.name]];
            if !std::ptr::eq(winner, candidate) {
                // A repetition of the same value is in force too.
                if winner.setting.value != candidate.setting.value {
                    let by = winner.setting.origin;
                    self.notice(&candidate.setting, NoticeKind::Overridden { by });
                }
                continue;
            }
            self.apply_one(candidate);
        }
    }

    fn apply_one(&mut self, candidate: &Candidate) {
        let Candidate { row, name, setting, .. } = candidate;
        let outcome = match row.handler {
            Handler::Apply(apply) => {
                if let Some(spelling) = &candidate.apache_spelling {
                    self.adjusted(
                        setting,
                        format!("in effect, but Apache ZooKeeper reads it only as {spelling}"),
                    );
                }
                apply(self, setting)
            }
            Handler::Restricted { check, .. } => check(self, setting),
            Handler::Member(apply) => {
                if setting.value != row.default {
                    self.members.ensemble_only.push(setting.clone());
                }
                apply(self, setting)
            }
            Handler::NotYet { feature, is_switch, check } => check(setting).map(|()| {
                if !(is_switch && setting.value.eq_ignore_ascii_case(row.default)) {
                    self.not_yet(setting, feature);
                }
            }),
            Handler::NotNeeded { why, check } => {
                check(setting).map(|()| self.notice(setting, NoticeKind::NotNeeded { why }))
            }
        };
        match outcome {
            Ok(()) => {
                self.in_force.insert(name.clone(), setting.clone());
            }
            Err(error) => self.report(Some(setting), ProblemKind::Value(error)),
        }
    }

    /// Reads the membership from its own file, which may contain nothing else.
    pub(crate) fn read_dynamic(&mut self, text: Option<&str>) {
        let Some(file) = self.in_force.get("dynamicConfigFile").cloned() else {
            return;
        };
        let misplaced: Vec<Setting> =
            self.in_force.values().filter(|setting| is_membership(&setting.key)).cloned().collect();
        for setting in misplaced {
            self.key(
                Some(&setting),
                "dynamicConfigFile is set, so the members of the ensemble belong in that file; \
                 move the line there",
            );
        }
        let Some(text) = text else {
            return self.missing(Some(&file), "the file it names was not read");
        };
        let entries = match properties::parse(text) {
            Ok(entries) => entries,
            Err(error) => {
                return self.syntax(Some(&file), format!("in the file it names, {error}"));
            }
        };
        let mut candidates = Vec::new();
        for entry in entries {
            let origin = Origin::DynamicFile { line: entry.line };
            let setting = Setting { key: entry.key, value: entry.value, origin };
            match Candidate::from_zoo_cfg(&setting) {
                Some(candidate) if is_membership(&setting.key) => {
                    candidates.push(candidate);
                }
                _ => self.key(
                    Some(&setting),
                    "only server.N, group.N and weight.N belong in the dynamic configuration file",
                ),
            }
        }
        self.apply(&candidates);
    }

    pub(crate) fn require_data_dir(&mut self) {
        if self.data_dir.is_none() && !self.has_problem_with("dataDir") {
            self.missing(
                None,
                "dataDir is not set: add a line dataDir=<directory>, where the server keeps its \
                 data",
            );
        }
    }

    pub(crate) fn has_problem_with(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key.as_deref() == Some(key))
    }
}

/// Returns the key that was probably meant.
fn nearest(setting: &Setting) -> Option<&'static str> {
    known_keys::nearest(setting.key.strip_prefix(PREFIX).unwrap_or(&setting.key))
}
