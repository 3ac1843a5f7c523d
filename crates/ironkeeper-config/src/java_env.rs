//! `java.env` and `zookeeper-env.sh` beside a `zoo.cfg`: scripts that `zkServer.sh` runs and that
//! set Java flags.
//!
//! Ironkeeper runs no scripts. It reads their assignments as text, to report the flags that would
//! be lost.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::system_properties::{Flag, FlagVariable, parse};
use crate::{Config, ConfigError, Notice, Origin, Overrides};

/// The names of the scripts, in the order in which `zkEnv.sh` runs them.
const NAMES: [&str; 2] = ["zookeeper-env.sh", "java.env"];
/// The number of bytes that are read from a script.
const BYTES_MAX: u64 = 1 << 20;

/// A property that such a script sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub file: PathBuf,
    pub variable: FlagVariable,
    pub name: String,
    pub value: String,
}

/// Returns the `-D` flags of the scripts beside a configuration file.
fn properties_beside(config: &Path) -> Vec<Property> {
    let dir = config.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for name in NAMES {
        let file = dir.join(name);
        let Ok(open) = std::fs::File::open(&file) else { continue };
        let mut bytes = Vec::new();
        if open.take(BYTES_MAX).read_to_end(&mut bytes).is_err() {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        found.extend(properties(&text).into_iter().map(|(variable, name, value)| Property {
            file: file.clone(),
            variable,
            name,
            value,
        }));
    }
    found
}

/// Returns the properties in the assignments of a script.
fn properties(text: &str) -> Vec<(FlagVariable, String, String)> {
    let mut found = Vec::new();
    for line in text.replace("\\\n", " ").lines() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let Some((name, value)) = line.split_once('=') else { continue };
        let variable = match name {
            "JVMFLAGS" => FlagVariable::JvmFlags,
            "SERVER_JVMFLAGS" => FlagVariable::ServerJvmFlags,
            _ => continue,
        };
        // Quotes around the whole value are dropped: zkServer.sh splits the value at blanks again.
        let value = value.trim().trim_matches(['"', '\'']);
        let Ok(flags) = parse(value, variable) else { continue };
        found.extend(flags.into_iter().filter_map(|flag| match flag {
            Flag::Property { name, value } => Some((variable, name, value)),
            Flag::Other(_) => None,
        }));
    }
    found
}

/// The effect of a property if the server received it.
#[derive(Debug)]
pub enum Effect {
    /// None, or the same value as in the configuration.
    None,
    /// A different configuration.
    Change,
    /// A notice to the user.
    Notice(Notice),
    /// An invalid configuration.
    Refusal(ConfigError),
}

/// Returns the properties of the scripts beside a configuration file, and what each would change in
/// `config`, which was loaded from `file` and `with`.
pub fn effects_beside(
    file: &Path,
    with: &Overrides<'_>,
    config: &Config,
) -> Vec<(Property, Effect)> {
    let effect = |property: &Property| {
        let flag = format!(" '-D{}={}'", property.name, property.value.replace('\'', ""));
        let (mut jvmflags, mut server) =
            (with.jvmflags.to_owned(), with.server_jvmflags.to_owned());
        match property.variable {
            FlagVariable::JvmFlags => jvmflags += &flag,
            FlagVariable::ServerJvmFlags => server += &flag,
        }
        let with = Overrides { jvmflags: &jvmflags, server_jvmflags: &server, set: with.set };
        let loaded = match Config::from_file_with(file, &with) {
            Ok(loaded) => loaded,
            Err(error) => return Effect::Refusal(error),
        };
        if loaded.config != *config {
            return Effect::Change;
        }
        let is_of_property = |notice: &Notice| {
            notice.key == property.name && matches!(notice.origin, Origin::Flags(_))
        };
        loaded.notices.into_iter().find(is_of_property).map_or(Effect::None, Effect::Notice)
    };
    let with_effect = |property: Property| {
        let effect = effect(&property);
        (property, effect)
    };
    properties_beside(file).into_iter().map(with_effect).collect()
}

impl Property {
    /// Returns the advice for a flag that is lost, without its value, which may be a digest.
    pub fn advice(&self) -> String {
        format!(
            "{} sets -D{}, and Ironkeeper does not run this file: write {} into the zoo.cfg",
            self.file.display(),
            self.name,
            self.key()
        )
    }

    /// Returns the key of `zoo.cfg` with the same effect.
    pub fn key(&self) -> &str {
        self.name.strip_prefix("zookeeper.").unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_from_the_assignments_of_a_script() {
        let text = "#!/bin/sh\n# JVMFLAGS=-Dno=1\n\
                    export JVMFLAGS=\"-Xmx1g -Djute.maxbuffer=4194304 $JVMFLAGS\"\n\
                    SERVER_JVMFLAGS='-Dzookeeper.snapCount=5 \\\n -Da=b'\nZOO_LOG_DIR=/var/log\n";
        let found: Vec<String> = properties(text)
            .into_iter()
            .map(|(_, name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(found, ["jute.maxbuffer=4194304", "zookeeper.snapCount=5", "a=b"]);
    }
}
