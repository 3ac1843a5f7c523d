//! A handle that follows a configuration and publishes updates of it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ironkeeper_client::{Client, CreateMode, Error, ErrorKind, Version, Zxid};
use tokio::sync::watch;

use crate::cache::{self, Task};
use crate::config::history::{self, Revision, ValueChange};
use crate::config::read::{Paths, read};
use crate::config::snapshot::Snapshot;
use crate::config::typed::TypedValue;
use crate::config::update::Update;
use crate::error::{RecipeError, Result};
use crate::place::{beside, ensure_persistent, join, patient};
use crate::reads::{children_or_none, get_children};
use crate::receipt::{Receipts, refusal};
use crate::shared::write::refuse_wild_version;

/// The default number of revisions in the history.
const HISTORY_MAX: usize = 100;

/// The maximum number of old history entries that one update deletes.
const PRUNED_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Latest {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) is_over: bool,
}

/// A configuration on a path, followed in the background.
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
///     let mut changes = config.changes();
///     config.publish(&Update::new().set("limit.max", 20).set("mode", "fast").by("anna")).await?;
///
///     let now = changes.next().await.unwrap(); // both, or none of them
///     assert_eq!(now.get::<u32>("limit.max")?, Some(20));
///     assert_eq!(now.get_or("limit.min", 1)?, 1);
///     assert!(now.get::<u32>("mode").is_err());
///
///     config.publish(&Update::new().remove("mode").because("one mode is enough")).await?;
///     assert_eq!(config.history().await?.len(), 2);
///     config.roll_back_to(1).await?;
///     assert_eq!(config.current().get::<String>("mode")?.unwrap(), "fast");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Config {
    client: Client,
    paths: Paths,
    history_max: usize,
    receipts: Receipts,
    latest: watch::Sender<Latest>,
    _follower: Task,
}

impl Config {
    /// Opens the configuration on `path`. Creates it if it does not exist.
    pub async fn open(client: &Client, path: impl Into<String>) -> Result<Config> {
        let paths = Paths::new(path.into());
        let receipts = Receipts::new(beside(&paths.root, "receipts")?);
        let snapshot = loop {
            match read(client, &paths).await? {
                Some(snapshot) => break Arc::new(snapshot),
                None => ensure(client, &paths).await?,
            }
        };
        let latest = watch::Sender::new(Latest { snapshot, is_over: false });
        let follower = Task::spawn({
            let (client, paths, latest) = (client.clone(), paths.clone(), latest.clone());
            async move {
                let why = follow(&client, &paths, &latest).await;
                tracing::debug!(
                    path = paths.root,
                    error = %why,
                    "configuration no longer followed"
                );
                latest.send_modify(|latest| latest.is_over = true);
            }
        });
        let history_max = HISTORY_MAX;
        Ok(Config {
            client: client.clone(),
            paths,
            history_max,
            receipts,
            latest,
            _follower: follower,
        })
    }

    /// Sets how many revisions the history keeps when this handle publishes. The default is 100.
    pub fn with_history(mut self, revisions: usize) -> Config {
        self.history_max = revisions.max(1);
        self
    }

    /// Returns the path of the configuration.
    pub fn path(&self) -> &str {
        &self.paths.root
    }

    /// Returns the last known values. Makes no request, and works without a connection.
    pub fn current(&self) -> Arc<Snapshot> {
        self.latest.borrow().snapshot.clone()
    }

    /// Returns whether the client is connected and the configuration is followed, so that
    /// [`Config::current`] returns what the server sent last. If `false`, the values may be out of
    /// date.
    pub fn is_fresh(&self) -> bool {
        !self.latest.borrow().is_over && self.client.is_in_touch()
    }

    /// Sends a `sync` and reads the latest committed values.
    #[doc(alias = "refresh")]
    #[doc(alias = "reload")]
    pub async fn pull(&self) -> Result<Arc<Snapshot>> {
        let client = &self.client;
        client.retry(&patient(), || client.sync(&self.paths.root)).await?;
        Ok(Arc::new(self.read().await?))
    }

    /// Returns all changes from now on. If changes arrive faster than the caller takes them, only
    /// the latest one is returned.
    pub fn changes(&self) -> ConfigChanges {
        let latest = self.latest.subscribe();
        let told = latest.borrow().snapshot.zxid;
        ConfigChanges { latest, told }
    }

    /// Follows one value.
    pub fn value<T>(&self, key: impl Into<String>) -> TypedValue<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        TypedValue::new(self.changes(), &self.current(), key.into())
    }

    /// Publishes an update of the current values, and returns the values after it or after a still
    /// later update. An update that changes nothing creates no revision.
    pub async fn publish(&self, update: &Update) -> Result<Arc<Snapshot>> {
        loop {
            let now = self.read().await?;
            if self.publish_once(&now, update).await? {
                return Ok(Arc::new(self.read().await?));
            }
        }
    }

    /// Publishes an update if no revision was published since `seen`. Returns `None` if there was
    /// one; [`Config::current`] then returns the values to start from.
    #[doc(alias = "publish_if")]
    #[doc(alias = "compareAndSet")]
    pub async fn publish_upon(
        &self,
        seen: &Snapshot,
        update: &Update,
    ) -> Result<Option<Arc<Snapshot>>> {
        let now = self.read().await?;
        let published = now.zxid == seen.zxid && self.publish_once(&now, update).await?;
        let now = Arc::new(self.read().await?);
        Ok(published.then_some(now))
    }

    /// Returns the revisions in the history, the oldest first.
    pub async fn history(&self) -> Result<Vec<Revision>> {
        let mut names = children_or_none(&self.client, &self.paths.history).await?;
        names.sort();
        let read = names.iter().map(String::as_str);
        let nodes = get_children(&self.client, &self.paths.history, read).await?;
        let mut revisions = Vec::with_capacity(names.len());
        for (name, node) in names.iter().zip(nodes) {
            let Some(node) = node else { continue };
            let number = name.parse().ok();
            let revision = number.and_then(|number| history::decode(number, &node));
            revisions.push(revision.ok_or_else(|| RecipeError::Malformed {
                path: join(&self.paths.history, name),
                why: "not the history of a revision".to_owned(),
            })?);
        }
        Ok(revisions)
    }

    /// Returns the values at an earlier revision.
    pub async fn at(&self, revision: u64) -> Result<Snapshot> {
        // The values are read before the history: a revision that is published in between is only
        // in the history, and the filter skips it.
        let mut then = self.read().await?;
        let history = self.history().await?;
        let undone = |one: &&Revision| one.number > revision && one.number <= then.revision;
        let undone: Vec<&Revision> = history.iter().rev().filter(undone).collect();
        if then.revision.checked_sub(revision) != Some(undone.len() as u64) {
            let why = format!("{}: revision {revision} is not in the history", self.path());
            return Err(RecipeError::Misuse(why));
        }
        for ValueChange { key, before, .. } in undone.iter().flat_map(|later| &later.changes) {
            match before {
                Some(before) => then.values.insert(key.clone(), before.clone()),
                None => then.values.remove(key),
            };
        }
        if let Some(told) = history.iter().find(|one| one.number == revision) {
            then.zxid = told.zxid;
        }
        then.revision = revision;
        Ok(then)
    }

    /// Publishes the values of an earlier revision as a new revision.
    pub async fn roll_back_to(&self, revision: u64) -> Result<Arc<Snapshot>> {
        let then = self.at(revision).await?;
        loop {
            let now = self.read().await?;
            let update = Update::between(&now.values, &then.values)
                .because(format!("back to revision {revision}"));
            if self.publish_once(&now, &update).await? {
                return Ok(Arc::new(self.read().await?));
            }
        }
    }

    /// Reads everything, and notifies the subscribers.
    async fn read(&self) -> Result<Snapshot> {
        loop {
            match read(&self.client, &self.paths).await? {
                Some(snapshot) => {
                    put(&self.latest, &snapshot);
                    return Ok(snapshot);
                }
                None => ensure(&self.client, &self.paths).await?,
            }
        }
    }

    /// Returns `false` if another client published first.
    async fn publish_once(&self, now: &Snapshot, update: &Update) -> Result<bool> {
        let (client, paths) = (&self.client, &self.paths);
        refuse_wild_version(&paths.root, now.version)?;
        let changes = update.against(&now.values);
        if changes.is_empty() {
            return Ok(true);
        }
        let next = now.revision.checked_add(1).ok_or_else(|| RecipeError::Malformed {
            path: paths.root.clone(),
            why: "there is no revision behind the last one".to_owned(),
        })?;
        let (told, told_at) = (history::encode(update, &changes), paths.revision(next));
        let mut old = children_or_none(client, &paths.history).await?;
        old.sort();
        let too_many = (old.len() + 1).saturating_sub(self.history_max).min(PRUNED_MAX);
        let committed = self.receipts.commit(client, |once| {
            let once = once.set(&paths.root, next.to_string(), now.version);
            let once = changes.iter().fold(once, |once, change| {
                let path = paths.value(&change.key);
                match (&change.before, &change.after) {
                    (None, Some(after)) => once.create(&path, after, CreateMode::Persistent),
                    (Some(_), Some(after)) => once.set(&path, after, Version::Any),
                    _ => once.delete(&path, Version::Any),
                }
            });
            let once = once.create(&told_at, &told, CreateMode::Persistent);
            old[..too_many]
                .iter()
                .fold(once, |once, name| once.delete(&join(&paths.history, name), Version::Any))
        });
        let Err(error) = committed.await else { return Ok(true) };
        match refusal(&error) {
            // The version check passed, so no other client has published this number.
            Some(ErrorKind::NodeExists)
                if error.client_error().and_then(Error::path) == Some(&told_at) =>
            {
                let why = format!("revision {next} is there, and the number says it is not");
                Err(RecipeError::Malformed { path: told_at, why })
            }
            Some(ErrorKind::NoNode) => {
                ensure(client, paths).await?;
                Ok(false)
            }
            Some(ErrorKind::BadVersion | ErrorKind::NodeExists) => Ok(false),
            _ => Err(error),
        }
    }
}

/// Creates the missing nodes of the layout.
async fn ensure(client: &Client, paths: &Paths) -> Result<()> {
    for path in [&paths.root, &paths.values, &paths.history] {
        ensure_persistent(client, path).await?;
    }
    Ok(())
}

/// Replaces the latest snapshot if `snapshot` has a larger zxid, or the same zxid and other values.
fn put(latest: &watch::Sender<Latest>, snapshot: &Snapshot) {
    latest.send_if_modified(|latest| {
        let is_news = snapshot.zxid > latest.snapshot.zxid
            || (snapshot.zxid == latest.snapshot.zxid && *snapshot != *latest.snapshot);
        if is_news {
            latest.snapshot = Arc::new(snapshot.clone());
        }
        is_news
    });
}

/// Reads everything when the number of the revision has changed. Returns only with an error.
async fn follow(client: &Client, paths: &Paths, latest: &watch::Sender<Latest>) -> RecipeError {
    let (changed, mut changes) = watch::channel(Zxid(0));
    let watching = cache::follow(client, &paths.root, |node| {
        if let Some(node) = node {
            changed.send_replace(node.stat.mzxid);
        }
    });
    let reading = async {
        loop {
            // `changed`, the sender, outlives this future.
            let _ = changes.changed().await;
            if *changes.borrow_and_update() <= latest.borrow().snapshot.zxid {
                continue;
            }
            match read(client, paths).await {
                Ok(Some(snapshot)) => put(latest, &snapshot),
                Ok(None) => {}
                // The last known values stay until the configuration is valid again.
                Err(error @ RecipeError::Malformed { .. }) => {
                    tracing::warn!(
                        path = paths.root,
                        %error,
                        "configuration malformed, last valid one kept"
                    );
                }
                Err(error) => return error,
            }
        }
    };
    tokio::select! {
        biased;
        why = watching => why.into(),
        why = reading => why,
    }
}

/// The stream of changes of a [`Config`].
#[derive(Debug)]
pub struct ConfigChanges {
    latest: watch::Receiver<Latest>,
    told: Zxid,
}

impl ConfigChanges {
    /// Returns the latest known values without consuming them: [`ConfigChanges::next`] still
    /// returns them.
    pub(super) fn latest(&self) -> Arc<Snapshot> {
        self.latest.borrow().snapshot.clone()
    }

    /// Waits for the next change and returns the values after it. Returns `None` when the session
    /// has ended or the [`Config`] was dropped.
    pub async fn next(&mut self) -> Option<Arc<Snapshot>> {
        loop {
            {
                let latest = self.latest.borrow_and_update();
                if latest.snapshot.zxid > self.told {
                    self.told = latest.snapshot.zxid;
                    return Some(latest.snapshot.clone());
                }
                if latest.is_over {
                    return None;
                }
            }
            self.latest.changed().await.ok()?;
        }
    }
}
