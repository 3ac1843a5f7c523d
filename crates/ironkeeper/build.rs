//! Determines the commit that is built, for `--version`. Without git, or outside of a checkout, the
//! commit is `unknown`.

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
    // A published package may be unpacked inside of another repository.
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    if Path::new(&top).canonicalize().ok()? != ours.canonicalize().ok()? {
        return None;
    }
    // Every commit and checkout appends to the log of HEAD. If cargo watched a path that does not
    // exist, it would run this script in every build.
    let watched = ["logs/HEAD", "HEAD"].iter().find_map(|file| {
        git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists())
    });
    println!("cargo::rerun-if-changed={}", watched?);
    git(&["rev-parse", "--short=12", "HEAD"])
}
