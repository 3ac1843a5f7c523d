//! The files in which a changed membership survives a restart, with Apache's names and format.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `zoo.cfg.dynamic.<version>` | the committed members; the version (hex) only in the name |
//! | `zoo.cfg.dynamic.next` | the proposed members, with their version; deleted once committed |
//! | `zoo.cfg` | no members, but the name of the first of these files |
//! | `zoo.cfg.bak` | `zoo.cfg` as the administrator wrote it |
//!
//! Every function that writes returns when the change is durable. Every file is written under
//! another name, synced and renamed. A start syncs the directory once more: the last process may
//! have ended between a rename and its sync, and the server must not rely on a file that is not
//! durable.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ironkeeper_proto::{Membership, ServerId};

use crate::members;

const NEXT_SUFFIX: &str = ".dynamic.next";
const BACKUP_SUFFIX: &str = ".bak";
/// A new file is accessible only to the owner of the process.
const FILE_MODE: u32 = 0o600;

/// Returns the file for proposed members beside a static file.
pub fn next_of(config_file: &Path) -> PathBuf {
    beside(config_file, NEXT_SUFFIX)
}

/// Returns the version in a file's name: the part after its last dot, if that is hexadecimal.
///
/// ```
/// use ironkeeper_config::dynamic_files::version_in_name;
///
/// assert_eq!(version_in_name("/etc/zoo.cfg.dynamic.10000000a".as_ref()), Some(0x1_0000_000a));
/// assert_eq!(version_in_name("/etc/zoo.cfg.dynamic".as_ref()), None);
/// ```
pub fn version_in_name(path: &Path) -> Option<i64> {
    let suffix = path.file_name()?.to_str()?.rsplit_once('.')?.1;
    i64::from_str_radix(suffix, 16).ok().filter(|version| *version >= 0)
}

/// Writer of the membership files beside the static file.
#[derive(Clone, Debug)]
pub struct DynamicFiles {
    config_file: PathBuf,
    my_id: ServerId,
}

impl DynamicFiles {
    pub fn new(config_file: PathBuf, my_id: ServerId) -> DynamicFiles {
        let config_file = std::path::absolute(&config_file).unwrap_or(config_file);
        DynamicFiles { config_file, my_id }
    }

    /// Makes the present files durable. If the process has no permission to read the directory,
    /// nothing was ever written to it.
    pub fn settle(&self) -> io::Result<()> {
        match sync_dir(&self.config_file) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }

    /// Writes a proposed membership.
    pub fn write_proposed(&self, next: &Membership) -> io::Result<()> {
        write_durably(&next_of(&self.config_file), next.to_string().as_bytes())
    }

    /// Deletes a proposed membership that was not committed.
    pub fn withdraw_proposed(&self) -> io::Result<()> {
        let path = next_of(&self.config_file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => sync_dir(&path),
        }
    }

    /// Writes the membership in force, which replaces earlier proposals.
    pub fn write_committed(&self, committed: &Membership) -> io::Result<()> {
        let dynamic = beside(&self.config_file, &format!(".dynamic.{:x}", committed.version));
        write_durably(&dynamic, members_alone(committed).as_bytes())?;
        let written = fs::read(&self.config_file)?;
        let backup = beside(&self.config_file, BACKUP_SUFFIX);
        if !backup.exists() {
            write_durably(&backup, &written)?;
        }
        let names_clients =
            committed.members.get(&self.my_id).is_some_and(|me| me.client.is_some());
        let text = String::from_utf8_lossy(&written);
        let rewritten = static_text(&text, &dynamic, names_clients);
        write_durably(&self.config_file, rewritten.as_bytes())?;
        self.withdraw_proposed()
    }
}

fn beside(config_file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(config_file);
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the lines without the version, sorted as Apache sorts them.
fn members_alone(membership: &Membership) -> String {
    let text = membership.to_string();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("version=")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Returns the static file without members, with the name of the file that has them. Keeps
/// comments.
fn static_text(text: &str, dynamic: &Path, names_clients: bool) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let key = line.trim_start().split(['=', ':', ' ', '\t']).next().unwrap_or_default();
        let moved = members::is_membership(key)
            || matches!(key, "peerType" | "dynamicConfigFile")
            || (names_clients && matches!(key, "clientPort" | "clientPortAddress"));
        if !moved {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.push_str(&format!("dynamicConfigFile={}\n", dynamic.display()));
    out
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = beside(path, ".tmp");
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(FILE_MODE).open(&unfinished)?;
    if let Ok(existing) = fs::metadata(path) {
        // The replaced file of an administrator keeps its permissions.
        file.set_permissions(fs::Permissions::from_mode(existing.permissions().mode() & 0o777))?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_dir(path)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        Some(dir) => File::open(dir)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const MEMBERS: &str = "server.1=127.0.0.1:2888:3888;2181\nserver.2=127.0.0.1:2889:3889;2182\n";

    /// Creates a directory with a static file of server 1, and the writer of the files beside it.
    fn set_up() -> (tempfile::TempDir, PathBuf, DynamicFiles) {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let data_dir = dir.path().join("data");
        fs::create_dir(&data_dir).expect("it is new");
        fs::write(data_dir.join("myid"), "1\n").expect("written");
        let config_file = dir.path().join("zoo.cfg");
        let text = format!(
            "# of the administrator\ndataDir={}\nclientPort=2181\ninitLimit=5\nsyncLimit=2\n\
             reconfigEnabled=true\n{MEMBERS}",
            data_dir.display()
        );
        fs::write(&config_file, text).expect("written");
        let files = DynamicFiles::new(config_file.clone(), ServerId(1));
        (dir, config_file, files)
    }

    fn load(config_file: &Path) -> crate::EnsembleConfig {
        let loaded = Config::from_file(config_file, "", "").expect("it is a good configuration");
        assert_eq!(loaded.config.client_address.port, 2181);
        loaded.config.ensemble.expect("it is an ensemble")
    }

    fn changed(version: i64) -> Membership {
        let text = format!("{MEMBERS}server.7=127.0.0.1:2890:3890:observer;2183");
        Membership { version, ..Membership::parse(&text).expect("it is one") }
    }

    #[test]
    fn members_in_force_are_found_by_the_next_start() {
        let (dir, config_file, files) = set_up();
        let before = fs::read(&config_file).expect("it is there");
        assert_eq!(load(&config_file).membership.version, 0);
        fs::set_permissions(&config_file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        files.write_committed(&changed(0x1_0000_0000)).expect("there is room");
        files.write_committed(&changed(0x1_0000_000a)).expect("there is room");
        let ensemble = load(&config_file);
        assert_eq!(ensemble.membership, changed(0x1_0000_000a));
        assert_eq!((ensemble.my_id, ensemble.proposed), (ServerId(1), None));
        assert_eq!(fs::read(dir.path().join("zoo.cfg.bak")).expect("a backup"), before);
        let text = fs::read_to_string(&config_file).expect("it is there");
        assert!(text.starts_with("# of the administrator\n") && !text.contains("clientPort"));
        let dynamic = dir.path().join("zoo.cfg.dynamic.10000000a");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode(&dynamic) & 0o777, 0o600, "a new file is for its owner");
        assert_eq!(mode(&config_file) & 0o777, 0o640, "an existing one keeps its mode");
        assert_eq!(
            fs::read_to_string(dynamic).expect("it is there"),
            "server.1=127.0.0.1:2888:3888:participant;0.0.0.0:2181\n\
             server.2=127.0.0.1:2889:3889:participant;0.0.0.0:2182\n\
             server.7=127.0.0.1:2890:3890:observer;0.0.0.0:2183"
        );
    }

    #[test]
    fn proposed_members_are_known_until_they_are_in_force_or_withdrawn() {
        let (_dir, config_file, files) = set_up();
        files.write_proposed(&changed(5)).expect("there is room");
        assert_eq!(load(&config_file).proposed, Some(changed(5)));
        files.withdraw_proposed().expect("it is there");
        assert_eq!(load(&config_file).proposed, None);
        files.withdraw_proposed().expect("twice is once");
        files.write_proposed(&changed(6)).expect("there is room");
        files.write_committed(&changed(6)).expect("there is room");
        let ensemble = load(&config_file);
        assert_eq!((ensemble.membership, ensemble.proposed), (changed(6), None));
    }
}
