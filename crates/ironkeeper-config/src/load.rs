//! The sources of a configuration: files, texts, flags and the command line.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Config;
use crate::candidate::Candidate;
use crate::draft::Draft;
use crate::dynamic_files;
use crate::notice::Notice;
use crate::problem::ConfigError;
use crate::properties;
use crate::system_properties::FlagVariable;

/// The maximum size of a configuration file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

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
        let mut candidates: Vec<Candidate> = Vec::new();
        draft.gather_zoo_cfg(sources.zoo_cfg, &mut candidates);
        draft.gather_flags(sources.server_jvmflags, FlagVariable::ServerJvmFlags, &mut candidates);
        draft.gather_flags(sources.jvmflags, FlagVariable::JvmFlags, &mut candidates);
        draft.gather_set(sources.set, &mut candidates);
        if !draft.problems.is_empty() {
            // A text that cannot be parsed would make every key in it look missing.
            return Err(ConfigError::Invalid(draft.problems));
        }
        draft.apply(&candidates);
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
        let mut candidates: Vec<Candidate> = Vec::new();
        draft.gather_flags(with.server_jvmflags, FlagVariable::ServerJvmFlags, &mut candidates);
        draft.gather_flags(with.jvmflags, FlagVariable::JvmFlags, &mut candidates);
        draft.gather_set(with.set, &mut candidates);
        draft.apply(&candidates);
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

#[cfg(test)]
mod tests;
