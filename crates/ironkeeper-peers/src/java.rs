//! Our Java programs in `interop/java`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use ironkeeper_steps::{process, repo};

use crate::apache::Apache;
use crate::cache::Cache;

/// Compiles a program of `interop/java` and returns its command, with these flags for the JVM.
pub fn program(cache: &Cache, main: &str, jvm_flags: &[&str]) -> Result<Command> {
    let apache = cache.apache()?;
    let mut class_path = compile(cache, &apache)?.into_os_string();
    class_path.push(":");
    class_path.push(apache.class_path());
    let mut command = Command::new("java");
    command
        .arg("-cp")
        .arg(class_path)
        .arg("-Dironkeeper.interop.log=INFO")
        .args(jvm_flags)
        .arg(main);
    Ok(command)
}

fn compile(cache: &Cache, apache: &Apache) -> Result<PathBuf> {
    let mut sources: Vec<PathBuf> = fs::read_dir(repo::interop("java/src"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "java"))
        .collect();
    sources.sort();
    let with = apache.class_path().to_string_lossy().into_owned();
    cache.compiled("java", &sources, &with, |classes| {
        process::run(
            Command::new("javac")
                .args(["-nowarn", "-encoding", "UTF-8", "-d"])
                .arg(classes)
                .arg("-cp")
                .arg(apache.class_path())
                .args(&sources),
        )
        .context("the Java drivers do not compile")
        .map(drop)
    })
}
