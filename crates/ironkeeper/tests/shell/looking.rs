//! `tree`, `find`, `grep` and `du`.

use ironkeeper_client::{Acl, Perms};

use crate::process::{fails, ok, run};
use crate::scene::Scene;

#[test]
fn tree_draws_lines_to_the_depth_it_is_told() {
    let scene = Scene::with_app();
    assert_eq!(
        ok(&scene.at, &["tree", "/app"]),
        "/app\n\
         ├── bytes\n\
         ├── closed\n\
         │   └── below\n\
         ├── empty\n\
         ├── here\n\
         ├── null\n\
         └── two words\n    \
             └── leaf\n"
    );
    let shallow = ok(&scene.at, &["tree", "-d", "1", "-c", "/app"]);
    assert!(shallow.contains("├── bytes  = 0x ff 00 fe\n"), "{shallow}");
    assert!(shallow.contains("└── two words  (+1)  = Zeile 1\\nZeile zwei ü\\n\n"), "{shallow}");
    let json = run(&scene.at, &["tree", "--json", "-c", "/app/two words"]).json();
    assert_eq!((&json[1]["path"], &json[1]["data"]), (&"/app/two words/leaf".into(), &"1".into()));
    assert!(fails(&scene.at, &["tree", "/nothing"]).contains("Node does not exist: /nothing"));
}

#[test]
fn find_knows_names_kinds_sizes_ages_and_owners() {
    let scene = Scene::with_app();
    let owner = format!("0x{:x}", scene.client.session_id().0);
    for (words, expected) in [
        (
            &["-name", "*e*"][..],
            "/app/bytes\n/app/closed\n/app/closed/below\n/app/empty\n/app/here\n/app/two words/leaf\n",
        ),
        (&["-name", "/app/*/l*"], "/app/two words/leaf\n"),
        (&["-type", "ephemeral"], "/app/here\n"),
        (&["-owner", &owner], "/app/here\n"),
        (&["-owner", "0x5"], ""),
        (&["-size", "3"], "/app/bytes\n"),
        (&["-size", "+7", "-type", "p"], "/app\n/app/two words\n"),
        (&["-empty"], "/app/empty\n/app/null\n"),
        (&["-age", "+1d"], ""),
        (&["-age", "-1d", "-depth", "0"], "/app\n"),
    ] {
        let words: Vec<&str> =
            ["find"].into_iter().chain(words.iter().copied()).chain(["/app"]).collect();
        assert_eq!(ok(&scene.at, &words), expected, "{words:?}");
    }
    assert!(fails(&scene.at, &["find", "-type", "ttl"]).contains("do not tell clients"));
    assert!(fails(&scene.at, &["find", "-size", "much"]).contains("-size must be"));
    let json = run(&scene.at, &["find", "--json", "-empty", "/app/empty"]).json();
    assert_eq!(json[0]["stat"]["data_length"], 0);
}

#[test]
fn grep_searches_names_and_data_of_any_bytes() {
    let scene = Scene::with_app();
    assert_eq!(ok(&scene.at, &["grep", "zwei", "/app"]), "/app/two words: Zeile zwei ü\n");
    assert_eq!(ok(&scene.at, &["grep", "-i", "-names", "^BY", "/app"]), "/app/bytes\n");
    assert_eq!(
        ok(&scene.at, &["grep", "(?-u)\\xfe", "/app"]),
        "/app/bytes: binary data matches at byte 2: ff 00 fe\n"
    );
    assert_eq!(
        ok(&scene.at, &["grep", "-l", "e", "/app/two words"]),
        "/app/two words\n/app/two words/leaf\n"
    );
    let json = run(&scene.at, &["grep", "--json", "Zeile", "/app"]).json();
    assert_eq!((json.len(), &json[1]["line"], &json[1]["in"]), (2, &2.into(), &"data".into()));
    let none = run(&scene.at, &["grep", "nowhere to be found", "/app"]);
    assert_eq!((none.status, none.stdout.as_str()), (1, ""));
    assert!(fails(&scene.at, &["grep", "("]).contains("not a regular expression"));
}

#[test]
fn du_counts_bytes_and_nodes_of_subtrees() {
    let scene = Scene::with_app();
    let rows = run(&scene.at, &["du", "--json", "/app"]).json();
    let shown: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {}", row["path"].as_str().unwrap(), row["bytes"], row["nodes"]))
        .collect();
    assert_eq!(
        shown,
        [
            "/app 48 9",
            "/app/two words 23 2",
            "/app/closed 12 2",
            "/app/bytes 3 1",
            "/app/here 2 1",
            "/app/empty 0 1",
            "/app/null 0 1"
        ]
    );
    assert!(ok(&scene.at, &["du", "-d", "0", "/app"]).contains("48 B          9 nodes  /app"));
}

#[test]
fn what_must_not_be_read_is_named_and_the_rest_is_shown() {
    let scene = Scene::with_app();
    let hidden = [Acl::new(Perms::CREATE, "world", "anyone")];
    scene.runtime.block_on(scene.client.set_acl("/app/bytes", &hidden, -1)).unwrap();
    let said = run(&scene.at, &["find", "-name", "e*", "/app"]);
    assert_eq!((said.status, said.stdout.as_str()), (2, "/app/empty\n"));
    assert!(said.stderr.contains("Insufficient permission : /app/bytes"), "{said:?}");
}
