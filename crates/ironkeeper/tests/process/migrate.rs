//! `ironkeeper migrate check` on files that Apache ZooKeeper 3.9.5 has written.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ironkeeper_testing::{HeldPort, TestCluster, TestServer};

const APACHE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../ironkeeper-store/tests/data/apache-3.9.5");

/// Creates a directory with Apache's data and a `zoo.cfg` with these additional lines.
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
    let (code, text) = code_of_check(targets);
    (code == Some(0), text)
}

/// Returns the exit code and the output.
fn code_of_check(targets: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    let Output { status, stdout, stderr } =
        command.args(["migrate", "check"]).args(targets).output().unwrap();
    let text = [stdout, stderr].concat();
    (status.code(), String::from_utf8(text).unwrap())
}

/// Returns the `clientPort` line of a running Ironkeeper server, so that no finding is unknown.
fn client_port(server: &TestServer) -> String {
    let address = server.connect_string();
    format!("clientPort={}\n", address.rsplit(':').next().unwrap())
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
    let server = TestServer::start().unwrap();
    let lines = format!("{}snapCount=5000\naudit.enable=true\n", client_port(&server));
    let config = prepare(dir.path(), &lines);
    let before = files(&dir.path().join("data/version-2"));
    let (is_free, told) = check(&[config.to_str().unwrap()]);
    assert!(is_free, "{told}");
    assert!(told.contains("understood: a standalone server"), "{told}");
    assert!(told.contains("ok    snapshot.1a and "), "{told}");
    assert!(told.contains("nothing stands in the way"), "{told}");
    let lost = told.lines().find(|line| line.starts_with("you will lose: ")).unwrap();
    assert!(lost.contains("the audit log") && lost.contains("the HTTP admin server"), "{lost}");
    assert_eq!(files(&dir.path().join("data/version-2")), before);
}

#[test]
fn a_mistyped_file_and_a_server_that_does_not_answer_are_no_green_light() {
    let (code, told) = code_of_check(&["nofile"]);
    assert_eq!(code, Some(1));
    assert!(told.contains("there is no file nofile") && !told.contains("nothing stands"), "{told}");
    for target in ["no.cfg", "./nofile", "conf/zoo.conf"] {
        let (code, told) = code_of_check(&[target]);
        assert!(code == Some(1) && told.contains(target), "{told}");
    }
    let no_server = HeldPort::take(0).unwrap();
    let (code, told) = code_of_check(&[&no_server.address().to_string()]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("unreachable") && told.contains("not known whether"), "{told}");
    let dir = tempfile::tempdir().unwrap();
    let config = prepare(dir.path(), &format!("clientPort={}\n", no_server.address().port()));
    assert_eq!(code_of_check(&[config.to_str().unwrap()]).0, Some(2));
}

#[test]
fn flags_in_java_env_that_would_be_lost_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start().unwrap();
    let config = prepare(dir.path(), &client_port(&server));
    let java_env = dir.path().join("java.env");
    std::fs::write(&java_env, "export JVMFLAGS=\"-Xmx1g -Djute.maxbuffer=4194304 $JVMFLAGS\"\n")
        .unwrap();
    let (is_free, told) = check(&[config.to_str().unwrap()]);
    let stops =
        |line: &str| line.starts_with("  STOP") && line.contains("write jute.maxbuffer into");
    assert!(!is_free && told.lines().any(stops), "{told}");
    // A server that is started nevertheless warns of the flag; here it fails because its port is in
    // use.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_ironkeeper"));
    serve.args(["serve", "--config", config.to_str().unwrap(), "--client-port", &port]);
    let said = String::from_utf8(serve.output().unwrap().stderr).unwrap();
    assert!(said.contains("java.env key=jute.maxbuffer"), "{said}");
    // With the key in the zoo.cfg there is no obstacle.
    let text = std::fs::read_to_string(&config).unwrap() + "jute.maxbuffer=4194304\n";
    std::fs::write(&config, text).unwrap();
    let (is_free, told) = check(&[config.to_str().unwrap()]);
    assert!(is_free, "{told}");
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
fn servers_are_asked_and_those_of_ours_are_not_to_be_replaced() {
    let cluster = TestCluster::start(3).unwrap();
    let leader = cluster.server(cluster.leader().unwrap()).connect_string();
    let (is_free, told) = check(&[&cluster.connect_string()]);
    assert!(is_free, "{told}");
    // The order of the other servers is covered by unit tests with constructed replies.
    assert!(told.contains(&format!("{leader}: leader of ")), "{told}");
    assert!(told.contains("is Ironkeeper already") && !told.contains("1. "), "{told}");
    let server = TestServer::start().unwrap();
    let (is_free, told) = check(&[&server.connect_string()]);
    assert!(is_free && told.contains("standalone"), "{told}");
}
