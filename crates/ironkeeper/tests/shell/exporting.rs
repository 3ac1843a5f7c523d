//! `export` and `import`: a round trip.

use std::fs;

use crate::process::{fails, ok, piped, run, shell};
use crate::scene::Scene;

#[test]
fn an_import_gives_exactly_what_was_exported() {
    let scene = Scene::with_app();
    scene.as_owner();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.json");
    let file = file.to_str().unwrap();
    let again = dir.path().join("again.json");
    let again = again.to_str().unwrap();
    let said = piped(
        &scene.at,
        &["addauth digest user:pass", &format!("export /app {file}"), "export -e /app"],
    );
    assert_eq!(said.status, 0, "{said:?}");
    assert!(said.stderr.contains("Exported /app (9 nodes) to"), "{said:?}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!(nodes[1]["data_base64"], "/wD+");
    assert_eq!(nodes[5]["mode"], "ephemeral");

    let other = Scene::new();
    other.as_owner();
    let dry = ok(&other.at, &["import", "-n", file]);
    assert!(dry.ends_with("Would import /app: 8 created, 1 ephemeral and left out\n"), "{dry}");
    assert!(!other.exists("/app"));
    ok(&other.at, &["import", file]);
    assert_eq!(other.acl("/app/closed"), scene.acl("/app/closed"));
    assert!(other.get("/app/null").is_null() && !other.get("/app/empty").is_null());
    let said = piped(&other.at, &["addauth digest user:pass", &format!("export /app {again}")]);
    assert_eq!(said.status, 0, "{said:?}");
    // The first export without its ephemeral node, from standard output, is the same.
    let first = piped(&scene.at, &["addauth digest user:pass", "export -e /app"]).stdout;
    assert_eq!(fs::read_to_string(again).unwrap(), first);
}

#[test]
fn nodes_that_are_there_are_kept_replaced_or_an_error() {
    let scene = Scene::new();
    scene.create("/app", b"1");
    scene.create("/app/a", b"a");
    scene.runtime.block_on(async {
        let null = ironkeeper_client::CreateOptions::default().null_data();
        scene.client.create_with("/app/null", "", &null).await.unwrap();
    });
    let exported = ok(&scene.at, &["export", "/app"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.json");
    fs::write(&file, &exported).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(ok(&scene.at, &["import", file]), "Imported /app: 0 created, 3 the same already\n");
    scene.set("/app/a", b"other");
    scene.set("/app/null", b"not null");
    scene.delete("/app/null");
    scene.create("/app/null", b"not null");
    let error = fails(&scene.at, &["import", file]);
    assert!(error.contains("2 nodes are there already") && error.contains("/app/a"), "{error}");
    let kept = ok(&scene.at, &["import", "-exists", "keep", file]);
    assert_eq!(kept, "Imported /app: 0 created, 2 kept as they are, 1 the same already\n");
    assert_eq!(scene.get("/app/a").data, "other");
    let json = &run(&scene.at, &["import", "--json", "-exists", "replace", file]).json()[0];
    assert_eq!((&json["replaced"], &json["same"]), (&2.into(), &1.into()));
    assert_eq!(scene.get("/app/a").data, "a");
    assert!(scene.get("/app/null").is_null());
    // At another path, with missing parents, from a pipe.
    let mut child = shell(&scene.at)
        .args(["import", "-", "/some/where/else"])
        .stdin(fs::File::open(file).unwrap())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(ok(&scene.at, &["diff", "/app", "/some/where/else"]), "");
}

#[test]
fn thousands_of_nodes_come_back_in_order() {
    let scene = Scene::new();
    scene.create("/many", b"");
    scene.runtime.block_on(async {
        let create = |number: u32| {
            scene.client.create(
                &format!("/many/{number:05}"),
                vec![b'x'; 200],
                ironkeeper_client::CreateMode::Persistent,
            )
        };
        let replies: Vec<_> = (0..3000).map(create).collect();
        for reply in replies {
            reply.await.unwrap();
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("many.json");
    let file = file.to_str().unwrap();
    ok(&scene.at, &["export", "/many", file]);
    assert_eq!(ok(&scene.at, &["import", file, "/again"]), "Imported /again: 3001 created\n");
    assert_eq!(ok(&scene.at, &["diff", "/many", "/again"]), "");
}

#[test]
fn what_is_no_export_changes_nothing() {
    let scene = Scene::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.json");
    fs::write(&file, "{\"format\": \"something else\"}").unwrap();
    let file = file.to_str().unwrap();
    assert!(fails(&scene.at, &["import", file]).contains("This is not an export"));
    assert!(fails(&scene.at, &["import", "/no/such/file"]).contains("Cannot read /no/such/file"));
    assert!(fails(&scene.at, &["export", "/none", file]).contains("Node does not exist: /none"));
    // The existing file is unchanged.
    assert!(fs::read_to_string(file).unwrap().contains("something else"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_import_does_not_wait_for_an_input_that_holds_commands() {
    let scene = Scene::new();
    // More lines than are read ahead, so their reader would hold the input forever.
    let lines = [&["import -"][..], &["ls /"; 50]].concat();
    let said = piped(&scene.at, &lines);
    assert!(said.stderr.contains("The input is where commands come from"), "{said:?}");
    assert_eq!((said.status, said.stdout.lines().count()), (1, 50), "{said:?}");
}
