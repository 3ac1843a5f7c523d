//! Command lines of Apache ZooKeeper: its server, its shell and programs compiled against its jars.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use ironkeeper_steps::repo;

/// JVM flags for short-lived Java programs: a fast start instead of a high peak speed.
pub const QUICK_START: [&str; 2] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// An unpacked Apache ZooKeeper (and Curator): a directory of jars.
#[derive(Debug, Clone)]
pub struct Apache {
    jars: PathBuf,
    version: String,
}

impl Apache {
    pub fn new(jars: PathBuf, version: String) -> Self {
        Self { jars, version }
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn jars(&self) -> &Path {
        &self.jars
    }

    /// Returns the class path: our logging configuration, then every jar. Java expands the
    /// asterisk.
    pub fn class_path(&self) -> OsString {
        let mut path = repo::interop("java/conf").into_os_string();
        path.push(":");
        path.push(self.jars.join("*"));
        path
    }

    /// Returns a `java` command with the class path; the caller adds the main class and its
    /// arguments.
    pub fn java(&self, jvm_flags: &[String]) -> Command {
        let mut command = Command::new("java");
        command.arg("-cp").arg(self.class_path()).arg("-Dfile.encoding=UTF-8").args(jvm_flags);
        command
    }

    /// Returns the command of a server with the given `zoo.cfg`.
    pub fn server(&self, config: &Path, jvm_flags: &[String]) -> Command {
        let mut command = self.java(jvm_flags);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
        command
    }

    /// Returns the command that `zkCli.sh` runs, without line editing: jline is predictable only on
    /// a terminal.
    pub fn shell(&self, address: &str) -> Command {
        let mut path = repo::interop("java/conf").into_os_string();
        for jar in self.jar_files() {
            let edits_lines =
                jar.file_name().is_some_and(|name| name.to_string_lossy().starts_with("jline"));
            if !edits_lines {
                path.push(":");
                path.push(jar);
            }
        }
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(path)
            .args(QUICK_START)
            .args(["-Dfile.encoding=UTF-8", "-Dironkeeper.interop.log=OFF"])
            .args(["org.apache.zookeeper.ZooKeeperMain", "-server", address]);
        command
    }

    fn jar_files(&self) -> Vec<PathBuf> {
        let mut jars: Vec<PathBuf> = std::fs::read_dir(&self.jars)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ext| ext == "jar"))
            .collect();
        jars.sort();
        jars
    }
}
