//! A group: members come, lose their sessions and come back under their names. In the end everybody sees
//! everybody.

use std::time::Duration;

use ironkeeper_recipes::group::GroupMember;

use crate::recipes::program::{Program, Waited};

const GROUP: &str = "/group";

#[derive(Debug, Default)]
pub struct Record {
    /// How many have seen everybody at the end.
    content: usize,
}

pub async fn act(program: &mut Program) {
    loop {
        let client = program.client().await;
        let name = format!("p{}", program.number);
        program.say("joins");
        let data = format!("{:x}", client.session_id().0);
        let joining = GroupMember::join(&client, GROUP, &name, data);
        let Waited::Got(member) = program.wait("join", joining).await else { continue };
        program.ledger().deeds += 1;
        while !program.is_over() && !client.state().is_final() {
            program.pause_ms((0, 1_000)).await;
            if program.shall_crash() {
                program.crash();
                break;
            }
            if program.random.chance(50) {
                break;
            }
        }
        let is_alive =
            program.living_client().is_some_and(|now| now.session_id() == client.session_id());
        if is_alive && program.is_over() {
            return see_everybody(program, member).await;
        }
        if is_alive && program.random.chance(500) {
            program.say("leaves");
            program.wait_long("leave", member.leave()).await;
        }
    }
}

/// Waits until all are there, and until all have seen that.
async fn see_everybody(program: &mut Program, member: GroupMember) {
    let all = program.stage.plan.programs;
    let see = |members: usize| members == all;
    // If that never comes to pass, somebody is stuck, and the theatre says so.
    while !see(member.members().len()) {
        program.say(format!("sees {} of {all}", member.members().len()));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    program.ledger().records.group.content += 1;
    program.say("sees everybody");
    while program.ledger().records.group.content < all {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    program.wait_long("leave", member.leave()).await;
}
