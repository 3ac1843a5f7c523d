//! Sends four-letter words to servers and parses the replies, for `ironkeeper status` and the
//! shell's `top`.
//!
//! Every server replies to `srvr`; `mntr` and `cons` must be allowed by `4lw.commands.whitelist`.
//! The parsers are lenient: a field that a reply does not contain is unknown.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use ironkeeper_client::Host;
use ironkeeper_proto::four_letter::FourLetterWord;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer replies are truncated. `cons` with ten thousand clients is about two megabytes.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The reason why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    #[error("unreachable: {0}")]
    Unreachable(io::Error),
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("{0} is not allowed by 4lw.commands.whitelist in its configuration")]
    NotAllowed(&'static str),
    #[error("not serving requests; it may be starting, or without a quorum")]
    NotServing,
    #[error("the answer to {0} makes no sense; is this a ZooKeeper client port?")]
    Nonsense(&'static str),
}

impl Silence {
    /// Returns whether the server runs and only its configuration forbids the word.
    pub fn is_discretion(&self) -> bool {
        matches!(self, Silence::NotAllowed(_))
    }
}

/// Sends one word and returns the whole reply.
pub async fn ask(server: &Host, word: FourLetterWord, within: Duration) -> Result<String, Silence> {
    match tokio::time::timeout(within, converse(server, word)).await {
        Err(_) => Err(Silence::Late(within)),
        Ok(Err(error)) => Err(Silence::Unreachable(error)),
        Ok(Ok(answer)) => judge(word.name(), answer),
    }
}

async fn converse(server: &Host, word: FourLetterWord) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((server.name(), server.port())).await?;
    stream.write_all(word.name().as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn judge(word: &'static str, answer: Vec<u8>) -> Result<String, Silence> {
    let text = String::from_utf8(answer).map_err(|_| Silence::Nonsense(word))?;
    if text.contains("is not executed because it is not in the whitelist") {
        return Err(Silence::NotAllowed(word));
    }
    if text.contains("not currently serving requests") {
        return Err(Silence::NotServing);
    }
    Ok(text)
}

/// The reply to `srvr`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overview {
    pub mode: String,
    pub version: String,
    pub zxid: String,
    pub latency_min_ms: Option<f64>,
    pub latency_avg_ms: Option<f64>,
    pub latency_max_ms: Option<f64>,
    pub connections: Option<u64>,
    pub outstanding: Option<u64>,
    pub received: Option<u64>,
    pub sent: Option<u64>,
    pub nodes: Option<u64>,
}

/// Sends `srvr`.
pub async fn overview(server: &Host, within: Duration) -> Result<Overview, Silence> {
    let text = ask(server, FourLetterWord::Srvr, within).await?;
    Overview::parse(&text).ok_or(Silence::Nonsense("srvr"))
}

impl Overview {
    /// Returns `None` if `text` is not a reply to `srvr`.
    fn parse(text: &str) -> Option<Overview> {
        let mut overview = Overview::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let number = || value.parse::<u64>().ok();
            match key {
                // The commit and the build date are omitted.
                "Zookeeper version" => {
                    let release = value.split([',', ' ']).next().unwrap_or_default();
                    overview.version = match release.rsplit_once('-') {
                        Some((release, commit)) if is_commit(commit) => release.to_owned(),
                        _ => release.to_owned(),
                    };
                }
                "Latency min/avg/max" => {
                    let mut parts = value.split('/').map(|part| part.parse::<f64>().ok());
                    overview.latency_min_ms = parts.next().flatten();
                    overview.latency_avg_ms = parts.next().flatten();
                    overview.latency_max_ms = parts.next().flatten();
                }
                "Received" => overview.received = number(),
                "Sent" => overview.sent = number(),
                "Connections" => overview.connections = number(),
                "Outstanding" => overview.outstanding = number(),
                "Zxid" => value.clone_into(&mut overview.zxid),
                "Mode" => value.clone_into(&mut overview.mode),
                "Node count" => overview.nodes = number(),
                _ => {}
            }
        }
        (!overview.mode.is_empty()).then_some(overview)
    }

    pub fn is_leader(&self) -> bool {
        self.mode == "leader"
    }
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The reply to `mntr`: the keys without their prefix `zk_`, with those values that are numbers.
#[derive(Clone, Debug, Default)]
pub struct Metrics(BTreeMap<String, f64>);

/// Sends `mntr`.
pub async fn metrics(server: &Host, within: Duration) -> Result<Metrics, Silence> {
    let text = ask(server, FourLetterWord::Mntr, within).await?;
    Ok(Metrics::parse(&text))
}

impl Metrics {
    pub fn parse(text: &str) -> Metrics {
        let line = |line: &str| {
            let (key, value) = line.split_once('\t')?;
            Some((key.strip_prefix("zk_")?.to_owned(), value.trim().parse().ok()?))
        };
        Metrics(text.lines().filter_map(line).collect())
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        self.0.get(key).copied()
    }

    pub fn count(&self, key: &str) -> Option<u64> {
        self.number(key).map(|number| number.max(0.0) as u64)
    }
}

/// A line of the reply to `cons`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Connection {
    pub client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<String>,
    pub queued: u64,
    pub received: u64,
    pub sent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_avg_ms: Option<f64>,
}

/// Sends `cons`.
pub async fn connections(server: &Host, within: Duration) -> Result<Vec<Connection>, Silence> {
    let text = ask(server, FourLetterWord::Cons, within).await?;
    Ok(text.lines().filter_map(Connection::parse).collect())
}

impl Connection {
    /// Parses ` /10.0.0.1:45894[1](queued=0,recved=5,sent=5,sid=0x1…,lop=GETD,…,avglat=0.2,…)`.
    fn parse(line: &str) -> Option<Connection> {
        let (client, rest) = line.trim().split_once('[')?;
        let (_, fields) = rest.split_once('(')?;
        let client = client.strip_prefix('/').unwrap_or(client).to_owned();
        let mut connection = Connection { client, ..Connection::default() };
        for field in fields.trim_end_matches(')').split(',') {
            let Some((key, value)) = field.split_once('=') else { continue };
            let number = || value.parse::<u64>().unwrap_or_default();
            match key {
                "queued" => connection.queued = number(),
                "recved" => connection.received = number(),
                "sent" => connection.sent = number(),
                "sid" => connection.session = Some(value.to_owned()),
                "lop" => connection.last_operation = Some(value.to_owned()),
                "avglat" => connection.latency_avg_ms = value.parse().ok(),
                _ => {}
            }
        }
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srvr_is_read() {
        let text = "Zookeeper version: 3.9.5-c9a1f5d1e5b5e1a1c9a1f5d1e5b5e1a1c9a1f5d1, built on 2025-01-01 \
                    09:00 UTC\nLatency min/avg/max: 0/0.25/64\nReceived: 26\nSent: 34\n\
                    Connections: 3\nOutstanding: 1\nZxid: 0x10000008a\nMode: leader\n\
                    Node count: 7\nProposal sizes last/min/max: 48/48/48\n";
        let overview = Overview::parse(text).unwrap();
        assert_eq!((overview.version.as_str(), overview.mode.as_str()), ("3.9.5", "leader"));
        assert_eq!((overview.latency_avg_ms, overview.latency_max_ms), (Some(0.25), Some(64.0)));
        assert_eq!((overview.received, overview.nodes), (Some(26), Some(7)));
        assert_eq!(overview.zxid, "0x10000008a");
        assert!(overview.is_leader());
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        assert_eq!(Overview::parse("HTTP/1.1 400 Bad Request\n"), None);
        let refused = b"mntr is not executed because it is not in the whitelist.\n".to_vec();
        assert!(judge("mntr", refused).unwrap_err().is_discretion());
        let starting = b"This ZooKeeper instance is not currently serving requests\n".to_vec();
        assert!(matches!(judge("srvr", starting), Err(Silence::NotServing)));
        assert!(matches!(judge("srvr", vec![0xff]), Err(Silence::Nonsense("srvr"))));
    }

    #[test]
    fn mntr_and_cons_are_read() {
        let metrics = Metrics::parse("zk_version\t3.9\nzk_watch_count\t12\nzk_avg_latency\t0.5\n");
        assert_eq!(metrics.count("watch_count"), Some(12));
        assert_eq!(metrics.number("avg_latency"), Some(0.5));
        assert_eq!(metrics.count("absent"), None);

        let line = " /127.0.0.1:4589[1](queued=0,recved=5,sent=6,sid=0x1a,lop=GETD,est=1,to=30000,\
                    lcxid=0x4,lzxid=0x5,lresp=1,llat=0,minlat=0,avglat=0.4,maxlat=2)";
        let connection = Connection::parse(line).unwrap();
        assert_eq!(connection.client, "127.0.0.1:4589");
        assert_eq!((connection.received, connection.sent), (5, 6));
        assert_eq!(connection.last_operation.as_deref(), Some("GETD"));
        assert_eq!(connection.latency_avg_ms, Some(0.4));
        assert_eq!(Connection::parse(""), None);
    }
}
