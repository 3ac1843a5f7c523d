//! Owned nodes: ephemeral nodes that a recipe creates without orphans and deletes on drop.
//!
//! The name of the node carries Curator's protection, `_c_<uuid>-`, by which the client finds it
//! again if the reply to the create is lost. A future that creates an owned node may be dropped at
//! any await: if the create is in flight, the client searches for the protection id in the
//! background and deletes the node; if the node is known, `Drop` in this file deletes it.
//!
//! The client sends requests in the order in which they are made, and `Drop` makes the request to
//! delete: requests that the same client makes after the drop are executed after the deletion.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironkeeper_client::{
    Client, CreateMode, CreateOptions, Created, ErrorKind, Happened, Node, RetryPolicy, Stat,
    Version, Zxid,
};

use crate::claimed::Claimed;
use crate::error::{RecipeError, Result};
use crate::heirs::{self, Inheritance};
use crate::naming::Uuid;

/// Returns the retry policy for requests that are repeated over lost connections, until a reply
/// arrives or the session ends. After a lost connection the client waits for the next connection,
/// not for a delay.
pub(crate) fn patient() -> RetryPolicy {
    RetryPolicy::forever(Duration::from_millis(5))
}

/// Returns the name without Curator's protection, or `None` if it has none.
pub(crate) fn unprotected(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("_c_")?;
    let (uuid, rest) = rest.split_at_checked(36)?;
    uuid.parse::<Uuid>().ok()?;
    rest.strip_prefix('-')
}

/// Returns the path of a child.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

/// Returns the last component of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns an error if `name` cannot be the name of a child of `parent`.
pub(crate) fn refuse_bad_name(parent: &str, name: &str) -> Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(RecipeError::Misuse(format!(
            "{parent}: {name:?} cannot be the name of a node"
        )));
    }
    Ok(())
}

/// An ephemeral node that this recipe created. Dropping it deletes the node, in the background if
/// necessary.
#[derive(Debug)]
pub(crate) struct Place {
    client: Client,
    parent: String,
    path: String,
    /// The stat at the creation of the node.
    stat: Stat,
    /// Whether the node is still to be deleted.
    open: bool,
    /// `Some` if other clients use the same path: the node at the path is the owned node only if
    /// its czxid is that of `stat`.
    claimed: Option<Claimed>,
    /// Whether the node holds a lock with one holder at a time, so that the lock can be handed over
    /// to the next contender. See [`heirs`].
    hands_on: bool,
    /// The handover by which the node got the lock, if there was one.
    inheritance: Option<Inheritance>,
}

impl Place {
    /// Creates an ephemeral node whose name ends with `name` (and a number if it is sequential),
    /// and missing parents as containers.
    pub(crate) async fn take(
        client: &Client,
        parent: &str,
        name: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<Place> {
        loop {
            match Place::take_below(client, parent, name, data, mode).await {
                // In a loop: the server may delete the empty container before the node is created.
                Err(error) if error.kind() == Some(ErrorKind::NoNode) => {
                    create_containers(client, &join(parent, name)).await?;
                }
                taken => return taken,
            }
        }
    }

    /// As [`Place::take`], and also returns the children of `parent` after the creation, this node
    /// included. Both requests are sent together; there is no list if the create took more than one
    /// try.
    pub(crate) async fn take_and_list(
        client: &Client,
        parent: &str,
        name: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<(Place, Option<Vec<String>>)> {
        let path = join(parent, name);
        let policy = patient();
        let creating = client.create_protected(&path, data, mode, &policy);
        let listing = client.children(parent);
        match creating.await {
            Err(error) if error.kind() == ErrorKind::NoNode => {
                create_containers(client, &path).await?;
                Ok((Place::take(client, parent, name, data, mode).await?, None))
            }
            created => {
                let place = Place::of_protected(client, parent, created?)?;
                let names = listing.await.ok();
                let names = names.filter(|names| names.iter().any(|one| one == place.name()));
                Ok((place, names))
            }
        }
    }

    /// As [`Place::take`], but does not create parents.
    pub(crate) async fn take_below(
        client: &Client,
        parent: &str,
        name: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<Place> {
        let path = join(parent, name);
        let created = client.create_protected(&path, data, mode, &patient()).await?;
        Place::of_protected(client, parent, created)
    }

    fn of_protected(client: &Client, parent: &str, created: Created) -> Result<Place> {
        Place::of(client, parent.to_owned(), (created.path, created.stat), None)
    }

    /// Returns the owned node for a node that this client created.
    fn of(
        client: &Client,
        parent: String,
        (path, stat): (String, Stat),
        claimed: Option<Claimed>,
    ) -> Result<Place> {
        let place = Place {
            client: client.clone(),
            parent,
            path,
            stat,
            open: true,
            claimed,
            hands_on: false,
            inheritance: None,
        };
        // The node must belong to the client's session, even if the server misbehaves.
        if !place.is_of_this_session() {
            return Err(RecipeError::ForeignSession { path: place.path().to_owned() });
        }
        Ok(place)
    }

    /// Creates the ephemeral node `path`, and missing parents as containers. Returns `None` if the
    /// node exists. The data must be unique, because it identifies the node after a lost reply.
    pub(crate) async fn claim(client: &Client, path: &str, data: &[u8]) -> Result<Option<Place>> {
        loop {
            match Place::claim_below(client, path, data).await {
                Err(error) if error.kind() == Some(ErrorKind::NoNode) => {
                    create_containers(client, path).await?;
                }
                claimed => return claimed,
            }
        }
    }

    /// As [`Place::claim`], but does not create parents.
    pub(crate) async fn claim_below(
        client: &Client,
        path: &str,
        data: &[u8],
    ) -> Result<Option<Place>> {
        let mut claim = Claim { client, path, data, open: true };
        let creating =
            client.create_idempotent(path, data, CreateMode::Ephemeral, &patient()).await;
        let place = match creating {
            Ok(created) => Place::of_claim(client, created.path, created.stat)?,
            Err(error) if error.kind() == ErrorKind::NodeExists => match error.happened() {
                Happened::No => None,
                // An earlier try with a lost reply may have created the node.
                Happened::Maybe => Place::of_claim_in_doubt(client, path, data).await?,
            },
            Err(error) => {
                claim.open = error.kind() != ErrorKind::NoNode;
                return Err(error.into());
            }
        };
        claim.open = false;
        Ok(place)
    }

    /// Registers a node on a fixed path and returns the owned node. Returns `None` if another task
    /// of the session has registered the same node.
    fn of_claim(client: &Client, path: String, stat: Stat) -> Result<Option<Place>> {
        let Some(claimed) = Claimed::note(client, stat.czxid) else { return Ok(None) };
        let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent).to_owned();
        Place::of(client, parent, (path, stat), Some(claimed)).map(Some)
    }

    /// Returns the owned node that a create with a lost reply has created, if it has.
    ///
    /// The read follows a `sync`: after a reconnect the new server may not have applied the create
    /// yet. A create that was not executed before the `sync` is rejected later, because the session
    /// has moved.
    async fn of_claim_in_doubt(client: &Client, path: &str, data: &[u8]) -> Result<Option<Place>> {
        let look = async || {
            client.sync(path).await?;
            client.get(path).await
        };
        let Node { data: found, stat, .. } = match client.retry(&patient(), look).await {
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
            node => node?,
        };
        // Another client may have overwritten the unique data, as a revocation does.
        let is_of_this_session = stat.ephemeral_owner == client.session_id().0;
        if found != data && !(is_of_this_session && stat.version > 0) {
            return Ok(None);
        }
        Place::of_claim(client, path.to_owned(), stat)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn parent(&self) -> &str {
        &self.parent
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn name(&self) -> &str {
        name_of(self.path())
    }

    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    pub(crate) fn czxid(&self) -> Zxid {
        self.stat.czxid
    }

    /// Returns whether the session that created the node is still the session of the client.
    pub(crate) fn is_of_this_session(&self) -> bool {
        self.stat.ephemeral_owner == self.client.session_id().0
    }

    /// Records that the node is the only holder of its lock, and the handover by which it got it.
    pub(crate) fn note_turn(&mut self, inheritance: Option<Inheritance>) {
        self.hands_on = true;
        self.inheritance = inheritance;
    }

    /// Returns whether the node is known to have been deleted before it got the lock by a handover.
    pub(crate) fn is_void(&self) -> bool {
        self.inheritance.as_ref().is_some_and(|inheritance| inheritance.is_void(self.czxid()))
    }

    /// Hands the lock over to the next contender, right after the request to delete the node.
    fn hand_on(&self) {
        if self.hands_on {
            heirs::hand_on(&self.client, self.name());
        }
    }

    fn meant(&self) -> Meant {
        Meant::Creation(self.czxid())
    }

    /// Drops the owned node without a request, for a node that is known to be deleted.
    pub(crate) fn forget(mut self) {
        self.open = false;
    }

    /// Deletes the node, with retries without limit. Returns whether the node existed. Returns an
    /// error only if the session ends or the server rejects the request.
    pub(crate) async fn withdraw(mut self) -> Result<bool> {
        if self.claimed.is_some() {
            let was_there = self.meant().delete(&self.client, self.path()).await?;
            self.open = false;
            return Ok(was_there);
        }
        let unsure = AtomicBool::new(false);
        let was_there = self
            .client
            .retry(&patient(), || {
                let deleting = self.client.delete(self.path(), Version::Any);
                self.hand_on();
                let unsure = &unsure;
                async move {
                    match deleting.await {
                        Ok(()) => Ok(true),
                        // Deleted by an earlier try whose reply was lost, or by another client.
                        Err(error) if error.kind() == ErrorKind::NoNode => {
                            Ok(unsure.load(Ordering::Relaxed))
                        }
                        Err(error) => {
                            unsure.fetch_or(error.happened() == Happened::Maybe, Ordering::Relaxed);
                            Err(error)
                        }
                    }
                }
            })
            .await?;
        self.open = false;
        Ok(was_there)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The end of the session deletes its nodes.
        if !self.open || self.client.state().is_final() {
            return;
        }
        if let Some(claimed) = self.claimed.take() {
            let (client, path, meant) = (self.client.clone(), self.path.clone(), self.meant());
            self.client.runtime().spawn(async move {
                if let Err(error) = meant.delete(&client, &path).await {
                    warn_of_leftover(&path, &error.into());
                }
                // No other task may register the node before it is deleted.
                drop(claimed);
            });
            return;
        }
        // The request is made now, and repeated in the background if necessary.
        drop(self.client.delete_guaranteed(&self.path, Version::Any));
        self.hand_on();
    }
}

/// A create on a fixed path that is in flight. If it is dropped while open, a node that the create
/// made is deleted in the background.
struct Claim<'a> {
    client: &'a Client,
    path: &'a str,
    data: &'a [u8],
    open: bool,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.open || self.client.state().is_final() {
            return;
        }
        let (client, path, data) = (self.client.clone(), self.path.to_owned(), self.data.to_vec());
        self.client.runtime().spawn(async move {
            match Place::of_claim_in_doubt(&client, &path, &data).await {
                Ok(place) => drop(place),
                Err(error) => warn_of_leftover(&path, &error),
            }
        });
    }
}

/// The identity of a node among those that exist on the same path one after the other.
pub(crate) enum Meant {
    /// The node that this transaction created.
    Creation(Zxid),
    /// The node whose last write was this transaction.
    Write(Zxid),
}

impl Meant {
    fn is(&self, stat: &Stat) -> bool {
        match self {
            Meant::Creation(czxid) => stat.czxid == *czxid,
            Meant::Write(mzxid) => stat.mzxid == *mzxid,
        }
    }

    /// Deletes the node, with retries without limit. Returns whether the node existed.
    ///
    /// Every try reads the stat first: an earlier try whose reply was lost may have deleted the
    /// node, and the path may have a node of another client now. After a lost reply the read
    /// follows a `sync`: after a reconnect the new server may not have applied the delete yet. A
    /// delete that was not executed before the `sync` is rejected later, because the session has
    /// moved.
    pub(crate) async fn delete(
        &self,
        client: &Client,
        path: &str,
    ) -> ironkeeper_client::Result<bool> {
        let unsure = AtomicBool::new(false);
        let try_once = async || {
            loop {
                if unsure.load(Ordering::Relaxed) {
                    client.sync(path).await?;
                }
                let found = client.exists(path).await?.filter(|stat| self.is(stat));
                let Some(found) = found else {
                    return Ok(unsure.load(Ordering::Relaxed));
                };
                match client.delete(path, found.version).await {
                    Ok(()) => return Ok(true),
                    Err(error) if error.kind() == ErrorKind::NoNode => {
                        return Ok(unsure.load(Ordering::Relaxed));
                    }
                    // Another client wrote to the node, as a revocation does: read again.
                    Err(error) if error.kind() == ErrorKind::BadVersion => {}
                    Err(error) => {
                        unsure.fetch_or(error.happened() == Happened::Maybe, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        };
        client.retry(&patient(), try_once).await
    }
}

/// Logs that a node could not be deleted. The end of the session will delete it.
fn warn_of_leftover(path: &str, error: &RecipeError) {
    if !error.is_session_over() {
        tracing::warn!(path, %error, "unneeded node not deleted");
    }
}

/// Creates the missing nodes above `path` as containers, which the server deletes when they are
/// empty.
pub(crate) async fn create_containers(client: &Client, path: &str) -> Result<()> {
    let containers = CreateOptions::new(CreateMode::Container);
    let persistent = CreateOptions::new(CreateMode::Persistent);
    let created = client.retry(&patient(), || client.create_parents_with(path, &containers)).await;
    match created {
        // Servers before 3.5 have no containers.
        Err(error) if error.kind() == ErrorKind::Unimplemented => {
            client.retry(&patient(), || client.create_parents_with(path, &persistent)).await?;
        }
        other => other?,
    }
    Ok(())
}

/// Creates an empty persistent node unless it exists, and missing parents as containers.
pub(crate) async fn ensure_persistent(client: &Client, path: &str) -> Result<()> {
    loop {
        let mode = CreateMode::Persistent;
        match client.retry(&patient(), || client.create(path, "", mode)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NodeExists => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NoNode => {
                create_containers(client, path).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the path of a sibling, for nodes of a recipe that must not be among its children.
pub(crate) fn beside(path: &str, what: &str) -> Result<String> {
    if path == "/" {
        let why = format!("the recipe cannot be at the root: its {what} stand beside it");
        return Err(RecipeError::Misuse(why));
    }
    Ok(format!("{path}.{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_is_told_from_other_names() {
        let name = "_c_53345f98-9423-4e0c-a7b5-9f819e3ec2e1-lock-0000000001";
        assert_eq!(unprotected(name), Some("lock-0000000001"));
        for foreign in ["lock-0000000001", "_c_", "_c_no-uuid-lock-0000000001", "_c_ü"] {
            assert_eq!(unprotected(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn children_of_the_root_have_one_slash() {
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
        assert_eq!(name_of("/a/b"), "b");
    }
}
