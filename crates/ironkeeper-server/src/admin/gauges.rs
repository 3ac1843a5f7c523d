//! The metrics that are measured when they are requested: sizes, limits and states.

use std::collections::BTreeMap;

use ironkeeper_metrics::{Descriptor, Kind, Metric, Reading, Sample, Unit};
use ironkeeper_proto::{ServerId, path};
use ironkeeper_tree::Quota;

/// The measurements of one moment.
#[derive(Debug)]
pub(super) struct Gauges {
    pub nodes: usize,
    pub ephemerals: usize,
    pub data_bytes: usize,
    pub watches: usize,
    pub sessions: usize,
    pub local_sessions: usize,
    pub connections: usize,
    pub outstanding: usize,
    pub drop_probability: f64,
    pub uptime_ms: u64,
    /// -1, as in Java, if it is unknown.
    pub open_files: i64,
    pub open_files_max: i64,
    pub has_failed: bool,
    pub is_disk_full: bool,
    pub has_autopurge: bool,
}

/// The measurements of a member of an ensemble.
#[derive(Debug)]
pub(super) struct MemberGauges {
    pub voters: usize,
    /// The member that sends the transactions to this observer.
    pub observer_master: Option<ServerId>,
}

/// The measurements of a leader.
#[derive(Debug)]
pub(super) struct LeaderGauges {
    pub learners: usize,
    pub synced_followers: usize,
    pub synced_non_voting_followers: usize,
    pub synced_observers: usize,
    pub pending_syncs: usize,
    pub leading_ms: u64,
}

fn number(number: usize) -> Option<Reading> {
    Some(Reading::Count(number as u64))
}

fn flag(flag: bool) -> Option<Reading> {
    Some(Reading::Count(u64::from(flag)))
}

pub(super) const MEMBER_METRICS: &[Metric<MemberGauges>] = &[
    Metric::gauge("quorum_size", Unit::Count, "Voters of the ensemble", |member| {
        number(member.voters)
    }),
    Metric::gauge(
        "observer_master_id",
        Unit::Count,
        "Id of the member that sends the transactions to this observer",
        |member| Some(Reading::Integer(member.observer_master?.0)),
    ),
];

pub(super) const LEADER_METRICS: &[Metric<LeaderGauges>] = &[
    Metric::gauge("learners", Unit::Count, "Connected learners, with observers", |leader| {
        number(leader.learners)
    }),
    Metric::gauge("synced_followers", Unit::Count, "Synchronized voting followers", |leader| {
        number(leader.synced_followers)
    }),
    Metric::gauge(
        "synced_non_voting_followers",
        Unit::Count,
        "Synchronized followers that are not voters of the membership",
        |leader| number(leader.synced_non_voting_followers),
    ),
    Metric::gauge("synced_observers", Unit::Count, "Synchronized observers", |leader| {
        number(leader.synced_observers)
    }),
    Metric::gauge("pending_syncs", Unit::Count, "Sync requests that wait for a reply", |leader| {
        number(leader.pending_syncs)
    }),
    Metric::gauge("leader_uptime", Unit::Milliseconds, "Time in the role of leader", |leader| {
        Some(Reading::Count(leader.leading_ms))
    }),
];

pub(super) const SERVER_METRICS: &[Metric<Gauges>] = &[
    Metric::gauge("znode_count", Unit::Count, "Nodes of the tree, with /zookeeper", |gauges| {
        number(gauges.nodes)
    }),
    Metric::gauge("ephemerals_count", Unit::Count, "Ephemeral nodes", |gauges| {
        number(gauges.ephemerals)
    }),
    Metric::gauge("approximate_data_size", Unit::Bytes, "Paths and data of all nodes", |gauges| {
        number(gauges.data_bytes)
    }),
    Metric::gauge("watch_count", Unit::Count, "Watches of this server's clients", |gauges| {
        number(gauges.watches)
    }),
    Metric::gauge("global_sessions", Unit::Count, "Sessions of the ensemble", |gauges| {
        number(gauges.sessions)
    }),
    Metric::gauge("local_sessions", Unit::Count, "Local sessions of this server", |gauges| {
        number(gauges.local_sessions)
    }),
    Metric::gauge("num_alive_connections", Unit::Count, "Client connections", |gauges| {
        number(gauges.connections)
    }),
    Metric::gauge("outstanding_requests", Unit::Count, "Requests in progress", |gauges| {
        number(gauges.outstanding)
    }),
    Metric::gauge(
        "connection_drop_probability",
        Unit::Ratio,
        "Probability that the connection throttle drops a new connection",
        |gauges| Some(Reading::Real(gauges.drop_probability)),
    ),
    Metric::gauge("uptime", Unit::Milliseconds, "Time since the start", |gauges| {
        Some(Reading::Count(gauges.uptime_ms))
    }),
    Metric::gauge("open_file_descriptor_count", Unit::Count, "Open files", |gauges| {
        Some(Reading::Integer(gauges.open_files))
    }),
    Metric::gauge("max_file_descriptor_count", Unit::Count, "Limit of open files", |gauges| {
        Some(Reading::Integer(gauges.open_files_max))
    }),
    // Such a failure stops the server, so the count is at most one.
    Metric::computed_counter(
        "unrecoverable_error_count",
        Unit::Count,
        "Fatal failures",
        |gauges| flag(gauges.has_failed),
    ),
    // The next two are Ironkeeper's own; monitors ignore unknown keys.
    Metric::gauge("disk_full", Unit::Count, "1 while the disk of the log is full", |gauges| {
        flag(gauges.is_disk_full)
    }),
    Metric::gauge("autopurge", Unit::Count, "1 if old files are purged", |gauges| {
        flag(gauges.has_autopurge)
    }),
];

/// A metric of quotas with its getter.
type QuotaMetric = (Descriptor, fn(&Quota) -> i64);

const fn quota_metric(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    get: fn(&Quota) -> i64,
) -> QuotaMetric {
    (Descriptor { name, kind: Kind::Gauge, unit, help }, get)
}

/// A hard limit precedes a soft one, and a limit that is not set counts as -1.
fn limit(hard: i64, soft: i64) -> i64 {
    if hard > -1 { hard } else { soft }
}

const QUOTA_METRICS: [QuotaMetric; 4] = [
    quota_metric("quota_bytes_limit_per_namespace", Unit::Bytes, "Limits of bytes", |quota| {
        limit(quota.limits.bytes_hard, quota.limits.bytes)
    }),
    quota_metric("quota_bytes_usage_per_namespace", Unit::Bytes, "Used bytes", |quota| {
        quota.usage.bytes
    }),
    quota_metric("quota_count_limit_per_namespace", Unit::Count, "Limits of nodes", |quota| {
        limit(quota.limits.count_hard, quota.limits.count)
    }),
    quota_metric("quota_count_usage_per_namespace", Unit::Count, "Used nodes", |quota| {
        quota.usage.count
    }),
];

/// Returns limits and usage of quotas, added up for each node below the root.
pub(super) fn quotas(quotas: &[Quota]) -> Vec<Sample> {
    let mut namespaces: BTreeMap<&str, [i64; QUOTA_METRICS.len()]> = BTreeMap::new();
    for quota in quotas {
        let sums = namespaces.entry(path::namespace(&quota.path)).or_default();
        for (sum, (_, get)) in sums.iter_mut().zip(QUOTA_METRICS) {
            *sum = sum.wrapping_add(get(quota));
        }
    }
    let samples = namespaces.into_iter().flat_map(|(namespace, sums)| {
        QUOTA_METRICS.into_iter().zip(sums).map(|((descriptor, _), sum)| Sample {
            descriptor,
            label: Some(namespace.to_owned()),
            reading: Reading::Integer(sum),
        })
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use ironkeeper_tree::{QuotaLimits, QuotaUsage};

    use super::*;

    #[test]
    fn quotas_are_added_up_by_the_first_name() {
        let quota = |path: &str, count_hard, bytes| Quota {
            path: path.to_owned(),
            limits: QuotaLimits { count: 5, bytes, count_hard, bytes_hard: -1 },
            usage: QuotaUsage { count: 2, bytes: 5 },
        };
        let samples =
            quotas(&[quota("/qa", 7, 100), quota("/qb/x", -1, -1), quota("/qb/y", -1, -1)]);
        let shown = samples.iter().map(|sample| {
            let Sample { descriptor, label, reading } = sample;
            let Reading::Integer(value) = reading else { panic!("{reading:?}") };
            format!("{} {} {value}", label.as_deref().unwrap_or_default(), descriptor.name)
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "qa quota_bytes_limit_per_namespace 100",
                "qa quota_bytes_usage_per_namespace 5",
                "qa quota_count_limit_per_namespace 7",
                "qa quota_count_usage_per_namespace 2",
                "qb quota_bytes_limit_per_namespace -2",
                "qb quota_bytes_usage_per_namespace 10",
                "qb quota_count_limit_per_namespace 10",
                "qb quota_count_usage_per_namespace 4",
            ]
        );
    }
}
