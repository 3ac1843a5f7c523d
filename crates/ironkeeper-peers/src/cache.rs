//! Third-party software, downloaded by the usual package managers into a cache outside of the
//! source tree.
//!
//! The cache is `$IRONKEEPER_PEERS`, else `$XDG_CACHE_HOME/ironkeeper`, else `~/.cache/ironkeeper`.
//! Each peer has a directory there. A directory is complete if its `.recipe` file equals the
//! present recipe (a pom, a requirements file, a list of packages); otherwise it is emptied and
//! filled again, so an interrupted download or a changed version never leaves a mixture.
//!
//! A peer that cannot be installed is reported as [`MissingPeer`], which callers turn into a skip
//! on a developer's machine and into a failure in CI.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ironkeeper_steps::{process, repo};

use crate::apache::Apache;
use crate::tools::{self, Tool};

/// Attempts at each download, and the pause after the first failed one; later pauses double.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(3);

/// The poms with Apache's jars and their versions, and with those of the previous release line.
const POM: &str = "java/pom.xml";
const POM_BEFORE: &str = "java/before/pom.xml";
const MAVEN_DEPENDENCY_PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1";

/// A peer that could not be installed on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{peer} is not available: {why}")]
pub struct MissingPeer {
    pub peer: &'static str,
    pub why: String,
}

/// The directory of the third-party software.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// The system programs that a peer requires.
#[derive(Debug, Clone, Copy, Default)]
struct Needs<'a> {
    to_use: &'a [Tool],
    to_fetch: &'a [Tool],
}

/// kazoo and the requirements of its tests, in a virtual environment.
#[derive(Debug, Clone)]
pub struct Kazoo {
    pub python: PathBuf,
    pub version: String,
}

/// Programs of etcd: the server, and a load generator.
#[derive(Debug, Clone)]
pub struct Etcd {
    pub member: PathBuf,
    pub load: PathBuf,
}

/// The C client as Debian packages it: headers, shared library, `cli_mt`.
#[derive(Debug, Clone)]
pub struct CClient {
    pub include: PathBuf,
    pub lib: PathBuf,
    pub cli_mt: PathBuf,
}

impl Cache {
    pub fn open() -> Result<Self> {
        let root = if let Some(dir) = non_empty_env("IRONKEEPER_PEERS") {
            PathBuf::from(dir)
        } else if let Some(dir) = non_empty_env("XDG_CACHE_HOME") {
            PathBuf::from(dir).join("ironkeeper")
        } else if let Some(home) = non_empty_env("HOME") {
            PathBuf::from(home).join(".cache").join("ironkeeper")
        } else {
            bail!("no place for foreign software: set IRONKEEPER_PEERS to a folder");
        };
        fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
        Ok(Self { root: fs::canonicalize(root)? })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Installs Apache ZooKeeper (server, client, shell) and Curator from Maven Central.
    pub fn apache(&self) -> Result<Apache> {
        self.apache_of(POM)
    }

    /// Installs a server of the previous release line, for ensembles during an upgrade.
    pub fn apache_before(&self) -> Result<Apache> {
        self.apache_of(POM_BEFORE)
    }

    /// Installs all jars of a pom.
    fn apache_of(&self, pom_path: &str) -> Result<Apache> {
        let pom = read_pom(pom_path)?;
        let version = pom_property(&pom, "zookeeper.version")?;
        let home = self.provide(
            "Apache ZooKeeper",
            &format!("zookeeper-{version}"),
            &pom,
            Needs { to_use: &[tools::JAVA], to_fetch: &[tools::MAVEN] },
            |home| {
                process::run(
                    Command::new("mvn")
                        .args(["-q", "-B"])
                        .arg("-f")
                        .arg(repo::interop(pom_path))
                        .arg(format!("{MAVEN_DEPENDENCY_PLUGIN}:copy-dependencies"))
                        .arg("-DincludeScope=runtime")
                        .arg(format!("-DoutputDirectory={}", home.join("lib").display())),
                )
                .map(drop)
            },
        )?;
        Ok(Apache::new(home.join("lib"), version))
    }

    /// Installs kazoo with its test requirements from PyPI, at the versions of
    /// `interop/kazoo/requirements.txt`.
    pub fn kazoo(&self) -> Result<Kazoo> {
        let requirements_path = repo::interop("kazoo/requirements.txt");
        let requirements = fs::read_to_string(&requirements_path)
            .context("cannot read interop/kazoo/requirements.txt")?;
        let version = requirements
            .lines()
            .find_map(|line| line.strip_prefix("kazoo=="))
            .context("interop/kazoo/requirements.txt pins no kazoo")?
            .trim()
            .to_owned();
        let home = self.provide(
            "kazoo",
            &format!("kazoo-{version}"),
            &requirements,
            Needs { to_use: &[tools::PYTHON], to_fetch: &[] },
            |home| {
                process::run(Command::new("python3").args(["-m", "venv"]).arg(home))?;
                process::run(
                    Command::new(home.join("bin/python"))
                        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                        .arg("-r")
                        .arg(&requirements_path),
                )
                .map(drop)
            },
        )?;
        Ok(Kazoo { python: home.join("bin/python"), version })
    }

    /// Installs the C client. The packages are unpacked into the cache, not installed in the
    /// system.
    pub fn c_client(&self) -> Result<CClient> {
        const PACKAGES: [&str; 3] = ["libzookeeper-mt2", "libzookeeper-mt-dev", "zookeeper-bin"];
        let home = self.provide(
            "the C client",
            "c-client",
            &PACKAGES.join("\n"),
            Needs { to_use: &[tools::CC], to_fetch: &[tools::DPKG] },
            |home| {
                if !tools::has_apt_get() {
                    bail!(
                        "it comes from Debian packages ({}) and there is no apt-get",
                        PACKAGES.join(" ")
                    );
                }
                let download = || {
                    process::run(tools::apt_get().current_dir(home).arg("download").args(PACKAGES))
                };
                if download().is_err() {
                    // A fresh machine has no package lists yet.
                    process::run(tools::apt_get().args(["update", "-qq"]))?;
                    download()?;
                }
                for entry in fs::read_dir(home)? {
                    let path = entry?.path();
                    if path.extension().is_some_and(|ext| ext == "deb") {
                        process::run(Command::new("dpkg").arg("-x").arg(&path).arg(home))?;
                    }
                }
                Ok(())
            },
        )?;
        let lib = fs::read_dir(home.join("usr/lib"))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.join("libzookeeper_mt.so").exists())
            .context("the packages of the C client hold no libzookeeper_mt.so")?;
        Ok(CClient {
            include: home.join("usr/include"),
            lib,
            cli_mt: home.join("usr/lib/zookeeper/bin/cli_mt"),
        })
    }

    /// Builds etcd's server and its load generator from `interop/etcd`, with Go, at the versions of
    /// `go.sum`.
    pub fn etcd(&self) -> Result<Etcd> {
        const PEER: &str = "etcd";
        let bin = self.build_dir("etcd")?;
        // Go has its own cache, so it runs every time.
        tools::GO
            .ensure()
            .and_then(|()| {
                attempt(PEER, || {
                    let mut go = Command::new("go");
                    go.current_dir(repo::interop("etcd")).args(["build", "-buildvcs=false", "-o"]);
                    process::run(go.arg(&bin).args(["./member", "./load"])).map(drop)
                })
            })
            .map_err(|why| MissingPeer { peer: PEER, why: format!("{why:#}") })?;
        Ok(Etcd { member: bin.join("member"), load: bin.join("load") })
    }

    /// Builds the driver of `zookeeper-client`.
    pub fn rust_client(&self) -> Result<PathBuf> {
        self.rust_client_program("rust-client", "dev")
    }

    /// Builds the program that measures `zookeeper-client`.
    pub fn rust_client_throughput(&self) -> Result<PathBuf> {
        self.rust_client_program("throughput", "release")
    }

    /// Builds a program of `interop/rust-client` with the lock file of that directory.
    fn rust_client_program(&self, name: &str, profile: &str) -> Result<PathBuf> {
        const PEER: &str = "zookeeper-client (crates.io)";
        let target = self.root.join("rust-client");
        let manifest = repo::interop("rust-client/Cargo.toml");
        // Cargo has its own cache, so it runs every time; `fetch` is separate, so that only the
        // download is retried.
        attempt(PEER, || {
            process::run(cargo().args(["fetch", "--locked", "--manifest-path"]).arg(&manifest))
                .map(drop)
        })
        .map_err(|why| MissingPeer { peer: PEER, why: format!("{why:#}") })?;
        process::run(
            cargo()
                .args(["build", "--quiet", "--locked", "--offline", "--manifest-path"])
                .arg(&manifest)
                .arg("--target-dir")
                .arg(&target)
                .args(["--bin", name, "--profile", profile]),
        )
        .context("the programs in interop/rust-client do not build")?;
        // Cargo's directory for the profile `dev` is `debug`.
        let folder = if profile == "dev" { "debug" } else { profile };
        Ok(target.join(folder).join(name))
    }

    /// Installs all peers; prints the missing ones and returns `false` if there are any.
    pub fn fetch_all(&self) -> bool {
        let results = [
            ("Apache ZooKeeper and Curator", self.apache().map(drop)),
            ("Apache ZooKeeper of the release line before", self.apache_before().map(drop)),
            ("kazoo", self.kazoo().map(drop)),
            ("the C client", self.c_client().map(drop)),
            ("zookeeper-client", self.rust_client().map(drop)),
        ];
        let mut complete = true;
        for (peer, result) in results {
            match result {
                Ok(()) => println!("  {peer}: ready"),
                Err(why) => {
                    println!("  {peer}: {why:#}");
                    complete = false;
                }
            }
        }
        complete
    }

    /// Returns a build directory that is kept between runs, for programs built with a peer.
    pub fn build_dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.root.join("build").join(name);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Returns the directory with the output of `compile` for these sources. Suites that run
    /// concurrently share it: the first one compiles, and the result is reused as long as the
    /// sources and `with`, which describes all other inputs, are the same.
    pub fn compiled(
        &self,
        name: &str,
        sources: &[PathBuf],
        with: &str,
        compile: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let dir = self.build_dir(name)?;
        let lock = File::create(self.root.join(format!(".build-{name}.lock")))?;
        lock.lock()?;
        let mut recipe = format!("{with}\n");
        for source in sources {
            let text = fs::read_to_string(source)
                .with_context(|| format!("cannot read {}", source.display()))?;
            recipe += &format!("== {}\n{text}", source.display());
        }
        let stamp = dir.join(".recipe");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == recipe) {
            return Ok(dir);
        }
        fs::remove_dir_all(&dir)?;
        fs::create_dir_all(&dir)?;
        compile(&dir)?;
        fs::write(&stamp, recipe)?;
        Ok(dir)
    }

    /// Returns the directory `name`, filled by `fill` unless it already matches `recipe`.
    fn provide(
        &self,
        peer: &'static str,
        name: &str,
        recipe: &str,
        needs: Needs<'_>,
        fill: impl Fn(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let home = self.root.join(name);
        let stamp = home.join(".recipe");
        // Two chores may need the same peer; the second waits and finds it complete.
        let lock = File::create(self.root.join(format!(".{name}.lock")))?;
        lock.lock()?;
        let ensure = |tools: &[Tool]| {
            tools
                .iter()
                .try_for_each(Tool::ensure)
                .map_err(|why| MissingPeer { peer, why: format!("{why:#}") })
        };
        ensure(needs.to_use)?;
        if fs::read_to_string(&stamp).is_ok_and(|found| found == recipe) {
            return Ok(home);
        }
        ensure(needs.to_fetch)?;
        println!("  fetching {peer} into {}", home.display());
        attempt(peer, || {
            if home.exists() {
                fs::remove_dir_all(&home)?;
            }
            fs::create_dir_all(&home)?;
            fill(&home)
        })
        .map_err(|why| MissingPeer { peer, why: format!("{why:#}") })?;
        fs::write(&stamp, recipe)?;
        Ok(home)
    }
}

fn attempt(peer: &str, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    let mut last = anyhow!("never tried");
    for number in 1..=ATTEMPTS {
        match work() {
            Ok(()) => return Ok(()),
            Err(why) => last = why,
        }
        if number < ATTEMPTS {
            println!(
                "  fetching {peer}: attempt {number} of {ATTEMPTS} failed, again in {pause:?}"
            );
            thread::sleep(pause);
            pause *= 2;
        }
    }
    Err(last.context(format!("gave up after {ATTEMPTS} attempts")))
}

fn cargo() -> Command {
    let mut command = ironkeeper_steps::cargo::command();
    // The driver has its own workspace and target directory.
    command.env_remove("CARGO_TARGET_DIR");
    command
}

fn read_pom(path: &str) -> Result<String> {
    fs::read_to_string(repo::interop(path)).with_context(|| format!("cannot read interop/{path}"))
}

fn pom_property(pom: &str, name: &str) -> Result<String> {
    let open = format!("<{name}>");
    pom.split_once(&open)
        .and_then(|(_, rest)| rest.split_once('<'))
        .map(|(value, _)| value.trim().to_owned())
        .with_context(|| format!("the pom has no property {name}"))
}

fn non_empty_env(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_peer_is_fetched_once_and_again_when_its_recipe_changes() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache { root: dir.path().to_owned() };
        let fills = Cell::new(0);
        let provide = |recipe| {
            cache
                .provide("test", "thing", recipe, Needs::default(), |home| {
                    assert!(fs::read_dir(home)?.next().is_none(), "a fill starts from nothing");
                    fills.set(fills.get() + 1);
                    Ok(fs::write(home.join("file"), recipe)?)
                })
                .unwrap()
        };
        provide("one");
        provide("one");
        assert_eq!(fills.get(), 1);
        let home = provide("two");
        assert_eq!(fills.get(), 2);
        assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "two");
    }

    #[test]
    fn sources_are_compiled_once_and_again_when_they_change() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache { root: dir.path().to_owned() };
        let source = dir.path().join("source");
        let compiles = Cell::new(0);
        let compiled = |text: &str, with: &str| {
            fs::write(&source, text).unwrap();
            let compile = |home: &Path| {
                compiles.set(compiles.get() + 1);
                Ok(fs::write(home.join(text), "")?)
            };
            cache.compiled("thing", std::slice::from_ref(&source), with, compile).unwrap()
        };
        compiled("one", "with");
        compiled("one", "with");
        assert_eq!(compiles.get(), 1);
        let home = compiled("two", "with");
        assert!(home.join("two").exists() && !home.join("one").exists());
        compiled("two", "with another compiler");
        assert_eq!(compiles.get(), 3);
    }

    #[test]
    fn versions_are_read_from_the_poms() {
        for (path, line) in [(POM, "3.9."), (POM_BEFORE, "3.8.")] {
            let pom = read_pom(path).unwrap();
            assert!(pom_property(&pom, "zookeeper.version").unwrap().starts_with(line));
            assert!(pom_property(&pom, "nothing").is_err());
        }
    }
}
