//! A counter that fetches its numbers in blocks. Curator's `CachedAtomicLong` and
//! `CachedAtomicInteger`.
//!
//! # On the tree
//! ```text
//! /ids/orders                                  an atomic number: the first unallocated one
//! ```
//!
//! # Steps
//! 1. Add the block size to the number. The numbers from the old number up to the sum belong to
//!    this counter.
//! 2. Return the numbers of the block one by one, without a request; then start over.
//!
//! # Guarantees
//! No number is returned twice by any counter on the path. The numbers of one counter grow; between
//! counters there is no order. Numbers are skipped when a counter is dropped in the middle of a
//! block, when the reply to a fetch is lost, and when the future of [`CachedCounter::next`] is
//! dropped during a fetch.
//!
//! # When things break
//! - Disconnected: the numbers of the block remain available; the next fetch waits for the
//!   reconnect.
//! - Session ended: the numbers of the block remain available, because no other counter can get
//!   them; the next fetch fails.

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
    /// The unused numbers of the block: its first number, and the remaining offsets from it.
    left: Mutex<(N, Range<i32>)>,
}

impl<N: Number> CachedCounter<N> {
    /// Creates a counter that fetches `block` numbers at once. Makes no request.
    pub fn new(number: AtomicNumber<N>, block: i32) -> Result<CachedCounter<N>> {
        if block < 1 {
            let why = format!("{}: a block of {block} numbers cannot be fetched", number.path());
            return Err(RecipeError::Misuse(why));
        }
        Ok(CachedCounter { number, block, left: Mutex::new((N::default(), 0..0)) })
    }

    /// Returns the next number; `None` if the [`AtomicNumber`] has a limit of attempts and has
    /// reached it.
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
