//! `ironkeeper status`: how servers are, one row each.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ironkeeper_client::{ConnectString, Host};
use serde::Serialize;

use crate::four_letter::{self, Overview, Silence};
use crate::table::Table;

/// Show how servers are: mode, version, zxid, latency, connections
///
/// Asks each server by the four-letter word srvr. Exits with 0 if all of them serve requests, with 1 if not.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Servers, as host:port or host; several also as host:port,host:port
    #[arg(value_name = "HOST:PORT", default_value = "localhost:2181")]
    servers: Vec<String>,
    /// Print JSON, an object per server
    #[arg(long)]
    json: bool,
    /// How long a server has to answer
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    timeout: u64,
}

/// One server, and how it is.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) server: Host,
    pub(crate) answer: Result<Overview, Silence>,
}

/// Asks and prints. The exit code says whether all is well.
pub fn run(args: &Args) -> Result<ExitCode> {
    let servers = hosts(&args.servers)?;
    let within = Duration::from_millis(args.timeout.max(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reports = runtime.block_on(ask_all(servers, within));
    let complaint = complaint(&reports);
    let mut text = String::new();
    if args.json {
        for report in &reports {
            text += &serde_json::to_string(&Row::new(report))?;
            text.push('\n');
        }
    } else {
        text = table(&reports);
        if let Some(complaint) = &complaint {
            text += &format!("\n{complaint}\n");
        }
    }
    print(&text)?;
    let all_well = complaint.is_none() && reports.iter().all(|report| report.answer.is_ok());
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A reader that went away is no failure.
fn print(text: &str) -> Result<()> {
    match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The servers of some connect strings.
pub(crate) fn hosts(words: &[String]) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for word in words {
        let parsed: ConnectString =
            word.parse().with_context(|| format!("not a server: {word}"))?;
        hosts.extend_from_slice(parsed.servers());
    }
    ensure!(!hosts.is_empty(), "no servers are named");
    Ok(hosts)
}

pub(crate) async fn ask_all(servers: Vec<Host>, within: Duration) -> Vec<Report> {
    let asked: Vec<_> = servers
        .into_iter()
        .map(|server| {
            tokio::spawn(async move {
                let answer = four_letter::overview(&server, within).await;
                Report { server, answer }
            })
        })
        .collect();
    let mut reports = Vec::new();
    for report in asked {
        reports.push(report.await.expect("asking does not panic"));
    }
    reports
}

/// What is wrong about servers that are well one by one.
fn complaint(reports: &[Report]) -> Option<String> {
    let leaders: Vec<String> = reports
        .iter()
        .filter(|report| report.answer.as_ref().is_ok_and(Overview::is_leader))
        .map(|report| report.server.to_string())
        .collect();
    (leaders.len() > 1).then(|| {
        format!("{} all say that they lead; are they of one ensemble?", leaders.join(" and "))
    })
}

#[derive(Serialize)]
struct Row<'a> {
    server: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    overview: Option<&'a Overview>,
}

impl Row<'_> {
    fn new(report: &Report) -> Row<'_> {
        Row {
            server: report.server.to_string(),
            ok: report.answer.is_ok(),
            error: report.answer.as_ref().err().map(Silence::to_string),
            overview: report.answer.as_ref().ok(),
        }
    }
}

fn table(reports: &[Report]) -> String {
    let mut table = Table::new(&[
        "SERVER",
        "MODE",
        "VERSION",
        "ZXID",
        "LATENCY",
        "CONNECTIONS",
        "OUTSTANDING",
        "NODES",
    ]);
    table.align_right(&[5, 6, 7]);
    for report in reports {
        let server = report.server.to_string();
        match &report.answer {
            Ok(overview) => table.row(vec![
                server,
                overview.mode.clone(),
                overview.version.clone(),
                overview.zxid.clone(),
                latency(overview),
                known(overview.connections),
                known(overview.outstanding),
                known(overview.nodes),
            ]),
            Err(silence) => table.remark(server, silence.to_string()),
        }
    }
    table.to_string()
}

/// `0/0.25/64 ms`
fn latency(overview: &Overview) -> String {
    match (overview.latency_min_ms, overview.latency_avg_ms, overview.latency_max_ms) {
        (Some(min), Some(avg), Some(max)) => format!("{min}/{avg}/{max} ms"),
        _ => "-".to_owned(),
    }
}

fn known(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(port: u16, mode: Option<&str>) -> Report {
        let overview = |mode: &str| Overview {
            mode: mode.to_owned(),
            version: "3.9.5".to_owned(),
            zxid: "0x5".to_owned(),
            connections: Some(3),
            ..Overview::default()
        };
        let answer = mode.map(overview).ok_or(Silence::NotServing);
        Report { server: Host::new("zk", port), answer }
    }

    #[test]
    fn a_server_that_does_not_answer_has_a_row_that_says_why() {
        let shown = table(&[report(1, Some("follower")), report(22, None)]);
        assert_eq!(
            shown,
            "SERVER  MODE      VERSION  ZXID  LATENCY  CONNECTIONS  OUTSTANDING  NODES\n\
             zk:1    follower  3.9.5    0x5   -                  3            -      -\n\
             zk:22   not serving requests; it may be starting, or without a quorum\n"
        );
    }

    #[test]
    fn two_leaders_are_one_too_many() {
        assert_eq!(complaint(&[report(1, Some("leader")), report(2, Some("follower"))]), None);
        assert!(complaint(&[report(1, Some("leader")), report(2, Some("leader"))]).is_some());
    }

    #[test]
    fn servers_are_named_one_by_one_or_as_a_list() {
        let named = hosts(&["a:1,b:2".to_owned(), "c".to_owned()]).unwrap();
        let shown: Vec<String> = named.iter().map(Host::to_string).collect();
        assert_eq!(shown, ["a:1", "b:2", "c:2181"]);
        assert!(hosts(&["a:x".to_owned()]).is_err());
    }
}
