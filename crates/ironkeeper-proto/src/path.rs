//! Paths of znodes.

use thiserror::Error;

/// The reason why a path is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The path is empty.
    #[error("the path is empty")]
    Empty,
    /// The path does not start with `/`.
    #[error("the path does not start with /")]
    Relative,
    /// The path ends with `/`.
    #[error("the path ends with /")]
    TrailingSlash,
    /// The path has an empty component.
    #[error("the path has an empty component")]
    EmptyComponent,
    /// The path has the component `.` or `..`.
    #[error("the path has a . or .. component")]
    DotComponent,
    /// The path contains this character.
    #[error("the path has the forbidden character U+{0:04X}")]
    Forbidden(u32),
}

/// Returns the first component of a path, which is the key of per-namespace statistics. Empty for
/// the root.
///
/// ```
/// use ironkeeper_proto::path;
/// assert_eq!(path::namespace("/app/config/a"), "app");
/// assert_eq!(path::namespace("/"), "");
/// ```
pub fn namespace(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default()
}

/// Checks a path against ZooKeeper's rules.
///
/// ```
/// use ironkeeper_proto::path;
/// assert!(path::validate("/app/config").is_ok());
/// assert!(path::validate("/app/").is_err());
/// assert!(path::validate("/app/../x").is_err());
/// ```
pub fn validate(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    if path.len() == 1 {
        return Ok(());
    }
    if path.ends_with('/') {
        return Err(PathError::TrailingSlash);
    }
    if is_plain(path.as_bytes()) {
        return Ok(());
    }
    for component in path[1..].split('/') {
        match component {
            "" => return Err(PathError::EmptyComponent),
            "." | ".." => return Err(PathError::DotComponent),
            _ => {}
        }
    }
    match path.chars().find(|character| is_forbidden(*character)) {
        None => Ok(()),
        Some(character) => Err(PathError::Forbidden(character as u32)),
    }
}

/// Returns whether a path has only printable ASCII characters, and neither a slash nor a dot after
/// a slash. This is the common case by far, and it is checked without a branch for each byte.
fn is_plain(path: &[u8]) -> bool {
    let pairs = path.iter().zip(&path[1..]);
    !pairs.fold(false, |is_odd, (&before, &byte)| {
        is_odd
            | !(0x20..0x7f).contains(&byte)
            | ((before == b'/') & ((byte == b'/') | (byte == b'.')))
    })
}

/// Returns whether a character is a control character, of private use, a non-character, or above
/// U+FFFF (a surrogate pair in Java).
fn is_forbidden(character: char) -> bool {
    matches!(
        character as u32,
        0x0000..=0x001f | 0x007f..=0x009f | 0xd800..=0xf8ff | 0xfff0..=u32::MAX
    )
}

/// Returns the path of the parent, or `None` for the root and for a path without a slash.
pub fn parent(path: &str) -> Option<&str> {
    match path.rfind('/') {
        None => None,
        Some(0) if path.len() == 1 => None,
        Some(0) => Some("/"),
        Some(at) => Some(&path[..at]),
    }
}

/// Returns the last component of a path.
pub fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |at| &path[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_a_server_accepts_and_refuses() {
        for good in
            ["/", "/a", "/a/b", "/...", "/a/.b.", "/a b", "/\u{e4}\u{4e2d}", "/a/.b", "/\u{ffef}"]
        {
            assert_eq!(validate(good), Ok(()), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/a/..",
            "/\u{e4}/..",
            "/a//\u{e4}",
            "/\0",
            "/\u{1f}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{fffd}",
            "/\u{1f600}",
        ] {
            assert!(validate(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parents_and_names() {
        assert_eq!((parent("/"), parent("/a"), parent("/a/b")), (None, Some("/"), Some("/a")));
        assert_eq!((name("/a"), name("/a/b"), name("/")), ("a", "b", ""));
    }
}
