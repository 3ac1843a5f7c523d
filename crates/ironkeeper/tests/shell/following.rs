//! `watch`: prints changes as they happen.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::shell;
use crate::scene::Scene;

/// A shell that runs `watch`, killed on drop.
struct Following {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    fn start(scene: &Scene, words: &[&str]) -> Following {
        let mut child = shell(&scene.at)
            .args(["--json", "watch"])
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut following = Following { child, lines };
        assert_eq!(following.next()["event"], "watching");
        following
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_change_of_a_subtree_comes_with_its_data() {
    let scene = Scene::new();
    scene.create("/app", b"");
    let mut following = Following::start(&scene, &["/app", "-n", "4"]);
    scene.create("/app/a", b"text");
    let event = following.next();
    assert_eq!((&event["event"], &event["path"]), (&"NodeCreated".into(), &"/app/a".into()));
    assert_eq!((&event["data"], &event["version"]), (&"text".into(), &0.into()));
    let zxid = format!("0x{:x}", scene.get("/app/a").stat.czxid.0);
    assert_eq!(event["zxid"], zxid);
    scene.set("/app/a", b"\xff");
    let event = following.next();
    assert_eq!(
        (&event["event"], &event["data_base64"]),
        (&"NodeDataChanged".into(), &"/w==".into())
    );
    scene.delete("/app/a");
    assert_eq!(following.next()["event"], "NodeDeleted");
    scene.set("/app", b"x");
    assert_eq!(following.next()["path"], "/app");
    assert!(following.child.wait().unwrap().success());
}

#[test]
fn a_lost_connection_leaves_a_mark() {
    let scene = Scene::new();
    scene.create("/app", b"");
    let mut following = Following::start(&scene, &["/app"]);
    let mut states = scene.client.states();
    scene.server.drop_connections().unwrap();
    let gap = following.next();
    assert_eq!(gap["event"], "gap");
    assert!(gap["message"].as_str().unwrap().contains("may be missing"));
    // The client that writes has lost its connection as well.
    scene.runtime.block_on(async { while !states.next().await.unwrap().is_connected() {} });
    scene.set("/app", b"after");
    assert_eq!(following.next()["data"], "after");
}

#[test]
fn an_interrupt_is_the_usual_end() {
    let scene = Scene::new();
    scene.create("/app", b"");
    let mut following = Following::start(&scene, &["-1", "/app"]);
    // After the first printed change the signal handler is installed.
    scene.create("/app/child", b"");
    assert_eq!(following.next()["event"], "NodeChildrenChanged");
    kill_process(Pid::from_child(&following.child), Signal::INT).unwrap();
    assert_eq!(following.child.wait().unwrap().code(), Some(0));
}
