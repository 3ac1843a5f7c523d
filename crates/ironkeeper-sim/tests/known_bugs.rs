//! Known bugs of ZooKeeper, reproduced on clusters of whole servers under load. The numbers are
//! those of ZooKeeper's tracker. The rules are checked with every reply; each test ends without
//! faults and with the final check.

use std::io::ErrorKind;

use ironkeeper_engine::config::LocalSessions;
use ironkeeper_sim::Failure;
use ironkeeper_sim::server::{Plan, Stop, World};
use ironkeeper_simdisk::Fault;
use ironkeeper_zab::Bug;

const SECOND: u64 = 1_000_000;

/// Returns a cluster in which all servers serve, with clients under load.
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
    assert!(found, "a server leads");
    Ok(leader.expect("it was found"))
}

/// Stops a number of leaders in a row under load, and restarts each when it has been replaced.
fn leaders_fail(world: &mut World, times: usize, how: Stop) -> Result<(), Failure> {
    for _ in 0..times {
        world.run_for(2 * SECOND)?;
        let leader = wait_for_leader(world, None)?;
        world.stop(leader, how);
        wait_for_leader(world, Some(leader))?;
        world.start(leader);
    }
    Ok(())
}

fn without_faults(world: &mut World) -> Result<(), Failure> {
    world.heal();
    world.converge()?;
    assert!(world.report().answers > 0, "clients were served");
    Ok(())
}

/// 3911, 3023, 4646, 4643, 4785: transactions that a quorum has acknowledged are on its disks, and
/// so is the epoch.
#[test]
fn a_power_loss_of_all_servers_loses_no_acknowledged_write() -> Result<(), Failure> {
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
    without_faults(&mut world)
}

/// 569: servers that elect a dead leader forever.
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
    without_faults(&mut world)
}

/// 1549, 1154, 1156, 1489, 2845: a log tail that no other server has, possibly already in a
/// snapshot.
#[test]
fn uncommitted_writes_of_an_isolated_leader_leave_its_log_and_its_snapshots() -> Result<(), Failure>
{
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
        without_faults(&mut world)?;
        truncations += world.report().truncations;
    }
    assert!(truncations > 0, "in one of the worlds a log had a tail to truncate");
    Ok(())
}

/// 2846, 2418, 4352, 4925: a server that installed a snapshot has a gap in its log, and leads
/// others later.
#[test]
fn no_learner_is_synchronized_across_a_gap_in_a_log() -> Result<(), Failure> {
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
    assert!(world.report().snapshots > 0, "a learner received a snapshot");
    without_faults(&mut world)
}

/// 1653, 2307, 2354, 4269, 1282, 1291: a power failure between any two disk calls of a start and of
/// an election.
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
    without_faults(&mut world)
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
    without_faults(&mut world)
}

/// Fails a disk call of every server, restarts the processes on machines that keep running, and
/// cuts the power some time later.
fn trust_the_cache(seed: u64, plan: Plan) -> Result<(), Failure> {
    let mut world = whole(seed, plan);
    for call in 0..12 {
        // The disk calls of an election are over; those of the log follow.
        wait_for_leader(&mut world, None)?;
        world.run_for(SECOND / 4)?;
        for node in 0..world.nodes.len() {
            world.break_call(node, call % 6, Fault::Error(ErrorKind::Other));
        }
        world.run_for(SECOND / 4)?;
        for node in 0..world.nodes.len() {
            world.stop(node, Stop::Kill);
            world.start(node);
        }
        // The servers vote with the recovered transactions and return them to clients.
        wait_for_leader(&mut world, None)?;
        world.run_for(SECOND / 2)?;
        for node in 0..world.nodes.len() {
            world.stop(node, Stop::PowerLoss);
            world.start(node);
        }
    }
    without_faults(&mut world)
}

/// 4882, and the problem known as fsyncgate: after a failed sync a process reads data that is not
/// on the medium.
#[test]
fn what_is_read_after_a_failed_sync_survives_the_next_loss_of_power() -> Result<(), Failure> {
    trust_the_cache(100, busy(3, 0))?;
    // A single server, so that no other server has the data.
    (101..106).try_for_each(|seed| trust_the_cache(seed, busy(1, 0)))
}

/// The same with disks that ignore the tail rewrite of recovery: a checker must detect the loss.
#[test]
fn a_process_that_trusts_its_cache_after_a_failed_sync_is_detected() {
    let plan = Plan { skips_equal_writes: true, ..busy(1, 0) };
    let noticed = (101..131).find_map(|seed| trust_the_cache(seed, plan.clone()).err());
    let failure = noticed.expect("a checker detects it");
    let kinds = ["durability", "agreement", "linearizability", "recovery"];
    assert!(kinds.iter().any(|kind| failure.what.starts_with(kind)), "{failure}");
}

/// 2355, 4837: sessions that end while servers fail leave no ephemeral node.
#[test]
fn ephemeral_nodes_are_deleted_with_their_sessions_whichever_server_fails() -> Result<(), Failure> {
    let plan = Plan { silence_per_mille: 20, move_per_mille: 20, ..busy(3, 0) };
    let mut world = whole(7, plan);
    leaders_fail(&mut world, 5, Stop::PowerLoss)?;
    without_faults(&mut world)?;
    assert!(world.report().expired > 0, "some clients sent nothing for their timeout");
    Ok(())
}

/// 1277: the counter of an epoch overflows.
#[test]
fn used_up_ids_cost_an_election_and_nothing_else() -> Result<(), Failure> {
    let mut plan = busy(3, 0);
    plan.settings.counter_max = 50;
    let mut world = whole(8, plan);
    world.run_for(10 * SECOND)?;
    assert!(world.report().leaders >= 3, "every fifty transactions another epoch");
    without_faults(&mut world)
}

/// 1699, 1783, 2172, 2819: the membership changes under load while leaders fail.
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
    assert!(world.report().reconfigurations > 0, "the membership has changed");
    without_faults(&mut world)
}

/// Isolates leaders from the other servers, which elect another one, but not always from their
/// clients.
fn leaders_are_cut_off(seed: u64, bug: Option<Bug>) -> Result<(), Failure> {
    // With long ticks a leader notices its isolation late. Only one client writes: a client that
    // waits for an acknowledgement that never arrives receives no reply at all, stale or not.
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
    without_faults(&mut world)
}

/// 1675, 2136: a `sync` reply from a leader that has been replaced.
#[test]
fn a_leader_that_was_replaced_answers_no_sync() -> Result<(), Failure> {
    let noticed = (0..60).find_map(|seed| leaders_are_cut_off(seed, Some(Bug::SyncUnasked)).err());
    let noticed = noticed.expect("without the confirmation a client reads stale data");
    assert!(noticed.what.starts_with("synced reads"), "{noticed}");
    leaders_are_cut_off(noticed.seed, None)
}

/// A leader that was paused expires sessions whose pings wait in its sockets.
#[test]
fn no_session_expires_for_the_time_in_which_the_leader_was_suspended() -> Result<(), Failure> {
    for (seed, voters) in [(1, 1), (2, 1), (3, 3)] {
        let mut plan = busy(voters, 1);
        plan.session_timeout_ms = (1_000, 1_500);
        // With three servers, the timeout of the followers is longer than that of the sessions.
        plan.settings.sync_limit = 30;
        let mut world = whole(seed, plan);
        for _ in 0..5 {
            world.run_for(3 * SECOND)?;
            let leader = wait_for_leader(&mut world, None)?;
            world.freeze_for(leader, 4 * SECOND);
            world.run_for(5 * SECOND)?;
        }
        without_faults(&mut world)?;
    }
    Ok(())
}

/// 3526: a server that has served reads without a leader makes others truncate committed
/// transactions.
#[test]
fn servers_without_a_quorum_serve_reads_accept_no_write_and_truncate_nothing() -> Result<(), Failure>
{
    let mut plan = Plan { read_only_clients: 3, ..busy(3, 1) };
    plan.engine.read_only_enabled = true;
    plan.settings.history_count_max = 3;
    let mut world = whole(10, plan);
    for round in 0..4 {
        let left = round % 4;
        for other in (0..4).filter(|other| *other != left) {
            world.stop(other, Stop::Kill);
        }
        // Clients abandon their sessions, and some time later connect in read-only mode.
        world.run_for(15 * SECOND)?;
        for other in (0..4).filter(|other| *other != left) {
            world.start(other);
        }
        world.run_for(5 * SECOND)?;
    }
    assert!(world.report().read_only_answers > 0, "a client was served without a leader");
    without_faults(&mut world)
}

/// 3471: a local session is upgraded while it ends, and leaves an ephemeral node.
#[test]
fn ephemeral_nodes_of_upgraded_sessions_exist_as_long_as_the_sessions() -> Result<(), Failure> {
    let mut plan = Plan { silence_per_mille: 20, move_per_mille: 10, ..busy(3, 1) };
    plan.engine.local_sessions = LocalSessions::Upgrading;
    let mut world = whole(11, plan);
    leaders_fail(&mut world, 5, Stop::PowerLoss)?;
    assert!(world.report().upgrades > 0, "some sessions created ephemeral nodes");
    without_faults(&mut world)
}

/// Local sessions that are never upgraded: their writes are in order as well.
#[test]
fn local_sessions_write_in_order_and_own_nothing() -> Result<(), Failure> {
    let mut plan = Plan { silence_per_mille: 10, move_per_mille: 20, ..busy(3, 0) };
    plan.engine.local_sessions = LocalSessions::On;
    let mut world = whole(12, plan);
    leaders_fail(&mut world, 3, Stop::Kill)?;
    without_faults(&mut world)
}
