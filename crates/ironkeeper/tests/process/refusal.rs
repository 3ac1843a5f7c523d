//! The conditions under which a server does not start, and its error messages.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use crate::client::Client;
use crate::server_process::Setup;

#[test]
fn a_data_directory_has_one_server_at_a_time() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "");
    let server = setup.start();
    let (status, log) = setup.start_in_vain(0);
    assert!(!status.success());
    let holder = format!("another server (pid {}) uses", server.pid().as_raw_nonzero());
    assert!(log.contains(&holder), "{log}");
    // Also if the lock file is removed.
    fs::remove_file(dir.path().join("data/version-2/ironkeeper.lock")).expect("the lock file");
    let (status, log) = setup.start_in_vain(0);
    assert!(!status.success());
    assert!(log.contains("another server uses this data directory"), "{log}");
    assert!(log.contains(&dir.path().join("data").display().to_string()), "{log}");
    // The first server is not affected, and after it is killed the directory is free.
    Client::connect(server.address).create("/here", b"");
    server.kill();
    assert!(Client::connect(setup.start().address).has("/here"));
}

#[test]
fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its number").port();
    let (status, log) = Setup::new(dir.path(), "").start_in_vain(port);
    assert!(!status.success());
    assert!(log.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{log}");
}

#[test]
fn damage_in_the_middle_of_the_log_is_named_with_file_and_offset() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "");
    let server = setup.start();
    let mut client = Client::connect(server.address);
    client.create("/v", b"");
    for number in 0..100u32 {
        client.set("/v", format!("value number {number}").as_bytes());
    }
    server.kill();
    let log_file = log_files(&dir.path().join("data/version-2")).remove(0);
    let mut bytes = fs::read(&log_file).expect("the log");
    let value = b"value number 50";
    let at = bytes.windows(value.len()).position(|window| window == value).expect("the value");
    bytes[at] ^= 1;
    fs::write(&log_file, &bytes).expect("a damaged log");

    let (status, log) = setup.start_in_vain(0);
    assert!(!status.success());
    assert!(log.contains(&log_file.display().to_string()), "{log}");
    let offset = log.split("damaged at offset ").nth(1).expect("an offset in the message");
    let offset: usize = offset.split(':').next().expect("a number").parse().expect("a number");
    assert!(offset < at && at - offset < 200, "{offset} for damage at {at}");

    // The failed start changed nothing: with the damage repaired, all data is back.
    bytes[at] ^= 1;
    fs::write(&log_file, &bytes).expect("a repaired log");
    let server = setup.start();
    assert_eq!(Client::connect(server.address).get("/v").0, b"value number 99");
}

#[test]
fn a_missing_log_file_between_others_is_noticed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "snapCount=1000000");
    for part in ["/one", "/two", "/three"] {
        let server = setup.start();
        Client::connect(server.address).create(part, b"");
        server.kill();
    }
    let files = log_files(&dir.path().join("data/version-2"));
    assert_eq!(files.len(), 3);
    fs::remove_file(&files[1]).expect("a file to lose");
    let (status, log) = setup.start_in_vain(0);
    assert!(!status.success());
    assert!(log.contains("are missing") || log.contains("missing. A log file"), "{log}");
    assert!(log.contains(&files[2].display().to_string()), "{log}");
}

#[test]
fn a_version_2_directory_is_refused_with_a_hint_at_its_parent() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "");
    drop(setup.start());
    let version_2 = dir.path().join("data/version-2");
    let (status, log) = Setup::apart(dir.path(), &version_2, "").start_in_vain(0);
    assert!(!status.success());
    let hint = format!("Set dataDir to its parent, {}", dir.path().join("data").display());
    assert!(log.contains(&hint), "{log}");
    assert!(!version_2.join("version-2").exists());
}

#[test]
fn a_configuration_that_cannot_be_used_is_reported_once_with_the_name_of_its_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup::new(dir.path(), "tickTime=2s\nthis is no setting");
    let file = dir.path().join("zoo.cfg").display().to_string();
    let (status, log) = setup.start_in_vain(0);
    assert!(!status.success());
    assert_eq!(log.matches(" cannot be used").count(), 1, "{log}");
    assert!(log.contains(&format!("{file} line 5: tickTime: must be")), "{log}");
    assert!(log.contains(&format!("{file} line 6: this: no effect")), "{log}");
    fs::remove_file(&file).expect("the file");
    let (_, log) = setup.start_in_vain(0);
    assert_eq!(log.matches("No such file").count(), 1, "{log}");
}

/// Returns the log files in the order of their names, which is the order of their transactions.
fn log_files(dir: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("the data directory");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log."))
        })
        .collect();
    files.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    files
}
