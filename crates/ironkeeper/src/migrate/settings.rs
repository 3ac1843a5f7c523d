//! Checks whether every setting of a `zoo.cfg` has the same meaning in Ironkeeper.

use std::path::Path;

use ironkeeper_client::Host;
use ironkeeper_config::java_env::{self, Effect};
use ironkeeper_config::{Config, ConfigError, Feature, Loaded, Notice, NoticeKind, Overrides};
use ironkeeper_proto::membership::PeerRole;

use super::findings::{Findings, Weight};

/// Returns the configuration, if it is valid.
pub fn check(file: &Path, findings: &mut Findings) -> Option<Config> {
    findings.section(format!("settings in {}", file.display()));
    let flags = |name| std::env::var(name).unwrap_or_default();
    let (jvmflags, server_jvmflags) = (flags("JVMFLAGS"), flags("SERVER_JVMFLAGS"));
    let with = Overrides { jvmflags: &jvmflags, server_jvmflags: &server_jvmflags, set: &[] };
    let Loaded { config, notices } = match Config::from_file_with(file, &with) {
        Ok(loaded) => loaded,
        Err(error) => {
            refuse(&error, findings);
            return None;
        }
    };
    findings.add(Weight::Good, format!("understood: {}", summary(&config)));
    for notice in &notices {
        match weight(notice) {
            Weight::Good => {}
            weight => findings.add(weight, notice.to_string()),
        }
        if let (NoticeKind::NotYet { feature }, Weight::Note) = (&notice.kind, weight(notice)) {
            findings.loses(feature.to_string());
        }
    }
    if !disables_admin_server(file) {
        findings.loses(format!("{} (port 8080 unless configured)", Feature::AdminServer));
    }
    findings.loses("JMX");
    check_java_env(file, &with, &config, findings);
    let idle = notices.iter().filter(|notice| weight(notice) == Weight::Good).count();
    if idle > 0 {
        findings.add(Weight::Good, format!("{idle} more have no effect here and are not missed"));
    }
    Some(config)
}

/// Returns whether the file disables the admin server, which Apache's server starts by default.
fn disables_admin_server(file: &Path) -> bool {
    let text = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().any(|line| {
        let mut parts = line.splitn(2, '=').map(str::trim);
        parts.next() == Some("admin.enableServer") && parts.next() == Some("false")
    })
}

/// Checks the flags in the scripts beside the file. `zkServer.sh` uses them, `ironkeeper serve`
/// does not.
fn check_java_env(file: &Path, with: &Overrides<'_>, config: &Config, findings: &mut Findings) {
    for (property, effect) in java_env::effects_beside(file, with, config) {
        match effect {
            Effect::None => {}
            Effect::Change => findings.add(Weight::Obstacle, property.advice()),
            Effect::Notice(notice) => match weight(&notice) {
                Weight::Good => {}
                weight => findings.add(weight, format!("{}: {notice}", property.file.display())),
            },
            Effect::Refusal(error) => {
                findings.add(Weight::Obstacle, format!("{}: {error}", property.file.display()));
            }
        }
    }
}

fn refuse(error: &ConfigError, findings: &mut Findings) {
    if error.problems().is_empty() {
        findings.add(Weight::Obstacle, error.to_string());
    }
    for problem in error.problems() {
        findings.add(Weight::Obstacle, problem.to_string());
    }
}

/// Returns the weight of a notice: an obstacle if clients or other members are affected, a note if
/// only operators are.
fn weight(notice: &Notice) -> Weight {
    match &notice.kind {
        NoticeKind::NotYet { feature: Feature::Tls | Feature::Sasl | Feature::AuthProviders } => {
            Weight::Obstacle
        }
        // Apache's observers that are configured with these ports connect to no others, so they
        // find no server once the last follower of Apache's is replaced.
        NoticeKind::NotYet { feature: Feature::ObserverMasters } => Weight::Obstacle,
        NoticeKind::EnsembleOnly | NoticeKind::NotNeeded { .. } => Weight::Good,
        _ => Weight::Note,
    }
}

fn summary(config: &Config) -> String {
    let clients = format!("clients at {}", config.client_address);
    let Some(ensemble) = &config.ensemble else { return format!("a standalone server, {clients}") };
    let voters = ensemble.membership.voters().count();
    let observers = ensemble.membership.members.len() - voters;
    let role = match ensemble.me().map(|me| me.role) {
        Some(PeerRole::Observer) => ", an observer",
        _ => "",
    };
    let others = if observers > 0 { format!(" and {observers} observers") } else { String::new() };
    format!("server {}{role} of {voters} voters{others}, {clients}", ensemble.my_id)
}

/// Returns the client addresses of the members. A member without one is assumed to use the same
/// port.
pub fn members(config: &Config) -> Vec<Host> {
    let Some(ensemble) = &config.ensemble else {
        let host = config.client_address.host.as_deref().unwrap_or("localhost");
        return vec![Host::new(host, config.client_address.port)];
    };
    let members = ensemble.membership.members.values();
    members
        .filter_map(|member| {
            let port = member.client.as_ref().map_or(config.client_address.port, |it| it.port);
            Some(Host::new(&member.addresses.first()?.host, port))
        })
        .collect()
}
