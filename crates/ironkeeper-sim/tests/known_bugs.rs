//! Stories that have gone wrong in ZooKeeper once, told to clusters of whole servers under load. The numbers
//! are those of its tracker. What must never be is checked with every answer; each story ends in peace, with
//! everything that was promised.

use std::io::ErrorKind;

use ironkeeper_sim::Failure;
use ironkeeper_sim::server::{Plan, Stop, World};
use ironkeeper_store::disk::sim::Fault;
use ironkeeper_zab::Bug;

const SECOND: u64 = 1_000_000;

/// A cluster in which everybody serves, with clients that never rest.
fn whole(seed: u64, plan: Plan) -> World {
    let mut world = World::new(seed, plan, false);
    world.begin();
    let is_whole = world.run_until(60 * SECOND, World::is_whole);
    assert!(is_whole.expect("nothing is broken yet"), "the cluster comes up");
    world
}

fn busy(voters: u64, observers: u64) -> Plan {
    Plan { clients: 4, ..Plan::calm(voters, observers) }
}

#[track_caller]
fn wait_for_leader(world: &mut World, not: Option<usize>) -> Result<usize, Failure> {
    let mut leader = None;
    let found = world.run_until(60 * SECOND, |world| {
        leader = world.leader().filter(|leader| Some(*leader) != not);
        leader.is_some()
    })?;
    assert!(found, "somebody leads");
    Ok(leader.expect("it was found"))
}

fn in_peace(world: &mut World) -> Result<(), Failure> {
    world.heal();
    world.converge()?;
    assert!(world.report().answers > 0, "clients were served");
    Ok(())
}

/// 3911, 3023, 4646, 4643, 4785: what a quorum has acknowledged is on its disks, and so is its epoch.
#[test]
fn power_lost_everywhere_loses_nothing_that_anybody_was_told() -> Result<(), Failure> {
    let mut world = whole(1, busy(3, 1));
    for round in 0..8 {
        world.run_for(SECOND + round * 70_000)?;
        for node in 0..4 {
            world.stop(node, Stop::PowerLoss);
        }
        for node in 0..4 {
            world.start(node);
        }
    }
    in_peace(&mut world)
}

/// 569: peers that elect a dead leader for ever.
#[test]
fn a_leader_that_dies_is_replaced_each_time() -> Result<(), Failure> {
    let mut world = whole(2, busy(3, 0));
    for _ in 0..6 {
        let old = wait_for_leader(&mut world, None)?;
        world.stop(old, Stop::Kill);
        wait_for_leader(&mut world, Some(old))?;
        world.start(old);
        world.run_for(SECOND)?;
    }
    in_peace(&mut world)
}

/// 1549, 1154, 1156, 1489, 2845: a tail that nobody else has, perhaps in a snapshot already.
#[test]
fn what_only_a_cut_off_leader_has_goes_from_its_log_and_its_snapshots() -> Result<(), Failure> {
    let mut truncations = 0;
    for seed in 0..6 {
        let mut plan = busy(3, 0);
        plan.engine.snap_count = 10;
        let mut world = whole(seed, plan);
        world.run_for(SECOND)?;
        let old = wait_for_leader(&mut world, None)?;
        for other in (0..3).filter(|other| *other != old) {
            world.stop(other, Stop::PowerLoss);
        }
        world.run_for(300_000)?;
        world.stop(old, Stop::Kill);
        for other in (0..3).filter(|other| *other != old) {
            world.start(other);
        }
        wait_for_leader(&mut world, Some(old))?;
        in_peace(&mut world)?;
        truncations += world.report().truncations;
    }
    assert!(truncations > 0, "in one of the worlds there was a tail");
    Ok(())
}

/// 2846, 2418, 3642, 2872: a server that got a whole tree has a hole in its log, and leads others later.
#[test]
fn nobody_is_led_over_the_hole_in_a_log() -> Result<(), Failure> {
    let mut plan = busy(3, 0);
    plan.settings.history_count_max = 3;
    plan.engine.snap_count = 10;
    plan.snapshots_retained = 1;
    let mut world = whole(4, plan);
    for round in 0..6 {
        let late = round % 3;
        world.stop(late, Stop::Kill);
        world.run_for(2 * SECOND)?;
        world.start(late);
        world.run_for(2 * SECOND)?;
    }
    assert!(world.report().snapshots > 0, "somebody needed the whole tree");
    in_peace(&mut world)
}

/// 1653, 2307, 2354, 4269, 1282, 1291: power lost between any two calls of a start and of an election.
#[test]
fn a_server_starts_after_power_was_lost_at_any_call() -> Result<(), Failure> {
    let mut world = whole(5, busy(3, 1));
    for call in 0..30 {
        let node = call % 4;
        world.stop(node, Stop::Kill);
        world.break_call(node, call as u64, Fault::Stop);
        world.start(node);
        world.run_for(SECOND)?;
        world.start(node);
        world.run_for(SECOND / 2)?;
    }
    in_peace(&mut world)
}

/// 3701, 4882: a disk that fails once.
#[test]
fn a_call_that_fails_ends_a_server_and_nothing_else() -> Result<(), Failure> {
    let mut world = whole(6, busy(3, 0));
    for call in 0..20 {
        let node = wait_for_leader(&mut world, None)?;
        world.break_call(node, call, Fault::Error(ErrorKind::Other));
        world.run_for(SECOND)?;
        world.start(node);
    }
    in_peace(&mut world)
}

/// 2355: sessions that end while servers fail leave no node behind.
#[test]
fn ephemeral_nodes_go_with_their_sessions_whoever_fails_meanwhile() -> Result<(), Failure> {
    let plan = Plan { silence_per_mille: 20, move_per_mille: 20, ..busy(3, 0) };
    let mut world = whole(7, plan);
    for _ in 0..5 {
        world.run_for(2 * SECOND)?;
        let leader = wait_for_leader(&mut world, None)?;
        world.stop(leader, Stop::PowerLoss);
        wait_for_leader(&mut world, Some(leader))?;
        world.start(leader);
    }
    in_peace(&mut world)?;
    assert!(world.report().expired > 0, "some clients were silent for too long");
    Ok(())
}

/// 1277: the counter of an epoch that is used up.
#[test]
fn used_up_ids_cost_an_election_and_nothing_else() -> Result<(), Failure> {
    let mut plan = busy(3, 0);
    plan.settings.counter_max = 50;
    let mut world = whole(8, plan);
    world.run_for(10 * SECOND)?;
    assert!(world.report().leaders >= 3, "every fifty transactions another epoch");
    in_peace(&mut world)
}

/// 1699, 1783, 2172, 2819: members that change under load while leaders fail.
#[test]
fn members_change_under_load_while_leaders_fail() -> Result<(), Failure> {
    let mut plan = Plan { servers: 5, reconfig_per_mille: 40, ..busy(3, 0) };
    plan.settings.reconfig_enabled = true;
    plan.engine.reconfig_enabled = true;
    let mut world = whole(9, plan);
    for _ in 0..4 {
        world.run_for(3 * SECOND)?;
        let leader = wait_for_leader(&mut world, None)?;
        world.stop(leader, Stop::PowerLoss);
        world.run_for(SECOND)?;
        world.start(leader);
    }
    assert!(world.report().reconfigurations > 0, "members have changed");
    in_peace(&mut world)
}

/// Leaders are cut off from the others, who elect somebody else, but not always from their clients.
fn leaders_are_cut_off(seed: u64, bug: Option<Bug>) -> Result<(), Failure> {
    // With the long ticks it takes a leader a while to find out. One client writes: whoever waits for an
    // acknowledgement that never comes cannot be told anything, old or new.
    let mut plan = Plan { clients: 5, readers: 4, ..busy(3, 0) };
    plan.session_timeout_ms = (20_000, 30_000);
    (plan.settings.tick_ms, plan.settings.sync_limit, plan.engine.tick_ms) = (4000, 1, 4000);
    plan.settings.bug = bug;
    let mut world = whole(seed, plan);
    for _ in 0..4 {
        let old = wait_for_leader(&mut world, None)?;
        world.isolate(old);
        wait_for_leader(&mut world, Some(old))?;
        world.run_for(SECOND)?;
        world.heal_cuts();
        world.run_for(SECOND)?;
    }
    in_peace(&mut world)
}

/// 1675, 2136: a `sync` that is answered by a leader which is one no more.
#[test]
fn a_leader_that_was_replaced_answers_no_sync() -> Result<(), Failure> {
    let noticed = (0..60).find_map(|seed| leaders_are_cut_off(seed, Some(Bug::SyncUnasked)).err());
    let noticed = noticed.expect("without the question, somebody is told what is old");
    assert!(noticed.what.starts_with("synced reads"), "{noticed}");
    leaders_are_cut_off(noticed.seed, None)
}

/// A leader that stood still ends sessions whose signs of life wait in its sockets.
#[test]
fn nobody_is_ended_for_the_time_in_which_the_leader_stood_still() -> Result<(), Failure> {
    for (seed, voters) in [(1, 1), (2, 1), (3, 3)] {
        let mut plan = busy(voters, 1);
        plan.session_timeout_ms = (1_000, 1_500);
        // The others of three have more patience with their leader than it has with sessions.
        plan.settings.sync_limit = 30;
        let mut world = whole(seed, plan);
        for _ in 0..5 {
            world.run_for(3 * SECOND)?;
            let leader = wait_for_leader(&mut world, None)?;
            world.freeze_for(leader, 4 * SECOND);
            world.run_for(5 * SECOND)?;
        }
        in_peace(&mut world)?;
    }
    Ok(())
}
