//! Files written by Apache ZooKeeper 3.9.5: sessions, every kind of node, a successful and a failed
//! multi, ACLs, a container, a TTL node, names beyond ASCII.

use ironkeeper_proto::{OpCode, Zxid};
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::StoreOptions;

use crate::recorder::*;

const LOG_1: &[u8] = include_bytes!("../data/apache-3.9.5/log.1");
const LOG_1B: &[u8] = include_bytes!("../data/apache-3.9.5/log.1b");
const SNAPSHOT_0: &[u8] = include_bytes!("../data/apache-3.9.5/snapshot.0");
const SNAPSHOT_1A: &[u8] = include_bytes!("../data/apache-3.9.5/snapshot.1a");
const SNAPSHOT_1B_GZ: &[u8] = include_bytes!("../data/apache-3.9.5/snapshot.1b.gz");
const SNAPSHOT_1B_SNAPPY: &[u8] = include_bytes!("../data/apache-3.9.5/snapshot.1b.snappy");

fn disk(files: &[(&str, &[u8])]) -> SimDisk {
    let disk = SimDisk::new(1);
    for (name, bytes) in files {
        let path = if name.starts_with("log") { log_path(name) } else { snap_path(name) };
        disk.put(&path, bytes);
    }
    disk
}

#[test]
fn the_whole_log_replays_onto_the_first_snapshot() {
    let disk = disk(&[("snapshot.0", SNAPSHOT_0), ("log.1", LOG_1), ("log.1b", LOG_1B)]);
    let (recorder, recovered) = recover(&disk).unwrap();
    assert_eq!(recovered.last_zxid, Zxid(0x1b));
    assert_eq!(recovered.txns, 0x1b);
    assert_eq!(recovered.torn_tail, None);
    assert_eq!(recorder.zxids(), (1..=0x1b).collect::<Vec<i64>>());
    let ops: Vec<OpCode> = recorder.txns.iter().map(|(_, op)| *op).collect();
    for op in [
        OpCode::CreateSession,
        OpCode::CloseSession,
        OpCode::Create,
        OpCode::CreateContainer,
        OpCode::CreateTtl,
        OpCode::SetData,
        OpCode::SetAcl,
        OpCode::Delete,
        OpCode::Multi,
        OpCode::Error,
    ] {
        assert!(ops.contains(&op), "{op:?}");
    }
    assert_eq!(recorder.paths(), ["", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]);
}

#[test]
fn the_newest_snapshot_spares_the_log_before_it() {
    let mut disk = disk(&[("snapshot.0", SNAPSHOT_0), ("snapshot.1a", SNAPSHOT_1A)]);
    for (name, bytes) in [("log.1", LOG_1), ("log.1b", LOG_1B)] {
        disk.put(&log_path(name), bytes);
    }
    let (recorder, recovered) = recover(&disk).unwrap();
    assert_eq!(recovered.snapshot, Some((Zxid(0x1a), snap_path("snapshot.1a"))));
    assert_eq!(recorder.zxids(), [0x1b]);
    let mut paths = recorder.paths();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "",
            "/app",
            "/app/bin",
            "/app/n-0000000001",
            "/app/n-0000000002",
            "/container",
            "/container/x",
            "/live",
            "/m",
            "/m/a",
            "/secret",
            "/ttl",
            "/unicode-äß-日本",
            "/zookeeper",
            "/zookeeper/config",
            "/zookeeper/quota",
        ]
    );
    assert_eq!(recorder.digest.map(|digest| digest.zxid), Some(Zxid(0x1a)));

    // The same without the log that the snapshot covers.
    disk = self::disk(&[("snapshot.1a", SNAPSHOT_1A), ("log.1b", LOG_1B)]);
    assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(0x1b));
}

#[test]
fn compressed_snapshots_hold_the_same_tree() {
    let gz = recover(&disk(&[("snapshot.1b.gz", SNAPSHOT_1B_GZ)])).unwrap().0;
    let snappy = recover(&disk(&[("snapshot.1b.snappy", SNAPSHOT_1B_SNAPPY)])).unwrap().0;
    assert_eq!(
        (&gz.nodes, &gz.acls, &gz.sessions),
        (&snappy.nodes, &snappy.acls, &snappy.sessions)
    );
    assert_eq!((gz.snapshot, gz.nodes.len()), (Some(Zxid(0x1b)), 16));
    // The second was written after a restart without any later transaction, when Apache does not
    // know the digest and writes zeroes.
    let digest = |recorder: &Recorder| recorder.digest.map(|digest| (digest.zxid.0, digest.digest));
    assert_eq!(digest(&gz), Some((0x1b, 0x8_182e_4384)));
    assert_eq!(digest(&snappy), Some((0, 0)));
}

/// ZOOKEEPER-2325, 3056, 3644.
#[test]
fn a_log_without_its_snapshot_needs_trust() {
    let disk = disk(&[("log.1", LOG_1)]);
    let error = recover(&disk).unwrap_err();
    assert!(error.to_string().contains("snapshot.trust.empty"), "{error}");
    let trusting = StoreOptions { trust_empty: true, ..small() };
    let (recorder, recovered) = recover_with(&disk, trusting).unwrap();
    assert_eq!((recorder.snapshot, recovered.last_zxid), (None, Zxid(0x1a)));
    assert!(!recovered.fresh);
}
