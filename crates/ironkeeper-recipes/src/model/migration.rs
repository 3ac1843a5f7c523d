//! Migrations from one version of a layout to the next, each applied once. Curator's
//! `MigrationManager`.
//!
//! # On the tree
//! ```text
//! /migrations/shop                             persistent: a set of migrations
//!   meta-0000000000                            persistent: migration 0 is applied; id and checksum
//!   meta-0000000001                            persistent: migration 1 is applied
//! /migrations/lock                             a [`Mutex`](crate::lock::Mutex) at a configurable path
//! ```
//!
//! # Steps
//! 1. Acquire the lock.
//! 2. Compare the applied migrations with the beginning of the set: a different id or different
//!    operations are an error, and nothing is applied.
//! 3. Apply the others in order, each in one transaction that checks the lock's node, executes the
//!    operations and creates the meta node.
//!
//! # Guarantees
//! Every migration is applied once, completely and in order, however many processes start at the
//! same time. A migration that was changed in the program after it was applied is detected. If a
//! migration fails, the earlier ones stay applied, and the next run tries it again. Watch events:
//! those of the lock.
//!
//! # When things break
//! - The connection is lost: the run continues after the reconnect.
//! - A reply is lost: the meta node shows whether the migration was applied.
//! - The session has ended, or the lock is lost: an error; another process continues after the last
//!   applied migration.
//! - The future is dropped: the current migration is applied completely or not at all.

use ironkeeper_client::{Client, CreateMode, CreateOptions, ErrorKind, Transaction, Version};

use crate::error::{RecipeError, Result};
use crate::fnv::fnv;
use crate::guard::Guard;
use crate::lock::Mutex;
use crate::lost::Lost;
use crate::place::{join, patient};
use crate::reads::{children_or_none, get_children};

/// The prefix of the names of meta nodes, one for each applied migration.
const META: &str = "meta-";

#[derive(Clone, Debug)]
enum Operation {
    Create { path: String, data: Vec<u8> },
    Set { path: String, data: Vec<u8> },
    Delete { path: String },
}

/// One migration: operations that are applied in one transaction.
#[derive(Clone, Debug)]
pub struct Migration {
    id: String,
    operations: Vec<Operation>,
}

impl Migration {
    /// Creates a migration without operations. The id is for people; it must not be empty or
    /// contain line breaks.
    pub fn new(id: impl Into<String>) -> Migration {
        Migration { id: id.into(), operations: Vec::new() }
    }

    /// Creates a persistent node.
    pub fn create(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Migration {
        self.operations.push(Operation::Create { path: path.into(), data: data.into() });
        self
    }

    /// Sets the data of a node, whatever its version.
    pub fn set(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Migration {
        self.operations.push(Operation::Set { path: path.into(), data: data.into() });
        self
    }

    /// Deletes a node.
    pub fn delete(mut self, path: impl Into<String>) -> Migration {
        self.operations.push(Operation::Delete { path: path.into() });
        self
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the data of the meta node: the id, and a checksum of the operations, which must be
    /// the same in all builds.
    fn record(&self) -> String {
        let mut bytes = Vec::new();
        for operation in &self.operations {
            let (kind, path, data) = match operation {
                Operation::Create { path, data } => (b'c', path, &data[..]),
                Operation::Set { path, data } => (b's', path, &data[..]),
                Operation::Delete { path } => (b'd', path, &[][..]),
            };
            bytes.push(kind);
            for part in [path.as_bytes(), data] {
                bytes.extend((part.len() as u64).to_be_bytes());
                bytes.extend(part);
            }
        }
        format!("{}\n{:016x}\n", self.id, fnv(&bytes))
    }

    fn add(&self, mut to: Transaction) -> Transaction {
        for operation in &self.operations {
            to = match operation {
                Operation::Create { path, data } => to.create(path, data, CreateMode::Persistent),
                Operation::Set { path, data } => to.set(path, data, Version::Any),
                Operation::Delete { path } => to.delete(path, Version::Any),
            };
        }
        to
    }
}

/// Migrations in order. Add new migrations at the end; do not change the applied ones.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::model::{Migration, MigrationSet, Migrator};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let migrator = Migrator::new(&client, "/migrations/lock");
///     let one = Migration::new("the users").create("/users", "").create("/users/admin", "{}");
///     let set = MigrationSet::new("/migrations/shop").then(one);
///     assert_eq!(migrator.migrate(&set).await?, ["the users"]);
///
///     let two = Migration::new("roles").set("/users/admin", r#"{"role": "admin"}"#);
///     assert_eq!(migrator.migrate(&set.then(two)).await?, ["roles"]);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct MigrationSet {
    path: String,
    migrations: Vec<Migration>,
}

impl MigrationSet {
    /// Creates an empty set, whose meta nodes are children of `path`.
    pub fn new(path: impl Into<String>) -> MigrationSet {
        MigrationSet { path: path.into(), migrations: Vec::new() }
    }

    /// Adds a migration at the end.
    pub fn then(mut self, migration: Migration) -> MigrationSet {
        self.migrations.push(migration);
        self
    }

    fn meta(&self, at: usize) -> String {
        join(&self.path, &format!("{META}{at:010}"))
    }
}

/// Applies migrations.
#[derive(Clone, Debug)]
#[doc(alias = "MigrationManager")]
pub struct Migrator {
    client: Client,
    lock: Mutex,
}

impl Migrator {
    /// Creates a migrator. All processes that apply the same sets should use the same lock path.
    /// Makes no request.
    pub fn new(client: &Client, lock_path: impl Into<String>) -> Migrator {
        Migrator { client: client.clone(), lock: Mutex::new(client, lock_path) }
    }

    /// Returns the ids of the migrations of a set that are not applied yet.
    pub async fn pending(&self, set: &MigrationSet) -> Result<Vec<String>> {
        let applied = self.applied(set).await?;
        Ok(set.migrations[applied..].iter().map(|migration| migration.id.clone()).collect())
    }

    /// Applies the migrations that are not applied yet, and returns their ids.
    pub async fn migrate(&self, set: &MigrationSet) -> Result<Vec<String>> {
        let is_wrong = |id: &str| id.is_empty() || id.contains('\n');
        if let Some(wrong) = set.migrations.iter().find(|migration| is_wrong(&migration.id)) {
            return Err(RecipeError::Misuse(format!("{:?} cannot be a migration's id", wrong.id)));
        }
        let guard = self.lock.lock().await?;
        let migrated = self.migrate_under(&guard, set).await;
        match guard.release().await {
            // Each transaction has checked the lock's node, so the applied migrations were applied
            // under it.
            Ok(()) | Err(RecipeError::Lost { .. }) => migrated,
            Err(error) => migrated.and(Err(error)),
        }
    }

    async fn migrate_under(&self, guard: &Guard, set: &MigrationSet) -> Result<Vec<String>> {
        let options = CreateOptions::new(CreateMode::Persistent);
        let below = join(&set.path, META);
        let create = || self.client.create_parents_with(&below, &options);
        self.client.retry(&patient(), create).await?;
        let applied = self.applied(set).await?;
        let mut ids = Vec::new();
        for (at, migration) in set.migrations.iter().enumerate().skip(applied) {
            self.apply(guard, &set.meta(at), migration).await?;
            ids.push(migration.id.clone());
        }
        Ok(ids)
    }

    /// Returns the number of applied migrations. Returns an error if they differ from the set.
    async fn applied(&self, set: &MigrationSet) -> Result<usize> {
        let mut names = children_or_none(&self.client, &set.path).await?;
        names.retain(|name| name.starts_with(META));
        names.sort();
        let nodes = get_children(&self.client, &set.path, names.iter().map(|name| &**name)).await?;
        for (at, (name, node)) in names.iter().zip(&nodes).enumerate() {
            let path = join(&set.path, name);
            let found = node.as_ref().map(|node| String::from_utf8_lossy(&node.data).into_owned());
            let found = found.unwrap_or_default();
            let id = found.lines().next().unwrap_or_default();
            let why = match set.migrations.get(at) {
                _ if path != set.meta(at) => "is not the next one: one is missing".to_owned(),
                None => format!("{id:?} was applied and is not in the set"),
                Some(migration) if migration.record() != found => {
                    let ours = &migration.id;
                    format!(
                        "{id:?} was applied where the set has {ours:?}, or it was changed since"
                    )
                }
                Some(_) => continue,
            };
            return Err(RecipeError::Malformed { path, why });
        }
        Ok(names.len())
    }

    async fn apply(&self, guard: &Guard, meta: &str, migration: &Migration) -> Result<()> {
        let (client, record) = (&self.client, migration.record());
        loop {
            let all = guard.transaction().create(meta, &record, CreateMode::Persistent);
            let error = match migration.add(all).commit().await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if error.failed_operation() == Some(0) && error.kind() == ErrorKind::NoNode {
                let (path, why) = (guard.path().to_owned(), Lost::NodeDeleted);
                return Err(RecipeError::Lost { path, why });
            }
            if !error.is_retriable() {
                return Err(error.into());
            }
            // Waits for the next connection, then checks whether the migration was applied.
            client.retry(&patient(), || client.sync(meta)).await?;
            match client.retry(&patient(), || client.get(meta)).await {
                Ok(node) if node.data == record.as_bytes() => return Ok(()),
                Err(error) if error.kind() != ErrorKind::NoNode => return Err(error.into()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_every_change_and_is_the_same_in_every_build() {
        let base = || Migration::new("m").create("/a", "x");
        assert_eq!(base().record(), base().record());
        let others = [
            Migration::new("n").create("/a", "x"),
            Migration::new("m").set("/a", "x"),
            Migration::new("m").create("/ax", ""),
            base().delete("/b"),
        ];
        for other in others {
            assert_ne!(base().record(), other.record(), "{other:?}");
        }
        assert_eq!(Migration::new("m").record(), "m\ncbf29ce484222325\n");
    }
}
