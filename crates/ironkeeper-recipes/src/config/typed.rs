//! One value of a configuration, of a type, followed.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::config::snapshot::Snapshot;
use crate::config::store::ConfigChanges;
use crate::error::Result;

/// One value of a [`Config`](super::Config), of a type. What cannot be read as that type is told as an
/// error, and the last good value stays.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let running = ironkeeper_testing::TestServer::start()?;
/// # let server = running.connect_string();
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::config::{Config, Update};
///
/// let client = Client::connect(&server).await?;
/// let config = Config::open(&client, "/config/shop").await?;
/// let mut limit = config.value::<u32>("limit.max");
/// assert_eq!(limit.last_good(), None);
/// config.publish(&Update::new().set("limit.max", 20)).await?;
/// assert_eq!(limit.next().await.unwrap()?, Some(&20));
/// config.publish(&Update::new().set("limit.max", "twenty")).await?;
/// assert!(limit.next().await.unwrap().is_err());
/// assert_eq!(limit.last_good(), Some(&20));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TypedValue<T> {
    changes: ConfigChanges,
    key: String,
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

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The last good value that was told; `None` if there was none, or it was removed. Makes no request.
    pub fn last_good(&self) -> Option<&T> {
        self.good.as_ref()
    }

    /// Waits until this value is another one. The outer `None` says that the session is over or the
    /// configuration was dropped, the inner one that the value was removed.
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
