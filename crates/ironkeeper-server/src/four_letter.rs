//! Replies to four-letter words: what an administrator or a monitor requests with `echo mntr | nc`.
//!
//! The texts are those of Apache ZooKeeper 3.9, byte for byte, because scripts and monitors parse
//! them; each renderer is a function from plain data to text in a file of its own. This file checks
//! which words are enabled and collects the data.
//!
//! Locks: first the engine alone; then the gate, held only to copy the printed data; then
//! connections, one at a time. No two of them are ever held together here.

mod connections;
mod dump;
mod environment;
mod gauges;
mod java_text;
mod monitor;
mod not_measured;
mod process;
mod server;
mod version;
mod watches;

pub use version::ZOOKEEPER_VERSION;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_engine::Conn;
use ironkeeper_engine::conn::ConnView;
use ironkeeper_engine::database::Serving;
use ironkeeper_engine::planted::Place;
use ironkeeper_engine::stats;
use ironkeeper_metrics::collect;
use ironkeeper_proto::SessionId;
use ironkeeper_proto::four_letter::FourLetterWord;
use ironkeeper_tree::Quota;
use ironkeeper_zab::{LearnerView, Status};

use self::gauges::{Gauges, LeaderGauges, MemberGauges};
use crate::member::Member;
use crate::shared::Shared;
use crate::{metrics, role};

/// Apache sends a reply in pieces of this size and counts each as a packet.
const PACKET_BYTES: usize = 8192;

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests";

/// Returns whether the word is enabled.
pub fn is_allowed(shared: &Shared, word: FourLetterWord) -> bool {
    shared.config.four_letter_words.allows(word)
}

/// Returns the complete reply to a word that `conn` has sent.
///
/// Work that may take long (files, all connections, all watches) is done on another thread, so that
/// it does not delay the clients of the same I/O thread.
pub async fn answer(
    shared: &Arc<Shared>,
    conn: &Conn,
    word: FourLetterWord,
    argument: i64,
) -> String {
    use FourLetterWord::{Gtmk, Isro, Ruok, Srst, Srvr, Stmk};
    let db = &shared.core.db;
    conn.note_word(db);
    let text = if !is_allowed(shared, word) {
        format!("{} is not executed because it is not in the whitelist.\n", word.name())
    } else if matches!(word, Gtmk | Isro | Ruok | Srst | Srvr | Stmk) {
        render(shared, word, argument)
    } else {
        let shared = Arc::clone(shared);
        let rendered = tokio::task::spawn_blocking(move || render(&shared, word, argument)).await;
        rendered.unwrap_or_else(|error| {
            tracing::error!("no answer to {}: {error}", word.name());
            String::new()
        })
    };
    db.stats.packets_sent.fetch_add(text.len().div_ceil(PACKET_BYTES) as u64, Relaxed);
    text
}

fn render(shared: &Shared, word: FourLetterWord, argument: i64) -> String {
    shared.core.db.planted_panic.strike(Place::Word);
    let stopping = shared.core.shutdown.has_begun();
    let serving = if stopping { Serving::No } else { shared.core.db.serving() };
    match word {
        FourLetterWord::Ruok => "imok".to_owned(),
        FourLetterWord::Envi => environment::render(&environment::current()),
        FourLetterWord::Gtmk => shared.trace_mask.load(Relaxed).to_string(),
        FourLetterWord::Stmk => {
            shared.trace_mask.store(argument, Relaxed);
            argument.to_string()
        }
        FourLetterWord::Isro => match serving {
            Serving::Yes => "rw",
            Serving::ReadOnly => "ro",
            Serving::No => "null",
        }
        .to_owned(),
        FourLetterWord::Hash if serving == Serving::No => NOT_SERVING.to_owned(),
        _ if serving == Serving::No => format!("{NOT_SERVING}\n"),
        FourLetterWord::Conf => server::conf(&conf(shared)),
        FourLetterWord::Cons => connections::cons(&views(shared)),
        FourLetterWord::Crst => {
            shared.connections.all().iter().for_each(|conn| conn.reset_stats());
            "Connection stats reset.\n".to_owned()
        }
        FourLetterWord::Dirs => {
            let (data, log) = dir_sizes(shared);
            format!("datadir_size: {data}\nlogdir_size: {log}\n")
        }
        FourLetterWord::Dump => dump::render(&dump(shared)),
        FourLetterWord::Hash => {
            let digests: Vec<_> = shared.core.db.read().digests.iter().collect();
            server::hash(&digests)
        }
        FourLetterWord::Mntr => monitor::render(&monitor(shared)),
        FourLetterWord::Srst => {
            shared.core.db.stats.reset();
            shared.metrics.reset();
            "Server stats reset.\n".to_owned()
        }
        FourLetterWord::Srvr => server::srvr(&overview(shared)),
        FourLetterWord::Stat => {
            let clients = connections::clients(&views(shared));
            server::stat(&overview(shared), &clients)
        }
        FourLetterWord::Wchs => watches::summary(&watched(shared)),
        FourLetterWord::Wchc => watches::by_session(&watched(shared)),
        FourLetterWord::Wchp => watches::by_path(&watched(shared)),
    }
}

fn views(shared: &Shared) -> Vec<ConnView> {
    shared.connections.all().iter().map(|conn| conn.view()).collect()
}

fn overview(shared: &Shared) -> server::Overview {
    let db = &shared.core.db;
    let (zxid, node_count) = {
        let state = db.read();
        (state.applied(), state.tree.node_count())
    };
    server::Overview {
        latency: db.stats.latency(),
        received: db.stats.packets_received.load(Relaxed),
        sent: db.stats.packets_sent.load(Relaxed),
        connections: shared.connections.len(),
        outstanding: db.outstanding.load(Relaxed),
        zxid,
        mode: mode(shared),
        node_count,
        proposal_sizes: is_leading(shared).then(|| {
            let sizes = &db.stats.proposal_size;
            [sizes.last(), sizes.min(), sizes.max()]
        }),
    }
}

/// Returns the role of the server in Apache's words.
fn mode(shared: &Shared) -> &'static str {
    let member = shared.core.member.as_ref();
    member.map_or("standalone", |member| role::names(member.status()).0)
}

fn is_leading(shared: &Shared) -> bool {
    let member = shared.core.member.as_ref();
    member.is_some_and(|member| matches!(member.status(), Status::Leading { .. }))
}

/// Reads all metrics.
fn monitor(shared: &Shared) -> monitor::Monitor {
    let db = &shared.core.db;
    let mut samples = Vec::new();
    if let Some(member) = &shared.core.member {
        samples.extend(collect(gauges::MEMBER_METRICS, &member_gauges(member)));
        if let Some(leader) = leader_gauges(shared, member) {
            samples.extend(collect(stats::LEADER_METRICS, &db.stats));
            samples.extend(collect(gauges::LEADER_METRICS, &leader));
        }
    }
    let (gauges, quotas) = server_gauges(shared);
    samples.extend(collect(gauges::SERVER_METRICS, &gauges));
    samples.extend(collect(stats::METRICS, &db.stats));
    samples.extend(collect(metrics::METRICS, &*shared.metrics));
    samples.extend(gauges::quotas(&quotas));
    monitor::Monitor {
        version: version::full(),
        server_state: mode(shared),
        peer_state: shared.core.member.as_ref().map(|member| role::names(member.status()).1),
        samples,
    }
}

fn member_gauges(member: &Member) -> MemberGauges {
    MemberGauges {
        voters: member.membership().voters().count(),
        observer_master: match member.status() {
            Status::Observing { leader, .. } => Some(leader),
            Status::Looking | Status::Leading { .. } | Status::Following { .. } => None,
        },
    }
}

fn leader_gauges(shared: &Shared, member: &Member) -> Option<LeaderGauges> {
    if !is_leading(shared) {
        return None;
    }
    let core = &shared.core;
    let (learners, pending_syncs) =
        core.with_engine(|engine| (engine.zab().learners(), engine.pending_syncs()));
    let voters = member.membership();
    let synced = |counts: &dyn Fn(&LearnerView) -> bool| {
        learners.iter().filter(|learner| learner.is_up_to_date && counts(learner)).count()
    };
    let votes = |learner: &LearnerView| voters.is_voter(learner.id);
    Some(LeaderGauges {
        learners: learners.len(),
        synced_followers: synced(&|learner| !learner.observes && votes(learner)),
        synced_non_voting_followers: synced(&|learner| !learner.observes && !votes(learner)),
        synced_observers: synced(&|learner| learner.observes),
        pending_syncs,
        leading_ms: member.role.age_ms(core.clock.now()),
    })
}

fn server_gauges(shared: &Shared) -> (Gauges, Vec<Quota>) {
    let core = &shared.core;
    let db = &core.db;
    let local_sessions = core.with_engine(|engine| {
        engine.local_expiry().schedule().values().map(BTreeSet::len).sum::<usize>()
    });
    let state = db.read();
    let tree = &state.tree;
    let quotas = tree.quotas().collect();
    let (nodes, ephemerals, data_bytes) =
        (tree.node_count(), tree.ephemeral_count(), tree.data_bytes());
    let (watches, sessions) = (state.watches.count(), state.sessions.len());
    drop(state);
    let gauges = Gauges {
        nodes,
        ephemerals,
        data_bytes,
        watches,
        sessions,
        local_sessions,
        connections: shared.connections.len(),
        outstanding: db.outstanding.load(Relaxed),
        drop_probability: db.connection_drop_probability(),
        uptime_ms: core.clock.uptime_ms(),
        open_files: process::open_files().unwrap_or(-1),
        open_files_max: process::open_files_max().unwrap_or(-1),
        has_failed: core.shutdown.failure().is_some(),
        is_disk_full: db.disk_full.load(Relaxed),
        has_autopurge: shared.config.purge_interval_ms.is_some(),
    };
    (gauges, quotas)
}

fn conf(shared: &Shared) -> server::Conf {
    let (data_dir_bytes, log_dir_bytes) = dir_sizes(shared);
    let absolute = |path: &std::path::Path| {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
    };
    let config = &shared.config;
    server::Conf {
        client_port: shared.client_port,
        data_dir: absolute(shared.store.snap_dir()),
        data_dir_bytes,
        data_log_dir: absolute(shared.store.log_dir()),
        log_dir_bytes,
        tick_ms: config.tick_time_ms,
        max_client_cnxns: config.max_client_cnxns,
        min_session_timeout_ms: config.min_session_timeout_ms,
        max_session_timeout_ms: config.max_session_timeout_ms,
        listen_backlog: config.client_port_listen_backlog.map_or(-1, i64::from),
        member: shared.core.member.as_ref().zip(config.ensemble.as_ref()).map(
            |(member, ensemble)| server::MemberConf {
                my_id: ensemble.my_id,
                init_limit: ensemble.init_limit,
                sync_limit: ensemble.sync_limit,
                membership: member.membership(),
            },
        ),
    }
}

/// Returns the bytes in the snapshot and the log directory; -1 each if they cannot be read.
fn dir_sizes(shared: &Shared) -> (i64, i64) {
    match shared.store.dir_sizes() {
        Ok((data, log)) => (data as i64, log as i64),
        Err(error) => {
            tracing::warn!("the data directories cannot be measured: {error}");
            (-1, -1)
        }
    }
}

fn dump(shared: &Shared) -> dump::Dump {
    let core = &shared.core;
    let schedule = core.with_engine(|engine| engine.expiry().schedule());
    let ephemerals = {
        let state = core.db.read();
        let paths = |session| {
            let mut paths: Vec<_> = state.tree.ephemerals(session).collect();
            paths.sort_unstable();
            paths
        };
        state.tree.ephemeral_sessions().map(|session| (session, paths(session))).collect()
    };
    let now = core.clock.now();
    let wall_ms = |mono_ms: u64| now.wall_ms + mono_ms as i64 - now.mono_ms as i64;
    let mut due_ms: HashMap<SessionId, i64> = HashMap::new();
    let mut sessions: dump::Schedule<SessionId> = BTreeMap::new();
    for (mono_ms, due) in schedule {
        due_ms.extend(due.iter().map(|session| (*session, wall_ms(mono_ms))));
        sessions.entry(wall_ms(mono_ms)).or_default().extend(due);
    }
    let mut connections: dump::Schedule<dump::Connection> = BTreeMap::new();
    let sessionless_ms = shared.sessionless_timeout.as_millis() as i64;
    for view in views(shared) {
        // A connection ends with its session, or when the time to request one is over. Times are
        // printed in seconds, so all connections of one second form one set.
        let end_ms = match due_ms.get(&view.session) {
            Some(due_ms) => *due_ms,
            None => view.stats.established_wall_ms + sessionless_ms,
        };
        let end_ms = end_ms.div_euclid(1000) * 1000;
        let connection = dump::Connection { peer: view.peer, session: view.session };
        connections.entry(end_ms).or_default().push(connection);
    }
    dump::Dump { sessions, ephemerals, connections }
}

/// Returns the listed watches by connection.
fn watched(shared: &Shared) -> Vec<watches::Watcher> {
    let connections = shared.connections.all();
    let watchers = connections
        .iter()
        .map(|conn| watches::Watcher { session: conn.session(), paths: conn.listed_watches() });
    watchers.filter(|watcher| !watcher.paths.is_empty()).collect()
}
