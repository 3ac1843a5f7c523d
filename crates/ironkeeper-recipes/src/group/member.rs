//! A group whose members have a name and data. Curator's `GroupMember`.
//!
//! # On the tree
//! ```text
//! /groups/shards                               container, if it was not there
//!   anna                                       ephemeral: a member, with its data
//!   berta                                      ephemeral: another one
//! ```
//!
//! # Steps
//! 1. Keep an ephemeral node with our name, as [`PersistentNode`] does.
//! 2. Follow all children, as [`ChildrenCache`] does.
//!
//! # Guarantees
//! A member counts itself always, even before others see it, and until it leaves. Everybody comes to see
//! the same members, but not at the same moment. A name that is in use is waited for: a member that
//! comes back with a new session takes its place when the old session is over. One watch event per
//! member that comes, changes or goes, at everybody who looks on.
//!
//! # When things break
//! - Disconnected: the members last known stay. After the reconnect what has changed is told.
//! - Our node deleted by somebody else: it is created again.
//! - Session over: others see us leave; our own events end with [`GroupEvent::Ended`].
//! - Dropped: the member leaves in the background.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::Client;

use crate::cache::{CacheEvent, CacheEvents, CachedNode, ChildrenCache};
use crate::error::{RecipeError, Result};
use crate::node::PersistentNode;
use crate::place::{join, name_of};

/// Something happened to a group.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GroupEvent {
    /// A member is there.
    Joined {
        /// Its name.
        id: String,
        /// Its data.
        data: Bytes,
    },
    /// A member has other data.
    Changed {
        /// Its name.
        id: String,
        /// Its data.
        data: Bytes,
    },
    /// A member is gone.
    Left {
        /// Its name.
        id: String,
    },
    /// All who were there at the start have been told.
    Initialized,
    /// The listener was too slow: what it knows is void, and all members are told again.
    Reset,
    /// Nobody looks on any more: the session is over, or the group was dropped. Nothing follows.
    Ended(RecipeError),
}

/// The events of a group. Begins with all members of the present.
#[derive(Debug)]
pub struct GroupEvents {
    events: CacheEvents,
}

impl GroupEvents {
    /// The next event; `None` after [`GroupEvent::Ended`].
    pub async fn next(&mut self) -> Option<GroupEvent> {
        let id = |node: &Arc<CachedNode>| name_of(&node.path).to_owned();
        Some(match self.events.next().await? {
            CacheEvent::Created(node) => {
                GroupEvent::Joined { id: id(&node), data: node.data.clone() }
            }
            CacheEvent::Changed { after, .. } => {
                GroupEvent::Changed { id: id(&after), data: after.data.clone() }
            }
            CacheEvent::Deleted(node) => GroupEvent::Left { id: id(&node) },
            CacheEvent::Initialized => GroupEvent::Initialized,
            CacheEvent::Reset => GroupEvent::Reset,
            CacheEvent::Ended(why) => GroupEvent::Ended(why),
        })
    }
}

/// A group seen from outside.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::group::Group;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let group = Group::open(&client, "/groups/shards").await?;
///     assert!(group.members().is_empty());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Group {
    cache: ChildrenCache,
}

impl Group {
    /// Looks at a group, which need not be there, and follows it in the background.
    pub async fn open(client: &Client, path: impl Into<String>) -> Result<Group> {
        let cache = ChildrenCache::start(client, path);
        cache.initialized().await?;
        Ok(Group { cache })
    }

    /// The path of the group.
    pub fn path(&self) -> &str {
        self.cache.path()
    }

    /// All members and their data.
    #[doc(alias = "getCurrentMembers")]
    pub fn members(&self) -> BTreeMap<String, Bytes> {
        let nodes = self.cache.children();
        nodes.iter().map(|node| (name_of(&node.path).to_owned(), node.data.clone())).collect()
    }

    /// The members of the present as events, and all events from now on.
    pub fn events(&self) -> GroupEvents {
        GroupEvents { events: self.cache.events() }
    }
}

/// A member of a group.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::group::GroupMember;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let anna = GroupMember::join(&client, "/groups/shards", "anna", "10.0.0.1").await?;
///     let berta = GroupMember::join(&client, "/groups/shards", "berta", "10.0.0.2").await?;
///     assert_eq!(berta.members().len(), 2);
///     anna.leave().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct GroupMember {
    id: String,
    node: PersistentNode,
    group: Group,
}

impl GroupMember {
    /// Joins, and waits until everybody can see it: if the name is in use, until it is free. Dropping
    /// the future withdraws.
    pub async fn join(
        client: &Client,
        path: impl Into<String>,
        id: impl Into<String>,
        data: impl Into<Bytes>,
    ) -> Result<GroupMember> {
        let (path, id) = (path.into(), id.into());
        if id.is_empty() || id.contains('/') {
            return Err(RecipeError::Misuse(format!("{path}: {id:?} cannot be a member's name")));
        }
        let node = PersistentNode::builder(client, join(&path, &id)).data(data).start();
        node.created().await?;
        let group = Group::open(client, path).await?;
        Ok(GroupMember { id, node, group })
    }

    /// Our name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The path of the group.
    pub fn path(&self) -> &str {
        self.group.path()
    }

    /// All members and their data, ourselves among them always.
    #[doc(alias = "getCurrentMembers")]
    pub fn members(&self) -> BTreeMap<String, Bytes> {
        let mut members = self.group.members();
        members.insert(self.id.clone(), self.node.data());
        members
    }

    /// The members of the present as events, and all events from now on.
    pub fn events(&self) -> GroupEvents {
        self.group.events()
    }

    /// Changes our data, and waits until it is there.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<()> {
        self.node.set_data(data).await
    }

    /// Leaves, and waits until that is done.
    pub async fn leave(self) -> Result<()> {
        self.node.close().await
    }
}
