//! `srvr`, `stat`, `conf`, `dirs` and `hash`: the server as a whole.

use std::fmt::Write;

use ironkeeper_proto::Zxid;
use ironkeeper_proto::membership::PeerRole;

use super::connections::clients;
use super::java;
use crate::{Configuration, Connection, DirSizes, MemberConfiguration, ProposalSizes, ServerState};

/// Renders `srvr`.
pub fn srvr(state: &ServerState) -> String {
    with_clients(state, "")
}

/// Renders `stat`.
pub fn stat(state: &ServerState, connections: &[Connection]) -> String {
    with_clients(state, &clients(connections))
}

/// Renders the state; `clients` is the list of clients without its title.
fn with_clients(state: &ServerState, clients: &str) -> String {
    let mut text = format!("Zookeeper version: {}\n", state.version);
    if !clients.is_empty() {
        text.push_str("Clients:\n");
        text.push_str(clients);
    }
    let ServerState { latency, connections, outstanding, zxid, nodes, .. } = state;
    let (received, sent) = (state.packets_received, state.packets_sent);
    let (least, most) = (latency.least(), latency.most);
    let average = java::average(latency.average());
    let mode = state.mode.name();
    let _ = write!(
        text,
        "Latency min/avg/max: {least}/{average}/{most}\n\
         Received: {received}\n\
         Sent: {sent}\n\
         Connections: {connections}\n\
         Outstanding: {outstanding}\n\
         Zxid: 0x{:x}\n\
         Mode: {mode}\n\
         Node count: {nodes}\n",
        zxid.0
    );
    if let Some(ProposalSizes { last, min, max }) = state.proposal_sizes {
        let _ = writeln!(text, "Proposal sizes last/min/max: {last}/{min}/{max}");
    }
    text
}

/// Renders `conf`. There is no TLS port, and a standalone server has no id.
pub fn conf(configuration: &Configuration) -> String {
    let Configuration {
        client_port,
        data_dir,
        data_dir_bytes,
        data_log_dir,
        log_dir_bytes,
        tick_ms,
        max_client_cnxns,
        min_session_timeout_ms,
        max_session_timeout_ms,
        listen_backlog,
        member,
    } = configuration;
    let server_id = member.as_ref().map_or(0, |member| member.my_id.0);
    let mut text = format!(
        "clientPort={client_port}\n\
         secureClientPort=-1\n\
         dataDir={data_dir}\n\
         dataDirSize={data_dir_bytes}\n\
         dataLogDir={data_log_dir}\n\
         dataLogSize={log_dir_bytes}\n\
         tickTime={tick_ms}\n\
         maxClientCnxns={max_client_cnxns}\n\
         minSessionTimeout={min_session_timeout_ms}\n\
         maxSessionTimeout={max_session_timeout_ms}\n\
         clientPortListenBacklog={listen_backlog}\n\
         serverId={server_id}\n"
    );
    if let Some(member) = member {
        text.push_str(&member_conf(member));
    }
    text
}

/// Renders the lines of a member. Apache ends them without a line feed.
fn member_conf(member: &MemberConfiguration) -> String {
    let MemberConfiguration { my_id, init_limit, sync_limit, membership } = member;
    let me = membership.members.get(my_id);
    let address = me.and_then(|me| me.addresses.first());
    let (quorum_port, election_port) =
        address.map_or((-1, -1), |at| (i32::from(at.quorum_port), i32::from(at.election_port)));
    let observes = me.is_some_and(|me| me.role == PeerRole::Observer);
    format!(
        "initLimit={init_limit}\n\
         syncLimit={sync_limit}\n\
         electionAlg=3\n\
         electionPort={election_port}\n\
         quorumPort={quorum_port}\n\
         peerType={}\n\
         membership: \n\
         {membership}",
        u8::from(observes)
    )
}

/// Renders `dirs`.
pub fn dirs(sizes: DirSizes) -> String {
    let DirSizes { data_dir, log_dir } = sizes;
    format!("datadir_size: {data_dir}\nlogdir_size: {log_dir}\n")
}

/// Renders `hash`: the digests at every 128th zxid. Java has signed numbers only.
pub fn hash(digests: &[(Zxid, u64)]) -> String {
    let mut text = String::new();
    for (zxid, digest) in digests {
        let _ = writeln!(text, "{:x}: {}", zxid.0, digest.cast_signed());
    }
    text
}

#[cfg(test)]
mod tests {
    use ironkeeper_metrics::Summary;
    use ironkeeper_proto::{Membership, ServerId};

    use super::*;
    use crate::Mode;

    fn state() -> ServerState {
        let latency = Summary::default();
        [0, 5, 12, 64].iter().for_each(|ms| latency.add(*ms));
        ServerState {
            version: "3.9.5-x, built on y".to_owned(),
            latency: latency.totals(),
            packets_received: 26,
            packets_sent: 34,
            connections: 3,
            outstanding: 1,
            zxid: Zxid(0x1_0000_008a),
            mode: Mode::Standalone,
            nodes: 7,
            proposal_sizes: None,
        }
    }

    #[test]
    fn srvr_is_stat_without_clients() {
        let version = "3.9.5-x, built on y";
        let rest = "Latency min/avg/max: 0/20.25/64\nReceived: 26\nSent: 34\nConnections: 3\n\
                    Outstanding: 1\nZxid: 0x10000008a\nMode: standalone\nNode count: 7\n";
        assert_eq!(srvr(&state()), format!("Zookeeper version: {version}\n{rest}"));
        let client = Connection {
            peer: ([127, 0, 0, 1], 45894).into(),
            queued: 0,
            is_read: false,
            has_unsent: false,
            packets_received: 1,
            packets_sent: 0,
            session: None,
        };
        let line = " /127.0.0.1:45894[0](queued=0,recved=1,sent=0)\n\n";
        assert_eq!(
            stat(&state(), &[client]),
            format!("Zookeeper version: {version}\nClients:\n{line}{rest}")
        );
    }

    #[test]
    fn directories_have_a_line_each() {
        let sizes = DirSizes { data_dir: 478, log_dir: -1 };
        assert_eq!(dirs(sizes), "datadir_size: 478\nlogdir_size: -1\n");
    }

    #[test]
    fn conf_has_the_lines_of_a_standalone_server() {
        let text = conf(&Configuration {
            client_port: 2181,
            data_dir: "/var/lib/zk/version-2".to_owned(),
            data_dir_bytes: 478,
            data_log_dir: "/var/log/zk/version-2".to_owned(),
            log_dir_bytes: 67_109_358,
            tick_ms: 2000,
            max_client_cnxns: 60,
            min_session_timeout_ms: 4000,
            max_session_timeout_ms: 40_000,
            listen_backlog: -1,
            member: None,
        });
        assert_eq!(
            text,
            "clientPort=2181\n\
             secureClientPort=-1\n\
             dataDir=/var/lib/zk/version-2\n\
             dataDirSize=478\n\
             dataLogDir=/var/log/zk/version-2\n\
             dataLogSize=67109358\n\
             tickTime=2000\n\
             maxClientCnxns=60\n\
             minSessionTimeout=4000\n\
             maxSessionTimeout=40000\n\
             clientPortListenBacklog=-1\n\
             serverId=0\n"
        );
    }

    #[test]
    fn a_leader_shows_the_sizes_of_its_proposals() {
        let sizes = ProposalSizes { last: 48, min: 32, max: 109 };
        let state = ServerState { mode: Mode::Leader, proposal_sizes: Some(sizes), ..state() };
        let text = srvr(&state);
        let expected = "Mode: leader\nNode count: 7\nProposal sizes last/min/max: 48/32/109\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn conf_of_a_member_ends_with_the_members() {
        let members = "server.1=127.0.0.1:21141:21151:participant\n\
                       server.4=127.0.0.1:21144:21154:observer\nversion=0";
        let text = member_conf(&MemberConfiguration {
            my_id: ServerId(4),
            init_limit: 10,
            sync_limit: 5,
            membership: Membership::parse(members).expect("these are members"),
        });
        assert_eq!(
            text,
            format!(
                "initLimit=10\nsyncLimit=5\nelectionAlg=3\nelectionPort=21154\n\
                 quorumPort=21144\npeerType=1\nmembership: \n{members}"
            )
        );
    }

    #[test]
    fn hash_prints_zxids_in_hex_and_digests_in_decimal() {
        let digests = [(Zxid(0x80), 8_919_297_067), (Zxid(0x100), u64::MAX)];
        assert_eq!(hash(&digests), "80: 8919297067\n100: -1\n");
        assert_eq!(hash(&[]), "");
    }
}
