//! Commands of cargo that share one build, whichever program starts them.
//!
//! `cargo run` describes the package of the program in environment variables. Build scripts of
//! some dependencies declare that they depend on such variables (those of `ring` on
//! `CARGO_MANIFEST_DIR`, for example). If `cargo xtask` and the suites passed their own on, each
//! would build these dependencies, and all crates that depend on them, again.

use std::process::Command;

/// The beginnings of the names of variables that describe a package.
const PACKAGE_VARIABLES: [&str; 4] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];

/// Returns a command of the cargo that has started this program, without the variables that
/// describe the package of this program.
pub fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_of_package = name.to_str().is_some_and(|name| {
            name == "OUT_DIR" || PACKAGE_VARIABLES.iter().any(|prefix| name.starts_with(prefix))
        });
        if is_of_package {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_this_package_does_not_reach_cargo() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "cargo sets it for tests");
        let command = command();
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            let removed = command.get_envs().any(|(set, value)| set == name && value.is_none());
            assert!(removed, "{name}");
        }
        assert!(!command.get_envs().any(|(set, _)| set == "CARGO" || set == "CARGO_INCREMENTAL"));
    }
}
