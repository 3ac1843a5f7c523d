//! A group: members join, lose their sessions and join again under their names. At the end every
//! member sees all members.

use std::collections::BTreeSet;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::group::GroupMember;

use crate::recipes::program::{Program, Waited};

const GROUP: &str = "/group";

#[derive(Debug, Default)]
pub struct Record {
    /// Programs that saw all members at the end and still have their session.
    content: BTreeSet<usize>,
}

pub async fn run(program: &mut Program) {
    loop {
        let client = program.client().await;
        let name = format!("p{}", program.number);
        program.log("joins");
        let data = format!("{:x}", client.session_id().0);
        let joining = GroupMember::join(&client, GROUP, &name, data);
        let Waited::Got(member) = program.wait("join", joining).await else { continue };
        program.observations().operations += 1;
        while !program.must_finish() && !client.state().is_final() {
            program.pause_ms((0, 1_000)).await;
            if program.draws_crash() {
                program.crash();
                break;
            }
            if program.random.chance(50) {
                break;
            }
        }
        let is_alive =
            program.live_client().is_some_and(|now| now.session_id() == client.session_id());
        if is_alive && program.must_finish() {
            if see_everybody(program, &client, member).await {
                return;
            }
            continue;
        }
        if is_alive && program.random.chance(500) {
            program.log("leaves");
            program.wait_long("leave", member.leave()).await;
        }
    }
}

/// Waits until all members have joined, and until all members have seen this. Returns whether the
/// session survived until then: the view of a member without a session is stale.
async fn see_everybody(program: &mut Program, client: &Client, member: GroupMember) -> bool {
    let (all, number) = (program.context.plan.programs, program.number);
    // If this never happens, the runner reports that a program is stuck.
    while program.observations().records.group.content.len() < all {
        if client.state().is_final() {
            program.log("has lost its session");
            let mut observations = program.observations();
            observations.losses += 1;
            observations.records.group.content.remove(&number);
            return false;
        }
        let seen = member.members().len();
        if seen == all && client.state().is_connected() {
            program.observations().records.group.content.insert(number);
        }
        program.log(format!("sees {seen} of {all}"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    program.wait_long("leave", member.leave()).await;
    true
}
