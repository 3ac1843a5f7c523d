//! Paths in the source tree.

use std::path::PathBuf;

/// Returns the root of the repository from which this binary was built.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// Returns a path below `interop/`, which contains all inputs of third-party programs.
pub fn interop(path: &str) -> PathBuf {
    root().join("interop").join(path)
}
