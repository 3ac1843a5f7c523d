//! Hashes of a path and of all paths above it, in one pass over its bytes.
//!
//! Hashing the text of each ancestor separately would take time quadratic in the length of the
//! path, and a path may have as many names as fit into a request.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

/// A hasher that extends the hash of the parent by one name.
#[derive(Clone, Debug)]
pub struct PathHasher {
    hasher: FixedState,
}

impl PathHasher {
    /// Creates a hasher; the same seed produces the same hashes.
    pub fn with_seed(seed: u64) -> PathHasher {
        PathHasher { hasher: FixedState::with_seed(seed) }
    }

    /// Returns the hash of a path.
    pub fn hash(&self, path: &str) -> u64 {
        let own = self.prefixes(path).last();
        own.map_or(0, |(_, hash)| hash)
    }

    /// Returns all prefixes from the root to the path itself, each with the value of
    /// [`PathHasher::hash`] for it.
    pub fn prefixes<'p>(&self, path: &'p str) -> impl Iterator<Item = (&'p str, u64)> {
        // The name of the root is empty, and no slash follows it.
        let names = if path == "/" { "" } else { path };
        let (mut end, mut hash) = (0, 0);
        names.split('/').enumerate().map(move |(depth, name)| {
            end += name.len() + usize::from(depth > 0);
            let mut hasher = self.hasher.build_hasher();
            hasher.write_u64(hash);
            hasher.write(name.as_bytes());
            hash = hasher.finish();
            (if end == 0 { "/" } else { &path[..end] }, hash)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_with_all_paths_above_it() {
        let hasher = PathHasher::with_seed(7);
        for path in ["/", "/a", "/a/bc/d", "/\u{e4}/b"] {
            let prefixes: Vec<(&str, u64)> = hasher.prefixes(path).collect();
            let mut expected = vec![path];
            while let Some(above) = ironkeeper_proto::path::parent(expected[expected.len() - 1]) {
                expected.push(above);
            }
            expected.reverse();
            assert_eq!(prefixes.iter().map(|(path, _)| *path).collect::<Vec<_>>(), expected);
            for (prefix, hash) in prefixes {
                assert_eq!(hash, hasher.hash(prefix), "{prefix}");
            }
        }
        assert_ne!(hasher.hash("/a/b"), hasher.hash("/ab"));
        assert_ne!(hasher.hash("/a/b"), hasher.hash("/b/a"));
    }
}
