//! Parties and set partitioners.
//!
//! ```text
//! party NAME KIND PATH ID           -> NAME held, when joined; KIND is deep or shallow
//! participants NAME ID,ID           -> NAME sees them, when exactly these have joined
//! share NAME PATH ID ITEM,ITEM,ITEM -> NAME has ITEM,ITEM for each share; a share is released when
//!                                      the members change; `release NAME` leaves, then: NAME left
//! ```

use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::group::{PartitionState, Party, SetPartitioner};
use tokio::sync::oneshot;

use crate::held::{Held, Names};
use crate::{Answer, Anything, say};

/// How long the members must not change before shares are taken.
const SETTLING: Duration = Duration::from_millis(50);

async fn share(
    mut partitioner: SetPartitioner,
    name: &str,
    mut is_done: oneshot::Receiver<()>,
) -> Anything<()> {
    loop {
        // The future of `acquire` is dropped, so `release` works while a share is awaited.
        let share = tokio::select! {
            share = partitioner.acquire() => share?,
            _ = &mut is_done => break,
        };
        say(&format!("{name} has {}", share.items().join(",")));
        let is_over = tokio::select! {
            state = share.ended() => {
                if state == PartitionState::Failure {
                    return Err("the share was lost".into());
                }
                false
            }
            _ = &mut is_done => true,
        };
        share.release().await?;
        if is_over {
            break;
        }
    }
    partitioner.leave().await?;
    Ok(())
}

/// Waits until the participants are exactly `wanted`, which is sorted.
async fn until_participants(client: &Client, party: &Party, wanted: &str) -> Anything<()> {
    let wanted: Vec<&str> = wanted.split(',').filter(|id| !id.is_empty()).collect();
    loop {
        let mut present = party.participants();
        present.sort();
        if present == wanted {
            return Ok(());
        }
        // One check per round trip.
        client.sync("/").await?;
    }
}

pub async fn obey(client: &Client, names: &Names, words: &[&str]) -> Answer {
    Ok(Some(match words[..] {
        ["party", name, kind, path, id] => {
            let party = match kind {
                "deep" => Party::join(client, path, id).await?,
                _ => Party::join_shallow(client, path, id).await?,
            };
            names.hold(name, Held::Party(party))
        }
        ["participants", name, wanted] => {
            let Held::Party(party) = names.take(name)? else { return Err("no party".into()) };
            until_participants(client, &party, wanted).await?;
            names.hold(name, Held::Party(party));
            format!("{name} sees them")
        }
        ["share", name, path, id, items] => {
            let partitioner = SetPartitioner::join(client, path, items.split(','), id).await?;
            let (done, is_done) = oneshot::channel();
            let told = name.to_owned();
            tokio::spawn(async move {
                let shared = share(partitioner.with_settling(SETTLING), &told, is_done).await;
                say(&match shared {
                    Ok(()) => format!("{told} left"),
                    Err(error) => format!("error: {told}: {error}"),
                });
            });
            names.hold(name, Held::Sharing(done))
        }
        _ => return Ok(None),
    }))
}
