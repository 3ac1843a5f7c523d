//! Reconfig of a running ensemble, and the membership files.

use std::path::{Path, PathBuf};

use ironkeeper_client::Client;
use ironkeeper_config::Config;
use ironkeeper_server::Server;
use ironkeeper_testing::HeldPort;
use ironkeeper_zab::Status;

use crate::support::{connect, runtime, until};

/// Servers with configuration files, started one by one.
struct Files {
    dir: tempfile::TempDir,
    /// Client, quorum and election port of each.
    ports: Vec<[HeldPort; 3]>,
}

impl Files {
    fn new(servers: usize) -> Files {
        let port = || HeldPort::take(0).expect("a free port");
        let ports = (0..servers).map(|_| [port(), port(), port()]).collect();
        Files { dir: tempfile::tempdir().expect("a directory"), ports }
    }

    fn path(&self, id: usize) -> PathBuf {
        self.dir.path().join(format!("zoo{id}.cfg"))
    }

    /// Returns the value of `server.N`.
    fn line(&self, id: usize) -> String {
        let [client, quorum, election] = self.ports[id - 1].each_ref().map(HeldPort::address);
        format!("{quorum}:{}:participant;{client}", election.port())
    }

    /// Writes the file of a server with these members.
    fn write(&self, id: usize, members: &[usize]) {
        let data_dir = self.dir.path().join(id.to_string());
        std::fs::create_dir(&data_dir).expect("it is new");
        std::fs::write(data_dir.join("myid"), id.to_string()).expect("written");
        let mut text = format!(
            "dataDir={}\ntickTime=100\ninitLimit=600\nsyncLimit=400\nreconfigEnabled=true\n\
             standaloneEnabled=false\nskipACL=yes\n",
            data_dir.display()
        );
        for member in members {
            text.push_str(&format!("server.{member}={}\n", self.line(*member)));
        }
        std::fs::write(self.path(id), text).expect("written");
    }

    fn start(&self, id: usize) -> Server {
        let loaded = Config::from_file(&self.path(id), "", "").expect("a good configuration");
        Server::start(loaded.config).expect("it starts")
    }

    fn address(&self, id: usize) -> String {
        self.ports[id - 1][0].address().to_string()
    }
}

fn serves(server: &Server) -> bool {
    server.status().is_some_and(|status| status != Status::Looking)
}

/// Returns the members as a server's clients see them, without the version, and the version.
async fn members_at(address: &str) -> (Vec<String>, i64) {
    let client = connect(address).await;
    client.sync("/").await.expect("it catches up");
    let (members, version) = members(&client).await;
    client.close().await.expect("the end of the session");
    (members, version)
}

async fn members(client: &Client) -> (Vec<String>, i64) {
    let node = client.config().await.expect("the members");
    let text = String::from_utf8(node.data.to_vec()).expect("it is text");
    let (lines, version) = text.rsplit_once("\nversion=").expect("a version");
    let members = lines.lines().map(|line| line.split('=').next().expect("a key").to_owned());
    (members.collect(), i64::from_str_radix(version, 16).expect("a number"))
}

fn named_file(config_file: &Path) -> String {
    let text = std::fs::read_to_string(config_file).expect("it is there");
    let line = text.lines().find_map(|line| line.strip_prefix("dynamicConfigFile="));
    line.expect("it names the file with the members").to_owned()
}

#[test]
fn a_server_joins_and_another_leaves_and_all_remember() {
    let files = Files::new(4);
    for id in 1..=3 {
        files.write(id, &[1, 2, 3]);
    }
    let mut servers: Vec<Server> = (1..=3).map(|id| files.start(id)).collect();
    until("they elect", || servers.iter().all(serves));

    // The file of a joiner contains the others and itself; the list of the ensemble replaces it.
    files.write(4, &[1, 2, 3, 4]);
    servers.push(files.start(4));
    until("it joins without a vote", || serves(&servers[3]));
    runtime().block_on(async {
        let client = connect(files.address(1)).await;
        let (before, version) = members(&client).await;
        assert_eq!(before, ["server.1", "server.2", "server.3"]);
        let joining = format!("server.4={}", files.line(4));
        client.reconfig(Some(&joining), None, None, None).await.expect("a quorum agrees");
        let (after, newer) = members_at(&files.address(4)).await;
        assert_eq!(after, ["server.1", "server.2", "server.3", "server.4"]);
        assert!(newer > version);
        client.reconfig(None, Some("2"), None, None).await.expect("a quorum agrees");
        client.close().await.expect("the end of the session");
    });
    drop(servers.remove(1));
    let left = [1, 3, 4];
    until("the others go on", || servers.iter().all(serves));
    let version = runtime().block_on(async {
        let mut versions = Vec::new();
        for id in left {
            let (members, version) = members_at(&files.address(id)).await;
            assert_eq!(members, ["server.1", "server.3", "server.4"], "at {id}");
            versions.push(version);
        }
        assert!(versions.windows(2).all(|pair| pair[0] == pair[1]), "{versions:?}");
        versions[0]
    });

    for id in left {
        let expected = format!("zoo{id}.cfg.dynamic.{version:x}");
        until("the file is written", || named_file(&files.path(id)).ends_with(&expected));
    }
    // All of them restart with the membership in their files.
    drop(servers);
    let servers: Vec<Server> = left.iter().map(|id| files.start(*id)).collect();
    until("they elect", || servers.iter().all(serves));
    runtime().block_on(async {
        let (members, found) = members_at(&files.address(3)).await;
        assert_eq!((members.len(), found), (3, version));
    });
}
