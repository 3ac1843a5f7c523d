//! `ironkeeper status`: prints the state of servers, one row each.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ironkeeper_client::{ConnectString, Host};
use serde::Serialize;

use ironkeeper_shell::amounts::human_time;
use ironkeeper_shell::colour::{Colours, Style};
use ironkeeper_shell::four_letter::{self, Metrics, Overview, Silence};
use ironkeeper_shell::table::Table;

/// Members that are this many transactions behind the most advanced one are queried again.
const SUSPECT_LAG: i64 = 1000;
/// The time that such members have to reach the zxid that the most advanced one had.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Show the state of servers: mode, version, zxid, latency, connections, uptime
///
/// Sends the four-letter words srvr and mntr to each server; where mntr is not allowed, fewer
/// values are shown. Exits with 0 if all is well; with 1 if a server does not reply, does not serve
/// or serves reads only (no quorum), has a full disk or is far behind, or if there is more than one
/// leader; with 2 if the arguments are invalid.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ironkeeper status db1:2181 db2:2181 db3:2181
  ironkeeper status --json db1:2181,db2:2181 | jq -r 'select(.ok | not) | .server'
  ironkeeper status localhost:2181 || echo 'look at it'")]
pub struct Args {
    /// Servers, as host:port or host; several also as host:port,host:port
    #[arg(value_name = "HOST:PORT", default_value = "localhost:2181")]
    servers: Vec<String>,
    /// Print JSON, an object per server
    #[arg(long)]
    json: bool,
    /// The timeout for the reply of a server
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    timeout: u64,
}

/// The state of one server.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) server: Host,
    pub(crate) answer: Result<Overview, Silence>,
    /// The reply to `mntr`.
    metrics: Result<Metrics, Silence>,
    /// The result of the comparison with the other servers.
    behind: Option<String>,
}

impl Report {
    /// Returns the problems of a server that replies.
    fn problems(&self) -> Vec<String> {
        let Ok(overview) = &self.answer else { return Vec::new() };
        let mut problems = Vec::new();
        if overview.mode == "read-only" {
            problems.push("it has no quorum, and serves reads only".to_owned());
        }
        if self.metric("disk_full") == Some(1) {
            problems.push("its disk is full: writes wait until there is room".to_owned());
        }
        problems.extend(self.behind.clone());
        problems
    }

    /// Returns remarks that are not problems.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.metric("autopurge") == Some(0) {
            remarks.push(
                "autopurge.purgeInterval is not set: old snapshots and logs are kept until the \
                 disk is full"
                    .to_owned(),
            );
        }
        if self.answer.is_ok()
            && let Err(silence @ Silence::NotAllowed(_)) = &self.metrics
        {
            remarks.push(format!("{silence}: a full disk would not be noticed here"));
        }
        remarks
    }

    fn is_well(&self) -> bool {
        self.answer.is_ok() && self.problems().is_empty()
    }

    fn metric(&self, key: &str) -> Option<u64> {
        self.metrics.as_ref().ok()?.count(key)
    }

    fn zxid(&self) -> Option<i64> {
        let text = &self.answer.as_ref().ok()?.zxid;
        i64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }
}

/// Queries the servers and prints the result. The exit code tells whether all is well.
pub fn run(args: &Args) -> Result<ExitCode> {
    let servers = hosts(&args.servers)?;
    let within = Duration::from_millis(args.timeout.max(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reports = runtime.block_on(async {
        let mut reports = ask_all(servers, within).await;
        find_those_behind(&mut reports, within).await;
        reports
    });
    let complaint = complaint(&reports);
    let mut text = String::new();
    if args.json {
        for report in &reports {
            text += &serde_json::to_string(&Row::new(report))?;
            text.push('\n');
        }
    } else {
        text = page(&reports, complaint.as_deref(), Colours::of_stdout());
    }
    print(&text)?;
    if args.json
        && let Some(complaint) = &complaint
    {
        eprintln!("{complaint}");
    }
    let all_well = complaint.is_none() && reports.iter().all(Report::is_well);
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the table, followed by the remarks about single servers and about all of them.
fn page(reports: &[Report], complaint: Option<&str>, colours: Colours) -> String {
    let mut text = String::new();
    for (at, line) in table(reports).lines().enumerate() {
        let report = at.checked_sub(1).and_then(|at| reports.get(at));
        let line = match report {
            None => colours.paint(Style::Bold, line),
            Some(report) if !report.is_well() => colours.paint(Style::Red, line),
            Some(report) if report.answer.as_ref().is_ok_and(Overview::is_leader) => {
                colours.paint(Style::Green, line)
            }
            Some(_) => line.to_owned(),
        };
        text += &format!("{line}\n");
    }
    let mut below = Vec::new();
    for report in reports {
        let server = &report.server;
        for problem in report.problems() {
            below.push(colours.paint(Style::Red, format!("{server}: {problem}")));
        }
        for remark in report.remarks() {
            below.push(colours.paint(Style::Yellow, format!("{server}: note: {remark}")));
        }
    }
    below.extend(complaint.map(|complaint| colours.paint(Style::Red, complaint)));
    if !below.is_empty() {
        text += &format!("\n{}\n", below.join("\n"));
    }
    text
}

/// Prints to standard output. A reader that has closed it is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns the servers of some connect strings.
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
                let metrics = match &answer {
                    Ok(_) => four_letter::metrics(&server, within).await,
                    Err(_) => Err(Silence::NotServing),
                };
                Report { server, answer, metrics, behind: None }
            })
        })
        .collect();
    let mut reports = Vec::new();
    for report in asked {
        reports.push(report.await.expect("asking does not panic"));
    }
    reports
}

/// Returns the epoch of a zxid.
fn epoch(zxid: i64) -> i64 {
    zxid >> 32
}

/// Returns the counter of a zxid within its epoch.
fn counter(zxid: i64) -> i64 {
    zxid & 0xffff_ffff
}

/// Finds the members that do not reach, within `CATCH_UP`, the zxid that the most advanced member
/// had.
async fn find_those_behind(reports: &mut [Report], within: Duration) {
    let is_member = |report: &Report| {
        let mode = report.answer.as_ref().map_or("", |overview| overview.mode.as_str());
        matches!(mode, "leader" | "follower" | "observer")
    };
    // A leader of Apache's reports the new epoch before the first transaction in it; other members
    // do not. So zxids with counter 0 are ignored.
    let zxids = reports.iter().filter(|report| is_member(report)).filter_map(Report::zxid);
    let Some(first) = zxids.filter(|zxid| counter(*zxid) != 0).max() else { return };
    let is_suspect = |report: &Report| {
        is_member(report)
            && report
                .zxid()
                .is_some_and(|zxid| epoch(zxid) < epoch(first) || first - zxid > SUSPECT_LAG)
    };
    if !reports.iter().any(is_suspect) {
        return;
    }
    tokio::time::sleep(CATCH_UP).await;
    for report in reports.iter_mut().filter(|report| is_suspect(report)) {
        report.answer = four_letter::overview(&report.server, within).await;
        report.behind = report.zxid().and_then(|now| behind(now, first));
    }
}

/// Returns the remark about a member at `now`, if another member was at `first` one second before.
fn behind(now: i64, first: i64) -> Option<String> {
    match (epoch(now), epoch(first)) {
        (here, there) if here < there => {
            Some(format!("it is behind: in epoch {here} while others are in epoch {there}"))
        }
        (here, there) if here == there && now < first => {
            Some(format!("it is behind the others by {} transactions", first - now))
        }
        _ => None,
    }
}

/// Returns a problem of the servers together, even if each of them is well.
fn complaint(reports: &[Report]) -> Option<String> {
    let leaders: Vec<&Report> = reports
        .iter()
        .filter(|report| report.answer.as_ref().is_ok_and(Overview::is_leader))
        .collect();
    let [first, .., last] = &leaders[..] else { return None };
    let names: Vec<String> = leaders.iter().map(|report| report.server.to_string()).collect();
    let names = names.join(" and ");
    match (first.zxid().map(epoch), last.zxid().map(epoch)) {
        (Some(one), Some(other)) if one != other => Some(format!(
            "{names} all lead, in epochs {one} and {other}: the older one was replaced and does \
             not know it yet, \
             or they are of two ensembles; ask again"
        )),
        _ => Some(format!("{names} all lead: they are of two ensembles")),
    }
}

#[derive(Serialize)]
struct Row<'a> {
    server: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    overview: Option<&'a Overview>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uptime_ms: Option<u64>,
    problems: Vec<String>,
    remarks: Vec<String>,
}

impl Row<'_> {
    fn new(report: &Report) -> Row<'_> {
        Row {
            server: report.server.to_string(),
            ok: report.is_well(),
            error: report.answer.as_ref().err().map(Silence::to_string),
            overview: report.answer.as_ref().ok(),
            uptime_ms: report.metric("uptime"),
            problems: report.problems(),
            remarks: report.remarks(),
        }
    }
}

fn table(reports: &[Report]) -> String {
    let mut table = Table::new(&[
        "SERVER",
        "MODE",
        "VERSION",
        "ZXID",
        "LATENCY MIN/AVG/MAX",
        "CONNECTIONS",
        "OUTSTANDING",
        "NODES",
        "UPTIME",
    ]);
    table.align_right(&[5, 6, 7, 8]);
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
                uptime(report),
            ]),
            Err(silence) => table.remark(server, silence.to_string()),
        }
    }
    table.to_string()
}

/// Formats as `0/0.25/64 ms`.
fn latency(overview: &Overview) -> String {
    match (overview.latency_min_ms, overview.latency_avg_ms, overview.latency_max_ms) {
        (Some(min), Some(avg), Some(max)) => format!("{min}/{avg}/{max} ms"),
        _ => "-".to_owned(),
    }
}

fn uptime(report: &Report) -> String {
    let uptime = report.metric("uptime").map(Duration::from_millis);
    uptime.map_or("-".to_owned(), human_time)
}

fn known(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(port: u16, mode: Option<&str>, zxid: &str) -> Report {
        let overview = |mode: &str| Overview {
            mode: mode.to_owned(),
            version: "3.9.5".to_owned(),
            zxid: zxid.to_owned(),
            connections: Some(3),
            ..Overview::default()
        };
        let answer = mode.map(overview).ok_or(Silence::NotServing);
        let metrics = Ok(Metrics::parse("zk_uptime\t61000\n"));
        Report { server: Host::new("zk", port), answer, metrics, behind: None }
    }

    fn told(text: &str) -> Report {
        let metrics = Ok(Metrics::parse(text));
        Report { metrics, ..report(1, Some("standalone"), "0x5") }
    }

    #[test]
    fn a_server_that_does_not_answer_has_a_row_that_says_why() {
        let shown = page(
            &[report(1, Some("follower"), "0x5"), report(22, None, "")],
            None,
            Colours::default(),
        );
        assert_eq!(
            shown,
            "SERVER  MODE      VERSION  ZXID  LATENCY MIN/AVG/MAX  CONNECTIONS  OUTSTANDING  NODES  UPTIME\n\
             zk:1    follower  3.9.5    0x5   -                              3            -      -   1m 1s\n\
             zk:22   not serving requests; it may be starting, or without a quorum\n"
        );
    }

    #[test]
    fn a_full_disk_is_a_problem_and_no_autopurge_a_remark() {
        let well = told("zk_disk_full\t0\nzk_autopurge\t1\n");
        assert!(well.is_well() && well.remarks().is_empty());
        let full = told("zk_disk_full\t1\nzk_autopurge\t0\n");
        assert!(!full.is_well());
        let shown = page(std::slice::from_ref(&full), None, Colours::default());
        assert!(shown.contains("zk:1: its disk is full"), "{shown}");
        assert!(shown.contains("zk:1: note: autopurge.purgeInterval is not set"), "{shown}");
        let row = serde_json::to_value(Row::new(&full)).unwrap();
        assert_eq!(
            (&row["ok"], row["problems"].as_array().map(Vec::len)),
            (&false.into(), Some(1))
        );
        // Apache's servers do not have these keys.
        assert!(told("zk_uptime\t1\n").is_well());
        assert!(!report(1, Some("read-only"), "0x5").is_well());
    }

    #[test]
    fn two_leaders_are_one_too_many() {
        let pair = |mode, zxid| {
            complaint(&[report(1, Some("leader"), "0x100000005"), report(2, Some(mode), zxid)])
        };
        assert_eq!(pair("follower", "0x100000005"), None);
        assert!(pair("leader", "0x100000005").unwrap().contains("two ensembles"));
        assert!(pair("leader", "0x200000000").unwrap().contains("epochs 1 and 2"));
    }

    #[test]
    fn a_member_that_does_not_catch_up_is_behind() {
        assert_eq!(behind(0x1_0000_0005, 0x1_0000_0005), None);
        assert_eq!(behind(0x2_0000_0000, 0x1_0000_0005), None);
        assert!(behind(0x1_0000_0000, 0x1_0000_0005).unwrap().contains("by 5 transactions"));
        assert!(behind(0x1_0000_0009, 0x2_0000_0000).unwrap().contains("epoch 1"));
    }

    #[tokio::test]
    async fn an_epoch_without_a_transaction_leaves_no_member_behind() {
        let mut reports =
            [report(1, Some("leader"), "0x500000000"), report(2, Some("follower"), "0x400000007")];
        find_those_behind(&mut reports, Duration::ZERO).await;
        assert!(reports.iter().all(Report::is_well));
    }

    #[test]
    fn servers_are_named_one_by_one_or_as_a_list() {
        let named = hosts(&["a:1,b:2".to_owned(), "c".to_owned()]).unwrap();
        let shown: Vec<String> = named.iter().map(Host::to_string).collect();
        assert_eq!(shown, ["a:1", "b:2", "c:2181"]);
        assert!(hosts(&["a:x".to_owned()]).is_err());
    }
}
