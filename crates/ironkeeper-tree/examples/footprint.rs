//! Measures the cost of a node: resident bytes per znode and time per operation.
//!
//! ```text
//! cargo run --release -p ironkeeper-tree --example footprint [nodes] [data bytes]
//! ```
//! All operations visit the nodes in a shuffled order, so that caches help as little as in
//! production. Times are CPU time, not wall-clock time, so that other programs disturb them less.
//! Memory and times are read from /proc, so this runs on Linux only.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program, not the tree"
)]

use std::hint::black_box;
use std::time::Instant;

use ironkeeper_proto::txn::{CreateKind, CreateTxn};
use ironkeeper_proto::{AclVec, OpCode, SessionId, Txn, TxnHeader, Zxid};
use ironkeeper_tree::{NoChanges, Slice, Tree, TreeConfig};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().expect("a number"));
    let nodes = args.next().unwrap_or(1_000_000);
    let data = vec![b'x'; args.next().unwrap_or(100)];
    let mut bench = Bench { tree: Tree::new(TreeConfig::default()), zxid: 0 };
    bench.create("/bench", b"");
    // Visits all numbers below `nodes` in a pseudo-random order.
    let step = (nodes * 618 / 1000).max(1);
    let step = (step..).find(|step| gcd(*step, nodes) == 1).expect("there is a coprime number");
    let paths: Vec<String> =
        (0..nodes).map(|n| format!("/bench/n{:010}", (n * step) % nodes)).collect();

    let before = resident_bytes();
    let took = time(nodes, || {
        for path in &paths {
            bench.create(path, &data);
        }
    });
    println!("create            {took:7.0} ns");
    let grown = resident_bytes() - before;
    println!("resident          {:7.1} bytes per znode", grown as f64 / nodes as f64);
    let took = time(nodes, || {
        for n in 0..nodes {
            black_box(bench.tree.find(&paths[n * 7 % nodes]).expect("created").stat());
        }
    });
    println!("find + stat       {took:7.0} ns");
    let mut out = Vec::with_capacity(4096);
    let took = time(nodes, || {
        for n in 0..nodes {
            out.clear();
            let node = bench.tree.find(&paths[n * 11 % nodes]).expect("created");
            out.extend_from_slice(node.data().unwrap_or_default());
            node.stat().encode(&mut out);
            black_box(&out);
        }
    });
    println!("find + getData    {took:7.0} ns");
    let took = time(nodes, || {
        for n in 0..nodes {
            bench.set_data(&paths[n * 13 % nodes], &data, 1);
        }
    });
    println!("setData           {took:7.0} ns");
    let took = time(nodes, || {
        let root = bench.tree.find("/bench").expect("created");
        black_box(root.children().map(str::len).sum::<usize>());
    });
    println!("list a child      {took:7.0} ns");

    let start = Instant::now();
    let mut walk = bench.tree.begin_snapshot();
    println!("begin snapshot    {:7} us", start.elapsed().as_micros());
    let (mut out, mut total, mut slices) = (Vec::new(), 0, Vec::new());
    let took = time(nodes, || {
        let mut slice = Slice::More;
        while slice == Slice::More {
            out.clear();
            let start = Instant::now();
            slice = bench.tree.snapshot_slice(&mut walk, &mut out, 256, 64 << 10);
            slices.push(start.elapsed());
            total += out.len();
        }
    });
    println!("snapshot a node   {took:7.0} ns, {total} bytes in {} slices", slices.len());
    // On a busy machine other programs cause the longest slices, so the 99th percentile is
    // reported.
    slices.sort();
    println!("slice, 99 of 100  {:7} us", slices[slices.len() * 99 / 100].as_micros());
    let took = time(nodes, || {
        for n in 0..nodes {
            bench.set_data(&paths[n * 13 % nodes], &data, 2);
        }
    });
    println!("setData, snapshot {took:7.0} ns");
    drop(bench.tree.end_snapshot(walk));
    let took = time(nodes, || {
        for n in 0..nodes {
            bench.delete(&paths[n * 17 % nodes]);
        }
    });
    println!("delete            {took:7.0} ns");
}

struct Bench {
    tree: Tree,
    zxid: i64,
}

impl Bench {
    fn apply(&mut self, op: OpCode, txn: &Txn<'_>) {
        self.zxid += 1;
        let (zxid, time) = (Zxid(self.zxid), 1_700_000_000_000 + self.zxid);
        let header = TxnHeader { session: SessionId(1), cxid: 1, zxid, time, op };
        black_box(self.tree.apply(&header, txn, &mut NoChanges));
    }

    fn create(&mut self, path: &str, data: &[u8]) {
        let txn = Txn::Create(CreateTxn {
            path: path.into(),
            data: Some(data),
            acl: AclVec::OPEN,
            kind: CreateKind::Persistent,
            parent_cversion: -1,
        });
        self.apply(OpCode::Create, &txn);
    }

    fn set_data(&mut self, path: &str, data: &[u8], version: i32) {
        self.apply(OpCode::SetData, &Txn::SetData { path: path.into(), data: Some(data), version });
    }

    fn delete(&mut self, path: &str) {
        self.apply(OpCode::Delete, &Txn::Delete { path: path.into() });
    }
}

/// Returns the nanoseconds for one of `count` operations.
fn time(count: usize, run: impl FnOnce()) -> f64 {
    let start = cpu_ns();
    run();
    (cpu_ns() - start) as f64 / count as f64
}

fn cpu_ns() -> u64 {
    number("/proc/thread-self/schedstat", 0)
}

fn resident_bytes() -> u64 {
    number("/proc/self/statm", 1) * 4096
}

fn number(file: &str, field: usize) -> u64 {
    let text = std::fs::read_to_string(file).expect("this is Linux");
    let field = text.split_whitespace().nth(field).expect("fields as documented");
    field.parse().expect("a number")
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
