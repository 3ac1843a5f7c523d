//! `ironkeeper demo`, as a process.

use std::path::{Path, PathBuf};
use std::process::Command;

fn demo(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ironkeeper"))
        .arg("demo")
        .args(arguments)
        .output()
        .expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_whole_tour_plays_every_scene_of_the_list() {
    let (listed, list, _) = demo(&["--list"]);
    assert!(listed);
    let (played, tour, errors) = demo(&[]);
    assert!(played, "{tour}\n{errors}");
    assert!(list.contains("locks: crates/ironkeeper/src/demo/scenes/locks.rs\n  mutex "), "{list}");
    let scenes: Vec<&str> = list.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(scenes.len() > 60, "{list}");
    for line in scenes {
        let name = line.split_whitespace().next().expect("a name");
        assert!(tour.contains(&format!("] {name}: ")), "{name} was not played");
    }
}

/// Returns the recipes of a table in the documentation: the link targets in its first column,
/// without the path.
fn recipes_of(source: &str) -> Vec<String> {
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | [`"));
    rows.filter_map(|row| row.split(" | ").next())
        .flat_map(|cell| cell.split('`').step_by(2))
        .filter_map(|link| link.rsplit("::").next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_recipe_that_there_is_has_its_scene() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("a source of ours");
    let library = here.join("../ironkeeper-recipes/src");
    let mut recipes = recipes_of(&read(library.join("lib.rs")));
    recipes.extend(recipes_of(&read(library.join("service/balance/mod.rs"))));
    assert!(recipes.len() > 60, "{recipes:?}");
    let scenes = std::fs::read_dir(here.join("src/demo/scenes")).expect("the scenes are there");
    let played: String = scenes.map(|scene| read(scene.expect("a file").path())).collect();
    let missing: Vec<&String> = recipes.iter().filter(|recipe| !played.contains(*recipe)).collect();
    assert!(missing.is_empty(), "played by no scene: {missing:?}");
}

#[test]
fn a_scene_tells_what_happens_on_the_tree_in_order() {
    let (played, scene, errors) = demo(&["mutex"]);
    assert!(played && errors.is_empty(), "{errors}");
    let at = |what: &str| scene.find(what).unwrap_or_else(|| panic!("no {what:?} in\n{scene}"));
    let node = "+ /lock/_c_…-lock-0000000000 = \"anna\"   (ephemeral of anna)";
    assert!(at(node) < at("anna has the lock"));
    assert!(at("anna has the lock") < at("bob stands in line"));
    assert!(at("- /lock/_c_…-lock-0000000000") < at("bob has it now"));
    assert!(at("bob has crashed") < at("carol has it at once"));
    assert!(
        scene.contains("code: crates/ironkeeper/src/demo/scenes/locks.rs, fn mutex"),
        "{scene}"
    );
}

#[test]
fn an_unknown_scene_is_answered_with_the_way_to_the_list() {
    let (played, _, errors) = demo(&["opera"]);
    assert!(!played);
    assert!(errors.contains("demo --list"), "{errors}");
}
