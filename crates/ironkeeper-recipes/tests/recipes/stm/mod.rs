//! Transactions over several nodes, against a real server, with and without faults.

mod conflicts;
mod under_faults;

use ironkeeper_client::Client;
use ironkeeper_recipes::stm::{Attempt, Memory};
use ironkeeper_recipes::{RecipeError, Result};

const ROOT: &str = "/bank";

async fn open(client: &Client) -> Memory {
    Memory::open(client, ROOT).await.unwrap()
}

/// Returns the number in a cell, or 0 if there is none.
async fn number(now: &Attempt, path: &str) -> Result<i64> {
    Ok(now.get_as(path).await?.unwrap_or(0))
}

async fn put(memory: &Memory, path: &str, value: i64) {
    memory.atomically(|now| async move { now.put_as(path, &value).await }).await.unwrap();
}

async fn look(memory: &Memory, path: &str) -> i64 {
    memory.atomically(|now| async move { number(&now, path).await }).await.unwrap()
}

async fn transfer(memory: &Memory, from: &str, to: &str, amount: i64) -> Result<()> {
    memory
        .atomically(|now| async move {
            let (rich, poor) = (number(&now, from).await?, number(&now, to).await?);
            if rich < amount {
                return Err(RecipeError::Misuse("not enough".to_owned()));
            }
            now.put_as(from, &(rich - amount)).await?;
            now.put_as(to, &(poor + amount)).await
        })
        .await
}
