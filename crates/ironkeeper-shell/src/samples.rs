//! Samples of the servers' statistics, and the rows that `top` derives from them.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use ironkeeper_client::Host;
use serde::Serialize;

use crate::four_letter::{self, Connection, Metrics, Overview, Silence};

/// The number of connections that are shown.
const BUSIEST_MAX: usize = 20;

/// The replies of one server at one point in time.
#[derive(Debug)]
pub struct Sample {
    server: Host,
    at: Instant,
    overview: Result<Overview, Silence>,
    metrics: Result<Metrics, Silence>,
    connections: Result<Vec<Connection>, Silence>,
}

/// Queries all servers concurrently. The samples have the order of `servers`.
pub async fn take(servers: &[Host], within: Duration) -> Vec<Sample> {
    let asked: Vec<_> = servers
        .iter()
        .cloned()
        .map(|server| {
            tokio::spawn(async move {
                let (overview, metrics, connections) = tokio::join!(
                    four_letter::overview(&server, within),
                    four_letter::metrics(&server, within),
                    four_letter::connections(&server, within),
                );
                Sample { server, at: Instant::now(), overview, metrics, connections }
            })
        })
        .collect();
    let mut samples = Vec::new();
    for sample in asked {
        samples.push(sample.await.expect("asking does not panic"));
    }
    samples
}

/// The current state of one server. Unknown values are `None`: rates in the first sample, and
/// values from `mntr` if it is not allowed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub server: String,
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zxid: Option<String>,
    pub received_per_s: Option<f64>,
    pub sent_per_s: Option<f64>,
    /// Averages between the two samples, or since the start of the server if there is only one.
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
    /// Since the start of the server.
    pub latency_avg_ms: Option<f64>,
    pub connections: Option<u64>,
    pub sessions: Option<u64>,
    pub watches: Option<u64>,
    pub ephemerals: Option<u64>,
    pub outstanding: Option<u64>,
    pub nodes: Option<u64>,
    pub data_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub busiest: Vec<Busy>,
    /// Which values are missing because of the server's configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

/// A connection and its request rate.
#[derive(Clone, Debug, Serialize)]
pub struct Busy {
    pub received_per_s: Option<f64>,
    #[serde(flatten)]
    pub connection: Connection,
}

impl Row {
    pub fn new(now: &Sample, before: Option<&Sample>) -> Row {
        let server = now.server.to_string();
        let overview = match &now.overview {
            Ok(overview) => overview,
            Err(silence) => {
                return Row { server, error: Some(silence.to_string()), ..Row::default() };
            }
        };
        let seconds = before.map(|before| (now.at - before.at).as_secs_f64());
        // The counters of a restarted server begin at zero.
        let rate = |now: Option<u64>, before: Option<u64>| {
            Some(now?.checked_sub(before?)? as f64 / seconds.filter(|seconds| *seconds > 0.0)?)
        };
        let old = before.and_then(|before| before.overview.as_ref().ok());
        let metrics = now.metrics.as_ref().ok();
        let old_metrics = before.and_then(|before| before.metrics.as_ref().ok());
        let count = |key: &str| metrics?.count(key);
        Row {
            server,
            ok: true,
            error: None,
            mode: Some(overview.mode.clone()),
            zxid: Some(overview.zxid.clone()),
            received_per_s: rate(overview.received, old.and_then(|old| old.received)),
            sent_per_s: rate(overview.sent, old.and_then(|old| old.sent)),
            read_ms: average(metrics, old_metrics, "readlatency"),
            write_ms: average(metrics, old_metrics, "updatelatency"),
            latency_avg_ms: overview.latency_avg_ms,
            connections: overview.connections,
            sessions: count("global_sessions"),
            watches: count("watch_count"),
            ephemerals: count("ephemerals_count"),
            outstanding: overview.outstanding,
            nodes: overview.nodes,
            data_bytes: count("approximate_data_size"),
            busiest: busiest(now, before, seconds),
            hints: [now.metrics.as_ref().err(), now.connections.as_ref().err()]
                .into_iter()
                .flatten()
                .filter(|silence| silence.is_discretion())
                .map(Silence::to_string)
                .collect(),
        }
    }
}

/// Returns the average of a metric since the last sample; `None` if nothing was measured since.
fn average(now: Option<&Metrics>, before: Option<&Metrics>, key: &str) -> Option<f64> {
    let total = |metrics: &Metrics| {
        Some((metrics.number(&format!("sum_{key}"))?, metrics.number(&format!("cnt_{key}"))?))
    };
    let (mut sum, mut number) = total(now?)?;
    if let Some((old_sum, old_number)) = before.and_then(total)
        && old_number <= number
    {
        sum -= old_sum;
        number -= old_number;
    }
    (number > 0.0).then(|| sum / number)
}

/// Returns the connections with the most requests. Connections without a session, such as those of
/// `top` itself, are omitted.
fn busiest(now: &Sample, before: Option<&Sample>, seconds: Option<f64>) -> Vec<Busy> {
    let Ok(connections) = &now.connections else { return Vec::new() };
    let old: HashMap<&str, u64> = match before.map(|before| &before.connections) {
        Some(Ok(old)) => old.iter().map(|one| (one.client.as_str(), one.received)).collect(),
        _ => HashMap::new(),
    };
    let mut busiest: Vec<Busy> = connections
        .iter()
        .filter(|connection| connection.session.is_some())
        .map(|connection| {
            let before = old.get(connection.client.as_str()).copied();
            let rate = |seconds: f64| {
                connection.received.saturating_sub(before.unwrap_or(0)) as f64 / seconds
            };
            let received_per_s = seconds.filter(|seconds| *seconds > 0.0).map(rate);
            Busy { received_per_s, connection: connection.clone() }
        })
        .collect();
    let key = |busy: &Busy| (busy.received_per_s.unwrap_or(0.0), busy.connection.received as f64);
    busiest.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    busiest.truncate(BUSIEST_MAX);
    busiest
}

/// One line of text, for output without a screen.
impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.server)?;
        if let Some(error) = &self.error {
            return write!(f, " {error}");
        }
        write!(f, " {}", self.mode.as_deref().unwrap_or("-"))?;
        for (title, value) in [
            ("received/s", rate_text(self.received_per_s)),
            ("sent/s", rate_text(self.sent_per_s)),
            ("read_ms", ms_text(self.read_ms)),
            ("write_ms", ms_text(self.write_ms)),
            ("connections", count_text(self.connections)),
            ("sessions", count_text(self.sessions)),
            ("watches", count_text(self.watches)),
            ("outstanding", count_text(self.outstanding)),
            ("nodes", count_text(self.nodes)),
        ] {
            write!(f, " {title}={value}")?;
        }
        Ok(())
    }
}

pub fn rate_text(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"))
}

pub fn ms_text(ms: Option<f64>) -> String {
    ms.map_or("-".to_owned(), |ms| format!("{ms:.2}"))
}

pub fn count_text(count: Option<u64>) -> String {
    count.map_or("-".to_owned(), |count| count.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, received: u64, client: u64) -> Sample {
        let overview = Overview {
            mode: "leader".to_owned(),
            received: Some(received),
            sent: Some(received),
            ..Overview::default()
        };
        let connection = |port: u64, received| Connection {
            client: format!("c:{port}"),
            session: Some("0x1".to_owned()),
            received,
            ..Connection::default()
        };
        Sample {
            server: Host::new("zk", 1),
            at,
            overview: Ok(overview),
            metrics: Err(Silence::NotAllowed("mntr")),
            connections: Ok(vec![connection(1, 5), connection(2, client)]),
        }
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        let start = Instant::now();
        let first = sample(start, 100, 0);
        let row = Row::new(&first, None);
        assert_eq!((row.received_per_s, row.hints.len()), (None, 1));
        let second = sample(start + Duration::from_secs(2), 140, 30);
        let row = Row::new(&second, Some(&first));
        assert_eq!(row.received_per_s, Some(20.0));
        let busy: Vec<(String, Option<f64>)> = row
            .busiest
            .iter()
            .map(|busy| (busy.connection.client.clone(), busy.received_per_s))
            .collect();
        assert_eq!(busy, [("c:2".to_owned(), Some(15.0)), ("c:1".to_owned(), Some(0.0))]);
        // The server was restarted.
        let third = sample(start + Duration::from_secs(4), 1, 30);
        assert_eq!(Row::new(&third, Some(&second)).received_per_s, None);
    }
}
