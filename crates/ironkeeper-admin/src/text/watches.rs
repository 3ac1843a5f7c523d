//! `wchs`, `wchc` and `wchp`: the watches by session and by path.
//!
//! As in Apache they list the watches of its data table: those set by `exists`, `getData` and
//! `addWatch`, not those of `getChildren`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ironkeeper_proto::SessionId;

use crate::Watcher;

/// Renders `wchs`.
pub fn wchs(watchers: &[Watcher]) -> String {
    let paths: BTreeSet<&str> =
        watchers.iter().flat_map(|watcher| watcher.paths.iter().map(|path| &**path)).collect();
    let total: usize = watchers.iter().map(|watcher| watcher.paths.len()).sum();
    format!(
        "{} connections watching {} paths\nTotal watches:{total}\n",
        watchers.len(),
        paths.len()
    )
}

/// Renders `wchc`.
pub fn wchc(watchers: &[Watcher]) -> String {
    let mut text = String::new();
    for watcher in watchers {
        let _ = writeln!(text, "0x{:x}", watcher.session.0);
        let mut paths: Vec<&str> = watcher.paths.iter().map(|path| &**path).collect();
        paths.sort_unstable();
        for path in paths {
            let _ = writeln!(text, "\t{path}");
        }
    }
    text.push('\n');
    text
}

/// Renders `wchp`.
pub fn wchp(watchers: &[Watcher]) -> String {
    let mut sessions: BTreeMap<&str, Vec<SessionId>> = BTreeMap::new();
    for watcher in watchers {
        for path in &watcher.paths {
            sessions.entry(path).or_default().push(watcher.session);
        }
    }
    let mut text = String::new();
    for (path, sessions) in sessions {
        let _ = writeln!(text, "{path}");
        for session in sessions {
            let _ = writeln!(text, "\t0x{:x}", session.0);
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn watchers() -> [Watcher; 2] {
        let watcher = |session, paths: &[&str]| Watcher {
            session: SessionId(session),
            paths: paths.iter().map(|path| Arc::from(*path)).collect(),
        };
        [
            watcher(0x0100_002a_3d1e_0000, &["/none", "/app"]),
            watcher(0x0100_002a_3d1e_0001, &["/app"]),
        ]
    }

    #[test]
    fn watches_are_listed_by_session_and_wchp() {
        assert_eq!(wchs(&watchers()), "2 connections watching 2 paths\nTotal watches:3\n");
        assert_eq!(
            wchc(&watchers()),
            "0x100002a3d1e0000\n\t/app\n\t/none\n0x100002a3d1e0001\n\t/app\n\n"
        );
        assert_eq!(
            wchp(&watchers()),
            "/app\n\t0x100002a3d1e0000\n\t0x100002a3d1e0001\n/none\n\t0x100002a3d1e0000\n\n"
        );
    }

    #[test]
    fn without_watches_there_is_an_empty_line() {
        assert_eq!(wchs(&[]), "0 connections watching 0 paths\nTotal watches:0\n");
        assert_eq!((wchc(&[]), wchp(&[])), ("\n".to_owned(), "\n".to_owned()));
    }
}
