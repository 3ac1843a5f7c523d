//! `ironkeeper migrate check`, on files that Apache ZooKeeper 3.9.5 has written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ironkeeper_testing::{TestCluster, TestServer};

const APACHE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../ironkeeper-store/tests/data/apache-3.9.5");

/// A directory with Apache's data and a `zoo.cfg` of these further lines.
fn prepare(dir: &Path, lines: &str) -> PathBuf {
    let data = dir.join("data/version-2");
    std::fs::create_dir_all(&data).unwrap();
    for name in ["snapshot.0", "snapshot.1a", "log.1", "log.1b"] {
        std::fs::copy(Path::new(APACHE).join(name), data.join(name)).unwrap();
    }
    let config = dir.join("zoo.cfg");
    let data_dir = dir.join("data");
    let text = format!("dataDir={}\nclientPortAddress=127.0.0.1\n{lines}", data_dir.display());
    std::fs::write(&config, text).unwrap();
    config
}

fn check(targets: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    let Output { status, stdout, stderr } =
        command.args(["migrate", "check"]).args(targets).output().unwrap();
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    (status.success(), String::from_utf8(stdout).unwrap())
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let content = std::fs::read(&path).unwrap();
            (path, content)
        })
        .collect()
}

#[test]
fn data_of_apache_is_read_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let config = prepare(dir.path(), "clientPort=1\nsnapCount=5000\n");
    let before = files(&dir.path().join("data/version-2"));
    let (is_free, told) = check(&[config.to_str().unwrap()]);
    assert!(is_free, "{told}");
    assert!(told.contains("understood: a standalone server"), "{told}");
    assert!(told.contains("ok    snapshot.1a and "), "{told}");
    assert!(told.contains("note  127.0.0.1:1: unreachable"), "{told}");
    assert!(told.contains("nothing stands in the way"), "{told}");
    assert_eq!(files(&dir.path().join("data/version-2")), before);
}

#[test]
fn settings_and_data_that_would_not_work_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let config = prepare(dir.path(), "clientPort=1\nsecureClientPort=2\n");
    let log = dir.path().join("data/version-2/log.1b");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[40] ^= 0xff;
    std::fs::write(&log, bytes).unwrap();
    let (is_free, told) = check(&[config.to_str().unwrap()]);
    assert!(!is_free);
    assert!(told.contains("STOP  zoo.cfg line 4: secureClientPort"), "{told}");
    assert!(
        told.lines().any(|line| line.starts_with("  STOP") && line.contains("log.1b")),
        "{told}"
    );
    for key in ["observerMasterPort=2191", "oraclePath=/run/oracle"] {
        let ensemble = "initLimit=5\nsyncLimit=2\nserver.1=a:2888:3888\nserver.2=b:2888:3888\n";
        let dir = tempfile::tempdir().unwrap();
        let config = prepare(dir.path(), &format!("clientPort=1\n{key}\n{ensemble}"));
        std::fs::write(dir.path().join("data/myid"), "1").unwrap();
        let (is_free, told) = check(&[config.to_str().unwrap()]);
        let (name, _) = key.split_once('=').unwrap();
        let stops = |line: &str| line.starts_with("  STOP") && line.contains(name);
        assert!(!is_free && told.lines().any(stops), "{told}");
    }
    let (is_free, told) = check(&["/no/such/zoo.cfg"]);
    assert!(!is_free && told.contains("/no/such/zoo.cfg"), "{told}");
}

#[test]
fn servers_are_asked_and_the_leader_is_to_be_replaced_last() {
    let cluster = TestCluster::start(3).unwrap();
    let leader = cluster.server(cluster.leader().unwrap()).connect_string();
    let (is_free, told) = check(&[&cluster.connect_string()]);
    assert!(is_free, "{told}");
    assert!(told.contains(&format!("{leader}: leader of ")), "{told}");
    assert!(told.contains(&format!("3. {leader} (leader)")), "{told}");
    let server = TestServer::start().unwrap();
    let (is_free, told) = check(&[&server.connect_string()]);
    assert!(is_free && told.contains("standalone"), "{told}");
}
