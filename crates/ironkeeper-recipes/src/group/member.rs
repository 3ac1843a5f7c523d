//! A group whose members have a name and data. Curator's `GroupMember`.
//!
//! # On the tree
//! ```text
//! /groups/shards                               container, created if it is missing
//!   anna                                       ephemeral: a member, with its data
//!   berta                                      ephemeral: another member
//! ```
//!
//! # Steps
//! 1. Keep an ephemeral node with the name of the member, as [`PersistentNode`] does.
//! 2. Follow all children, as [`ChildrenCache`] does.
//!
//! # Guarantees
//! A member is always in its own list, even before other clients see it, and until it leaves. All
//! clients converge to the same members, but not at the same time. If a name is in use, the member
//! waits: a member that returns with a new session joins when its old session has ended. Each
//! client that follows the group receives one watch event per member that joins, changes or leaves.
//!
//! # When things break
//! - The connection is lost: the last known members stay. After the reconnect the changes are
//!   reported.
//! - Another client deletes the node of a member: the member creates it again.
//! - The session has ended: other clients see the member leave; its own events end with
//!   [`GroupEvent::Ended`].
//! - The `GroupMember` is dropped: the member leaves in the background.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::Client;

use crate::cache::{CacheEvent, CacheEvents, CachedNode, ChildrenCache};
use crate::error::{RecipeError, Result};
use crate::node::PersistentNode;
use crate::place::{join, name_of};

/// An event of a group.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GroupEvent {
    /// A member has joined, or was present at the start.
    Joined {
        /// The name of the member.
        id: String,
        /// The data of the member.
        data: Bytes,
    },
    /// The data of a member has changed.
    Changed {
        /// The name of the member.
        id: String,
        /// The new data.
        data: Bytes,
    },
    /// A member has left.
    Left {
        /// The name of the member.
        id: String,
    },
    /// All members that were present at the start have been reported.
    Initialized,
    /// The listener was too slow and events were dropped. It has to discard its state: all members
    /// are reported again.
    Reset,
    /// The group is not followed any more: the session has ended, or the group was dropped. This is
    /// the last event.
    Ended(RecipeError),
}

/// The events of a group, beginning with all present members.
#[derive(Debug)]
pub struct GroupEvents {
    events: CacheEvents,
}

impl GroupEvents {
    /// Returns the next event; `None` after [`GroupEvent::Ended`].
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

/// A group, as followed by a client that need not be a member.
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
    /// Reads a group, which need not exist, and follows it in the background.
    pub async fn open(client: &Client, path: impl Into<String>) -> Result<Group> {
        let cache = ChildrenCache::start(client, path);
        cache.initialized().await?;
        Ok(Group { cache })
    }

    /// Returns the path of the group.
    pub fn path(&self) -> &str {
        self.cache.path()
    }

    /// Returns all members and their data.
    #[doc(alias = "getCurrentMembers")]
    pub fn members(&self) -> BTreeMap<String, Bytes> {
        let nodes = self.cache.children();
        nodes.iter().map(|node| (name_of(&node.path).to_owned(), node.data.clone())).collect()
    }

    /// Returns the present members as events, and all events from now on.
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
    /// Joins the group, and waits until the node exists; if the name is in use, until it is free.
    /// Dropping the future withdraws the member.
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

    /// Returns the name of this member.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the path of the group.
    pub fn path(&self) -> &str {
        self.group.path()
    }

    /// Returns all members and their data, always including this member.
    #[doc(alias = "getCurrentMembers")]
    pub fn members(&self) -> BTreeMap<String, Bytes> {
        let mut members = self.group.members();
        members.insert(self.id.clone(), self.node.data());
        members
    }

    /// Returns the present members as events, and all events from now on.
    pub fn events(&self) -> GroupEvents {
        self.group.events()
    }

    /// Changes the data of this member, and waits until it is written.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<()> {
        self.node.set_data(data).await
    }

    /// Leaves, and waits until the node is deleted.
    pub async fn leave(self) -> Result<()> {
        self.node.close().await
    }
}
