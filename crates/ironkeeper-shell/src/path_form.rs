//! Checks the form of a path before a request is sent, with the messages of zkCli.

use super::failure::Failure;

/// Rejects a text that is not a valid path.
pub fn check(path: &str) -> Result<(), Failure> {
    match complaint(path) {
        None => Ok(()),
        Some(complaint) => Err(Failure::Message(complaint)),
    }
}

/// Returns the error in the form of a path, if any.
pub fn complaint(path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("Path length must be > 0".to_owned());
    }
    if !path.starts_with('/') {
        return Some("Path must start with / character".to_owned());
    }
    if path.len() > 1 && path.ends_with('/') {
        return Some("Path must not end with / character".to_owned());
    }
    // Positions are counted as Java counts them, in UTF-16 units.
    let units: Vec<u16> = path.encode_utf16().collect();
    let (slash, dot) = (u16::from(b'/'), u16::from(b'.'));
    let ends_at = |at: usize| units.get(at).is_none_or(|next| *next == slash);
    for at in 1..units.len() {
        let (unit, last) = (units[at], units[at - 1]);
        let reason = match unit {
            0 => "null character not allowed",
            _ if unit == slash && last == slash => "empty node name specified",
            _ if unit == dot && last == slash && ends_at(at + 1) => "relative paths not allowed",
            _ if unit == dot
                && last == dot
                && at >= 2
                && units[at - 2] == slash
                && ends_at(at + 1) =>
            {
                "relative paths not allowed"
            }
            0x01..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff => "invalid character",
            _ => continue,
        };
        return Some(format!("Invalid path string \"{path}\" caused by {reason} @{at}"));
    }
    None
}

/// Resolves a relative path against a directory, including `.` and `..`.
pub fn join(directory: &str, relative: &str) -> String {
    let mut names: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
    for name in relative.split('/') {
        match name {
            "." | "" => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_those_of_zkcli() {
        let caused =
            |path: &str, why: &str| format!("Invalid path string \"{path}\" caused by {why}");
        for (path, expected) in [
            ("/", None),
            ("/a/b.c", None),
            ("/...", None),
            ("", Some("Path length must be > 0".to_owned())),
            ("a", Some("Path must start with / character".to_owned())),
            ("/a/", Some("Path must not end with / character".to_owned())),
            ("/a//b", Some(caused("/a//b", "empty node name specified @3"))),
            ("/a/./b", Some(caused("/a/./b", "relative paths not allowed @3"))),
            ("/..", Some(caused("/..", "relative paths not allowed @2"))),
            ("/a\u{7}", Some(caused("/a\u{7}", "invalid character @2"))),
            ("/\u{1f600}", Some(caused("/\u{1f600}", "invalid character @1"))),
        ] {
            assert_eq!(complaint(path), expected, "{path:?}");
        }
    }

    #[test]
    fn relative_paths_are_joined() {
        for (directory, relative, path) in [
            ("/", "a", "/a"),
            ("/a", "b/c", "/a/b/c"),
            ("/a/b", "..", "/a"),
            ("/a", "../../..", "/"),
            ("/a", "./b/", "/a/b"),
            ("/a", ".", "/a"),
        ] {
            assert_eq!(join(directory, relative), path, "{directory} {relative}");
        }
    }

    #[test]
    fn the_server_agrees_on_what_is_a_path() {
        for path in [
            "/",
            "/a",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/..",
            "/a/../b",
            "/...",
            "/\u{e000}",
            "/\u{ffef}",
            "/\u{fffd}",
            "x",
            "",
        ] {
            let refused = complaint(path).is_some();
            assert_eq!(refused, ironkeeper_proto::path::validate(path).is_err(), "{path:?}");
        }
    }
}
