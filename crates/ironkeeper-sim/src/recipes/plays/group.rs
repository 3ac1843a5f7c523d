//! A group: members come, lose their sessions and come back under their names. In the end everybody sees
//! everybody.

use std::collections::BTreeSet;
use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::group::GroupMember;

use crate::recipes::program::{Program, Waited};

const GROUP: &str = "/group";

#[derive(Debug, Default)]
pub struct Record {
    /// Who has seen everybody at the end, and lives on.
    content: BTreeSet<usize>,
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
            if see_everybody(program, &client, member).await {
                return;
            }
            continue;
        }
        if is_alive && program.random.chance(500) {
            program.say("leaves");
            program.wait_long("leave", member.leave()).await;
        }
    }
}

/// Waits until all are there, and until all have seen that. Says whether the session has lived so long: what a
/// member without one knows is of the past.
async fn see_everybody(program: &mut Program, client: &Client, member: GroupMember) -> bool {
    let (all, number) = (program.stage.plan.programs, program.number);
    // If that never comes to pass, somebody is stuck, and the theatre says so.
    while program.ledger().records.group.content.len() < all {
        if client.state().is_final() {
            program.say("has lost its session");
            let mut ledger = program.ledger();
            ledger.losses += 1;
            ledger.records.group.content.remove(&number);
            return false;
        }
        let seen = member.members().len();
        if seen == all && client.state().is_connected() {
            program.ledger().records.group.content.insert(number);
        }
        program.say(format!("sees {seen} of {all}"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    program.wait_long("leave", member.leave()).await;
    true
}
