//! The command line of `ironkeeper bench`.

use std::time::Duration;

use clap::value_parser;

use super::template::NODES_MAX;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub workload: Workload,
}

/// Options of all workloads.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    /// The server to measure, or several members of an ensemble separated by commas: read, write,
    /// mixed, create and stall distribute their connections over them, other workloads use the
    /// first
    #[arg(long, global = true, default_value = "127.0.0.1:2181", value_name = "HOST:PORT")]
    pub server: String,
    /// The parent of all nodes of a run; created if missing, and then deleted after the run
    #[arg(long, global = true, default_value = "/ironkeeper-bench", value_parser = prefix)]
    pub prefix: String,
    /// Keep the nodes of this run
    #[arg(long, global = true)]
    pub keep: bool,
    /// Print the result as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Process id of a server on this machine, to report its CPU time and memory as well; for
    /// several ids, separated by commas, the sums are reported
    #[arg(long, global = true, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Session timeout to request, in milliseconds
    #[arg(long, global = true, default_value_t = 30_000, value_name = "MS",
          value_parser = value_parser!(i32).range(1..))]
    pub session_timeout: i32,
}

#[derive(Debug, clap::Subcommand)]
pub enum Workload {
    /// Read nodes (getData)
    Read(Load),
    /// Write nodes (setData)
    Write(Load),
    /// Read and write nodes
    Mixed(Mixed),
    /// Create nodes below one parent
    Create(Load),
    /// Send one write at a time and show the longest stalls
    Stall(Stall),
    /// Watch one node from many sessions: time from the write to the last event
    Watch(Watch),
    /// Hold many sessions that only ping
    Idle(Idle),
    /// Open and close sessions
    Sessions(Sessions),
    /// Create a large tree, and keep it
    Fill(Fill),
    /// Delete the nodes that earlier runs left below the prefix
    Clean,
}

/// The load and its duration: the options that the load engine needs.
#[derive(Debug, Clone, clap::Args)]
pub struct Rate {
    /// Connections, each with a session of its own
    #[arg(long, short, default_value_t = 16, value_parser = value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, short, default_value_t = 32, value_parser = value_parser!(u32).range(1..=100_000))]
    pub pipeline: u32,
    /// Threads that drive the connections
    #[arg(long, short, default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// How long to measure [default: 10]
    #[arg(long, short, alias = "duration", value_parser = seconds, conflicts_with = "operations")]
    pub seconds: Option<Duration>,
    /// Measure this many operations instead of a duration
    #[arg(long, short = 'n', value_parser = value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// Seconds of load before measuring starts
    #[arg(long, default_value = "1", value_parser = seconds, value_name = "SECONDS")]
    pub warmup: Duration,
}

/// The condition that ends a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Elapsed(Duration),
    Completed(u64),
}

impl Rate {
    pub fn until(&self) -> Until {
        match (self.operations, self.seconds) {
            (Some(operations), _) => Until::Completed(operations),
            (None, seconds) => Until::Elapsed(seconds.unwrap_or(Duration::from_secs(10))),
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "{} connections x {} in flight, {} thread{}",
            self.connections,
            self.pipeline,
            self.threads,
            if self.threads == 1 { "" } else { "s" }
        )
    }
}

#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    #[command(flatten)]
    pub rate: Rate,
    /// Bytes of each value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(0..=1_000_000))]
    pub size: u32,
    /// Nodes to read and write over
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u32,
}

impl Load {
    pub fn describe(&self) -> String {
        format!("{}, {} nodes of {} bytes", self.rate.describe(), self.nodes, self.size)
    }
}

#[derive(Debug, Clone, clap::Args)]
pub struct Mixed {
    #[command(flatten)]
    pub load: Load,
    /// Share of reads; the rest are writes
    #[arg(long, default_value_t = 90, value_parser = value_parser!(u8).range(0..=100))]
    pub read_percent: u8,
}

/// The options of [`Load`] with other defaults: one connection, one request in flight.
#[derive(Debug, Clone, clap::Args)]
pub struct Stall {
    /// Connections, each with a session of its own
    #[arg(long, short, default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, short, default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    pub pipeline: u32,
    /// How long to measure
    #[arg(long, short, default_value = "30", value_parser = seconds)]
    pub seconds: Duration,
    /// Seconds of load before measuring starts
    #[arg(long, default_value = "1", value_parser = seconds, value_name = "SECONDS")]
    pub warmup: Duration,
    /// Bytes of each value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(0..=1_000_000))]
    pub size: u32,
    /// Nodes to write over
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u32,
}

impl From<Stall> for Load {
    fn from(stall: Stall) -> Load {
        Load {
            rate: Rate {
                connections: stall.connections,
                pipeline: stall.pipeline,
                threads: 1,
                seconds: Some(stall.seconds),
                operations: None,
                warmup: stall.warmup,
            },
            size: stall.size,
            nodes: stall.nodes,
        }
    }
}

#[derive(Debug, Clone, clap::Args)]
pub struct Watch {
    /// Sessions that watch, each on a connection of its own
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(1..=100_000))]
    pub watchers: u32,
    /// Writes to measure
    #[arg(long, short = 'n', default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    pub operations: u32,
    /// Writes before measuring starts
    #[arg(long, default_value_t = 10, value_name = "OPERATIONS")]
    pub warmup: u32,
    /// Bytes of the value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(0..=1_000_000))]
    pub size: u32,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Idle {
    /// Sessions to hold
    #[arg(long, short, default_value_t = 1000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// How long to hold them
    #[arg(long, short, default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Milliseconds between two pings of a session [default: a third of the session timeout]
    #[arg(long, value_name = "MS", value_parser = value_parser!(u32).range(1..))]
    pub ping_interval: Option<u32>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Sessions {
    /// Sessions being opened at the same time
    #[arg(long, short, default_value_t = 32, value_parser = value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// How long to measure [default: 10]
    #[arg(long, short, alias = "duration", value_parser = seconds, conflicts_with = "operations")]
    pub seconds: Option<Duration>,
    /// Open this many sessions instead of measuring for a duration
    #[arg(long, short = 'n', value_parser = value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// Measure opening alone: hold every session until the end (requires --operations)
    #[arg(long, requires = "operations")]
    pub hold: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Fill {
    /// Nodes to create
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u32,
    /// Bytes of each value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(0..=1_000_000))]
    pub size: u32,
    /// Creates in one request; more than one makes it a multi
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    /// Connections, each with a session of its own
    #[arg(long, short, default_value_t = 8, value_parser = value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, short, default_value_t = 64, value_parser = value_parser!(u32).range(1..=10_000))]
    pub pipeline: u32,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|why| why.to_string())
}

/// Parses a prefix. The root is rejected because `clean` would delete the whole tree; a relative
/// path is not a valid path.
fn prefix(text: &str) -> Result<String, String> {
    if text.len() < 2 || !text.starts_with('/') || text.ends_with('/') {
        return Err("a path below the root, such as /bench".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        Line::try_parse_from(["bench"].into_iter().chain(line.split_whitespace()))
            .map(|line| line.args)
            .map_err(|why| why.to_string())
    }

    #[track_caller]
    fn refused(line: &str, because: &str) {
        let why = parse(line).expect_err("the line is wrong");
        assert!(why.contains(because), "{why}");
    }

    #[test]
    fn common_options_stand_before_or_behind_the_workload() {
        for line in ["--server h:1 --json read -c 4", "read --json -c 4 --server h:1"] {
            let args = parse(line).unwrap();
            assert_eq!(args.common.server, "h:1");
            assert!(args.common.json);
            let Workload::Read(load) = args.workload else { panic!("not a read") };
            assert_eq!((load.rate.connections, load.rate.pipeline), (4, 32));
        }
    }

    #[test]
    fn a_run_ends_by_time_or_by_count() {
        let until = |line: &str| match parse(line).unwrap().workload {
            Workload::Write(load) => load.rate.until(),
            other => panic!("not a write: {other:?}"),
        };
        assert_eq!(until("write"), Until::Elapsed(Duration::from_secs(10)));
        assert_eq!(until("write --seconds 0.5"), Until::Elapsed(Duration::from_millis(500)));
        assert_eq!(until("write --duration 2"), Until::Elapsed(Duration::from_secs(2)));
        assert_eq!(until("write --operations 7"), Until::Completed(7));
        refused("write --seconds 1 --operations 7", "cannot be used with");
        refused("write --seconds -1", "unexpected argument");
        refused("write --seconds many", "not a number of seconds");
    }

    #[test]
    fn a_stall_run_has_one_write_in_flight_unless_told_otherwise() {
        let Workload::Stall(stall) = parse("stall").unwrap().workload else { panic!() };
        let load = Load::from(stall);
        assert_eq!((load.rate.connections, load.rate.pipeline, load.rate.threads), (1, 1, 1));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        refused("read --connections 0", "0 is not in");
        refused("read --size 2000000", "2000000 is not in");
        refused("mixed --read-percent 101", "101 is not in");
        refused("fill --nodes 200000000", "200000000 is not in");
        refused("sessions --hold", "--operations");
    }

    #[test]
    fn the_root_is_no_prefix() {
        for wrong in ["/", "bench", "/bench/", ""] {
            assert!(prefix(wrong).is_err(), "{wrong}");
        }
        assert_eq!(prefix("/a/b").as_deref(), Ok("/a/b"));
    }
}
