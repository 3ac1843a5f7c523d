//! System programs that a chore needs before it can download anything: a JDK, Maven, Python, a C
//! compiler.
//!
//! A missing program is installed with `apt-get` where that is possible (a Debian-like system, as
//! root); otherwise the error names the packages to install.

use std::fmt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Result, bail};
use ironkeeper_steps::process::run;

/// A system program and the packages that contain it.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    pub name: &'static str,
    /// A command that succeeds iff the tool is usable.
    probe: &'static [&'static str],
    packages: &'static [&'static str],
}

pub const JAVA: Tool =
    Tool { name: "a JDK", probe: &["javac", "-version"], packages: &["default-jdk-headless"] };
pub const MAVEN: Tool = Tool { name: "Maven", probe: &["mvn", "-v"], packages: &["maven"] };
pub const PYTHON: Tool = Tool {
    name: "Python 3 with venv",
    probe: &["python3", "-c", "import venv, ensurepip"],
    packages: &["python3", "python3-venv"],
};
pub const CC: Tool =
    Tool { name: "a C compiler", probe: &["cc", "--version"], packages: &["gcc", "libc6-dev"] };
pub const GO: Tool = Tool { name: "Go", probe: &["go", "version"], packages: &["golang-go"] };
pub const DPKG: Tool = Tool { name: "dpkg", probe: &["dpkg", "--version"], packages: &["dpkg"] };

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Tool {
    /// Ensures that the tool is usable; installs it if this machine allows that.
    pub fn ensure(&self) -> Result<()> {
        // One package manager at a time; suites may call this from several threads.
        static APT: Mutex<()> = Mutex::new(());
        if self.works() {
            return Ok(());
        }
        let _one = APT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let packages = self.packages.join(" ");
        if !can_install() {
            bail!(
                "{self} is missing; install it (on Debian and Ubuntu: apt-get install {packages})"
            );
        }
        println!("  {self} is missing: apt-get install {packages}");
        run(apt_get().arg("update").arg("-qq"))?;
        run(apt_get()
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(self.packages))?;
        if !self.works() {
            bail!("{self} still does not run after apt-get install {packages}");
        }
        Ok(())
    }

    fn works(&self) -> bool {
        let [program, args @ ..] = self.probe else { return false };
        Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// Returns whether packages can be installed: `apt-get` exists and the user is root.
pub fn can_install() -> bool {
    let root =
        Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.trim_ascii() == b"0");
    root && has_apt_get()
}

pub fn has_apt_get() -> bool {
    Command::new("apt-get").arg("--version").output().is_ok_and(|out| out.status.success())
}

pub fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "Acquire::Retries=3"]);
    command
}
