//! Shared values and atomic numbers.
//!
//! ```text
//! read KIND PATH              -> PATH is VALUE
//! write KIND PATH VALUE       -> PATH written
//! swap KIND PATH OLD NEW      -> PATH swapped, or PATH kept
//! follow KIND PATH VALUE      -> PATH became VALUE, when the watch shows it; shared kinds only
//! add KIND PATH NUMBER TIMES  -> PATH added, after adding NUMBER TIMES times
//! next KIND PATH BLOCK TIMES  -> PATH handed out N,N,N: from blocks of BLOCK; long, integer only
//! ```
//! KIND is shared-count, shared-value, long, integer, or promoted-long, with a lock at `PATH-lock`.

use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::shared::{
    AtomicInteger, AtomicLong, AtomicNumber, CachedCounter, Number, SharedCount, SharedValue,
};

use crate::{Answer, Anything};

/// The timeout for the lock of a promoted number; only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn long(client: &Client, kind: &str, path: &str) -> AtomicLong {
    let number = AtomicLong::new(client, path);
    match kind {
        "promoted-long" => number.promoted_to(format!("{path}-lock"), PATIENCE),
        _ => number,
    }
}

async fn read(client: &Client, kind: &str, path: &str) -> Anything<String> {
    Ok(match kind {
        "shared-count" => SharedCount::open(client, path, 0).await?.read().await?.value.to_string(),
        "shared-value" => {
            let value = SharedValue::open(client, path, "").await?.read().await?.value;
            String::from_utf8(value.to_vec())?
        }
        "integer" => AtomicInteger::new(client, path).get().await?.to_string(),
        _ => long(client, kind, path).get().await?.to_string(),
    })
}

async fn write(client: &Client, kind: &str, path: &str, value: &str) -> Anything<()> {
    match kind {
        "shared-count" => {
            SharedCount::open(client, path, 0).await?.set(value.parse()?).await?;
        }
        "shared-value" => {
            SharedValue::open(client, path, "").await?.set(value).await?;
        }
        "integer" => AtomicInteger::new(client, path).set(value.parse()?).await?,
        _ => long(client, kind, path).set(value.parse()?).await?,
    }
    Ok(())
}

async fn swap(client: &Client, kind: &str, path: &str, old: &str, new: &str) -> Anything<bool> {
    Ok(match kind {
        "shared-count" => {
            let count = SharedCount::open(client, path, 0).await?;
            let seen = count.read().await?;
            seen.value == old.parse::<i32>()? && count.try_set(&seen, new.parse()?).await?
        }
        "shared-value" => {
            let value = SharedValue::open(client, path, "").await?;
            let seen = value.read().await?;
            seen.value == old && value.try_set(&seen, new).await?
        }
        "integer" => {
            let number = AtomicInteger::new(client, path);
            number.compare_and_set(old.parse()?, new.parse()?).await?.applied
        }
        _ => {
            let number = long(client, kind, path);
            number.compare_and_set(old.parse()?, new.parse()?).await?.applied
        }
    })
}

/// Waits until the background task of a shared value has read `wanted`.
async fn follow(client: &Client, path: &str, wanted: &[u8]) -> Anything<()> {
    let value = SharedValue::open(client, path, "").await?;
    let mut changes = value.changes();
    while value.current().value != wanted {
        changes.next().await.ok_or("the session is over")?;
    }
    Ok(())
}

async fn next<N: Number>(
    number: AtomicNumber<N>,
    block: i32,
    times: usize,
) -> Anything<Vec<String>> {
    let counter = CachedCounter::new(number, block)?;
    let mut handed_out = Vec::new();
    for _ in 0..times {
        handed_out.push(counter.next().await?.ok_or("no number")?.to_string());
    }
    Ok(handed_out)
}

pub async fn obey(client: &Client, words: &[&str]) -> Answer {
    Ok(Some(match words[..] {
        ["read", kind, path] => format!("{path} is {}", read(client, kind, path).await?),
        ["write", kind, path, value] => {
            write(client, kind, path, value).await?;
            format!("{path} written")
        }
        ["swap", kind, path, old, new] => {
            let swapped = swap(client, kind, path, old, new).await?;
            format!("{path} {}", if swapped { "swapped" } else { "kept" })
        }
        ["follow", kind, path, value] => {
            match kind {
                "shared-count" => {
                    follow(client, path, &value.parse::<i32>()?.to_be_bytes()).await?;
                }
                _ => follow(client, path, value.as_bytes()).await?,
            }
            format!("{path} became {value}")
        }
        ["add", kind, path, number, times] => {
            for _ in 0..times.parse::<usize>()? {
                let applied = match kind {
                    "integer" => {
                        AtomicInteger::new(client, path).add(number.parse()?).await?.applied
                    }
                    _ => long(client, kind, path).add(number.parse()?).await?.applied,
                };
                if !applied {
                    return Err("others were always faster".into());
                }
            }
            format!("{path} added")
        }
        ["next", kind, path, block, times] => {
            let (block, times) = (block.parse()?, times.parse()?);
            let handed_out = match kind {
                "integer" => next(AtomicInteger::new(client, path), block, times).await?,
                _ => next(AtomicLong::new(client, path), block, times).await?,
            };
            format!("{path} handed out {}", handed_out.join(","))
        }
        _ => return Ok(None),
    }))
}
