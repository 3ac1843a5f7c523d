//! From texts to a [`Config`]: collects settings from every source, decides which one takes
//! precedence, applies them through the table of known keys, then checks the constraints between
//! them.
//!
//! Two rules: every setting is either applied, reported as a notice, or reported as a problem; and
//! all problems are collected, so that a user sees them together.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ironkeeper_proto::four_letter::FourLetterWord;

use crate::dynamic_files;
use crate::known_keys::{self, Handler, KnownKey, Place};
use crate::members::{MembersDraft, is_membership};
use crate::notice::{Notice, NoticeKind, Origin, Part};
use crate::problem::{ConfigError, Problem, ProblemKind, ValueError};
use crate::properties;
use crate::setting::Setting;
use crate::system_properties::{self, Flag, FlagVariable};
use crate::{AuthScheme, Config, FourLetterWords, SessionWeights, defaults, ticks};

/// The maximum size of a configuration file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The top byte of a session id is the server id, and 255 there marks TTL nodes.
const SERVER_ID_MAX_WITH_TTL: i64 = 254;

/// The rank of the command line, which takes precedence over every other place.
const RANK_OF_SET: u8 = 5;

/// The prefix that Apache puts before keys it does not read itself.
const PREFIX: &str = "zookeeper.";

/// The texts a configuration is made from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sources<'a> {
    /// Text of `zoo.cfg`.
    pub zoo_cfg: &'a str,
    /// Text of the file named by `dynamicConfigFile`, if there is one.
    pub dynamic: Option<&'a str>,
    /// The version of the members in that file; zero if not set.
    pub dynamic_version: Option<i64>,
    /// Text of the file with the members that were proposed last, if there is one.
    pub next: Option<&'a str>,
    /// Text of the file `myid` in `dataDir`, if there is one. Only members of ensembles need it.
    pub my_id: Option<&'a str>,
    /// Text of the environment variable `JVMFLAGS`.
    pub jvmflags: &'a str,
    /// Text of the environment variable `SERVER_JVMFLAGS`.
    pub server_jvmflags: &'a str,
    /// Keys and values of the command line. They take precedence over all others.
    pub set: &'a [(String, String)],
}

/// Settings in addition to a file, or instead of one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overrides<'a> {
    /// Text of the environment variable `JVMFLAGS`.
    pub jvmflags: &'a str,
    /// Text of the environment variable `SERVER_JVMFLAGS`.
    pub server_jvmflags: &'a str,
    /// Keys and values of the command line. They take precedence over all others.
    pub set: &'a [(String, String)],
}

/// A configuration and the notices about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub config: Config,
    /// First the notices about files in the order of their lines, then the notices about flags.
    pub notices: Vec<Notice>,
}

impl Config {
    /// Reads a `zoo.cfg` and the files that belong to it: the membership files and `myid`.
    pub fn from_file(
        path: &Path,
        jvmflags: &str,
        server_jvmflags: &str,
    ) -> Result<Loaded, ConfigError> {
        Config::from_file_with(path, &Overrides { jvmflags, server_jvmflags, set: &[] })
    }

    /// Does the same as [`Config::from_file`], with settings of the command line.
    pub fn from_file_with(path: &Path, with: &Overrides<'_>) -> Result<Loaded, ConfigError> {
        let zoo_cfg = read(path)?;
        let last_value = |key| {
            let set = with.set.iter().rfind(|(set, _)| set == key).map(|(_, value)| value.clone());
            set.or_else(|| last_value(&zoo_cfg, key))
        };
        let named = last_value("dynamicConfigFile").map(PathBuf::from);
        let dynamic = named.as_deref().map(read).transpose()?;
        let next = read_if_there(&dynamic_files::next_of(path))?;
        let data_dir = last_value("dataDir").map(PathBuf::from);
        let my_id = match &data_dir {
            Some(data_dir) => read_if_there(&data_dir.join("myid"))?,
            None => None,
        };
        let mut loaded = Config::from_sources(&Sources {
            zoo_cfg: &zoo_cfg,
            dynamic: dynamic.as_deref(),
            dynamic_version: named.as_deref().and_then(dynamic_files::version_in_name),
            next: next.as_deref(),
            my_id: my_id.as_deref(),
            jvmflags: with.jvmflags,
            server_jvmflags: with.server_jvmflags,
            set: with.set,
        })
        .map_err(|error| error.located(path, named.as_deref()))?;
        if let Some(ensemble) = &mut loaded.config.ensemble {
            ensemble.config_file = Some(path.to_owned());
        }
        Ok(loaded)
    }

    /// Creates a configuration from texts alone.
    pub fn from_sources(sources: &Sources<'_>) -> Result<Loaded, ConfigError> {
        let mut draft = Draft::new(Config::apache_defaults(PathBuf::new()));
        let mut gathered = Gathered::default();
        draft.gather_zoo_cfg(sources.zoo_cfg, &mut gathered);
        draft.gather_flags(sources.server_jvmflags, FlagVariable::ServerJvmFlags, &mut gathered);
        draft.gather_flags(sources.jvmflags, FlagVariable::JvmFlags, &mut gathered);
        draft.gather_set(sources.set, &mut gathered);
        if !draft.problems.is_empty() {
            // A text that cannot be parsed would make every key in it look missing.
            return Err(ConfigError::Invalid(draft.problems));
        }
        draft.apply(&gathered);
        draft.read_dynamic(sources.dynamic);
        draft.require_data_dir();
        draft.decide_members(sources.my_id, sources.next, sources.dynamic_version);
        draft.decide_client_address();
        draft.finish()
    }

    /// Returns the configuration of a server without a file ([`Config::standalone_default`]), with
    /// Java flags applied.
    pub fn standalone(
        data_dir: PathBuf,
        jvmflags: &str,
        server_jvmflags: &str,
    ) -> Result<Loaded, ConfigError> {
        Config::standalone_with(data_dir, &Overrides { jvmflags, server_jvmflags, set: &[] })
    }

    /// Does the same as [`Config::standalone`], with settings of the command line.
    pub fn standalone_with(data_dir: PathBuf, with: &Overrides<'_>) -> Result<Loaded, ConfigError> {
        let mut draft = Draft::new(Config::standalone_default(data_dir));
        let mut gathered = Gathered::default();
        draft.gather_flags(with.server_jvmflags, FlagVariable::ServerJvmFlags, &mut gathered);
        draft.gather_flags(with.jvmflags, FlagVariable::JvmFlags, &mut gathered);
        draft.gather_set(with.set, &mut gathered);
        draft.apply(&gathered);
        draft.decide_alone();
        draft.finish()
    }
}

/// Reads a file as UTF-8 or, if it is not, as ISO-8859-1, which Java always uses.
fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(std::io::Error::other(format!(
            "it is larger than {FILE_BYTES_MAX} bytes and cannot be a configuration file"
        ))));
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect()))
}

/// Does the same as [`read`], and returns `None` if there is no such file.
fn read_if_there(path: &Path) -> Result<Option<String>, ConfigError> {
    match path.exists() {
        true => read(path).map(Some),
        false => Ok(None),
    }
}

/// Returns the last value of a key in a file. Syntax errors are reported by the full parse.
fn last_value(zoo_cfg: &str, key: &str) -> Option<String> {
    let entries = properties::parse(zoo_cfg).ok()?;
    entries.into_iter().rfind(|entry| entry.key == key).map(|entry| entry.value)
}

/// A setting that is in the table and may take precedence over others with the same key.
struct Candidate {
    row: &'static KnownKey,
    /// The key without prefixes; candidates with the same name compete.
    name: String,
    setting: Setting,
    /// The highest rank takes precedence; among equals the last.
    rank: u8,
    /// The only spelling that Apache reads, if it differs.
    apache_spelling: Option<String>,
}

#[derive(Default)]
struct Gathered {
    candidates: Vec<Candidate>,
}

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
    in_force: BTreeMap<String, Setting>,
    notices: Vec<Notice>,
    problems: Vec<Problem>,
}

impl Draft {
    fn new(config: Config) -> Draft {
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

    pub(crate) fn not_yet(&mut self, setting: &Setting, part: Part) {
        self.notice(setting, NoticeKind::NotYet { part });
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

    fn gather_zoo_cfg(&mut self, text: &str, gathered: &mut Gathered) {
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
                    "read as UTF-8, where Apache ZooKeeper reads ISO-8859-1 and may see another value; \
                     write characters beyond ASCII as \\uXXXX to mean the same to both",
                );
            }
            match candidate_from_zoo_cfg(&setting) {
                Some(candidate) => gathered.candidates.push(candidate),
                None => self.unknown(&setting),
            }
        }
    }

    fn gather_flags(&mut self, text: &str, variable: FlagVariable, gathered: &mut Gathered) {
        let flags = match system_properties::parse(text, variable) {
            Ok(flags) => flags,
            Err(error) => return self.syntax(None, error.to_string()),
        };
        let origin = Origin::Flags(variable);
        for flag in flags {
            match flag {
                Flag::Property { name, value } => {
                    let setting = Setting { key: name, value, origin };
                    match candidate_from_flag(&setting) {
                        Some(candidate) => gathered.candidates.push(candidate),
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

    fn gather_set(&mut self, set: &[(String, String)], gathered: &mut Gathered) {
        for (key, value) in set {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            let setting = Setting { key, value, origin: Origin::CommandLine };
            match candidate_from_zoo_cfg(&setting) {
                Some(candidate) => {
                    gathered.candidates.push(Candidate { rank: RANK_OF_SET, ..candidate });
                }
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
    fn decide_alone(&mut self) {
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

    fn apply(&mut self, gathered: &Gathered) {
        let mut winners: HashMap<String, usize> = HashMap::new();
        for (index, candidate) in gathered.candidates.iter().enumerate() {
            let winner = winners.entry(candidate.name.clone()).or_insert(index);
            if candidate.rank >= gathered.candidates[*winner].rank {
                *winner = index;
            }
        }
        for candidate in &gathered.candidates {
            let winner = &gathered.candidates[winners[&candidate.name]];
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
            Handler::Judge { judge, .. } => judge(self, setting),
            Handler::Member(apply) => {
                if setting.value != row.default {
                    self.members.ensemble_only.push(setting.clone());
                }
                apply(self, setting)
            }
            Handler::NotYet { part, is_switch, check } => check(setting).map(|()| {
                if !(is_switch && setting.value.eq_ignore_ascii_case(row.default)) {
                    self.not_yet(setting, part);
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
    fn read_dynamic(&mut self, text: Option<&str>) {
        let Some(file) = self.in_force.get("dynamicConfigFile").cloned() else {
            return;
        };
        let misplaced: Vec<Setting> =
            self.in_force.values().filter(|setting| is_membership(&setting.key)).cloned().collect();
        for setting in misplaced {
            self.key(
                Some(&setting),
                "dynamicConfigFile is set, so the members of the ensemble belong in that file; move the line there",
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
        let mut gathered = Gathered::default();
        for entry in entries {
            let origin = Origin::DynamicFile { line: entry.line };
            let setting = Setting { key: entry.key, value: entry.value, origin };
            match candidate_from_zoo_cfg(&setting) {
                Some(candidate) if is_membership(&setting.key) => {
                    gathered.candidates.push(candidate);
                }
                _ => self.key(
                    Some(&setting),
                    "only server.N, group.N and weight.N belong in the dynamic configuration file",
                ),
            }
        }
        self.apply(&gathered);
    }

    fn require_data_dir(&mut self) {
        if self.data_dir.is_none() && !self.has_problem_with("dataDir") {
            self.missing(
                None,
                "dataDir is not set: add a line dataDir=<directory>, where the server keeps its data",
            );
        }
    }

    pub(crate) fn has_problem_with(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key.as_deref() == Some(key))
    }

    fn finish(mut self) -> Result<Loaded, ConfigError> {
        self.decide_dirs();
        self.decide_session_timeouts();
        self.decide_sizes();
        self.decide_auth();
        self.decide_words();
        self.decide_ttl();
        self.decide_weights();
        self.decide_flush();
        self.report_idle();
        if self.problems.is_empty() {
            // Errors that the checks by key did not find are found by the checks of the result.
            self.config.validate()?;
            self.notices.sort_by_key(|notice| place_in_order(notice.origin));
            Ok(Loaded { config: self.config, notices: self.notices })
        } else {
            // A line that is no setting may be the reason for the other problems.
            for notice in &self.notices {
                if let NoticeKind::Unknown { .. } = notice.kind {
                    self.problems.push(Problem {
                        key: Some(notice.key.clone()),
                        origin: Some(notice.origin),
                        file: None,
                        kind: ProblemKind::Key(notice.kind.to_string()),
                    });
                }
            }
            self.problems
                .sort_by_key(|problem| problem.origin.map_or((u8::MAX, 0), place_in_order));
            Err(ConfigError::Invalid(self.problems))
        }
    }

    fn decide_dirs(&mut self) {
        if let Some(data_dir) = self.data_dir.take() {
            self.config.data_log_dir = data_dir.clone();
            self.config.data_dir = data_dir;
        }
        if let Some(data_log_dir) = self.data_log_dir.take() {
            self.config.data_log_dir = data_log_dir;
        }
    }

    fn decide_session_timeouts(&mut self) {
        let tick = self.config.tick_time_ms;
        let bound = |written: i32, count: u32| {
            u32::try_from(written).unwrap_or_else(|_| ticks(tick, count))
        };
        let min = bound(self.min_session_timeout, defaults::MIN_SESSION_TIMEOUT_TICKS);
        let max = bound(self.max_session_timeout, defaults::MAX_SESSION_TIMEOUT_TICKS);
        if min > max {
            let setting = self
                .in_force
                .get("minSessionTimeout")
                .or_else(|| self.in_force.get("maxSessionTimeout"))
                .cloned();
            self.conflict(
                setting.as_ref(),
                format!(
                    "the smallest session timeout ({min} ms) is larger than the largest ({max} ms). \
                     They are {} and {} ticks of {tick} ms unless set",
                    defaults::MIN_SESSION_TIMEOUT_TICKS,
                    defaults::MAX_SESSION_TIMEOUT_TICKS
                ),
            );
        }
        self.config.min_session_timeout_ms = min;
        self.config.max_session_timeout_ms = max;
    }

    fn decide_sizes(&mut self) {
        let extra = self.extra_size.unwrap_or(self.config.jute_max_buffer_bytes);
        self.config.jute_extra_size_bytes = extra.max(defaults::JUTE_EXTRA_SIZE_BYTES_MIN);
    }

    fn decide_auth(&mut self) {
        self.check_super_digest();
        let schemes = self.in_force.get("enforce.auth.schemes").cloned();
        if !self.enforce_auth {
            if let Some(schemes) = schemes {
                self.adjusted(&schemes, "not in force, because enforce.auth.enabled is not true");
            }
            return;
        }
        let Some(setting) = schemes else {
            let enabled = self.in_force.get("enforce.auth.enabled").cloned();
            return self.missing(
                enabled.as_ref(),
                "enforce.auth.schemes is missing: name the schemes that are demanded, such as digest",
            );
        };
        let mut demanded = Vec::new();
        for name in setting.value.split(',').map(str::trim) {
            let scheme = match name {
                "digest" if self.config.digest_auth.enabled => AuthScheme::Digest,
                "ip" => AuthScheme::Ip,
                _ => {
                    let message = format!(
                        "the authentication scheme {name:?} cannot be demanded, because this server does not \
                         have it. It has ip and, unless switched off, digest"
                    );
                    self.conflict(Some(&setting), message);
                    continue;
                }
            };
            if !demanded.contains(&scheme) {
                demanded.push(scheme);
            }
        }
        self.config.enforced_auth_schemes = demanded;
    }

    /// Rejects a digest that no password can have: otherwise the super user would be missing when
    /// it is needed.
    fn check_super_digest(&mut self) {
        let Some(digest) = &self.config.digest_auth.super_digest else { return };
        let like = self.config.digest_auth.algorithm.id("user:password");
        if has_form_of(digest, &like) {
            return;
        }
        let setting = self.in_force.get("DigestAuthenticationProvider.superDigest").cloned();
        self.conflict(
            setting.as_ref(),
            "no password can match it: the form is user:base64(hash of user:password), with the hash \
             that DigestAuthenticationProvider.digestAlg names. `ironkeeper digest user:password` \
             prints it",
        );
    }

    fn decide_words(&mut self) {
        // A standalone server is never read-only, but clients that send `isro` get a reply.
        if self.read_only_mode {
            self.config.four_letter_words.allow(FourLetterWord::Isro);
        }
    }

    fn decide_ttl(&mut self) {
        if self.config.emulate_353_ttl && !self.config.extended_types_enabled {
            self.config.emulate_353_ttl = false;
            if let Some(setting) = self.in_force.get("emulate353TTLNodes").cloned() {
                self.adjusted(&setting, "not in force, because extendedTypesEnabled is not true");
            }
        }
        if self.config.extended_types_enabled
            && let Some(id) = self.own_number().filter(|id| id.0 > SERVER_ID_MAX_WITH_TTL)
        {
            let setting = self.member_setting(id);
            self.conflict(
                setting.as_ref(),
                format!("with extendedTypesEnabled a server's number can be {SERVER_ID_MAX_WITH_TTL} at most"),
            );
        }
    }

    /// Makes sure that sessions which change the ensemble's state do not cost less than local ones.
    fn decide_weights(&mut self) {
        let SessionWeights { global, local, renew } = self.session_weights;
        for (key, weight) in [
            ("connection_throttle_global_session_weight", global),
            ("connection_throttle_renew_session_weight", renew),
        ] {
            if weight < local
                && let Some(setting) = self.in_force.get(key).cloned()
            {
                self.adjusted(
                    &setting,
                    format!("raised to {local}, the weight of a local session"),
                );
            }
        }
        let weights = SessionWeights { global: global.max(local), local, renew: renew.max(local) };
        self.config.connection_throttle.weights = self.weigh_sessions.then_some(weights);
    }

    fn decide_flush(&mut self) {
        let usual = self.config.flush_delay_ms / defaults::FLUSH_QUIET_PART;
        self.config.flush_quiet_ms = self.flush_quiet_ms.unwrap_or(usual);
    }

    /// Reports settings of a feature that is switched off, unless they have the default value.
    fn report_idle(&mut self) {
        let config = &self.config;
        let off = [
            (config.flush_delay_ms == 0, "flushDelay", "maxWriteQueuePollTime"),
            (
                config.connection_throttle.tokens.is_none(),
                "connection_throttle_tokens",
                "connection_throttle_",
            ),
            (
                config.request_throttle.max_requests.is_none(),
                "request_throttle_max_requests",
                "request_throttle_",
            ),
            (
                config.request_throttle.max_requests.is_none(),
                "request_throttle_max_requests",
                "request_stale_",
            ),
            (
                config.request_throttle.max_requests.is_none(),
                "request_throttle_max_requests",
                "throttled_op_wait_time",
            ),
        ];
        for (_, switch, idle) in off.into_iter().filter(|(is_off, ..)| *is_off) {
            let says_something = |name: &str, setting: &Setting| {
                known_keys::find(name).is_some_and(|row| row.default != setting.value)
            };
            let settings: Vec<Setting> = self
                .in_force
                .iter()
                .filter(|(name, setting)| {
                    name.starts_with(idle) && *name != switch && says_something(name, setting)
                })
                .map(|(_, setting)| setting.clone())
                .collect();
            for setting in settings {
                self.adjusted(&setting, format!("not in force, because {switch} is not set"));
            }
        }
    }
}

/// Returns the key that was probably meant.
fn nearest(setting: &Setting) -> Option<&'static str> {
    known_keys::nearest(setting.key.strip_prefix(PREFIX).unwrap_or(&setting.key))
}

/// Returns the position of a source in the order of messages.
fn place_in_order(origin: Origin) -> (u8, usize) {
    match origin {
        Origin::ZooCfg { line } => (0, line),
        Origin::DynamicFile { line } => (1, line),
        Origin::Flags(FlagVariable::ServerJvmFlags) => (2, 0),
        Origin::Flags(FlagVariable::JvmFlags) => (3, 0),
        Origin::CommandLine => (4, 0),
    }
}

fn candidate_from_zoo_cfg(setting: &Setting) -> Option<Candidate> {
    let candidate = |row: &'static KnownKey, name: &str, rank, apache_spelling| Candidate {
        row,
        name: name.to_owned(),
        setting: setting.clone(),
        rank,
        apache_spelling,
    };
    let key = setting.key.as_str();
    if let Some(row) = known_keys::find(key) {
        let rank = if row.place == Place::JvmProperty { 1 } else { 4 };
        return Some(candidate(row, key, rank, None));
    }
    let name = key.strip_prefix(PREFIX)?;
    let row = known_keys::find(name).filter(|row| row.place.has_prefix())?;
    Some(candidate(row, name, 3, Some(format!("{name} in zoo.cfg"))))
}

fn candidate_from_flag(setting: &Setting) -> Option<Candidate> {
    let candidate = |row: &'static KnownKey, name: &str, rank, apache_spelling| Candidate {
        row,
        name: name.to_owned(),
        setting: setting.clone(),
        rank,
        apache_spelling,
    };
    let key = setting.key.as_str();
    if let Some(name) = key.strip_prefix(PREFIX)
        && let Some(row) = known_keys::find(name)
        // A key without effect is recognised in the wrong place as well.
        && (row.place.has_prefix()
            || matches!(row.handler, Handler::NotYet { .. } | Handler::NotNeeded { .. }))
    {
        return Some(candidate(row, name, 2, None));
    }
    let row = known_keys::find(key)?;
    match row.place {
        Place::JvmProperty => Some(candidate(row, key, 2, None)),
        Place::PropertyEitherName => Some(candidate(row, key, 1, None)),
        Place::Property => Some(candidate(row, key, 1, Some(format!("{PREFIX}{key} in flags")))),
        Place::ZooCfg => None,
    }
}

/// Returns whether an id has a user, and a base64 text of the same length as another id.
fn has_form_of(id: &str, other: &str) -> bool {
    let hash = |id: &str| id.split_once(':').map(|(_, hash)| hash.to_owned());
    let (Some((user, own)), Some(like)) = (id.split_once(':'), hash(other)) else { return false };
    let digits = own.trim_end_matches('=');
    !user.is_empty()
        && own.len() == like.len()
        && digits.len() == like.trim_end_matches('=').len()
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// Handles `4lw.commands.whitelist`.
pub(crate) fn allow_words(draft: &mut Draft, setting: &Setting) -> Result<(), ValueError> {
    let mut unknown = Vec::new();
    let mut words = FourLetterWords::least();
    for word in setting.value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if word == "*" {
            words = FourLetterWords::all();
            break;
        }
        match FourLetterWord::from_name(word) {
            Some(word) => words.allow(word),
            None => unknown.push(word),
        }
    }
    if !unknown.is_empty() {
        draft.adjusted(setting, format!("there is no four-letter word {}", unknown.join(", ")));
    }
    draft.config.four_letter_words = words;
    Ok(())
}

/// Handles ports.
pub(crate) fn port(setting: &Setting) -> Result<u16, ValueError> {
    let value = &setting.value;
    value.parse().map_err(|_| ValueError::NoPort { value: value.clone() })
}

#[cfg(test)]
mod tests;
