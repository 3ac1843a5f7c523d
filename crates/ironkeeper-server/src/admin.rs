//! The administrative answers of this server, collected as plain data. Four-letter words are one
//! form in which they are shown.
//!
//! Locks: first the engine alone; then the gate, held only to copy the data; then connections, one
//! at a time. No two of them are ever held together here.

mod environment;
mod gauges;
mod process;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_admin::{
    Configuration, Connection, DirSizes, Dump, EndingConnection, MemberConfiguration, Mode,
    Monitor, ProposalSizes, Schedule, ServerState, Service, SessionState, Watcher,
};
use ironkeeper_engine::conn::ConnView;
use ironkeeper_engine::database::Serving;
use ironkeeper_engine::stats;
use ironkeeper_metrics::collect;
use ironkeeper_proto::{SessionId, Zxid};
use ironkeeper_tree::Quota;
use ironkeeper_zab::{LearnerView, Status};

pub(crate) use environment::environment;
use gauges::{Gauges, LeaderGauges, MemberGauges};

use crate::member::Member;
use crate::metrics;
use crate::shared::Shared;

/// Returns which requests the server serves.
pub(crate) fn service(shared: &Shared) -> Service {
    if shared.core.shutdown.has_begun() {
        return Service::Nothing;
    }
    match shared.core.db.serving() {
        Serving::Yes => Service::ReadsAndWrites,
        Serving::ReadOnly => Service::ReadsOnly,
        Serving::No => Service::Nothing,
    }
}

/// Returns the role of the server.
pub(crate) fn mode(shared: &Shared) -> Mode {
    match shared.core.member.as_ref().map(Member::status) {
        None => Mode::Standalone,
        Some(Status::Looking) => Mode::Looking,
        Some(Status::Leading { .. }) => Mode::Leader,
        Some(Status::Following { .. }) => Mode::Follower,
        Some(Status::Observing { leader, .. }) => Mode::Observer { master: leader },
    }
}

/// Returns the state of the server as a whole.
pub(crate) fn server_state(shared: &Shared) -> ServerState {
    let db = &shared.core.db;
    let (zxid, nodes) = {
        let state = db.read();
        (state.applied(), state.tree.node_count())
    };
    let mode = mode(shared);
    let sizes = &db.stats.proposal_size;
    ServerState {
        version: ironkeeper_admin::version(),
        latency: db.stats.latency(),
        packets_received: db.stats.packets_received.load(Relaxed),
        packets_sent: db.stats.packets_sent.load(Relaxed),
        connections: shared.connections.len(),
        outstanding: db.outstanding.load(Relaxed),
        zxid,
        mode,
        nodes,
        proposal_sizes: (mode == Mode::Leader).then(|| ProposalSizes {
            last: sizes.last(),
            min: sizes.min(),
            max: sizes.max(),
        }),
    }
}

/// Returns the configuration in force.
pub(crate) fn configuration(shared: &Shared) -> Configuration {
    let sizes = dir_sizes(shared);
    let absolute = |path: &Path| {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
    };
    let config = &shared.config;
    Configuration {
        client_port: shared.client_port,
        data_dir: absolute(shared.store.snap_dir()),
        data_dir_bytes: sizes.data_dir,
        data_log_dir: absolute(shared.store.log_dir()),
        log_dir_bytes: sizes.log_dir,
        tick_ms: config.tick_time_ms,
        max_client_cnxns: config.max_client_cnxns,
        min_session_timeout_ms: config.min_session_timeout_ms,
        max_session_timeout_ms: config.max_session_timeout_ms,
        listen_backlog: config.client_port_listen_backlog.map_or(-1, i64::from),
        member: shared.core.member.as_ref().zip(config.ensemble.as_ref()).map(
            |(member, ensemble)| MemberConfiguration {
                my_id: ensemble.my_id,
                init_limit: ensemble.init_limit,
                sync_limit: ensemble.sync_limit,
                membership: member.membership(),
            },
        ),
    }
}

/// Returns the sizes of the snapshot and the log directory.
pub(crate) fn dir_sizes(shared: &Shared) -> DirSizes {
    match shared.store.dir_sizes() {
        Ok((data, log)) => DirSizes { data_dir: data as i64, log_dir: log as i64 },
        Err(error) => {
            tracing::warn!(%error, "size of the data directories unknown");
            DirSizes { data_dir: -1, log_dir: -1 }
        }
    }
}

/// Returns the client connections, including those without a session.
pub(crate) fn connections(shared: &Shared) -> Vec<Connection> {
    shared.connections.all().iter().map(|conn| connection(&conn.view())).collect()
}

fn connection(view: &ConnView) -> Connection {
    let stats = &view.stats;
    Connection {
        peer: view.peer,
        queued: view.queued,
        is_read: view.is_read,
        has_unsent: view.unsent,
        packets_received: stats.packets_received,
        packets_sent: stats.packets_sent,
        session: (view.session != SessionId::NONE).then(|| SessionState {
            id: view.session,
            timeout_ms: view.timeout_ms,
            last_operation: stats.last_op.name(),
            established_ms: stats.established_wall_ms,
            last_xid: stats.last_xid,
            last_zxid: stats.last_zxid,
            last_response_ms: stats.last_response_ms,
            last_latency_ms: stats.last_latency_ms,
            min_latency_ms: stats.min_latency_ms(),
            average_latency_ms: stats.average_latency_ms(),
            max_latency_ms: stats.max_latency_ms(),
        }),
    }
}

/// Returns sessions, ephemerals and connections.
pub(crate) fn dump(shared: &Shared) -> Dump {
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
    let mut sessions: Schedule<SessionId> = BTreeMap::new();
    for (mono_ms, due) in schedule {
        due_ms.extend(due.iter().map(|session| (*session, wall_ms(mono_ms))));
        sessions.entry(wall_ms(mono_ms)).or_default().extend(due);
    }
    let mut connections: Schedule<EndingConnection> = BTreeMap::new();
    let sessionless_ms = shared.sessionless_timeout.as_millis() as i64;
    for view in shared.connections.all().iter().map(|conn| conn.view()) {
        // A connection ends with its session, or when the time to request one is over. Times are
        // printed in seconds, so all connections of one second form one set.
        let end_ms = match due_ms.get(&view.session) {
            Some(due_ms) => *due_ms,
            None => view.stats.established_wall_ms + sessionless_ms,
        };
        let end_ms = end_ms.div_euclid(1000) * 1000;
        let connection = EndingConnection { peer: view.peer, session: view.session };
        connections.entry(end_ms).or_default().push(connection);
    }
    Dump { sessions, ephemerals, connections }
}

/// Returns the listed watches by connection.
pub(crate) fn watches(shared: &Shared) -> Vec<Watcher> {
    let connections = shared.connections.all();
    let watchers = connections
        .iter()
        .map(|conn| Watcher { session: conn.session(), paths: conn.listed_watches() });
    watchers.filter(|watcher| !watcher.paths.is_empty()).collect()
}

/// Returns the digests of the tree at past zxids.
pub(crate) fn digests(shared: &Shared) -> Vec<(Zxid, u64)> {
    shared.core.db.read().digests.iter().collect()
}

/// Resets the statistics of all connections.
pub(crate) fn reset_connection_stats(shared: &Shared) {
    shared.connections.all().iter().for_each(|conn| conn.reset_stats());
}

/// Resets the statistics of the server.
pub(crate) fn reset_server_stats(shared: &Shared) {
    shared.core.db.stats.reset();
    shared.metrics.reset();
}

/// Reads all metrics.
pub(crate) fn monitor(shared: &Shared) -> Monitor {
    let db = &shared.core.db;
    let mode = mode(shared);
    let mut samples = Vec::new();
    if let Some(member) = &shared.core.member {
        samples.extend(collect(gauges::MEMBER_METRICS, &member_gauges(member, mode)));
        if mode == Mode::Leader {
            samples.extend(collect(stats::LEADER_METRICS, &db.stats));
            samples.extend(collect(gauges::LEADER_METRICS, &leader_gauges(shared, member)));
        }
    }
    let (gauges, quotas) = server_gauges(shared);
    samples.extend(collect(gauges::SERVER_METRICS, &gauges));
    samples.extend(collect(stats::METRICS, &db.stats));
    samples.extend(collect(metrics::METRICS, &*shared.metrics));
    samples.extend(gauges::quotas(&quotas));
    Monitor { version: ironkeeper_admin::version(), mode, samples }
}

fn member_gauges(member: &Member, mode: Mode) -> MemberGauges {
    MemberGauges {
        voters: member.membership().voters().count(),
        observer_master: match mode {
            Mode::Observer { master } => Some(master),
            Mode::Standalone | Mode::Looking | Mode::Leader | Mode::Follower => None,
        },
    }
}

fn leader_gauges(shared: &Shared, member: &Member) -> LeaderGauges {
    let core = &shared.core;
    let (learners, pending_syncs) =
        core.with_engine(|engine| (engine.zab().learners(), engine.pending_syncs()));
    let voters = member.membership();
    let synced = |counts: &dyn Fn(&LearnerView) -> bool| {
        learners.iter().filter(|learner| learner.is_up_to_date && counts(learner)).count()
    };
    let votes = |learner: &LearnerView| voters.is_voter(learner.id);
    LeaderGauges {
        learners: learners.len(),
        synced_followers: synced(&|learner| !learner.observes && votes(learner)),
        synced_non_voting_followers: synced(&|learner| !learner.observes && !votes(learner)),
        synced_observers: synced(&|learner| learner.observes),
        pending_syncs,
        leading_ms: member.role.age_ms(core.clock.now()),
    }
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
