//! A load generator for any server of the ZooKeeper client protocol, Ironkeeper or Apache.
//!
//! The generator usually shares the machine with the measured server, so its own cost limits what
//! it can measure. Therefore: one OS thread (or a few) drives all connections through epoll; a
//! request is a copy of a template, with its xid and the digits of its path patched in; of a reply
//! only the 16-byte header is read, and the rest is skipped by its length; the clock is read once
//! per batch of replies. This costs one read, one write and no allocation per batch: a small
//! fraction of a microsecond per request when requests are pipelined.
//!
//! `load.rs` runs all workloads that are a stream of requests (`read`, `write`, `create`, `mixed`,
//! `stall`, `fill`); `watch`, `idle` and `sessions` have their own loops. `requests.rs` encodes the
//! requests of a workload, `report.rs` prints the result. Read first: [`Args`], `load::Worker`,
//! `template::Layout`, `report::Report`.
//!
//! The crate never uses the client crate or an asynchronous runtime, and does not change the limits
//! of its process: the caller raises the limit on open files.

#![warn(unreachable_pub)]

mod connection;
mod fill;
mod histogram;
mod idle;
mod load;
mod options;
mod process;
mod progress;
mod reply_scanner;
mod report;
mod requests;
mod session;
mod sessions;
mod template;
mod tree;
mod watch;

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result};

pub use options::Args;
use options::{Load, Workload};
use report::Report;
use requests::{Creates, Mix};
use template::Layout;
use tree::Prefix;

/// Runs one workload and prints its report.
pub fn run(args: Args) -> Result<()> {
    let Args { common, workload } = args;
    let servers = resolve(&common.server)?;
    let server = servers[0];
    let report = match workload {
        Workload::Read(options) => mixed(&common, &servers, "read", &options, 100)?,
        Workload::Write(options) => mixed(&common, &servers, "write", &options, 0)?,
        Workload::Mixed(options) => {
            mixed(&common, &servers, "mixed", &options.load, options.read_percent)?
        }
        Workload::Stall(options) => mixed(&common, &servers, "stall", &options.into(), 0)?,
        Workload::Create(options) => create(&common, &servers, &options)?,
        Workload::Fill(options) => fill::run(&common, server, &options)?,
        Workload::Watch(options) => watch::run(&common, server, &options)?,
        Workload::Idle(options) => idle::run(&common, server, &options)?,
        Workload::Sessions(options) => sessions::run(&common, server, &options)?,
        Workload::Clean => {
            let removed = tree::clean(server, &common)?;
            println!("removed {removed} nodes");
            return Ok(());
        }
    };
    report.print(common.json)
}

/// Reads and writes over a fixed set of nodes, `read_percent` of them reads.
fn mixed(
    common: &options::Common,
    servers: &[SocketAddr],
    name: &'static str,
    load: &Load,
    read_percent: u8,
) -> Result<Report> {
    let prefix = Prefix::make(servers[0], common)?;
    let layout = Layout::over(prefix.path(), load.nodes);
    tree::make_nodes(servers[0], common, &layout, load.nodes, load.size)?;
    let sources = (0..load.rate.threads)
        .map(|thread| Mix::new(&layout, load.nodes, load.size, read_percent, thread))
        .collect();
    let outcome = load::run(servers, common, &load.rate, sources)?;
    let mut report = Report::new(name, &common.server, load.describe());
    report.take_load(&outcome, &["reads", "writes"]);
    if name == "stall" {
        report.take_longest(&outcome);
    }
    prefix.remove()?;
    Ok(report)
}

/// Creates nodes below one parent, which is new in each run.
fn create(common: &options::Common, servers: &[SocketAddr], load: &Load) -> Result<Report> {
    let prefix = Prefix::make(servers[0], common)?;
    let parent = prefix.make_child(&format!("c{:x}", tree::unix_millis()))?;
    let layout = Layout::flat(&parent);
    let sources = (0..load.rate.threads)
        .map(|thread| Creates::new(&layout, load.size, thread, load.rate.threads))
        .collect();
    let outcome = load::run(servers, common, &load.rate, sources)?;
    let mut report = Report::new("create", &common.server, load.describe());
    report.take_load(&outcome, &["creates"]);
    prefix.remove()?;
    Ok(report)
}

/// Resolves the addresses of one or more servers; the result is not empty.
fn resolve(servers: &str) -> Result<Vec<SocketAddr>> {
    servers
        .split(',')
        .map(|server| {
            server
                .to_socket_addrs()
                .with_context(|| format!("{server} is not an address; say host:port"))?
                .next()
                .with_context(|| format!("{server} has no address"))
        })
        .collect()
}
