//! Locks, elections, queues, barriers and other recipes for Ironkeeper and Apache ZooKeeper.
//!
//! ```
//! use ironkeeper_client::Client;
//! use ironkeeper_recipes::lock::Mutex;
//!
//! # #[ironkeeper_doctest::server]
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::connect("127.0.0.1:2181").await?;
//!     let guard = Mutex::new(&client, "/locks/report").lock().await?;
//!     tokio::select! {
//!         () = build_report(guard.fencing_token().as_i64()) => {}
//!         lost = guard.lost() => return Err(lost.into()), // another client may hold it now
//!     }
//!     guard.release().await?;
//!     Ok(())
//! }
//!
//! async fn build_report(token: i64) {
//!     println!("only one at a time builds the report; this one has token {token}");
//! }
//! ```
//!
//! # Which recipe do I want?
//!
//! | I want | recipe |
//! | --- | --- |
//! | one process at a time to do something | [`lock::Mutex`]; [`lock::Reentrant`] if the holder acquires it again |
//! | many readers or one writer | [`lock::ReadWriteLock`] |
//! | at most N at a time | [`lock::Semaphore`] |
//! | several locks at once | [`lock::MultiLock`] |
//! | to skip the work if another process does it | [`lock::Mutex::try_lock`], [`lock::NonBlockingLease`] |
//! | one leader, until its session ends | [`election::LeaderLatch`] |
//! | one process to do a job and then let the next one do it | [`election::LeaderSelector`] |
//! | to know the leader, without taking part | [`election::LeaderObserver`] |
//! | to know which processes are alive | [`group::GroupMember`], [`group::Group`] |
//! | to find the instances of a service, and spread load on them | [`service::ServiceDiscovery`], [`service::ServiceProvider`] |
//! | settings that many processes follow | [`config::Config`]; one value: [`cache::NodeCache`], [`shared::SharedValue`] |
//! | a local copy of a part of the tree | [`cache::TreeCache`], [`cache::ChildrenCache`] |
//! | jobs that any of several workers does, none lost | [`queue::WorkQueue`]; with a result: [`master_worker`] |
//! | jobs in the order of priority, or not before a time | [`queue::PriorityQueue`], [`queue::DelayQueue`] |
//! | a fixed set of partitions shared out among processes | [`group::SetPartitioner`] |
//! | to wait until all processes have arrived, or are done | [`barrier::DoubleBarrier`], [`barrier::CountDownLatch`] |
//! | a counter | [`shared::AtomicLong`] |
//! | unique ids | [`naming::Snowflake`] (no request for each), [`naming::SequentialIds`] |
//! | to change several nodes at once | [`Client::transaction`](ironkeeper_client::Client::transaction); with reads: [`stm::Memory`] |
//! | typed data instead of bytes | [`model::Model`] |
//!
//! What to do when the session is lost: [`session_lost`].
//!
//! # What is common to all recipes
//!
//! - A lock, lease or leadership is held by a [`Guard`]. [`Guard::lost`] reports its loss,
//!   [`Guard::fencing_token`] returns a fencing token, and writes made with [`Guard::fence`] are
//!   rejected by the server once the guard is lost.
//! - Every future may be dropped at any await: the recipe then withdraws the request that it began.
//! - A lost reply leaves no orphaned node: a node is found again by its protection id or its data.
//! - No recipe wakes clients that have nothing to do. Each recipe documents how many watch events
//!   a change of holders costs.
//! - The recipes use Curator's node layout, so that Java programs can take part. Locks and
//!   elections can use kazoo's layout ([`lock::Mutex::with_kazoo_names`]); parties and
//!   partitioners always do.
//!
//! A [`Client`](ironkeeper_client::Client) is one session. When the session ends, every guard of it
//! is lost and every recipe returns an error; the program creates a new client and new recipes
//! ([`session_lost`]). No recipe continues with another session on its own.
//!
//! # All recipes, and their names elsewhere
//!
//! | here | Curator | kazoo, menagerie, others |
//! | --- | --- | --- |
//! | [`lock::Mutex`] | `InterProcessMutex` | kazoo `Lock`, menagerie `DistributedLock` |
//! | [`lock::Reentrant`] | `InterProcessMutex` (re-entrance) | menagerie `ReentrantZkLock` |
//! | [`lock::ReadWriteLock`], [`lock::WriteGuard`] | `InterProcessReadWriteLock` | kazoo `ReadLock`, `WriteLock` |
//! | [`lock::Semaphore`] | `InterProcessSemaphoreV2` | kazoo `Semaphore`; Redisson `PermitExpirableSemaphore` |
//! | [`lock::SemaphoreMutex`] | `InterProcessSemaphoreMutex` | |
//! | [`lock::MultiLock`] | `InterProcessMultiLock` | Redisson `MultiLock` |
//! | [`lock::SingleNodeLock`] | | the textbook's first lock |
//! | [`lock::NonBlockingLease`] | | kazoo `NonBlockingLease`, `MultiNonBlockingLease` |
//! | [`lock::Optimistic`] | | |
//! | [`lock::revoke`], [`Guard::revocation`] | `Revoker`, `Revocable` | |
//! | [`lock::Mutex::with_lock_delay`] | | Chubby and Consul lock-delay |
//! | [`lock::DeadlockDetector`] | | |
//! | [`lock::Condition`] | | menagerie `Condition` |
//! | [`election::LeaderLatch`] | `LeaderLatch` | |
//! | [`election::LeaderSelector`] | `LeaderSelector` | kazoo `Election` |
//! | [`election::StaticElection`] | | |
//! | [`election::ElectionSupport`] | | ZooKeeper's `LeaderElectionSupport` |
//! | [`election::LeaderObserver`] | `LeaderLatch.getLeader` | etcd `Observe` |
//! | [`barrier::Barrier`] | `DistributedBarrier` | kazoo `Barrier` |
//! | [`barrier::DoubleBarrier`] | `DistributedDoubleBarrier` | kazoo `DoubleBarrier` |
//! | [`barrier::SizedBarrier`] | | |
//! | [`barrier::CyclicBarrier`] | | menagerie `ZkCyclicBarrier` |
//! | [`barrier::CountDownLatch`] | | menagerie `ZkCountDownLatch` |
//! | [`queue::SimpleQueue`] | `SimpleDistributedQueue` | kazoo `Queue` |
//! | [`queue::WorkQueue`] | `DistributedQueue`, `QueueBuilder` | kazoo `LockingQueue` |
//! | [`queue::IdQueue`] | `DistributedIdQueue` | |
//! | [`queue::PriorityQueue`] | `DistributedPriorityQueue` | etcd `PriorityQueue` |
//! | [`queue::DelayQueue`] | `DistributedDelayQueue` | |
//! | [`queue::Queue::with_limit`] | `QueueBuilder.maxItems` | |
//! | [`queue::BlockingQueue`] | | menagerie's blocking queue |
//! | [`queue::ShardedQueue`] | `QueueSharder` | |
//! | [`shared::SharedValue`], [`shared::SharedCount`] | `SharedValue`, `SharedCount` | |
//! | [`shared::AtomicValue`] | `DistributedAtomicValue` | |
//! | [`shared::AtomicLong`], [`shared::AtomicInteger`] | `DistributedAtomicLong`, `DistributedAtomicInteger` | kazoo `Counter` |
//! | [`shared::CachedCounter`] | `CachedAtomicLong`, `CachedAtomicInteger` | |
//! | [`shared::Map`], [`shared::Set`] | | menagerie's map and set |
//! | [`cache::NodeCache`] | `NodeCache`, `CuratorCache` (single node) | kazoo `DataWatch` |
//! | [`cache::ChildrenCache`] | `PathChildrenCache` | kazoo `ChildrenWatch` |
//! | [`cache::TreeCache`] | `CuratorCache`, `TreeCache` | kazoo `TreeCache` |
//! | [`node::PersistentNode`] | `PersistentNode` | |
//! | [`node::TtlNode`] | `PersistentTtlNode` | |
//! | [`node::PersistentWatcher`] | `PersistentWatcher` | |
//! | [`group::GroupMember`], [`group::Group`] | `GroupMember` | |
//! | [`group::Party`] | | kazoo `Party`, `ShallowParty` |
//! | [`group::SetPartitioner`] | | kazoo `SetPartitioner` |
//! | [`group::Heartbeat`], [`group::HeartbeatMonitor`] | | |
//! | [`group::ProgressReporter`], [`group::ProgressBoard`] | | |
//! | [`group::Console`], [`group::CommandListener`] | | |
//! | [`config::Config`] | | |
//! | [`naming::NameService`] | | |
//! | [`naming::SequentialIds`], [`naming::SegmentIds`] | | Redisson `IdGenerator` |
//! | [`naming::Snowflake`], [`naming::Uuid`] | | |
//! | [`service::ServiceDiscovery`], [`service::ServiceCache`] | `ServiceDiscovery`, `ServiceCache` | |
//! | [`service::ServiceProvider`], [`service::balance`] | `ServiceProvider`, `ProviderStrategy` | |
//! | [`master_worker::Master`], [`master_worker::Worker`], [`master_worker::Tasks`] | | the master-worker of the ZooKeeper book |
//! | [`stm::Memory`] | | etcd `STM` |
//! | [`model::Model`], [`model::Modeled`] | `ModelSpec`, `ModeledFramework`, `ZPath` | |
//! | [`model::CachedModel`] | `CachedModeledFramework` | |
//! | [`model::SchemaSet`], [`model::SchemaClient`] | `Schema`, `SchemaSet`, `SchemaSetLoader` | |
//! | [`model::Migrator`] | `MigrationManager` | |

#![deny(missing_docs)]
#![warn(unreachable_pub)]

pub mod barrier;
pub mod cache;
mod claimed;
pub mod config;
pub mod election;
mod error;
mod escape;
mod fnv;
pub mod group;
mod guard;
mod heirs;
pub mod lock;
mod lost;
pub mod master_worker;
pub mod model;
pub mod naming;
pub mod node;
mod other_recipes;
mod place;
pub mod queue;
mod queue_of_waiters;
mod reads;
mod receipt;
pub mod service;
pub mod session_lost;
pub mod shared;
pub mod stm;

pub use error::{RecipeError, Result};
pub use guard::Guard;
pub use lost::Lost;
pub use queue_of_waiters::Participant;

/// The READMEs, so that their examples run as doc tests.
#[cfg(doctest)]
mod readmes {
    #[doc = include_str!("../README.md")]
    struct OfThisCrate;

    #[doc = include_str!("../../../README.md")]
    struct OfTheRepository;
}
