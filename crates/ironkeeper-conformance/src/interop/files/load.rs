//! Writes that continue until the server stops, and a check of their results.
//!
//! Every worker has its own session and its own parent node and sends a fixed sequence of
//! operations, many in flight. Replies arrive in order, so at the end the numbers of sent and of
//! acknowledged operations are known; the children of the parent must be the result of the first N
//! operations, with acknowledged <= N <= sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ironkeeper_proto::acl::{self, Acl, Perms};
use ironkeeper_proto::{CreateMode, OpCode, SessionId};

use super::client::{Client, Dump, create_body, delete_body, set_acl_body, set_body};

const WORKERS: usize = 3;
/// The number of nodes of a worker.
const NODES: u64 = 40;
const IN_FLIGHT: u64 = 24;
const POLL: Duration = Duration::from_millis(5);
pub const ROOT: &str = "/load";

/// The operations of one worker.
#[derive(Debug)]
struct Written {
    folder: String,
    session: SessionId,
    sent: u64,
    acknowledged: u64,
}

/// The operations of all workers.
#[derive(Debug)]
pub struct Account(Vec<Written>);

/// Running workers.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    workers: Vec<JoinHandle<Result<Written>>>,
}

impl Load {
    /// Starts the workers. `round` distinguishes runs on the same tree.
    pub fn start(port: u16, round: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut root = Client::open(port)?;
        if round == 0 {
            root.create(ROOT, None, CreateMode::Persistent, &acl::open())?;
        }
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let folder = format!("{ROOT}/{round}-{worker}");
            root.create(&folder, None, CreateMode::Persistent, &acl::open())?;
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            workers.push(thread::spawn(move || work(port, folder, &stop, &acknowledged)));
        }
        root.close()?;
        Ok(Self { stop, acknowledged, workers })
    }

    /// Waits until this many more operations are acknowledged.
    pub fn wait_for(&self, count: u64) -> Result<()> {
        let goal = self.acknowledged.load(Ordering::Relaxed) + count;
        while self.acknowledged.load(Ordering::Relaxed) < goal {
            if self.workers.iter().any(JoinHandle::is_finished) {
                bail!("a worker ended before its time");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Stops the workers; called before a clean stop or after a kill.
    pub fn finish(self) -> Result<Account> {
        self.stop.store(true, Ordering::Relaxed);
        let join = |worker: JoinHandle<Result<Written>>| {
            worker.join().map_err(|_| anyhow!("a worker panicked"))?
        };
        Ok(Account(self.workers.into_iter().map(join).collect::<Result<_>>()?))
    }
}

fn work(
    port: u16,
    folder: String,
    stop: &AtomicBool,
    acknowledged_by_all: &AtomicU64,
) -> Result<Written> {
    let mut client = Client::open(port)?;
    let (mut sent, mut acknowledged) = (0, 0);
    loop {
        while sent - acknowledged < IN_FLIGHT && !stop.load(Ordering::Relaxed) {
            let (op, body) = operation(&folder, sent);
            client.send(op, &body);
            sent += 1;
        }
        if sent == acknowledged {
            break;
        }
        let Some(reply) = client.receive()? else { break };
        if let Err(code) = reply.outcome {
            bail!("operation {acknowledged} in {folder} was refused with {code}");
        }
        acknowledged += 1;
        acknowledged_by_all.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Written { folder, session: client.session(), sent, acknowledged })
}

/// Returns the node of operation `number`, and the kind of the operation.
fn place(number: u64) -> (u64, u64) {
    (number % NODES, number / NODES % 4)
}

fn is_ephemeral(node: u64) -> bool {
    node.is_multiple_of(7)
}

fn data(number: u64) -> Vec<u8> {
    format!("{number:0100}").into_bytes()
}

fn operation(folder: &str, number: u64) -> (OpCode, Vec<u8>) {
    let (node, step) = place(number);
    let path = format!("{folder}/{node}");
    match step {
        0 => {
            let mode =
                if is_ephemeral(node) { CreateMode::Ephemeral } else { CreateMode::Persistent };
            (OpCode::Create, create_body(&path, Some(&data(number)), mode, &acl::open()))
        }
        1 => (OpCode::SetData, set_body(&path, Some(&data(number)))),
        // Few distinct ACLs, so that they are shared, removed and added again while snapshots are
        // taken.
        2 => {
            let list =
                [Acl::new(Perms::ALL, "ip", &format!("127.0.0.{}", 1 + number % 200)), open()];
            (OpCode::SetAcl, set_acl_body(&path, &list))
        }
        _ => (OpCode::Delete, delete_body(&path)),
    }
}

fn open() -> Acl {
    Acl::new(Perms::ALL, "world", "anyone")
}

/// Returns the expected nodes after the first `count` operations: the data of each and the length
/// of its ACL.
fn model(count: u64) -> BTreeMap<u64, (Vec<u8>, usize)> {
    // Every cycle ends without nodes, so only the last, incomplete cycle matters.
    let cycle = NODES * 4;
    let mut nodes = BTreeMap::new();
    for number in count / cycle * cycle..count {
        let (node, step) = place(number);
        match step {
            0 => drop(nodes.insert(node, (data(number), 1))),
            3 => drop(nodes.remove(&node)),
            _ => {
                if let Some((value, entries)) = nodes.get_mut(&node) {
                    if step == 1 { *value = data(number) } else { *entries = 2 }
                }
            }
        }
    }
    nodes
}

impl Account {
    /// Checks that a tree holds all acknowledged operations and none that was not sent.
    pub fn check(&self, dump: &Dump) -> Result<()> {
        for written in &self.0 {
            let prefix = format!("{}/", written.folder);
            let mut found = BTreeMap::new();
            for (path, node) in dump.range(prefix.clone()..) {
                let Some(name) = path.strip_prefix(&prefix) else { break };
                let name: u64 = name.parse().context("a node nobody made")?;
                let owner = if is_ephemeral(name) { written.session.0 } else { 0 };
                if node.stat.ephemeral_owner != owner {
                    bail!("{path} has owner {:#x}", node.stat.ephemeral_owner);
                }
                found.insert(name, (node.data.clone().unwrap_or_default(), node.acl.len()));
            }
            if !(written.acknowledged..=written.sent).any(|count| model(count) == found) {
                bail!(
                    "{} does not look as after any of the operations {} (acknowledged) to {} (sent)",
                    written.folder,
                    written.acknowledged,
                    written.sent
                );
            }
        }
        Ok(())
    }
}
