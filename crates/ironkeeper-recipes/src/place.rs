//! A node of ours among the children of a path: taken without orphans, given back without leftovers.
//!
//! The name of the node carries Curator's unique mark, `_c_<uuid>-`, by which the client finds it again
//! if the answer to the create is lost. A future that takes a place may be dropped at any await: the
//! client looks for the mark in the background then, and this file deletes what was found before.
//!
//! A request takes its place in line when it is made, and `Drop` makes the delete: whatever the same
//! client asks after the drop comes after the deletion.

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

/// For requests that shall outlast broken connections: until they are answered or the session is
/// over. After a lost connection the client waits for the next one, not for the clock.
pub(crate) fn patient() -> RetryPolicy {
    RetryPolicy::forever(Duration::from_millis(5))
}

/// The name without Curator's protection, if it has one.
pub(crate) fn unprotected(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("_c_")?;
    let (uuid, rest) = rest.split_at_checked(36)?;
    uuid.parse::<Uuid>().ok()?;
    rest.strip_prefix('-')
}

/// The path of a child.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

/// The last part of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Refuses what cannot be the name of one node below `parent`.
pub(crate) fn refuse_bad_name(parent: &str, name: &str) -> Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(RecipeError::Misuse(format!(
            "{parent}: {name:?} cannot be the name of a node"
        )));
    }
    Ok(())
}

/// An ephemeral node of ours. Dropping it deletes the node, in the background if need be.
#[derive(Debug)]
pub(crate) struct Place {
    client: Client,
    parent: String,
    path: String,
    /// As of its creation.
    stat: Stat,
    /// Whether the node is still to be deleted.
    open: bool,
    /// Others use the same name, if this is there: it is ours only as long as it is the node we created.
    claimed: Option<Claimed>,
    /// Nobody in its line is before it, and whoever is behind it comes next. See [`heirs`].
    hands_on: bool,
    /// How it got there, if that was handed on to it.
    inheritance: Option<Inheritance>,
}

impl Place {
    /// Creates an ephemeral node whose name ends with `name` (and a number if it is sequential), and
    /// the parents as containers if they are not there.
    pub(crate) async fn take(
        client: &Client,
        parent: &str,
        name: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<Place> {
        loop {
            match Place::take_below(client, parent, name, data, mode).await {
                // In a loop: an empty container may go before our node is in it.
                Err(error) if error.kind() == Some(ErrorKind::NoNode) => {
                    create_containers(client, &join(parent, name)).await?;
                }
                taken => return taken,
            }
        }
    }

    /// As [`Place::take`], with the children of `parent` as of then, this node among them. Both requests go
    /// out together; no list comes with a place that took more than one try.
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

    /// As [`Place::take`], below a node that is there.
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

    /// The place that a node of ours is.
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
        // A server that swaps the session behind our back must not make us the owner of anything.
        if !place.is_of_this_session() {
            return Err(RecipeError::ForeignSession { path: place.path().to_owned() });
        }
        Ok(place)
    }

    /// Creates the one ephemeral node at `path`, unless it is there, and the parents as containers if
    /// they are not there. Its data must be unique, since it is by the data that the node is found again
    /// after a lost reply.
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

    /// As [`Place::claim`], below a node that is there.
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
                // An earlier try may have created it.
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

    /// The place that a claimed node is, unless somebody else here has it.
    fn of_claim(client: &Client, path: String, stat: Stat) -> Result<Option<Place>> {
        let Some(claimed) = Claimed::note(client, stat.czxid) else { return Ok(None) };
        let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent).to_owned();
        Place::of(client, parent, (path, stat), Some(claimed)).map(Some)
    }

    /// The place that a claim has become although its reply was lost.
    ///
    /// It looks behind a `sync`: a server that we have come to by a reconnect may not know yet what was carried
    /// out elsewhere, and whatever has not been carried out before the `sync` is refused, since the session has moved.
    async fn of_claim_in_doubt(client: &Client, path: &str, data: &[u8]) -> Result<Option<Place>> {
        let look = async || {
            client.sync(path).await?;
            client.get(path).await
        };
        let Node { data: found, stat, .. } = match client.retry(&patient(), look).await {
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
            node => node?,
        };
        // Somebody may have written to it, as a revocation does, and our mark is gone.
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

    /// Whether the session that created the node is the client's still.
    pub(crate) fn is_of_this_session(&self) -> bool {
        self.stat.ephemeral_owner == self.client.session_id().0
    }

    /// Notes that it is the first in its line, and the only one whose turn it is.
    pub(crate) fn note_turn(&mut self, inheritance: Option<Inheritance>) {
        self.hands_on = true;
        self.inheritance = inheritance;
    }

    /// Whether it is known not to have been there when it was its turn.
    pub(crate) fn is_void(&self) -> bool {
        self.inheritance.as_ref().is_some_and(|inheritance| inheritance.is_void(self.czxid()))
    }

    /// To be called when the request to delete it has just been made.
    fn hand_on(&self) {
        if self.hands_on {
            heirs::hand_on(&self.client, self.name());
        }
    }

    fn meant(&self) -> Meant {
        Meant::Creation(self.czxid())
    }

    /// Ends it for a node that is known to be gone.
    pub(crate) fn forget(mut self) {
        self.open = false;
    }

    /// Deletes the node, however long that takes. Says whether it was there until now. An error only
    /// if the session is over, or the server refuses.
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
                        // By an earlier try whose answer was lost, or by somebody else.
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
        // With the session its nodes go, too.
        if !self.open || self.client.state().is_final() {
            return;
        }
        if let Some(claimed) = self.claimed.take() {
            let (client, path, meant) = (self.client.clone(), self.path.clone(), self.meant());
            self.client.runtime().spawn(async move {
                if let Err(error) = meant.delete(&client, &path).await {
                    warn_of_leftover(&path, &error.into());
                }
                // Nobody may take it for his own before it is gone.
                drop(claimed);
            });
            return;
        }
        // The request is made now, and repeated in the background if it has to be.
        drop(self.client.delete_guaranteed(&self.path, Version::Any));
        self.hand_on();
    }
}

/// A claim under way. Dropping it withdraws it.
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

/// Which of the nodes that have the same path one after the other.
pub(crate) enum Meant {
    /// The one that this transaction created.
    Creation(Zxid),
    /// The one that this transaction was the last to write.
    Write(Zxid),
}

impl Meant {
    fn is(&self, stat: &Stat) -> bool {
        match self {
            Meant::Creation(czxid) => stat.czxid == *czxid,
            Meant::Write(mzxid) => stat.mzxid == *mzxid,
        }
    }

    /// Deletes it, however long that takes. Says whether it was there until now.
    ///
    /// Every try looks first, for the one before may have been carried out although its answer was lost,
    /// and then it is another's node that is there by now. In doubt it looks behind a `sync`: a server
    /// that we have come to by a reconnect may not know yet what was carried out elsewhere, and whatever
    /// has not been carried out before the `sync` is refused, since the session has moved.
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
                    // Written to meanwhile, as a revocation does.
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

/// Tells of a node that could not be deleted. The end of the session takes it along.
fn warn_of_leftover(path: &str, error: &RecipeError) {
    if !error.is_session_over() {
        tracing::warn!(path, %error, "a node that is not needed any more stays");
    }
}

/// Creates the nodes above `path` as containers, which go away by themselves when they are empty.
pub(crate) async fn create_containers(client: &Client, path: &str) -> Result<()> {
    let containers = CreateOptions::new(CreateMode::Container);
    let persistent = CreateOptions::new(CreateMode::Persistent);
    let created = client.retry(&patient(), || client.create_parents_with(path, &containers)).await;
    match created {
        // A server before 3.5.
        Err(error) if error.kind() == ErrorKind::Unimplemented => {
            client.retry(&patient(), || client.create_parents_with(path, &persistent)).await?;
        }
        other => other?,
    }
    Ok(())
}

/// Creates an empty persistent node, with containers above it, unless it is there.
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

/// A path for what belongs to a recipe and must not be among its own children.
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
