//! Where things are in the source tree.

use std::path::PathBuf;

/// The root of the repository this binary was built from.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// A file or folder below `interop/`, where everything foreign programs are given lives.
pub fn interop(path: &str) -> PathBuf {
    root().join("interop").join(path)
}
