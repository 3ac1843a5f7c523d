//! An election: the leader writes under its leadership until it closes its latch or loses the
//! leadership.

use std::sync::Arc;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::election::{LatchState, LeaderLatch};

use super::register::{self, REGISTER};
use super::{operate, prepare};
use crate::recipes::holdings::Share;
use crate::recipes::program::{Program, Waited};

const LEADER: &str = "/leader";

pub async fn act(program: &mut Program) {
    prepare(program, REGISTER).await;
    while !program.is_over() {
        program.pause_ms((0, 300)).await;
        let client = program.client().await;
        if program.stage.plan.has_operator && program.random.chance(150) {
            operate(program, &client, LEADER).await;
            continue;
        }
        program.say("is a candidate");
        let latch = Arc::new(LeaderLatch::start(&client, LEADER, format!("{}", program.number)));
        let stays = stand(program, &client, &latch).await;
        if program.shall_crash() {
            program.crash();
            continue;
        }
        let latch = Arc::into_inner(latch).expect("beliefs are gone");
        if stays && program.random.chance(700) {
            program.say("closes its latch");
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
        let belief = move || {
            let leads_with = match seen.state() {
                LatchState::Leading(now) => Some(now.fencing_token()),
                _ => None,
            };
            seen.has_leadership() && leads_with == Some(token)
        };
        let hold = program.hold(LEADER, Share::Alone, leadership.path(), Some(token), belief);
        let (low, high) = program.stage.plan.hold_ms;
        let term = Duration::from_millis(program.random.between(low, high));
        let acting = &*program;
        let work = async {
            tokio::time::sleep(term / 2).await;
            register::write(acting, client, leadership.transaction(), token).await;
            tokio::time::sleep(term / 2).await;
        };
        let is_over = tokio::select! {
            biased;
            () = latch.over(&leadership) => true,
            () = work => false,
        };
        program.let_go(hold);
        program.say(if is_over { "leads no more" } else { "has led long enough" });
        if !is_over {
            return true;
        }
    }
    true
}
