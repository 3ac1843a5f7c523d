//! A full disk: writes wait, reads are served, no acknowledged write is lost, and freed space is
//! used.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

use crate::client::{Client, Op, Session, TIMEOUT_MS};
use crate::server_process::Setup;

const VALUE_BYTES: usize = 10_000;
const IS_FULL: &str = "disk full, writes wait for room";
const HAS_ROOM: &str = "disk has room again, writes continue";

#[test]
fn writes_wait_for_room_on_the_disk_and_reads_do_not() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = SmallDisk::mount(8 << 20) else { return };
    let setup = Setup::apart(
        dir.path(),
        &disk.path().join("data"),
        "preAllocSize=64\n4lw.commands.whitelist=mntr",
    );
    let server = setup.start();
    disk.fill_but(1 << 20);
    let mut writer = Writer::start(server.address);
    server.await_log(IS_FULL);
    writer.check_served(server.address);
    assert!(server.ask("mntr").contains("zk_disk_full\t1\n"));
    // A new session must be written to the log: the server closes the connection at once instead of
    // letting the client wait.
    let refused = Client::open(server.address, Session::none(TIMEOUT_MS));
    assert!(refused.is_err(), "a session on a full disk");
    server.await_log(" reason=\"the disk is full: no session can be opened");
    disk.empty();
    server.await_log(HAS_ROOM);
    assert!(server.ask("mntr").contains("zk_disk_full\t0\n"));
    Client::connect(server.address);
    writer.await_more();

    // Killed while the disk is full: the restarted server has all acknowledged writes.
    disk.fill_but(0);
    server.await_log_times(IS_FULL, 2);
    let log = server.kill();
    assert!(!log.contains("panicked"), "{log}");
    let acknowledged = writer.finish();
    disk.empty();
    let server = setup.start();
    Writer::check(server.address, acknowledged);
}

#[test]
fn a_server_told_to_stop_on_a_full_disk_says_why_it_fails_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = SmallDisk::mount(4 << 20) else { return };
    let setup = Setup::apart(dir.path(), &disk.path().join("data"), "preAllocSize=64");
    let server = setup.start();
    disk.fill_but(512 << 10);
    let writer = Writer::start(server.address);
    server.await_log(IS_FULL);
    let (status, log) = server.terminate();
    assert!(!status.success(), "{log}");
    assert_eq!(log.matches("server stops after a failure").count(), 1, "{log}");
    assert!(log.contains("the disk is full"), "{log}");
    assert!(!log.contains("error: "), "the log has it already: {log}");
    let acknowledged = writer.finish();
    disk.empty();
    let server = setup.start();
    Writer::check(server.address, acknowledged);
}

#[test]
fn a_snapshot_that_finds_no_room_harms_nobody() {
    const NODES: usize = 400;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log_dir = dir.path().join("log");
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let data_dir = disk.path().join("data");
    let settings = format!("dataLogDir={}\nsnapCount=100", log_dir.display());
    let setup = Setup::apart(dir.path(), &data_dir, &settings);
    let server = setup.start();
    let mut client = Client::connect(server.address);
    let path = |number: usize| format!("/node-{number}");
    for number in 0..NODES {
        client.create(&path(number), &vec![number as u8; VALUE_BYTES]);
    }
    server.await_log("snapshot failed zxid=0x");
    server.kill();
    let unfinished = fs::read_dir(data_dir.join("version-2")).expect("the data directory");
    let unfinished = unfinished.filter(|entry| {
        let entry = entry.as_ref().expect("an entry");
        entry.file_name().to_string_lossy().ends_with(".tmp")
    });
    println!("{} unfinished snapshots at the kill", unfinished.count());

    let server = setup.start();
    let mut client = Client::connect(server.address);
    for number in 0..NODES {
        assert_eq!(client.get(&path(number)).0, vec![number as u8; VALUE_BYTES]);
    }
    // With free space the next snapshots succeed, and a server can start from them without the
    // early log.
    disk.grow(64 << 20);
    let before = newest_snapshot(&data_dir);
    while newest_snapshot(&data_dir) == before {
        client.set("/node-0", b"written often");
    }
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    let server = setup.start();
    let mut client = Client::connect(server.address);
    assert_eq!(client.get("/node-0").0, b"written often");
    assert_eq!(client.get(&path(NODES - 1)).0.len(), VALUE_BYTES);
}

#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The signal that the limit raises would end the process.
    let setup = Setup::new(dir.path(), "preAllocSize=64").after("trap '' XFSZ");
    let server = setup.start();
    limit_files(server.pid(), Some(256 << 10));
    let mut writer = Writer::start(server.address);
    server.await_log(IS_FULL);
    writer.check_served(server.address);
    limit_files(server.pid(), None);
    server.await_log(HAS_ROOM);
    writer.await_more();
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    let acknowledged = writer.finish();
    let server = setup.start();
    Writer::check(server.address, acknowledged);
}

#[test]
fn a_server_does_not_start_on_a_full_disk() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    disk.fill_but(0);
    let setup = Setup::apart(dir.path(), &disk.path().join("data"), "");
    let (status, log) = setup.start_in_vain(0);
    assert!(!status.success());
    assert!(log.contains("No space left on device"), "{log}");
    assert!(log.contains(&disk.path().display().to_string()), "{log}");
}

fn newest_snapshot(data_dir: &Path) -> String {
    let files = fs::read_dir(data_dir.join("version-2")).expect("the data directory");
    let names =
        files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned());
    let whole = names.filter(|name| name.starts_with("snapshot.") && !name.ends_with(".tmp"));
    whole.max_by_key(|name| (name.len(), name.clone())).expect("a snapshot")
}

fn limit_files(pid: Pid, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(pid), Resource::Fsize, limit).expect("a limit");
}

/// A client that writes increasing numbers to one node until its connection is lost.
struct Writer {
    acknowledged: std::sync::Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
    /// Connected before the disk is full, because a new session is a write, too.
    reader: Client,
}

impl Writer {
    fn start(address: SocketAddr) -> Writer {
        let mut client = Client::connect(address);
        let reader = Client::connect(address);
        let acknowledged = std::sync::Arc::new(AtomicU64::new(0));
        let counter = std::sync::Arc::clone(&acknowledged);
        let thread = thread::spawn(move || {
            if client
                .try_call(&Op::create("/v", b"", ironkeeper_proto::CreateMode::Persistent))
                .is_err()
            {
                return;
            }
            for number in 1u64.. {
                let mut value = number.to_be_bytes().to_vec();
                value.resize(VALUE_BYTES, 0);
                let Ok(reply) = client.try_call(&Op::set_data("/v", &value)) else { return };
                reply.ok();
                counter.store(number, Ordering::Release);
            }
        });
        Writer { acknowledged, thread, reader }
    }

    /// Checks that reads return all acknowledged writes, and that sessions can be resumed.
    fn check_served(&mut self, address: SocketAddr) {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        self.reader.call(&Op::ping()).ok();
        assert!(number(&mut self.reader) >= acknowledged);
        self.reader = Client::open(address, self.reader.session).expect("the same session");
        assert!(number(&mut self.reader) >= acknowledged);
    }

    /// Waits until a write is acknowledged.
    fn await_more(&mut self) {
        let before = number(&mut self.reader);
        while number(&mut self.reader) == before {
            thread::yield_now();
        }
    }

    /// Returns the last acknowledged number, after the connection was lost.
    fn finish(self) -> u64 {
        self.thread.join().expect("a writer whose connection ended");
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Checks that at most the one write in flight was applied in addition to the acknowledged
    /// ones.
    #[track_caller]
    fn check(address: SocketAddr, acknowledged: u64) {
        let found = number(&mut Client::connect(address));
        assert!((acknowledged..=acknowledged + 1).contains(&found), "{found}, {acknowledged}");
    }
}

fn number(client: &mut Client) -> u64 {
    let (data, _) = client.get("/v");
    data.first_chunk::<8>().map_or(0, |head| u64::from_be_bytes(*head))
}

/// A small file system in memory.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// Returns `None`, and prints the reason, if mounting is not permitted.
    fn mount(bytes: usize) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let size = size_option(bytes);
        match mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(size.as_c_str())) {
            Ok(()) => Some(SmallDisk { dir }),
            Err(error) if std::env::var_os("CI").is_none() => {
                println!("skipped: mounting a small file system is not permitted here: {error}");
                None
            }
            Err(error) => panic!("mounting a small file system: {error}"),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Fills the disk except for `left` bytes.
    fn fill_but(&self, left: u64) {
        let mut file = fs::File::create(self.ballast()).expect("a file");
        let mut len = 0;
        loop {
            match file.write(&[7; 4096]) {
                Ok(count) => len += count as u64,
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("filling the disk: {error}"),
            }
        }
        file.set_len(len.saturating_sub(left)).expect("a shorter file");
    }

    fn empty(&self) {
        fs::remove_file(self.ballast()).expect("the file that fills the disk");
    }

    fn grow(&self, bytes: usize) {
        let size = size_option(bytes);
        mount_remount(self.path(), MountFlags::empty(), size.as_c_str()).expect("a larger disk");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a server that a failed test left running may still use it.
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

fn size_option(bytes: usize) -> std::ffi::CString {
    std::ffi::CString::new(format!("size={bytes}")).expect("no zero in it")
}
