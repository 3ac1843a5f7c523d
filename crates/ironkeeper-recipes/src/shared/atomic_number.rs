//! A number that many clients change concurrently. Curator's `DistributedAtomicLong` and
//! `DistributedAtomicInteger`, kazoo's `Counter`.
//!
//! # On the tree
//! ```text
//! /counters/hits                               persistent: eight bytes (long) or four (integer),
//!                                              big-endian; an empty node is zero
//! ```
//! and the nodes that [`AtomicValue`] adds with a promotion or with receipts.
//!
//! # Steps, guarantees, and when things break
//! Those of [`AtomicValue`], with a number as the value. A sum that overflows is rejected with
//! [`RecipeError::Misuse`], where Java silently wraps around to the smallest number. A node of
//! another length is rejected with [`RecipeError::Malformed`].

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::Client;

use crate::error::{RecipeError, Result};
use crate::shared::atomic_value::{AtomicValue, Change};

mod sealed {
    pub trait Sealed {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// The types that an [`AtomicNumber`] can hold: `i64` and `i32`.
pub trait Number:
    sealed::Sealed + Copy + Default + fmt::Debug + fmt::Display + Send + 'static
{
    #[doc(hidden)]
    fn encode(self) -> Bytes;
    #[doc(hidden)]
    fn decode(data: &[u8]) -> Option<Self>;
    #[doc(hidden)]
    fn sum(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn difference(self, other: Self) -> Option<Self>;
    #[doc(hidden)]
    fn small(value: i32) -> Self;
}

macro_rules! number {
    ($type:ty) => {
        impl Number for $type {
            fn encode(self) -> Bytes {
                Bytes::copy_from_slice(&self.to_be_bytes())
            }

            fn decode(data: &[u8]) -> Option<Self> {
                if data.is_empty() {
                    return Some(0);
                }
                data.try_into().ok().map(Self::from_be_bytes)
            }

            fn sum(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }

            fn difference(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }

            fn small(value: i32) -> Self {
                value.into()
            }
        }
    };
}

number!(i32);
number!(i64);

/// A number of eight bytes, like Curator's `DistributedAtomicLong`.
#[doc(alias = "DistributedAtomicLong")]
#[doc(alias = "Counter")]
pub type AtomicLong = AtomicNumber<i64>;

/// A number of four bytes, like Curator's `DistributedAtomicInteger`.
#[doc(alias = "DistributedAtomicInteger")]
#[doc(alias = "Counter")]
pub type AtomicInteger = AtomicNumber<i32>;

/// A number on a path that is changed atomically. A missing node counts as zero.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::shared::AtomicLong;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let hits = AtomicLong::new(&client, "/counters/hits").with_receipts();
///     let change = hits.add(5).await?;
///     assert_eq!((change.before, change.after), (Some(0), Some(5)));
///     assert_eq!(hits.decrement().await?.after, Some(4));
///     println!("{} tries", change.stats.optimistic_tries);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "DistributedAtomicNumber")]
pub struct AtomicNumber<N> {
    value: AtomicValue,
    number: PhantomData<fn() -> N>,
}

impl<N: Number> AtomicNumber<N> {
    /// Creates a handle for the number on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> AtomicNumber<N> {
        AtomicNumber { value: AtomicValue::new(client, path), number: PhantomData }
    }

    /// See [`AtomicValue::with_tries`].
    pub fn with_tries(mut self, tries: u32) -> AtomicNumber<N> {
        self.value = self.value.with_tries(tries);
        self
    }

    /// See [`AtomicValue::promoted_to`].
    #[doc(alias = "PromotedToLock")]
    pub fn promoted_to(
        mut self,
        lock_path: impl Into<String>,
        patience: Duration,
    ) -> AtomicNumber<N> {
        self.value = self.value.promoted_to(lock_path, patience);
        self
    }

    /// See [`AtomicValue::with_receipts`].
    pub fn with_receipts(mut self) -> AtomicNumber<N> {
        self.value = self.value.with_receipts();
        self
    }

    /// Returns the path of the number.
    pub fn path(&self) -> &str {
        self.value.path()
    }

    /// Returns the present number; zero if there is no node.
    pub async fn get(&self) -> Result<N> {
        match self.value.get().await? {
            Some(data) => self.decode(&data),
            None => Ok(N::default()),
        }
    }

    /// Creates the node with a number if it does not exist. Returns whether it was created.
    pub async fn initialize(&self, number: N) -> Result<bool> {
        self.value.initialize(number.encode()).await
    }

    /// Writes the number unconditionally.
    pub async fn set(&self, number: N) -> Result<()> {
        self.value.set(number.encode()).await
    }

    /// Writes `number` if the present number is `expected`. Makes one attempt.
    #[doc(alias = "compareAndSet")]
    #[doc(alias = "compare_and_swap")]
    #[doc(alias = "cas")]
    pub async fn compare_and_set(&self, expected: N, number: N) -> Result<Change<N>> {
        let change = self.value.compare_and_set(expected.encode(), number.encode()).await?;
        self.decode_change(change)
    }

    /// Adds `delta`.
    pub async fn add(&self, delta: N) -> Result<Change<N>> {
        self.update(|before| before.sum(delta)).await
    }

    /// Subtracts `delta`.
    pub async fn subtract(&self, delta: N) -> Result<Change<N>> {
        self.update(|before| before.difference(delta)).await
    }

    /// Adds one.
    pub async fn increment(&self) -> Result<Change<N>> {
        self.add(N::small(1)).await
    }

    /// Subtracts one.
    pub async fn decrement(&self) -> Result<Change<N>> {
        self.subtract(N::small(1)).await
    }

    async fn update(&self, f: impl Fn(N) -> Option<N>) -> Result<Change<N>> {
        let change = self
            .value
            .try_update(|before| {
                let before = self.decode(before.unwrap_or_default())?;
                f(before).map(N::encode).ok_or_else(|| {
                    let path = self.path();
                    RecipeError::Misuse(format!("{path}: the result does not fit, from {before}"))
                })
            })
            .await?;
        let mut change = self.decode_change(change)?;
        // A missing node counts as zero.
        change.before.get_or_insert_default();
        Ok(change)
    }

    fn decode_change(&self, change: Change<Bytes>) -> Result<Change<N>> {
        change.try_map(|data| self.decode(&data))
    }

    fn decode(&self, data: &[u8]) -> Result<N> {
        N::decode(data).ok_or_else(|| RecipeError::Malformed {
            path: self.path().to_owned(),
            why: format!(
                "an atomic number of {} bytes, but the node has {}",
                size_of::<N>(),
                data.len()
            ),
        })
    }
}
