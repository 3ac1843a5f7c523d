//! Finds the commit that is built, for `--version`. Without git, or outside of a checkout, there is
//! none, and the build goes on without it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=IRONKEEPER_TARGET={target}");
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=IRONKEEPER_COMMIT={commit}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn commit() -> Option<String> {
    let top = git(&["rev-parse", "--show-toplevel"])?;
    // The sources of a published package may lie inside of another repository.
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    if Path::new(&top).canonicalize().ok()? != ours.canonicalize().ok()? {
        return None;
    }
    // The log of HEAD grows with every commit and checkout. A path that is not there would make
    // every build run this again.
    let watched = ["logs/HEAD", "HEAD"].iter().find_map(|file| {
        git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists())
    });
    println!("cargo::rerun-if-changed={}", watched?);
    git(&["rev-parse", "--short=12", "HEAD"])
}
