//! `edit` with shell scripts as editors.

use std::fs;

use tempfile::TempDir;

use crate::process::{Said, shell};
use crate::scene::Scene;

/// Runs `edit` with an editor that is a shell script; `$1` is the file.
fn edit(scene: &Scene, script: &str, words: &[&str]) -> (Said, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let editor = dir.path().join("an editor");
    fs::write(&editor, script).unwrap();
    let drafts = dir.path().join("drafts");
    fs::create_dir(&drafts).unwrap();
    let output = shell(&scene.at)
        .arg("edit")
        .args(words)
        // In practice the variable contains options and quotes. The file itself is not executed:
        // that fails while a process that another thread is starting still has it open for writing.
        .env("EDITOR", format!("sh '{}'", editor.display()))
        .env("TMPDIR", drafts)
        .env("IRONKEEPER", env!("CARGO_BIN_EXE_ironkeeper"))
        .env("SERVER", &scene.at)
        .output()
        .unwrap();
    (output.into(), dir)
}

fn drafts(dir: &TempDir) -> Vec<std::path::PathBuf> {
    let drafts = fs::read_dir(dir.path().join("drafts")).unwrap();
    drafts.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn what_the_editor_leaves_is_written() {
    let scene = Scene::new();
    scene.create("/a", b"one");
    let (said, dir) = edit(&scene, "echo two > \"$1\"", &["/a"]);
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (0, "/a is now version 1, 3 bytes\n"),
        "{said:?}"
    );
    // The editor had added the line end.
    assert_eq!(scene.get("/a").data, "two");
    assert!(drafts(&dir).is_empty());
    let (said, _) = edit(&scene, ":", &["/a", "--json"]);
    assert_eq!(
        (&said.json()[0]["changed"], &said.json()[0]["version"]),
        (&false.into(), &1.into())
    );
    let (said, _) = edit(&scene, "echo new > \"$1\"", &["-c", "/b"]);
    assert_eq!(said.status, 0, "{said:?}");
    assert_eq!(scene.get("/b").data, "new");
}

#[test]
fn a_change_by_somebody_else_is_not_written_over() {
    let scene = Scene::new();
    scene.create("/a", b"one");
    let (said, dir) = edit(
        &scene,
        "echo mine > \"$1\"; \"$IRONKEEPER\" shell -server \"$SERVER\" set /a theirs",
        &["/a"],
    );
    assert_eq!(said.status, 1);
    assert!(said.stderr.contains("you edited version 0, it is version 1 by now"), "{said:?}");
    assert_eq!(scene.get("/a").data, "theirs");
    let kept = drafts(&dir);
    assert!(said.stderr.contains(kept[0].to_str().unwrap()), "{said:?}");
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "mine\n");
}

#[test]
fn an_editor_that_fails_changes_nothing() {
    let scene = Scene::new();
    scene.create("/a", b"one");
    let (said, dir) = edit(&scene, "echo two > \"$1\"; exit 3", &["/a"]);
    assert_eq!(said.status, 1);
    assert!(said.stderr.contains("nothing was changed"), "{said:?}");
    assert_eq!(scene.get("/a").data, "one");
    assert!(drafts(&dir).is_empty());
}

#[test]
fn bytes_are_edited_as_digits() {
    let scene = Scene::new();
    scene.create("/a", b"\xff\x00");
    let (said, _) = edit(&scene, ":", &["/a"]);
    assert!(said.stderr.contains("edit -x /a"), "{said:?}");
    let (said, _) = edit(&scene, "sed -i s/ff/fe/ \"$1\"", &["-x", "/a"]);
    assert_eq!(said.status, 0, "{said:?}");
    assert_eq!(&scene.get("/a").data[..], b"\xfe\x00");
    let (said, _) = edit(&scene, "echo zz > \"$1\"", &["-x", "/a"]);
    assert!(said.stderr.contains("hexadecimal"), "{said:?}");
}
