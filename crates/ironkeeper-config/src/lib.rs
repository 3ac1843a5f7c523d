//! The configuration of a server: `zoo.cfg`, Java flags of an existing installation, or defaults.
//!
//! Start with [`Config::from_file`] for a `zoo.cfg` on disk, [`Config::from_sources`] for text, or
//! [`Config::standalone`] for a server without a file. All of them return a [`Loaded`]: the typed
//! [`Config`] and the [`Notice`]s about settings without effect or with another effect than
//! written. No setting is dropped silently; a setting that would be unsafe to ignore is an error.
//!
//! [`known_keys`] is the table of all keys: it recognises them, applies them, and is the source of
//! the documentation ([`render_known_keys`]).
//!
//! This crate reads no environment, logs nothing, starts no threads and opens no sockets; host
//! names stay text. The only files that it writes are those of a changed membership
//! ([`dynamic_files`]). `ironkeeper-server` maps a [`Config`] to the settings of its components.
//!
//! # How a setting finds its value
//! Apache ZooKeeper reads some keys directly from `zoo.cfg` and turns every other key `K` of the
//! file into the Java system property `zookeeper.K`. So a pass-through key in `zoo.cfg` takes
//! precedence over `-Dzookeeper.K`. A few properties have no `zookeeper.` prefix (`jute.maxbuffer`,
//! `readonlymode.enabled`, `znode.container.*`) and can only be flags for Apache; Ironkeeper reads
//! them from `zoo.cfg` too, but there the flag takes precedence, because in an installation that
//! has both, the flag was in force.
//!
//! ```
//! use ironkeeper_config::{Config, Sources};
//!
//! let loaded = Config::from_sources(&Sources {
//!     zoo_cfg: "tickTime=2000\ndataDir=/var/lib/zk\nclientPort=2181\nadmin.serverPort=8080\n",
//!     jvmflags: "-Xmx1g -Djute.maxbuffer=0x3fffff",
//!     ..Sources::default()
//! })?;
//!
//! assert_eq!(loaded.config.client_address.port, 2181);
//! assert_eq!(loaded.config.max_session_timeout_ms, 40_000);
//! assert_eq!(loaded.config.jute_max_buffer_bytes, 0x3fffff);
//! for notice in loaded.notices.iter().filter(|notice| notice.deserves_attention()) {
//!     // zoo.cfg line 4: admin.serverPort=8080: no effect: this version of Ironkeeper ...
//!     eprintln!("{notice}");
//! }
//! # assert_eq!(loaded.notices.len(), 2);
//! # Ok::<(), ironkeeper_config::ConfigError>(())
//! ```

mod auth;
mod candidate;
mod config;
mod constraints;
pub mod defaults;
mod draft;
pub mod dynamic_files;
mod ensemble;
mod four_letter_words;
pub mod java_env;
mod known_keys;
mod listen_address;
mod load;
mod members;
mod notice;
mod problem;
pub mod properties;
mod setting;
pub mod system_properties;
mod throttles;

pub use ironkeeper_engine::auth::DigestAlgorithm;

pub use auth::{AuthScheme, DigestAuth};
pub use config::{Config, ContainerSweep, SnapshotCompression};
pub use ensemble::EnsembleConfig;
pub use four_letter_words::FourLetterWords;
pub use known_keys::{KnownKey, Place, Support, TableFormat, known_keys, render_known_keys};
pub use listen_address::ListenAddress;
pub use load::{Loaded, Overrides, Sources};
pub use notice::{Feature, Notice, NoticeKind, Origin};
pub use problem::{ConfigError, Problem, ProblemKind, ValueError};
pub use throttles::{ConnectionThrottle, RequestThrottle, SessionWeights};
