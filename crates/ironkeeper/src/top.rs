//! `ironkeeper top`: the shell's `top` as a separate command, without a session.

use std::process::ExitCode;

use anyhow::Result;

use ironkeeper_shell as shell;

/// Show the load of servers on the full screen: throughput, latency, sessions, watches, busiest
/// clients
///
/// Sends the four-letter words srvr, mntr and cons; the last two must be allowed by
/// 4lw.commands.whitelist. Without a terminal it prints one line per server and sample. q quits.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ironkeeper top db1:2181 db2:2181 db3:2181
  ironkeeper top -n 1 --json db1:2181,db2:2181 | jq .zxid")]
pub struct Args {
    /// Servers, as host:port or host; several also as host:port,host:port
    #[arg(value_name = "HOST:PORT", default_value = "localhost:2181")]
    servers: Vec<String>,
    /// Seconds between samples
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 2.0)]
    delay: f64,
    /// End after this many samples
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,
    /// Print JSON, an object per server and sample
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut words = vec!["top".to_owned(), "-d".to_owned(), args.delay.to_string()];
    if let Some(count) = args.count {
        words.extend(["-n".to_owned(), count.to_string()]);
    }
    if args.json {
        words.push("--json".to_owned());
    }
    words.push("--".to_owned());
    words.extend_from_slice(&args.servers);
    shell::run_without_session(words)
}
