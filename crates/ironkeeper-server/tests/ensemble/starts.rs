//! The time until all members of an ensemble serve clients: after a start, and after the loss of
//! the leader.
//!
//! The times are only printed, because a busy machine must not make this test fail. The environment
//! variable `IRONKEEPER_STARTS=200` sets the number of starts.

use std::time::{Duration, Instant};

use ironkeeper_testing::TestCluster;

#[test]
fn every_start_ends_with_all_members_serving() {
    let count = std::env::var("IRONKEEPER_STARTS").ok().and_then(|count| count.parse().ok());
    let (mut starts, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..count.unwrap_or(5) {
        let began = Instant::now();
        let cluster = TestCluster::builder().voters(3).observers(1).start().expect("it starts");
        starts.push(began.elapsed());
        let stopped = cluster.stop_leader().expect("there is a leader");
        let began = Instant::now();
        cluster.wait_until_serving().expect("the others go on");
        losses.push(began.elapsed());
        assert_ne!(cluster.leader(), Some(stopped));
    }
    tell("from the start to all members serving", starts);
    tell("from the end of the leader to all others serving", losses);
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let part = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
    println!(
        "{what}: {} times, median {:?}, 90 % {:?}, 99 % {:?}, longest {:?}",
        times.len(),
        part(500),
        part(900),
        part(990),
        part(1000)
    );
}
