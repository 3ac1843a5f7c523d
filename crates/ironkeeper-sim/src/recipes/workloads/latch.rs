//! An election: the leader writes under its leadership until it closes its latch or loses the
//! leadership.

use std::sync::Arc;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::election::{LatchState, LeaderLatch};

use super::register::{self, REGISTER};
use super::{operate, prepare};
use crate::recipes::claimed_holds::Share;
use crate::recipes::program::{Program, Waited};

const LEADER: &str = "/leader";

pub async fn run(program: &mut Program) {
    prepare(program, REGISTER).await;
    while !program.must_finish() {
        program.pause_ms((0, 300)).await;
        let client = program.client().await;
        if program.context.plan.has_operator && program.random.chance(150) {
            operate(program, &client, LEADER).await;
            continue;
        }
        program.log("is a candidate");
        let latch = Arc::new(LeaderLatch::start(&client, LEADER, format!("{}", program.number)));
        let stays = stand(program, &client, &latch).await;
        if program.draws_crash() {
            program.crash();
            continue;
        }
        let latch = Arc::into_inner(latch).expect("the claim that shared it is released");
        if stays && program.random.chance(700) {
            program.log("closes its latch");
            program.wait_long("close the latch", latch.close()).await;
        }
    }
}

/// Leads a few times. Returns whether the latch may have to be closed.
async fn stand(program: &mut Program, client: &Client, latch: &Arc<LeaderLatch>) -> bool {
    for _ in 0..program.random.between(1, 3) {
        let leadership = match program.wait("lead", latch.leading()).await {
            Waited::Got(leadership) => leadership,
            Waited::GaveUp => return true,
            _ => return false,
        };
        let token = leadership.fencing_token();
        let seen = latch.clone();
        let is_claimed = move || {
            let leads_with = match seen.state() {
                LatchState::Leading(now) => Some(now.fencing_token()),
                _ => None,
            };
            seen.has_leadership() && leads_with == Some(token)
        };
        let hold = program.hold(LEADER, Share::Alone, leadership.path(), Some(token), is_claimed);
        let (low, high) = program.context.plan.hold_ms;
        let term = Duration::from_millis(program.random.between(low, high));
        let acting = &*program;
        let work = async {
            tokio::time::sleep(term / 2).await;
            register::write(acting, client, leadership.transaction(), token).await;
            tokio::time::sleep(term / 2).await;
        };
        let must_finish = tokio::select! {
            biased;
            () = latch.over(&leadership) => true,
            () = work => false,
        };
        program.release_claim(hold);
        program.log(if must_finish { "leads no more" } else { "has led long enough" });
        if !must_finish {
            return true;
        }
    }
    true
}
