//! One typed value of a configuration, followed in the background.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::config::snapshot::Snapshot;
use crate::config::store::ConfigChanges;
use crate::error::Result;

/// One value of a [`Config`](super::Config), parsed as a `T`. If a value cannot be parsed as a `T`,
/// an error is returned and the last good value stays.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::config::{Config, Update};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let config = Config::open(&client, "/config/shop").await?;
///     let mut limit = config.value::<u32>("limit.max");
///     assert_eq!(limit.current()?, None);
///     config.publish(&Update::new().set("limit.max", 20)).await?;
///     assert_eq!(limit.next().await.unwrap()?, Some(&20));
///     config.publish(&Update::new().set("limit.max", "twenty")).await?;
///     assert!(limit.next().await.unwrap().is_err());
///     assert_eq!(limit.last_good(), Some(&20));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct TypedValue<T> {
    changes: ConfigChanges,
    key: String,
    /// The bytes that [`TypedValue::next`] returned last.
    raw: Option<Bytes>,
    good: Option<T>,
}

impl<T> TypedValue<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    pub(super) fn new(changes: ConfigChanges, now: &Snapshot, key: String) -> TypedValue<T> {
        let (raw, good) = (now.bytes(&key).cloned(), now.get(&key).ok().flatten());
        TypedValue { changes, key, raw, good }
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value in the latest known revision: `None` if it does not exist, an error if it
    /// cannot be parsed as `T`. Makes no request, and needs no call of [`TypedValue::next`].
    #[doc(alias = "get")]
    pub fn current(&self) -> Result<Option<T>> {
        self.changes.latest().get(&self.key)
    }

    /// Returns the value in the latest known revision in which it can be parsed as `T`; `None` if
    /// there was no such revision, or the value was removed. Makes no request, and needs no call of
    /// [`TypedValue::next`].
    pub fn last_good(&mut self) -> Option<&T> {
        if let Ok(good) = self.current() {
            self.good = good;
        }
        self.good.as_ref()
    }

    /// Waits until the bytes of this value change. The outer `None` means that the session has
    /// ended or the configuration was dropped; the inner `None`, that the value was removed.
    pub async fn next(&mut self) -> Option<Result<Option<&T>>> {
        let now = loop {
            let now = self.changes.next().await?;
            if now.bytes(&self.key) != self.raw.as_ref() {
                break now;
            }
        };
        self.raw = now.bytes(&self.key).cloned();
        match now.get(&self.key) {
            Ok(good) => {
                self.good = good;
                Some(Ok(self.good.as_ref()))
            }
            Err(error) => Some(Err(error)),
        }
    }
}
