//! What can be played, in the order of the tour.

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

/// The future of a scene.
type Playing<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Something to be played.
#[derive(Debug)]
pub struct Scene {
    pub name: &'static str,
    pub what: &'static str,
    pub play: fn(&mut Stage) -> Playing<'_>,
}

/// Names a scene's function and makes a table row of it.
macro_rules! scenes {
    ($($name:literal, $what:literal, $play:path;)*) => {
        &[$(Scene { name: $name, what: $what, play: |stage| Box::pin($play(stage)) }),*]
    };
}

/// The tour.
pub const ALL: &[Scene] = scenes! {
    "mutex", "a fair lock: each waits for the one before it, and a crash passes it on", locks::mutex;
    "fencing", "a holder that has lost its lock cannot write any more", locks::fencing;
    "read-write", "readers share, writers do not, and a writer may become a reader", locks::read_write;
    "semaphore", "two may enter at once", locks::semaphore;
    "multi-lock", "several locks, all or none", locks::multi_lock;
    "revocation", "asking a holder to give way", locks::revocation;
    "lease", "once a day, whoever comes first", locks::lease;
    "optimistic", "no lock at all: writes that fail if somebody was faster", locks::optimistic;
    "condition", "waiting inside a lock until something is so", locks::condition;
    "deadlock", "two who wait for each other, and how it is noticed and ended", locks::deadlock;
    "leader-latch", "a leader that stays until it goes, watched from outside", elections::latch;
    "leader-selector", "leading for a while, by turns", elections::selector;
    "election-support", "an election told event by event", elections::support;
    "barrier", "everybody waits until the barrier is taken away", barriers::barrier;
    "double-barrier", "begin together and end together", barriers::double;
    "cyclic-barrier", "round after round", barriers::cyclic;
    "count-down-latch", "go when so many things are done", barriers::count_down;
    "queue", "first in, first out, taken without a herd", queues::simple;
    "work-queue", "work that comes back when its worker dies", queues::work;
    "priority-queue", "the urgent first", queues::priority;
    "delay-queue", "not before its time", queues::delay;
    "blocking-queue", "a queue with room for so many", queues::blocking;
    "sharded-queue", "one queue in several pieces", queues::sharded;
    "counter", "many count, nothing is counted twice", values::counter;
    "shared-value", "a value that all see change", values::shared_value;
    "cached-counter", "numbers fetched in blocks", values::cached_counter;
    "map", "a map that many change at once", values::map;
    "cache", "a part of the tree, kept in memory", watching::cache;
    "persistent-node", "a node that comes back when it is deleted", watching::persistent_node;
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
    "discovery", "services found and chosen by turns", services::discovery;
    "least-connections", "the instance with the fewest connections, counted in the tree", services::least_connections;
    "master-worker", "tasks handed out, and handed out again when a worker dies", services::master_worker;
    "transactions", "several nodes read and written as if there was nobody else", transactions::memory;
    "models", "typed values on paths, and migrations applied once", transactions::models;
};
