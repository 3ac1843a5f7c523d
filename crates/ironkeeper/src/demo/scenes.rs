//! The list of demos, in the order in which they run.

mod barriers;
mod elections;
mod groups;
mod locks;
mod naming;
mod queues;
mod services;
mod transactions;
mod values;
mod watching;

use std::pin::Pin;

use anyhow::Result;

use super::stage::Stage;

/// The future of a demo.
type Playing<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// A demo.
#[derive(Debug)]
pub struct Scene {
    pub name: &'static str,
    pub what: &'static str,
    pub play: fn(&mut Stage) -> Playing<'_>,
    /// The path of the demo's function, as `stringify!` prints it: `locks :: mutex`.
    source: &'static str,
}

impl Scene {
    pub fn module(&self) -> &'static str {
        self.source.split("::").next().unwrap_or_default().trim()
    }

    pub fn function(&self) -> &'static str {
        self.source.rsplit("::").next().unwrap_or_default().trim()
    }

    /// Returns the path of the demo's source file in the repository.
    pub fn file(&self) -> String {
        format!("crates/ironkeeper/src/demo/scenes/{}.rs", self.module())
    }
}

/// Builds the table of demos; derives `source` from the path of the function.
macro_rules! scenes {
    ($($name:literal, $what:literal, $play:path;)*) => {
        &[$(Scene {
            name: $name,
            what: $what,
            play: |stage| Box::pin($play(stage)),
            source: stringify!($play),
        }),*]
    };
}

/// All demos, in the order in which they run.
pub const ALL: &[Scene] = scenes! {
    "mutex", "a fair lock: each waits for the one before it, and a crash passes it on", locks::mutex;
    "fencing", "a holder that has lost its lock cannot write any more", locks::fencing;
    "reentrant", "a lock that its holder may take again", locks::reentrant;
    "single-node", "the simplest lock, and the herd that it wakes", locks::single_node;
    "lock-delay", "a lock that stays closed for a while when its holder dies", locks::lock_delay;
    "read-write", "readers share, writers do not, and a writer may become a reader", locks::read_write;
    "host-names", "readers and writers whose nodes say who they are", locks::host_names;
    "semaphore", "two may enter at once", locks::semaphore;
    "changing-limit", "a number of leases that changes while they are in use", locks::changing_limit;
    "lease-time", "a lease that ends by itself", locks::lease_time;
    "semaphore-mutex", "a semaphore of one, not to be taken twice", locks::semaphore_mutex;
    "multi-lock", "several locks, all or none", locks::multi_lock;
    "revocation", "asking a holder to give way", locks::revocation;
    "lease", "once a day, whoever comes first", locks::lease;
    "optimistic", "no lock at all: writes that fail if somebody was faster", locks::optimistic;
    "condition", "waiting inside a lock until something is so", locks::condition;
    "deadlock", "two who wait for each other, and how it is noticed and ended", locks::deadlock;
    "leader-latch", "a leader that stays until it goes, watched from outside", elections::latch;
    "leader-selector", "leading for a while, by turns", elections::selector;
    "election-support", "an election told event by event", elections::support;
    "static-election", "whoever creates the node leads", elections::static_election;
    "barrier", "everybody waits until the barrier is taken away", barriers::barrier;
    "double-barrier", "begin together and end together", barriers::double;
    "sized-barrier", "how many have to come is said on the tree", barriers::sized;
    "cyclic-barrier", "round after round", barriers::cyclic;
    "count-down-latch", "go when so many things are done", barriers::count_down;
    "queue", "first in, first out, taken without a herd", queues::simple;
    "work-queue", "work that comes back when its worker dies", queues::work;
    "bounded-queue", "no more orders than there is room for, and work that fails", queues::bounded;
    "id-queue", "items that can be taken back by their id", queues::ids;
    "priority-queue", "the urgent first", queues::priority;
    "delay-queue", "not before its time", queues::delay;
    "blocking-queue", "a queue with room for so many", queues::blocking;
    "sharded-queue", "one queue in several pieces", queues::sharded;
    "counter", "many count, nothing is counted twice", values::counter;
    "atomic-value", "changed if it is what one thinks it is", values::atomic_value;
    "shared-value", "a value that is changed by those who have read it", values::shared_value;
    "shared-count", "a number that all see change", values::shared_count;
    "cached-counter", "numbers fetched in blocks", values::cached_counter;
    "map", "a map that many change at once", values::map;
    "set", "a set that many put things into", values::set;
    "node-cache", "one node, kept in memory before it is there", watching::node_cache;
    "children-cache", "the children of a node, kept in memory", watching::children_cache;
    "cache", "a part of the tree, kept in memory", watching::cache;
    "persistent-node", "a node that comes back when it is deleted", watching::persistent_node;
    "ttl-node", "a node that outlives its owner for a while", watching::ttl_node;
    "persistent-watcher", "a watch that is set once", watching::persistent_watcher;
    "group", "who is here, with data, and who has left", groups::members;
    "party", "kazoo's party", groups::party;
    "partition", "a set of things, shared out among the members", groups::partition;
    "heartbeat", "who lives, who is dead", groups::heartbeat;
    "progress", "how far everybody has come", groups::progress;
    "command", "a word to everybody, and their answers", groups::command;
    "config", "values published together, followed, with a way back", transactions::config;
    "names", "a name service", naming::names;
    "ids", "numbers that nobody else gets", naming::ids;
    "snowflake", "ids made without asking, by leased worker numbers", naming::snowflake;
    "uuids", "ids that need no server", naming::uuids;
    "discovery", "services found and chosen by turns", services::discovery;
    "service-cache", "the instances of a service, kept in memory", services::cache;
    "balancers", "rules by which one of many instances is chosen", services::balancers;
    "least-connections", "the instance with the fewest connections, counted in the tree", services::least_connections;
    "master-worker", "tasks handed out, and handed out again when a worker dies", services::master_worker;
    "transactions", "several nodes read and written as if there was nobody else", transactions::memory;
    "models", "typed values on paths, and migrations applied once", transactions::models;
    "cached-model", "typed values, kept in memory", transactions::cached_model;
    "schemas", "rules for what may be written where", transactions::schemas;
};
