//! Three servers, each in a separate process, that are killed without warning.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Instant;

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_testing::HeldPort;

use crate::client::PATIENCE;
use crate::server_process::{ServerProcess, Setup};

/// Acknowledged writes before and after each kill.
const WRITES: usize = 30;

struct Ensemble {
    dir: tempfile::TempDir,
    members: Vec<Member>,
}

struct Member {
    setup: Setup,
    /// The client, quorum and election ports.
    ports: [HeldPort; 3],
    process: Option<ServerProcess>,
}

impl Member {
    /// Starts the process unless it runs.
    fn start(&mut self) {
        if self.process.is_none() {
            let ready = self.setup.spawn(self.ports[0].address().port()).ready();
            self.process = Some(ready.unwrap_or_else(|(_, log)| panic!("{log}")));
        }
    }
}

impl Ensemble {
    fn start() -> Ensemble {
        let mut ensemble = Ensemble::new();
        ensemble.restart();
        ensemble
    }

    /// Starts an ensemble whose members panic at `place` when the test arms the panic.
    fn start_planting_panic(place: &'static str) -> Ensemble {
        let mut ensemble = Ensemble::new();
        for member in &mut ensemble.members {
            member.setup = member.setup.clone().planting_panic(place);
        }
        ensemble.restart();
        ensemble
    }

    /// Creates the members without starting them.
    fn new() -> Ensemble {
        let dir = tempfile::tempdir().expect("a directory");
        let port = || HeldPort::take(0).expect("a free port");
        let ports: Vec<[HeldPort; 3]> = (0..3).map(|_| [port(), port(), port()]).collect();
        let mut settings = String::from(
            "tickTime=500\ninitLimit=120\nsyncLimit=80\n4lw.commands.whitelist=srvr\nsnapCount=20\n",
        );
        for (index, [_, quorum, election]) in ports.iter().enumerate() {
            let (quorum, election) = (quorum.address(), election.address().port());
            settings.push_str(&format!("server.{}={quorum}:{election}\n", index + 1));
        }
        let members = ports.into_iter().enumerate().map(|(index, ports)| {
            let home: PathBuf = dir.path().join((index + 1).to_string());
            std::fs::create_dir_all(home.join("data")).expect("it is new");
            std::fs::write(home.join("data/myid"), format!("{}\n", index + 1)).expect("written");
            Member { setup: Setup::new(&home, &settings), ports, process: None }
        });
        Ensemble { members: members.collect(), dir }
    }

    fn home(&self, index: usize) -> PathBuf {
        self.dir.path().join((index + 1).to_string())
    }

    /// Starts the members that do not run.
    fn restart(&mut self) {
        for member in &mut self.members {
            member.start();
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.ports[0].address()).collect()
    }

    fn connect_string(&self) -> String {
        self.addresses().iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
    }

    /// Returns the index of the leader, if there is one.
    fn leader(&self) -> Option<usize> {
        let leads = |address| srvr(address).is_some_and(|text| text.contains("leader"));
        self.addresses().into_iter().position(leads)
    }

    /// Kills the leader. Returns `false` if no member reports that it leads.
    fn kill_leader(&mut self) -> bool {
        let leader = self.leader();
        let process = leader.and_then(|index| self.members[index].process.take());
        process.map(ServerProcess::kill).is_some()
    }

    fn kill_all(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.take()) {
            process.kill();
        }
    }
}

/// Returns the reply to `srvr`, if the server replies.
fn srvr(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A client that keeps writing whatever happens to the servers, and records the acknowledged
/// writes.
struct Writer {
    connect_string: String,
    client: Option<Client>,
    tried: usize,
    acknowledged: Vec<String>,
}

impl Writer {
    async fn write(&mut self, count: usize) {
        let wanted = self.acknowledged.len() + count;
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.len() < wanted {
            assert!(Instant::now() < deadline, "writes do not go on");
            let client = match self.client.take() {
                Some(client) => client,
                None => match Client::connect(&self.connect_string).await {
                    Ok(client) => client,
                    Err(_) => continue,
                },
            };
            // A write with an unknown outcome is not checked: the next write uses another name.
            self.tried += 1;
            let path = format!("/written-{}", self.tried);
            match client.create(&path, "", CreateMode::Persistent).await {
                Ok(_) => self.acknowledged.push(path),
                Err(error) if error.is_session_over() => continue,
                // Waits for the next connection, or for the error that there will be none.
                Err(_) => {
                    let connected = tokio::time::timeout(PATIENCE, client.connected()).await;
                    drop(connected.expect("a member is there in time"));
                }
            }
            self.client = Some(client);
        }
    }
}

#[test]
fn the_leaders_log_names_learners_that_join_and_leave() {
    let mut ensemble = Ensemble::start();
    let leads = |address| srvr(address).is_some_and(|text| text.contains("leader"));
    let until = Instant::now() + PATIENCE;
    let leader = loop {
        if let Some(leader) = ensemble.addresses().into_iter().position(leads) {
            break leader;
        }
        assert!(Instant::now() < until, "no leader");
        std::thread::yield_now();
    };
    let follower = (leader + 1) % 3;
    let log = |ensemble: &Ensemble, text: &str| {
        ensemble.members[leader].process.as_ref().expect("the leader runs").await_log(text);
    };
    log(&ensemble, &format!("learner up to date peer={} addr=127.0.0.1:", follower + 1));
    ensemble.members[follower].process.take().expect("it runs").kill();
    let lost = format!("peer link lost peer={} addr=127.0.0.1 port=quorum error=", follower + 1);
    log(&ensemble, &lost);
}

#[test]
fn no_acknowledged_write_is_lost_when_members_of_an_ensemble_are_killed() {
    let mut ensemble = Ensemble::start();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut writer = Writer {
        connect_string: ensemble.connect_string(),
        client: None,
        tried: 0,
        acknowledged: Vec::new(),
    };
    for _ in 0..3 {
        runtime.block_on(writer.write(WRITES));
        // A member that acknowledges a write has a leader; the leader may change before `srvr` is
        // sent.
        while !ensemble.kill_leader() {
            runtime.block_on(writer.write(1));
        }
        runtime.block_on(writer.write(WRITES));
        ensemble.restart();
    }
    ensemble.kill_all();
    ensemble.restart();
    runtime.block_on(writer.write(1));
    for address in ensemble.addresses() {
        runtime.block_on(async {
            let client = Client::builder(&address.to_string()).connect_timeout(PATIENCE);
            let client = client.connect().await.expect("it serves");
            client.sync("/").await.expect("it catches up");
            for path in &writer.acknowledged {
                let found = client.exists(path).await.expect("an answer");
                assert!(found.is_some(), "{path} was acknowledged and is missing at {address}");
            }
            client.close().await.expect("the end of the session");
        });
    }
}

/// Checks that a leader that panics at `place` ends, that another member leads, and that no
/// acknowledged write is lost.
#[track_caller]
fn check_replaced(place: &'static str) {
    let mut ensemble = Ensemble::start_planting_panic(place);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut writer = Writer {
        connect_string: ensemble.connect_string(),
        client: None,
        tried: 0,
        acknowledged: Vec::new(),
    };
    runtime.block_on(writer.write(WRITES));
    let leader = loop {
        match ensemble.leader() {
            Some(leader) => break leader,
            None => runtime.block_on(writer.write(1)),
        }
    };
    let process = ensemble.members[leader].process.take().expect("it runs");
    let client = writer.client.as_ref().expect("a session");
    let node = format!("/panic-{}", leader + 1);
    // Either outcome is valid: this write may be acknowledged before the leader panics.
    drop(runtime.block_on(client.create(&node, "", CreateMode::Persistent)));
    runtime.block_on(writer.write(WRITES));
    let (status, log) = process.ended();
    assert_eq!(status.code(), Some(70), "{log}");
    assert!(log.contains(&format!("planted in {place}")), "{log}");

    let next = ensemble.leader().expect("another member leads");
    assert_ne!(next, leader);
    runtime.block_on(async {
        let client = Client::builder(&ensemble.addresses()[next].to_string());
        let client = client.connect_timeout(PATIENCE).connect().await.expect("it serves");
        for path in &writer.acknowledged {
            let found = client.exists(path).await.expect("an answer");
            assert!(found.is_some(), "{path} was acknowledged and is missing");
        }
    });
}

#[test]
fn a_leader_that_panics_while_it_judges_a_write_is_replaced() {
    check_replaced("judge");
}

#[test]
fn a_leader_that_panics_in_the_task_of_a_peer_link_is_replaced() {
    check_replaced("peer-link");
}

#[test]
fn what_a_standalone_server_had_is_kept_when_an_empty_majority_was_faster() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut ensemble = Ensemble::new();
    let home = ensemble.home(0);
    let alone = home.join("alone");
    std::fs::create_dir(&alone).expect("it is new");
    let server = Setup::apart(&alone, &home.join("data"), "").start();
    runtime.block_on(async {
        let client = Client::connect(&server.address.to_string()).await.expect("it serves");
        client.create("/precious", "", CreateMode::Persistent).await.expect("it is acknowledged");
    });
    server.kill();

    // The two members with an empty database serve before the old server starts.
    ensemble.members[1].start();
    ensemble.members[2].start();
    let connect_string = ensemble.connect_string();
    let client = runtime.block_on(async {
        let client = Client::builder(&connect_string).connect_timeout(PATIENCE);
        let client = client.connect().await.expect("a majority serves");
        client.create("/other", "", CreateMode::Persistent).await.expect("it is acknowledged");
        client
    });
    ensemble.members[0].start();
    let joined = ensemble.members[0].process.as_ref().expect("it runs");
    joined.await_log("standalone history replaced by the leader's, copy kept dir=");
    runtime.block_on(async {
        let own = Client::builder(&joined.address.to_string()).connect_timeout(PATIENCE);
        let own = own.connect().await.expect("it serves");
        own.sync("/").await.expect("it has caught up");
        assert!(own.exists("/other").await.expect("an answer").is_some());
        assert!(own.exists("/precious").await.expect("an answer").is_none());
    });
    drop(client);

    let copy = Setup::apart(&alone, &home.join("data/before-ensemble.1"), "").start();
    runtime.block_on(async {
        let client = Client::connect(&copy.address.to_string()).await.expect("it serves");
        assert!(client.exists("/precious").await.expect("an answer").is_some());
        assert!(client.exists("/other").await.expect("an answer").is_none());
    });
}
