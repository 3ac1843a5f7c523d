//! The settings that depend on several keys, and the constraints between keys.

use ironkeeper_proto::four_letter::FourLetterWord;

use crate::config::ticks;
use crate::draft::Draft;
use crate::known_keys;
use crate::load::Loaded;
use crate::notice::{NoticeKind, Origin};
use crate::problem::{ConfigError, Problem, ProblemKind};
use crate::setting::Setting;
use crate::system_properties::FlagVariable;
use crate::{AuthScheme, SessionWeights, defaults};

/// The top byte of a session id is the server id, and 255 there marks TTL nodes.
const SERVER_ID_MAX_WITH_TTL: i64 = 254;

impl Draft {
    /// Checks the constraints and returns the configuration.
    pub(crate) fn finish(mut self) -> Result<Loaded, ConfigError> {
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
                    "the smallest session timeout ({min} ms) is larger than the largest ({max} \
                     ms). They are {} and {} ticks of {tick} ms unless set",
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
                "enforce.auth.schemes is missing: name the schemes that are demanded, such as \
                 digest",
            );
        };
        let mut demanded = Vec::new();
        for name in setting.value.split(',').map(str::trim) {
            let scheme = match name {
                "digest" if self.config.digest_auth.enabled => AuthScheme::Digest,
                "ip" => AuthScheme::Ip,
                _ => {
                    let message = format!(
                        "the authentication scheme {name:?} cannot be demanded, because this \
                         server does not have it. It has ip and, unless switched off, digest"
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
            "no password can match it: the form is user:base64(hash of user:password), with the \
             hash that DigestAuthenticationProvider.digestAlg names. `ironkeeper digest \
             user:password` prints it",
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
                format!(
                    "with extendedTypesEnabled a server's number can be \
                         {SERVER_ID_MAX_WITH_TTL} at most"
                ),
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
