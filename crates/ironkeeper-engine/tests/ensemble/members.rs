//! The membership, as clients read and change it.

use ironkeeper_proto::jute::{Put, Reader};
use ironkeeper_proto::{OpCode, Stat, Zxid};

use crate::cluster::{Cluster, Node, membership};
use crate::world::*;

const SUPER: &str = "super:secret";
const CONFIG: &str = "/zookeeper/config";

fn reconfigurable(node: &mut Node) {
    node.config.reconfig_enabled = true;
    node.settings.reconfig_enabled = true;
    node.config.auth.super_digest = Some(ironkeeper_engine::auth::digest_id(SUPER));
}

/// Encodes a reconfig request: joining, leaving or all new members, and the expected version.
fn reconfig(joining: Option<&str>, leaving: Option<&str>, all: Option<&str>, id: i64) -> Vec<u8> {
    let mut body = Vec::new();
    for part in [joining, leaving, all] {
        body.put_opt_str(part);
    }
    body.put_i64(id);
    body
}

/// Connects a client with the rights of the super user.
fn admin(cluster: &mut Cluster, node: usize) -> Client {
    let mut client = cluster.at(node).connect();
    assert_eq!(client.auth(&mut cluster.at(node), SUPER), 0);
    client
}

fn change(
    cluster: &mut Cluster,
    node: usize,
    client: &mut Client,
    body: &[u8],
) -> Result<(String, Stat), i32> {
    let (err, reply) = client.call(&mut cluster.at(node), OpCode::Reconfig, body);
    if err != 0 {
        return Err(err);
    }
    let mut reader = Reader::new(&reply);
    let text = String::from_utf8(reader.buf().unwrap().unwrap().to_vec()).unwrap();
    Ok((text, Stat::decode(&mut reader).unwrap()))
}

#[test]
fn every_member_shows_the_members_it_was_started_with() {
    let cluster = Cluster::elected(3, 1, |_| {});
    let text = membership(3, 1).to_string();
    assert!(text.ends_with("version=0"), "{text}");
    assert_eq!(cluster.data(CONFIG), vec![Some(text); 4]);
}

#[test]
fn with_reconfiguration_the_first_leader_gives_the_members_a_version() {
    let mut cluster = Cluster::elected(3, 0, reconfigurable);
    let shown = cluster.data(CONFIG);
    assert!(shown[0].as_ref().unwrap().ends_with("version=100000000"), "{shown:?}");
    assert!(shown.iter().all(|text| *text == shown[0]));
    let mut client = cluster.at(0).connect();
    let stat = client.stat(&mut cluster.at(0), CONFIG).unwrap();
    assert_eq!((stat.version, stat.mzxid), (-1, Zxid(1 << 32)));
}

/// ZOOKEEPER-2819, 3829.
#[test]
fn a_change_through_any_member_is_answered_with_the_new_members() {
    let mut cluster = Cluster::elected(3, 1, reconfigurable);
    for node in 0..4 {
        let mut client = admin(&mut cluster, node);
        let mut watcher = cluster.at(node).connect();
        watcher.call(&mut cluster.at(node), OpCode::GetData, &read(CONFIG, true));
        // The change moves the client port of the observer, which affects no other member.
        let spec = format!("server.4=h4:2888:3888:observer;h4:{}", 3000 + node);
        let body = reconfig(Some(&spec), None, None, -1);
        let (text, stat) = change(&mut cluster, node, &mut client, &body).unwrap();
        assert!(text.contains(&spec), "{text}");
        assert!(text.ends_with(&format!("version={:x}", stat.mzxid.0)), "{text}");
        assert_eq!(stat.version, -1);
        assert_eq!(cluster.data(CONFIG), vec![Some(text); 4]);
        let heard = watcher.heard(&cluster.at(node));
        assert_eq!(heard, [format!("changed {CONFIG} @{}", stat.mzxid.0)]);
    }
    cluster.assert_same();
}

#[test]
fn changes_that_cannot_be_are_refused_with_the_right_reason() {
    let mut cluster = Cluster::elected(3, 0, reconfigurable);
    let node = cluster.follower();
    let mut client = admin(&mut cluster, node);
    let joiner = "server.9=h9:2888:3888;h9:2181";
    for (body, expected) in [
        (reconfig(Some(joiner), None, None, 17), -103),
        (reconfig(Some("server.9=h9"), None, None, -1), -8),
        (reconfig(Some("server.9=h9:2888:3888"), None, None, -1), -8),
        (reconfig(Some("server.9=h1:2888:3999;h9:2181"), None, None, -1), -8),
        (reconfig(None, Some("x"), None, -1), -8),
        (reconfig(None, Some("1,2"), None, -1), -8),
        (reconfig(None, None, Some("server.1=h1:2888:3888;2181"), -1), -8),
        (reconfig(None, None, Some("server.7=h7:1:2;3,server.8=h8:1:2;3"), -1), -13),
        (reconfig(Some(&joiner.replace('9', "7")), Some("1,2,3"), None, -1), -8),
    ] {
        assert_eq!(change(&mut cluster, node, &mut client, &body), Err(expected));
    }
    let mut nobody = cluster.at(node).connect();
    let body = reconfig(None, Some("3"), None, -1);
    assert_eq!(change(&mut cluster, node, &mut nobody, &body), Err(-102));
    assert!(cluster.data(CONFIG)[0].as_ref().unwrap().ends_with("version=100000000"));
    cluster.assert_same();
}

#[test]
fn a_leader_knows_who_listens_to_it() {
    let mut cluster = Cluster::elected(3, 1, |_| {});
    let leader = cluster.leader();
    cluster.at(leader).connect();
    let engine = cluster.nodes[leader].engine.as_ref().unwrap();
    let mut learners = engine.zab().learners();
    learners.sort_by_key(|learner| learner.id);
    assert_eq!(learners.len(), 3);
    assert!(learners.iter().all(|learner| learner.is_up_to_date));
    let observers: Vec<_> = learners.iter().filter(|learner| learner.observes).collect();
    assert_eq!((observers.len(), observers[0].id.0), (1, 4));
    assert_eq!(learners[0].acknowledged, Some(cluster.applied(leader)));
    let sizes = &cluster.nodes[leader].db.stats.proposal_size;
    assert!(sizes.last() > 0);
    let follower = cluster.nodes[cluster.follower()].engine.as_ref().unwrap();
    assert!(follower.zab().learners().is_empty());
}

#[test]
fn without_the_setting_members_are_fixed() {
    let mut cluster = Cluster::three();
    let node = cluster.follower();
    let mut client = cluster.at(node).connect();
    let body = reconfig(None, Some("3"), None, -1);
    assert_eq!(change(&mut cluster, node, &mut client, &body), Err(-123));
}

#[test]
fn a_follower_leaves_and_the_rest_goes_on() {
    let mut cluster = Cluster::elected(3, 0, reconfigurable);
    let (leader, leaving) = (cluster.leader(), cluster.follower());
    let mut client = admin(&mut cluster, leader);
    let id = (leaving + 1).to_string();
    let body = reconfig(None, Some(&id), None, -1);
    let (text, _) = change(&mut cluster, leader, &mut client, &body).unwrap();
    assert!(!text.contains(&format!("server.{id}=")), "{text}");
    cluster.kill(leaving);
    client.create(&mut cluster.at(leader), "/after", Persistent).unwrap();
    assert_eq!(cluster.data("/after"), vec![Some(String::new()); 2]);
}

#[test]
fn the_leader_leaves_and_another_one_takes_over() {
    let mut cluster = Cluster::elected(3, 0, reconfigurable);
    let (leader, other) = (cluster.leader(), cluster.follower());
    let mut client = admin(&mut cluster, other);
    let body = reconfig(None, Some(&(leader + 1).to_string()), None, -1);
    client.send(&mut cluster.at(other), OpCode::Reconfig, &body);
    cluster.settle();
    cluster.kill(leader);
    cluster.until("the others serve", |cluster| cluster.serving() == 2);
    let mut client = cluster.at(other).connect();
    client.create(&mut cluster.at(other), "/after", Persistent).unwrap();
    assert_eq!(cluster.data("/after"), vec![Some(String::new()); 2]);
    let shown = cluster.data(CONFIG)[0].clone().unwrap();
    assert!(!shown.contains(&format!("server.{}=", leader + 1)), "{shown}");
    cluster.assert_same();
}

#[test]
fn a_new_server_joins_and_votes() {
    let mut cluster = Cluster::of(&membership(3, 0), 4, reconfigurable);
    // The new server's own list contains itself and the others; the others do not know the new
    // server.
    cluster.nodes[3].disk.ensemble = ironkeeper_zab::Ensemble::new(membership(4, 0), None);
    for node in 0..3 {
        cluster.start(node);
    }
    cluster.until("three serve", |cluster| cluster.serving() == 3);
    cluster.start(3);
    cluster.until("four serve", |cluster| cluster.serving() == 4);
    let leader = cluster.leader();
    let mut client = admin(&mut cluster, leader);
    let body = reconfig(Some("server.4=h4:2888:3888:participant;h4:2181"), None, None, -1);
    let (text, _) = change(&mut cluster, leader, &mut client, &body).unwrap();
    assert_eq!(cluster.data(CONFIG), vec![Some(text); 4]);
    // Without one old follower the two old servers left are no quorum of the four; with the new
    // server they are.
    let followers: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    cluster.kill(followers[0]);
    let mut client = admin(&mut cluster, leader);
    client.create(&mut cluster.at(leader), "/after", Persistent).unwrap();
    assert_eq!(cluster.data("/after"), vec![Some(String::new()); 3]);
    cluster.assert_same();
}
