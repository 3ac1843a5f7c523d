//! A counter that fetches its numbers in blocks. Curator's `CachedAtomicLong` and
//! `CachedAtomicInteger`.
//!
//! # On the tree
//! ```text
//! /ids/orders                                  an atomic number: the first one that nobody has yet
//! ```
//!
//! # Steps
//! 1. Add the size of a block to the number; the block before the sum is ours.
//! 2. Hand out the numbers of the block one by one, without any request; then begin again.
//!
//! # Guarantees
//! No number is handed out twice, by whatever counter on the path. The numbers of one counter grow;
//! between counters there is no order. Numbers are left out where a counter ends in the middle of a
//! block, where the reply to a fetch is lost, and where the future of [`CachedCounter::next`] is
//! dropped during a fetch.
//!
//! # When things break
//! - Disconnected: numbers of the block go on; the next fetch waits for the reconnect.
//! - Session over: numbers of the block go on, as they are ours for good; the next fetch fails.

use std::ops::Range;

use tokio::sync::Mutex;

use crate::error::{RecipeError, Result};
use crate::shared::atomic_number::{AtomicNumber, Number};

/// A counter on top of an [`AtomicNumber`], for one process.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::shared::{AtomicLong, CachedCounter};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let orders = CachedCounter::new(AtomicLong::new(&client, "/ids/orders"), 100)?;
///     assert_eq!(orders.next().await?, Some(0));
///     assert_eq!(orders.next().await?, Some(1)); // without a request
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "CachedAtomicLong")]
#[doc(alias = "CachedAtomicInteger")]
pub struct CachedCounter<N> {
    number: AtomicNumber<N>,
    block: i32,
    /// The numbers not handed out yet: how far the block's first one is passed, and that first one.
    left: Mutex<(N, Range<i32>)>,
}

impl<N: Number> CachedCounter<N> {
    /// A counter that fetches so many numbers at once. Makes no request.
    pub fn new(number: AtomicNumber<N>, block: i32) -> Result<CachedCounter<N>> {
        if block < 1 {
            let why = format!("{}: a block of {block} numbers cannot be fetched", number.path());
            return Err(RecipeError::Misuse(why));
        }
        Ok(CachedCounter { number, block, left: Mutex::new((N::default(), 0..0)) })
    }

    /// The next number; `None` if the number has a limit of tries and others were always faster.
    pub async fn next(&self) -> Result<Option<N>> {
        let mut left = self.left.lock().await;
        if left.1.is_empty() {
            let change = self.number.add(N::small(self.block)).await?;
            match change.before {
                Some(first) if change.applied => *left = (first, 0..self.block),
                _ => return Ok(None),
            }
        }
        let (first, steps) = &mut *left;
        Ok(steps.next().and_then(|step| first.sum(N::small(step))))
    }
}
