//! Known bugs, reproduced on a whole cluster.

use ironkeeper_proto::ServerId;
use ironkeeper_sim::Failure;
use ironkeeper_sim::faults::Faults;
use ironkeeper_sim::zab::disk::Stop;
use ironkeeper_sim::zab::{Plan, World, membership};
use ironkeeper_zab::{Settings, Status};

const SECOND: u64 = 1_000_000;

/// Returns the plan of a cluster without faults.
fn calm(voters: u64, observers: u64) -> Plan {
    Plan {
        membership: membership(voters, observers, false),
        settings: Settings { tick_ms: 200, notification_max_ms: 3000, ..Settings::default() },
        faults: Faults::none(),
        load_us: (1_000, 2_000),
        latency_us: (100, 2_000),
        disk_us: (100, 2_000),
        trouble_us: 0,
        snapshot_per_mille: 0,
        servers: voters + observers,
        reconfig_per_mille: 0,
    }
}

/// Returns a cluster in which all servers serve.
fn whole(plan: Plan) -> World {
    let mut world = World::new(7, plan, false);
    world.start_all();
    assert!(world.run_until(60 * SECOND, World::is_whole).unwrap(), "the cluster comes up");
    world
}

fn leader(world: &World) -> usize {
    let leads = |node: &usize| {
        let process = world.nodes[*node].process.as_ref();
        process.is_some_and(|process| matches!(process.zab.status(), Status::Leading { .. }))
    };
    (0..world.nodes.len()).find(leads).expect("there is a leader")
}

fn index(world: &World, node: usize) -> u64 {
    world.nodes[node].process.as_ref().map_or(0, |process| process.state.index)
}

/// Sends writes to the leader until `count` of them are committed.
fn write(world: &mut World, count: u64) -> Result<(), Failure> {
    let leader = leader(world);
    let before = index(world, leader);
    let mut left = 20 * count;
    while index(world, leader) < before + count && left > 0 {
        world.request(leader);
        world.run_for(20_000)?;
        left -= 1;
    }
    assert!(index(world, leader) >= before + count, "writes are committed");
    Ok(())
}

/// ZOOKEEPER-569.
#[test]
fn a_leader_that_dies_is_not_elected_for_ever() -> Result<(), Failure> {
    let mut world = whole(calm(3, 0));
    write(&mut world, 5)?;
    let old = leader(&world);
    world.stop(old, Stop::PowerLoss);
    let replaced = world.run_until(30 * SECOND, |world| {
        (0..3).any(|node| {
            node != old
                && world.nodes[node]
                    .process
                    .as_ref()
                    .is_some_and(|process| process.zab.accepts_proposals())
        })
    })?;
    assert!(replaced, "another one leads");
    write(&mut world, 5)?;
    world.heal();
    world.converge()
}

#[test]
fn a_power_loss_of_all_servers_loses_nothing_that_was_answered() -> Result<(), Failure> {
    let mut world = whole(calm(3, 1));
    for _ in 0..3 {
        write(&mut world, 20)?;
        let answered = index(&world, leader(&world));
        for node in 0..4 {
            world.stop(node, Stop::PowerLoss);
        }
        world.heal();
        world.converge()?;
        assert!(index(&world, leader(&world)) >= answered);
    }
    Ok(())
}

#[test]
fn what_only_a_cut_off_leader_has_is_taken_from_it() -> Result<(), Failure> {
    let mut world = whole(calm(3, 0));
    write(&mut world, 5)?;
    let old = leader(&world);
    world.isolate(old);
    for _ in 0..10 {
        world.request(old);
    }
    world.run_for(500_000)?;
    world.stop(old, Stop::Kill);
    assert!(world.run_until(30 * SECOND, |world| {
        (0..3).any(|node| {
            world.nodes[node].process.as_ref().is_some_and(|p| p.zab.accepts_proposals())
        })
    })?);
    // No later transaction is written, so the old leader's log is longer than the others'.
    world.heal();
    world.converge()?;
    assert!(world.report().truncations > 0, "the tail was cut off");
    Ok(())
}

#[test]
fn a_server_far_behind_gets_the_whole_tree_and_one_a_little_behind_the_difference()
-> Result<(), Failure> {
    let mut plan = calm(3, 0);
    plan.settings.history_count_max = 5;
    let mut world = whole(plan);
    let follower = (0..3).find(|node| *node != leader(&world)).expect("two of them");
    world.stop(follower, Stop::Kill);
    write(&mut world, 3)?;
    world.heal();
    assert!(world.run_until(60 * SECOND, World::is_whole)?);
    assert_eq!(world.report().snapshots, 0, "a few transactions come from memory");
    world.stop(follower, Stop::Kill);
    write(&mut world, 50)?;
    world.heal();
    assert!(world.run_until(60 * SECOND, World::is_whole)?);
    assert_eq!(world.report().snapshots, 0, "many come from the log");
    world.stop(follower, Stop::Kill);
    write(&mut world, 50)?;
    let leading = leader(&world);
    let state = world.nodes[leading].process.as_ref().expect("it leads").state;
    for _ in 0..4 {
        let node = &mut world.nodes[leading];
        node.disk.snapshot(state, true);
    }
    world.nodes[leading].disk.forget_old_snapshots();
    world.heal();
    world.converge()?;
    assert_eq!(world.report().snapshots, 1, "what the log has not comes with the tree");
    Ok(())
}

#[test]
fn used_up_ids_cost_an_election_and_nothing_else() -> Result<(), Failure> {
    let mut plan = calm(3, 0);
    plan.settings.counter_max = 10;
    let mut world = whole(plan);
    for _ in 0..5 {
        let before = index(&world, leader(&world));
        for _ in 0..10 {
            world.request(leader(&world));
        }
        world.run_for(SECOND)?;
        assert!(world.run_until(60 * SECOND, World::is_whole)?);
        assert!(index(&world, leader(&world)) > before);
    }
    assert!(world.report().leaders >= 3, "every ten transactions another epoch");
    Ok(())
}

/// ZOOKEEPER-764, 769, 2959.
#[test]
fn observers_do_not_make_a_quorum() -> Result<(), Failure> {
    let mut world = whole(calm(3, 2));
    let leading = leader(&world);
    for node in 0..3 {
        if node != leading {
            world.stop(node, Stop::Kill);
        }
    }
    let alone = world.run_until(30 * SECOND, |world| {
        world
            .nodes
            .iter()
            .all(|node| node.process.as_ref().is_none_or(|p| p.zab.status() == Status::Looking))
    })?;
    assert!(alone, "one of three voters and two observers serve no client");
    world.heal();
    world.converge()
}

#[test]
fn an_ensemble_grows_shrinks_and_loses_its_leader_to_a_change() -> Result<(), Failure> {
    let mut plan = calm(3, 0);
    plan.settings.reconfig_enabled = true;
    plan.servers = 5;
    let mut world = whole(plan);
    let mut changes = 0;
    for _ in 0..60 {
        world.change_members();
        world.run_for(2 * SECOND)?;
        write(&mut world, 2)?;
        changes = world.report().reconfigurations;
    }
    assert!(changes > 10, "{changes} changes");
    let versions: Vec<i64> = world
        .nodes
        .iter()
        .filter_map(|node| node.process.as_ref()?.zab.ensemble())
        .map(|ensemble| ensemble.committed().version)
        .collect();
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:x?}");
    assert!(world.nodes.iter().any(|node| node.id == ServerId(5)));
    world.heal();
    world.converge()
}
