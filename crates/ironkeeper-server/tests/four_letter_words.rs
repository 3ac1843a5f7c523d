//! Every four-letter word, sent over TCP to a running server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use ironkeeper_config::{Config, FourLetterWords};
use ironkeeper_proto::four_letter::FourLetterWord;
use ironkeeper_server::Server;

/// The output of `mntr` of a standalone Apache ZooKeeper 3.9.5, without the values.
const APACHE_MONITOR_KEYS: &str = include_str!("testdata/mntr_keys_3.9.5.txt");

struct World {
    server: Server,
    dir: tempfile::TempDir,
}

impl World {
    fn start(words: FourLetterWords) -> World {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::standalone_default(dir.path().to_owned());
        config.client_address.port = 0;
        config.four_letter_words = words;
        World { server: Server::start(config).unwrap(), dir }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn ask(&self, word: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.write_all(word.as_ref()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the keys and values of a reply, which `mark` separates.
    fn values(&self, word: &str, mark: &str) -> BTreeMap<String, String> {
        let answer = self.ask(word);
        let pairs = answer.lines().filter_map(|line| line.split_once(mark));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn monitor(&self, key: &str) -> String {
        self.values("mntr", "\t").remove(key).unwrap_or_else(|| panic!("no {key}"))
    }
}

/// A session over a socket of its own.
struct Client {
    stream: TcpStream,
    session: u64,
    xid: i32,
}

impl Client {
    fn connect(world: &World) -> Client {
        let stream = TcpStream::connect(world.address()).unwrap();
        let mut client = Client { stream, session: 0, xid: 0 };
        let mut request = Vec::new();
        request.extend([0; 12]);
        request.extend(10_000_i32.to_be_bytes());
        request.extend([0; 8]);
        request.extend(16_i32.to_be_bytes());
        request.extend([0; 17]);
        client.send(&request);
        let response = client.receive();
        client.session = u64::from_be_bytes(response[8..16].try_into().unwrap());
        client
    }

    fn send(&mut self, frame: &[u8]) {
        let mut bytes = (frame.len() as i32).to_be_bytes().to_vec();
        bytes.extend(frame);
        self.stream.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).unwrap();
        let mut frame = vec![0; i32::from_be_bytes(head) as usize];
        self.stream.read_exact(&mut frame).unwrap();
        frame
    }

    /// Sends a request and returns the error code of its reply. Skips events.
    fn request(&mut self, op: i32, body: &[u8]) -> i32 {
        self.xid += 1;
        let mut frame = self.xid.to_be_bytes().to_vec();
        frame.extend(op.to_be_bytes());
        frame.extend(body);
        self.send(&frame);
        loop {
            let reply = self.receive();
            if reply[..4] != EVENT.to_be_bytes() {
                assert_eq!(reply[..4], self.xid.to_be_bytes(), "the reply to this request");
                return i32::from_be_bytes(reply[12..16].try_into().unwrap());
            }
        }
    }

    fn create(&mut self, path: &str, data: &[u8], flags: i32) -> i32 {
        let mut body = text(path);
        body.extend((data.len() as i32).to_be_bytes());
        body.extend(data);
        body.extend([0, 0, 0, 1, 0, 0, 0, 31]);
        body.extend(text("world"));
        body.extend(text("anyone"));
        body.extend(flags.to_be_bytes());
        self.request(1, &body)
    }

    fn set_data(&mut self, path: &str, data: &[u8]) -> i32 {
        let mut body = text(path);
        body.extend((data.len() as i32).to_be_bytes());
        body.extend(data);
        body.extend((-1_i32).to_be_bytes());
        self.request(5, &body)
    }

    fn read(&mut self, op: i32, path: &str, watch: bool) -> i32 {
        let mut body = text(path);
        body.push(u8::from(watch));
        self.request(op, &body)
    }

    fn close(&mut self) {
        self.request(-11, &[]);
        assert_eq!(self.stream.read(&mut [0]).unwrap(), 0, "the server hangs up");
    }
}

/// The xid of an event.
const EVENT: i32 = -1;
const EPHEMERAL: i32 = 1;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;

fn text(value: &str) -> Vec<u8> {
    let mut bytes = (value.len() as i32).to_be_bytes().to_vec();
    bytes.extend(value.as_bytes());
    bytes
}

/// Replaces the parts that differ between runs.
fn masked(answer: &str, marks: &[(&str, &str)]) -> String {
    marks.iter().fold(answer.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[test]
fn words_outside_the_white_list_are_refused_by_name() {
    let world = World::start(FourLetterWords::least());
    for word in FourLetterWord::ALL.map(FourLetterWord::name) {
        let answer = world.ask(word);
        if word == "srvr" {
            assert!(answer.starts_with("Zookeeper version: 3.9.5-ironkeeper-"), "{answer}");
        } else {
            let refusal = format!("{word} is not executed because it is not in the whitelist.\n");
            assert_eq!(answer, refusal);
        }
    }
    assert_eq!(world.ask(b"stmk\0\0\0\0\0\0\0\x01"), world.ask("stmk"), "refused all the same");
}

#[test]
fn anything_else_is_the_length_of_a_frame_and_closes() {
    let world = World::start(FourLetterWords::all());
    for word in ["help", "RUOK", "kill"] {
        assert_eq!(world.ask(word), "");
    }
    assert_eq!(world.monitor("zk_packets_received"), "1", "only the word that asks");
}

#[test]
fn short_answers_are_exact_to_the_byte() {
    let world = World::start(FourLetterWords::all());
    assert_eq!(world.ask("ruok"), "imok");
    assert_eq!(world.ask("ruok\n"), "imok");
    assert_eq!(world.ask("isro"), "rw");
    assert_eq!(world.ask("gtmk"), "306");
    assert_eq!(world.ask(b"stmk\0\0\0\0\0\0\x01\0"), "256");
    assert_eq!(world.ask("gtmk"), "256");
    assert_eq!(world.ask(b"stmk\xff\xff\xff\xff\xff\xff\xff\xff"), "-1");
    assert_eq!(world.ask("crst"), "Connection stats reset.\n");
    assert_eq!(world.ask("srst"), "Server stats reset.\n");
    assert_eq!(world.ask("hash"), "");
    assert_eq!(world.ask("wchs"), "0 connections watching 0 paths\nTotal watches:0\n");
    assert_eq!(world.ask("wchc"), "\n");
    assert_eq!(world.ask("wchp"), "\n");
}

#[test]
fn a_new_server_presents_itself() {
    let world = World::start(FourLetterWords::all());
    let answer = world.ask("srvr");
    let (version, rest) = answer.split_once('\n').unwrap();
    assert!(version.starts_with("Zookeeper version: 3.9.5-ironkeeper-"), "{version}");
    assert!(version.ends_with(" UTC"), "{version}");
    assert_eq!(
        rest,
        "Latency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 0\nConnections: 1\nOutstanding: 0\n\
         Zxid: 0x0\nMode: standalone\nNode count: 5\n"
    );
    let sizes = world.ask("dirs");
    let sizes: Vec<_> = sizes.lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert_eq!((sizes[0].0, sizes[1].0), ("datadir_size", "logdir_size"));
    assert!(sizes[0].1.parse::<u64>().unwrap() > 0, "there is a first snapshot");

    let dir = world.dir.path().join("version-2").display().to_string();
    let port = world.address().port().to_string();
    let size = sizes[0].1;
    assert_eq!(
        world.ask("conf"),
        format!(
            "clientPort={port}\nsecureClientPort=-1\ndataDir={dir}\ndataDirSize={size}\n\
             dataLogDir={dir}\ndataLogSize={size}\ntickTime=2000\nmaxClientCnxns=0\n\
             minSessionTimeout=4000\nmaxSessionTimeout=40000\nclientPortListenBacklog=-1\n\
             serverId=0\n"
        )
    );

    let environment = world.ask("envi");
    assert!(environment.starts_with("Environment:\nzookeeper.version=3.9.5-"), "{environment}");
    assert_eq!(world.values("envi", "=").len(), 18);
}

#[test]
fn connections_show_what_they_did() {
    let world = World::start(FourLetterWords::all());
    let mut client = Client::connect(&world);
    let peer = client.stream.local_addr().unwrap().to_string();
    let session = format!("sid=0x{:x}", client.session);
    // The client's line without times, which vary.
    let line = || {
        let answer = world.ask("cons");
        assert!(answer.ends_with(")\n\n"), "{answer}");
        assert!(answer.contains("[0](queued=0,recved=1,sent=0)\n"), "the one who asks: {answer}");
        let line = answer.lines().find(|line| line.contains(&session)).expect("the client");
        let fields = line.split(',').filter(|field| {
            let name = field.split('=').next().unwrap_or_default();
            !matches!(name, "est" | "lresp" | "llat" | "minlat" | "avglat")
                && !name.starts_with("maxlat")
        });
        masked(&fields.collect::<Vec<_>>().join(","), &[(&peer, "PEER"), (&session, "SID")])
    };
    let at = |counts: &str, rest: &str| format!(" /PEER[1](queued=0,{counts},SID,{rest}");
    assert_eq!(line(), at("recved=1,sent=1", "lop=SESS,to=10000,lcxid=0x0,lzxid=0x1"));
    assert_eq!(client.create("/app", b"x", 0), 0);
    assert_eq!(line(), at("recved=2,sent=2", "lop=CREA,to=10000,lcxid=0x1,lzxid=0x2"));
    assert_eq!(client.create("/app", b"x", 0), NODE_EXISTS);
    assert_eq!(line(), at("recved=3,sent=3", "lop=NA,to=10000,lcxid=0x2,lzxid=0x3"));
    assert_eq!(client.read(GET_DATA, "/none", false), NO_NODE);
    assert_eq!(line(), at("recved=4,sent=4", "lop=GETD,to=10000,lcxid=0x3,lzxid=0x3"));
    world.ask("crst");
    assert_eq!(line(), at("recved=0,sent=0", "lop=NA,to=10000,lzxid=0xffffffffffffffff"));

    let stat = world.ask("stat");
    let (head, rest) = stat.split_once("\n\n").unwrap();
    let lines: Vec<_> = head.lines().collect();
    assert!(lines[0].starts_with("Zookeeper version: ") && lines[1] == "Clients:", "{head}");
    assert!(lines.contains(&&*format!(" /{peer}[1](queued=0,recved=0,sent=0)")), "{head}");
    assert_eq!(lines.len(), 4, "two clients: {head}");
    assert!(rest.starts_with("Latency min/avg/max: 0/"), "{rest}");
    assert!(rest.ends_with("Zxid: 0x3\nMode: standalone\nNode count: 6\n"), "{rest}");
}

#[test]
fn sessions_ephemerals_and_watches_are_dumped() {
    let world = World::start(FourLetterWords::all());
    let mut client = Client::connect(&world);
    client.create("/app", b"", 0);
    client.create("/app/e1", b"", EPHEMERAL);
    client.read(GET_DATA, "/app", true);
    client.read(EXISTS, "/none", true);
    client.read(GET_CHILDREN, "/app", true);

    let session = format!("0x{:x}", client.session);
    let peer = client.stream.local_addr().unwrap().to_string();
    let dump = masked(&world.ask("dump"), &[(&session, "SID"), (&peer, "PEER")]);
    let mut lines: Vec<_> = dump
        .lines()
        .map(|line| match line.split_once(" expire at ") {
            Some((count, date)) => {
                assert!(date.ends_with(':') && date.contains(" UTC 2"), "{date}");
                format!("{count} expire")
            }
            None => line.to_owned(),
        })
        .collect();
    let connections = lines.split_off(8);
    assert_eq!(
        lines.join("\n"),
        "SessionTracker dump:\nSession Sets (1)/(1):\n1 expire\n\tSID\nephemeral nodes dump:\n\
         Sessions with Ephemerals (1):\nSID:\n\t/app/e1"
    );
    assert_eq!(connections[0], "Connections dump:");
    assert!(connections[1].ends_with("/(2):"), "{connections:?}");
    assert!(connections.contains(&"\tip: /PEER sessionId: SID".to_owned()), "{connections:?}");
    assert!(connections.iter().any(|line| line.ends_with(" sessionId: 0x0")), "{connections:?}");

    assert_eq!(world.ask("wchs"), "1 connections watching 2 paths\nTotal watches:2\n");
    assert_eq!(world.ask("wchc"), format!("{session}\n\t/app\n\t/none\n\n"));
    assert_eq!(world.ask("wchp"), format!("/app\n\t{session}\n/none\n\t{session}\n\n"));
    assert_eq!(world.monitor("zk_watch_count"), "3", "the watch on children counts here");
    client.close();
    assert_eq!(world.ask("wchs"), "0 connections watching 0 paths\nTotal watches:0\n");
    assert_eq!(world.monitor("zk_watch_count"), "0");
}

#[test]
fn the_monitor_prints_every_key_of_apache_and_two_of_its_own() {
    let world = World::start(FourLetterWords::all());
    let answer = world.ask("mntr");
    assert!(answer.starts_with("zk_version\t3.9.5-"), "{answer}");
    assert_eq!(answer.lines().nth(1), Some("zk_server_state\tstandalone"));
    let mut keys: Vec<_> =
        answer.lines().map(|line| line.split_once('\t').expect("a tab").0).collect();
    keys.sort_unstable();
    let mut expected: Vec<_> = APACHE_MONITOR_KEYS.lines().collect();
    expected.extend(["zk_autopurge", "zk_disk_full"]);
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn the_monitor_counts_what_happens() {
    let world = World::start(FourLetterWords::all());
    let mut client = Client::connect(&world);
    let mut other = Client::connect(&world);
    client.create("/app", &[b'x'; 100], 0);
    client.create("/app/e1", b"", EPHEMERAL);
    client.read(GET_DATA, "/app", true);
    other.read(GET_DATA, "/app", true);
    other.set_data("/app", b"yy");
    client.receive();

    let values = world.values("mntr", "\t");
    for (key, value) in [
        ("zk_znode_count", "7"),
        ("zk_ephemerals_count", "1"),
        ("zk_approximate_data_size", "57"),
        ("zk_watch_count", "0"),
        ("zk_global_sessions", "2"),
        ("zk_num_alive_connections", "3"),
        ("zk_outstanding_requests", "0"),
        ("zk_connection_request_count", "2"),
        ("zk_packets_received", "8"),
        // Seven replies and two events.
        ("zk_packets_sent", "9"),
        // Two connects of 49 bytes, creates of 155 and 58, two reads of 21, a write of 30, `mntr`.
        ("zk_bytes_received_count", "387"),
        // Without lengths: 24 and 27 for the creates, 188 for each read, 84 for the write.
        ("zk_response_bytes", "511"),
        ("zk_min_client_response_size", "24"),
        ("zk_max_client_response_size", "188"),
        ("zk_watch_bytes", "64"),
        ("zk_cnt_readlatency", "2"),
        ("zk_cnt_updatelatency", "5"),
        ("zk_cnt_propagation_latency", "5"),
        ("zk_sum_sync_processor_batch_size", "5"),
        ("zk_commit_count", "5"),
        ("zk_avg_node_changed_watch_count", "2.0"),
        ("zk_cnt_node_changed_watch_count", "1"),
        ("zk_cnt_node_created_watch_count", "0"),
        ("zk_cnt_snapshottime", "1"),
        ("zk_cnt_dbinittime", "1"),
        ("zk_digest_mismatches_count", "0"),
    ] {
        assert_eq!(values[key], value, "{key}");
    }
    assert!(values["zk_open_file_descriptor_count"].parse::<i64>().unwrap() > 3);

    world.ask("srst");
    let values = world.values("mntr", "\t");
    for (key, value) in [
        ("zk_znode_count", "7"),
        ("zk_packets_received", "1"),
        ("zk_packets_sent", "1"),
        ("zk_bytes_received_count", "4"),
        ("zk_last_client_response_size", "-1"),
        ("zk_cnt_readlatency", "0"),
        ("zk_max_updatelatency", "0"),
        ("zk_cnt_snapshottime", "0"),
        ("zk_cnt_node_changed_watch_count", "0"),
    ] {
        assert_eq!(values[key], value, "{key} after a reset");
    }
}

#[test]
fn quotas_show_in_the_monitor() {
    let world = World::start(FourLetterWords::all());
    let mut client = Client::connect(&world);
    client.create("/qa", b"abc", 0);
    client.create("/zookeeper/quota/qa", b"", 0);
    let limits = b"count=5,bytes=100=;byteHardLimit=-1;countHardLimit=7";
    client.create("/zookeeper/quota/qa/zookeeper_limits", limits, 0);
    client.create("/zookeeper/quota/qa/zookeeper_stats", b"count=1,bytes=3", 0);
    client.create("/qa/x", b"zz", 0);
    let values = world.values("mntr", "\t");
    let of = |name: &str| values[&format!("zk_qa_quota_{name}_per_namespace")].clone();
    assert_eq!([of("count_limit"), of("bytes_limit")], ["7", "100"]);
    assert_eq!([of("count_usage"), of("bytes_usage")], ["2", "5"]);
}

#[test]
fn digests_are_kept_at_round_zxids_and_found_again_after_a_restart() {
    let world = World::start(FourLetterWords::all());
    let mut client = Client::connect(&world);
    client.create("/app", b"", 0);
    for _ in 0..260 {
        client.set_data("/app", b"z");
    }
    let digests = world.ask("hash");
    let zxids: Vec<_> = digests.lines().map(|line| line.split_once(": ").unwrap().0).collect();
    assert_eq!(zxids, ["80", "100"]);
    drop(client);

    let World { server, dir } = world;
    server.stop().unwrap();
    let mut config = Config::standalone_default(dir.path().to_owned());
    config.client_address.port = 0;
    config.four_letter_words = FourLetterWords::all();
    let world = World { server: Server::start(config).unwrap(), dir };
    assert_eq!(world.ask("hash"), digests);
    assert_eq!(world.monitor("zk_sum_startup_txns_loaded"), "262");
}
