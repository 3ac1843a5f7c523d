//! Creates a large tree as fast as the server accepts it, and keeps it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::load::{self, Outcome};
use super::options::{Common, Fill, Rate};
use super::report::Report;
use super::requests::{FillInBatches, FillOneByOne};
use super::template::Layout;
use super::tree::{self, Prefix};

pub(crate) fn run(common: &Common, server: SocketAddr, fill: &Fill) -> Result<Report> {
    let common = &Common { keep: true, ..common.clone() };
    let prefix = Prefix::make(server, common)?;
    let layout = Layout::over(prefix.path(), fill.nodes);
    tree::make_folders(server, common, &layout, fill.nodes)?;
    let rate = Rate {
        connections: fill.connections,
        pipeline: fill.pipeline,
        threads: 1,
        seconds: None,
        operations: Some(u64::MAX),
        warmup: Duration::ZERO,
    };
    let setting = format!(
        "{} nodes of {} bytes, {} to a request, {}",
        fill.nodes,
        fill.size,
        fill.batch,
        rate.describe()
    );
    let mut report = Report::new("fill", &common.server, setting);
    if fill.batch == 1 {
        let source = FillOneByOne::new(&layout, fill.nodes, fill.size);
        let outcome = load::run(&[server], common, &rate, vec![source])?;
        report.take_load(&outcome, &["creates"]);
    } else {
        let source = FillInBatches::new(&layout, fill.nodes, fill.size, fill.batch);
        let outcome = load::run(&[server], common, &rate, vec![source])?;
        report.take_load(&outcome, &["multis"]);
        report.rate(nodes_made(fill, &outcome), outcome.elapsed);
        report.used(outcome.client, outcome.server);
    }
    prefix.remove()?;
    Ok(report)
}

/// Returns the number of nodes that the successful multis created. Only the last multi may be
/// smaller than the others.
fn nodes_made(fill: &Fill, outcome: &Outcome) -> u64 {
    (outcome.operations() * u64::from(fill.batch)).min(u64::from(fill.nodes))
}
