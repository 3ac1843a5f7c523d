//! Steps from one version of a layout to the next, each made once. Curator's `MigrationManager`.
//!
//! # On the tree
//! ```text
//! /migrations/shop                             persistent: a set of migrations
//!   meta-0000000000                            persistent: the first was applied; its id and what it was
//!   meta-0000000001                            persistent: the second
//! /migrations/lock                             a [`Mutex`](crate::lock::Mutex), or where one says
//! ```
//!
//! # Steps
//! 1. Take the lock.
//! 2. Compare what was applied with the beginning of the set: another id or other operations are an
//!    error, and nothing is done.
//! 3. Apply the rest in order, each in one transaction: its operations, and the node that says so, under
//!    the condition that the lock is held.
//!
//! # Guarantees
//! Every migration is applied once, as a whole, and in order, however many processes start at the same
//! time. Migrations that were applied and changed in the program afterwards are noticed. A failing one
//! leaves those before it applied, and is tried again by the next run. Watch events: those of the lock.
//!
//! # When things break
//! - Disconnected: goes on after the reconnect.
//! - A reply lost: the node of the migration says whether it was applied.
//! - Session over, or the lock lost: an error; another process goes on where this one stopped.
//! - The future dropped: the migration under way was applied, or not.

use ironkeeper_client::{Client, CreateMode, CreateOptions, ErrorKind, Transaction, Version};

use crate::error::{RecipeError, Result};
use crate::fnv::fnv;
use crate::guard::Guard;
use crate::lock::Mutex;
use crate::lost::Lost;
use crate::place::{join, patient};
use crate::reads::{children_or_none, get_children};

/// What the names of the nodes begin with that stand for applied migrations.
const META: &str = "meta-";

#[derive(Clone, Debug)]
enum Operation {
    Create { path: String, data: Vec<u8> },
    Set { path: String, data: Vec<u8> },
    Delete { path: String },
}

/// One step: operations that take place together.
#[derive(Clone, Debug)]
pub struct Migration {
    id: String,
    operations: Vec<Operation>,
}

impl Migration {
    /// A step without operations. The id is for people, and must not be empty or have line breaks.
    pub fn new(id: impl Into<String>) -> Migration {
        Migration { id: id.into(), operations: Vec::new() }
    }

    /// Creates a persistent node.
    pub fn create(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Migration {
        self.operations.push(Operation::Create { path: path.into(), data: data.into() });
        self
    }

    /// Sets the data of a node, whatever it was.
    pub fn set(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Migration {
        self.operations.push(Operation::Set { path: path.into(), data: data.into() });
        self
    }

    /// Deletes a node.
    pub fn delete(mut self, path: impl Into<String>) -> Migration {
        self.operations.push(Operation::Delete { path: path.into() });
        self
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What stands in its node: the id, and by what changed operations are noticed. Must stay the same
    /// in all builds.
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

/// Migrations in order. New ones are added at the end; those that were applied stay as they are.
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
    /// An empty set, whose progress is written down below `path`.
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
    /// All who apply the same sets should name the same lock. Makes no request.
    pub fn new(client: &Client, lock_path: impl Into<String>) -> Migrator {
        Migrator { client: client.clone(), lock: Mutex::new(client, lock_path) }
    }

    /// The ids of the migrations of a set that are still to be applied.
    pub async fn pending(&self, set: &MigrationSet) -> Result<Vec<String>> {
        let applied = self.applied(set).await?;
        Ok(set.migrations[applied..].iter().map(|migration| migration.id.clone()).collect())
    }

    /// Applies what is still to be applied, and tells the ids of it.
    pub async fn migrate(&self, set: &MigrationSet) -> Result<Vec<String>> {
        let is_wrong = |id: &str| id.is_empty() || id.contains('\n');
        if let Some(wrong) = set.migrations.iter().find(|migration| is_wrong(&migration.id)) {
            return Err(RecipeError::Misuse(format!("{:?} cannot be a migration's id", wrong.id)));
        }
        let guard = self.lock.lock().await?;
        let migrated = self.migrate_under(&guard, set).await;
        match guard.release().await {
            // Everything that was applied was applied under the lock.
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

    /// How many of the set were applied. An error if others were.
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
            // Waits for the next connection, and looks whether it was applied.
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
