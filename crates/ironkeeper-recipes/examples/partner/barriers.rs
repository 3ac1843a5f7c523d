//! Barriers.
//!
//! ```text
//! barrier PATH              -> PATH set or PATH open
//! set-barrier PATH          -> PATH set
//! remove-barrier PATH       -> PATH open
//! pass NAME PATH            -> NAME passed, when the barrier is open
//! enter NAME PATH SIZE      -> NAME held, when SIZE members have entered the double barrier
//! ```

use ironkeeper_client::Client;
use ironkeeper_recipes::barrier::{Barrier, DoubleBarrier};

use crate::Answer;
use crate::held::{Held, Names};

pub async fn obey(client: &Client, names: &Names, words: &[&str]) -> Answer {
    Ok(Some(match words[..] {
        ["barrier", path] => {
            let is_set = Barrier::new(client, path).is_set().await?;
            format!("{path} {}", if is_set { "set" } else { "open" })
        }
        ["set-barrier", path] => {
            Barrier::new(client, path).set().await?;
            format!("{path} set")
        }
        ["remove-barrier", path] => {
            Barrier::new(client, path).remove().await?;
            format!("{path} open")
        }
        ["pass", name, path] => {
            Barrier::new(client, path).wait().await?;
            format!("{name} passed")
        }
        ["enter", name, path, size] => {
            let barrier = DoubleBarrier::new(client, path, size.parse()?)?;
            names.hold(name, Held::Inside(barrier.enter().await?))
        }
        _ => return Ok(None),
    }))
}
