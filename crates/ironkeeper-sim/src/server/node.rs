//! One server: the engine and the store of the product, and a minimal driver instead of its
//! threads.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_engine::snapshot::SnapshotJob;
use ironkeeper_engine::{Conn, Database, Engine, Input, MemberStart, Now};
use ironkeeper_node::{
    DurableSteps, Intake, LogItem, LogWork, MemberFiles, ReceivedTree, Recovery, RecoveryError,
    ServerKind, recover, withdraw_unlogged, write_first_snapshot,
};
use ironkeeper_proto::{Membership, ServerId};
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::{Dirs, Store};
use ironkeeper_zab::{Ensemble, Epochs, LinkId};

use super::plan::Plan;
use crate::clock::Clock;

/// The approximate wall-clock time of all servers at the start of the run.
const WALL_MS: i64 = 1_700_000_000_000;
const DATA_DIR: &str = "/data";

/// The membership in the configuration file of a server. Writes of this file are atomic.
#[derive(Clone, Debug)]
pub struct MembersFile(Arc<Mutex<Ensemble>>);

impl MembersFile {
    pub fn new(members: &Membership) -> MembersFile {
        MembersFile(Arc::new(Mutex::new(Ensemble::new(members.clone(), None))))
    }

    pub fn read(&self) -> Ensemble {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Ensemble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberFiles for MembersFile {
    fn write_proposed(&self, next: &Membership) -> io::Result<()> {
        self.lock().propose(next.clone());
        Ok(())
    }

    fn write_committed(&self, committed: &Membership) -> io::Result<()> {
        self.lock().commit(committed.clone());
        Ok(())
    }

    fn withdraw_proposed(&self) -> io::Result<()> {
        let mut ensemble = self.lock();
        *ensemble = Ensemble::new(ensemble.committed().clone(), None);
        Ok(())
    }
}

/// An item of the send queue of a link, see [`Peer::outgoing`].
#[derive(Debug)]
pub enum Piece {
    Bytes(Vec<u8>),
    Tree(Box<SnapshotJob>),
}

/// A link to another server.
#[derive(Debug)]
pub struct Peer {
    pub intake: Intake<SimDisk>,
    /// The queue of a snapshot that is not sent yet and of the bytes after it. Either empty or with
    /// a snapshot at the front.
    pub outgoing: VecDeque<Piece>,
}

/// A connection of a client.
#[derive(Debug)]
pub struct Attached {
    pub conn: Arc<Conn>,
    pub unread: Vec<u8>,
    /// Whether an event that serves the connection is scheduled.
    pub is_planned: bool,
}

/// The state that is lost when the process ends.
#[derive(Debug)]
pub struct Process {
    pub engine: Engine,
    pub db: Arc<Database>,
    pub store: Store<SimDisk>,
    pub inbox: Vec<Input>,
    pub log: LogWork<SimDisk>,
    /// The items that wait for the log.
    pub queue: Vec<LogItem<SimDisk>>,
    /// The items that are being written.
    pub batch: Vec<LogItem<SimDisk>>,
    pub is_writing: bool,
    /// Whether a write failed; after that, nothing is written.
    pub has_log_ended: bool,
    /// The snapshot that is not begun.
    pub snapshot: Option<Box<SnapshotJob>>,
    pub peers: BTreeMap<LinkId, Peer>,
    /// The snapshot of the last leader that has sent one.
    pub received: Option<(LinkId, ReceivedTree<SimDisk>)>,
    pub conns: BTreeMap<LinkId, Attached>,
    /// The time of the next scheduled wake-up.
    pub wake_us: u64,
}

#[derive(Debug)]
pub struct Node {
    pub id: ServerId,
    pub disk: SimDisk,
    pub members: MembersFile,
    pub clock: Clock,
    /// The number of starts.
    pub boot: u64,
    pub process: Option<Process>,
    pub paused_until_us: u64,
    /// The pauses since the last start, as (start, end).
    pub pauses_us: Vec<(u64, u64)>,
    /// The additional delay of messages after a pause: 0 if the process receives them before it
    /// reads its clock, `WAKING_US_MAX` if after.
    pub hears_late_us: u64,
    /// The range of the latency of the disk, in microseconds.
    pub disk_us: (u64, u64),
    pub is_disk_full: bool,
    /// Whether a fault was injected into a disk call since the last start, even if it has not
    /// occurred yet.
    pub is_call_broken: bool,
}

impl Node {
    /// Returns whether an injected disk fault may be the cause of a failure.
    pub fn disk_may_fail(&self) -> bool {
        self.is_disk_full || self.is_call_broken
    }

    /// Removes all faults of the disk and keeps its content.
    pub fn mend_disk(&mut self) {
        self.disk.set_capacity(u64::MAX);
        self.disk.forget_faults();
        (self.is_disk_full, self.is_call_broken) = (false, false);
    }

    pub fn now(&self, now_us: u64) -> Now {
        let mono_ms = self.clock.local_ms(now_us);
        Now { mono_ms, wall_ms: WALL_MS + mono_ms as i64 }
    }

    /// Returns acceptedEpoch and currentEpoch as the process has them in memory.
    pub fn epochs(&self) -> Option<Epochs> {
        self.process.as_ref()?.engine.zab().epochs()
    }

    /// Starts the process with the same steps as the product.
    pub fn start(&mut self, plan: &Plan, seed: u64, now_us: u64) -> Result<(), RecoveryError> {
        let now = self.now(now_us);
        self.boot += 1;
        let config = plan.engine_of(self.id);
        let store = Store::open(self.disk.clone(), Dirs::single(DATA_DIR), plan.store.clone())?;
        let kind = ServerKind::Member {
            history_count_max: plan.settings.history_count_max,
            history_bytes_max: plan.settings.history_bytes_max,
        };
        let mut recovery = recover(&store, config.tree, kind, || {})?;
        if recovery.report.snapshot.is_none() {
            write_first_snapshot(&store, &mut recovery)?;
        }
        let Recovery { recovered, history, .. } = recovery;
        let epochs = store.load_epochs(history.last)?;
        let members = self.members.read();
        let proposed = members.proposed().cloned();
        let proposed = withdraw_unlogged(Some(&self.members), proposed, history.last)
            .expect("this file can always be written");
        let member = MemberStart {
            me: self.id,
            settings: plan.settings.clone(),
            ensemble: Ensemble::new(members.committed().clone(), proposed),
            recovered: history.into_recovered(epochs),
        };
        let steps = DurableSteps {
            store: store.clone(),
            tree: config.tree,
            kind,
            files: Some(Box::new(self.members.clone())),
        };
        let (engine, db) = Engine::member(config, recovered, member, seed, now);
        self.process = Some(Process {
            engine,
            db,
            store,
            inbox: Vec::new(),
            log: LogWork::new(steps, plan.log_file_bytes_max),
            queue: Vec::new(),
            batch: Vec::new(),
            is_writing: false,
            has_log_ended: false,
            snapshot: None,
            peers: BTreeMap::new(),
            received: None,
            conns: BTreeMap::new(),
            wake_us: u64::MAX,
        });
        Ok(())
    }
}
