//! The client and its operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_proto::acl::{self, AclVec};
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::request::DataWatch;
use ironkeeper_proto::{
    Acl, CreateMode, DecodeError, ErrorCode, OpCode, Reader, SessionId, Stat, Zxid, path,
};

use crate::builder::ClientBuilder;
use crate::chroot::Chroot;
use crate::create::{CreateOptions, Created};
use crate::error::{Error, ErrorKind, Result};
use crate::hosts::Host;
use crate::lock;
use crate::multi::{MultiRead, Transaction, decode_committed, owned};
use crate::reply::{Answer, Decode, Reply, RequestContext, Slot, malformed, nothing};
use crate::session::machine::WatchRequest;
use crate::session::watches::WatchKind;
use crate::shared::Shared;
use crate::state::{ConnectionState, States};
use crate::watch::{Inbox, Watch, WatchEnd, WatchHandle, WatchMode, WatchType, Watcher};

/// The expected version of a node in a conditional write.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create("/counter", "1", CreateMode::Persistent).await?;
///     let node = client.get("/counter").await?;
///     client.set("/counter", "2", node.stat.version).await?;
///     let late = client.set("/counter", "3", node.stat.version).await.unwrap_err();
///     assert_eq!(late.kind(), ErrorKind::BadVersion);
///     client.set("/counter", "4", Version::Any).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Any version.
    Any,
    /// This version; otherwise the write fails with [`ErrorKind::BadVersion`].
    Exact(i32),
}

impl Version {
    pub(crate) fn code(self) -> i32 {
        match self {
            Version::Any => -1,
            Version::Exact(version) => version,
        }
    }
}

/// Converts -1 to any version, as everywhere in ZooKeeper.
impl From<i32> for Version {
    fn from(version: i32) -> Version {
        if version == -1 { Version::Any } else { Version::Exact(version) }
    }
}

/// A node that was read.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create("/n", "data", CreateMode::Persistent).await?;
///     let node = client.get("/n").await?;
///     assert_eq!((&node.data[..], node.stat.version), (&b"data"[..], 0));
///     assert!(!node.is_null());
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
#[doc(alias = "getData")]
pub struct Node {
    /// The data. Empty if it is null.
    pub data: Bytes,
    /// The [`Stat`] of the node: versions, times, transaction ids, owner, sizes.
    pub stat: Stat,
    null: bool,
}

impl Node {
    /// Returns whether the data is null rather than empty.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateOptions};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create_with("/n", "", &CreateOptions::default().null_data()).await?;
    ///     assert!(client.get("/n").await?.is_null());
    ///     Ok(())
    /// }
    /// ```
    pub fn is_null(&self) -> bool {
        self.null
    }
}

pub(crate) fn node_of(reader: &mut Reader<'_>) -> std::result::Result<Node, DecodeError> {
    let data = reader.buf()?;
    let stat = Stat::decode(reader)?;
    Ok(Node { data: owned(data.unwrap_or_default()), stat, null: data.is_none() })
}

/// An identity of this client on the server.
///
/// ```
/// use ironkeeper_client::Client;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let identities = client.who_am_i().await?;
///     assert_eq!(
///         (identities[0].scheme.as_str(), identities[0].user.as_str()),
///         ("ip", "127.0.0.1")
///     );
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The scheme of the credentials, as in ACLs.
    pub scheme: String,
    /// The user that the credentials identify.
    pub user: String,
}

/// A session with ZooKeeper or Ironkeeper. Cheap to clone; all clones share the session.
///
/// Every method queues its request when it is called and returns a [`Reply`]; see there.
/// [`Client::close`] closes the session; dropping the last clone closes it in the background.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, Version};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create("/greeting", "hello", CreateMode::Persistent).await?;
///     let node = client.get("/greeting").await?;
///     assert_eq!(node.data, "hello");
///     client.delete("/greeting", node.stat.version).await?;
///     client.close().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
#[doc(alias = "ZooKeeper")]
#[doc(alias = "CuratorFramework")]
#[doc(alias = "KazooClient")]
pub struct Client {
    handle: Arc<Handle>,
    pub(crate) chroot: Chroot,
}

/// The shared part of all clones; its drop closes the session.
struct Handle {
    shared: Arc<Shared>,
    request_bytes_max: usize,
    watch_events_max: usize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close(None);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.session_id())
            .field("state", &self.state())
            .field("chroot", &self.chroot.as_str())
            .finish()
    }
}

impl Client {
    /// Connects to one of the servers of a connect string, `host:port,host:port/chroot`.
    ///
    /// ```
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = ironkeeper_client::Client::connect("127.0.0.1:2181").await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "newClient")]
    #[doc(alias = "blockUntilConnected")]
    pub async fn connect(connect_string: &str) -> Result<Client> {
        Client::builder(connect_string).connect().await
    }

    /// Returns a builder for a client with other settings.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181")
    ///         .session_timeout(Duration::from_secs(5))
    ///         .auth("digest", "user:password")
    ///         .connect()
    ///         .await?;
    ///     assert_eq!(client.session_timeout(), Duration::from_secs(5));
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "CuratorFrameworkFactory")]
    pub fn builder(connect_string: &str) -> ClientBuilder {
        ClientBuilder::new(connect_string)
    }

    pub(crate) fn new(
        shared: Arc<Shared>,
        chroot: Chroot,
        request_bytes_max: usize,
        watch_events_max: usize,
    ) -> Client {
        Client { handle: Arc::new(Handle { shared, request_bytes_max, watch_events_max }), chroot }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    pub(crate) fn check_path(user_path: &str) -> Result<()> {
        path::validate(user_path).map_err(|why| Error::at(ErrorKind::InvalidPath(why), user_path))
    }

    /// Rejects a request that is too large before its data is copied. The exact check is made when
    /// the request is encoded.
    pub(crate) fn check_size(&self, user_path: &str, bytes: usize) -> Result<()> {
        if bytes <= self.handle.request_bytes_max {
            return Ok(());
        }
        Err(Error::at(ErrorKind::RequestTooLarge, user_path).with_detail(format!("{bytes} bytes")))
    }

    fn context(&self, user_path: &str, is_write: bool) -> RequestContext {
        RequestContext {
            path: user_path.into(),
            chroot: self.chroot.clone(),
            is_write,
            operations: Vec::new(),
        }
    }

    /// Submits a request for one node. `body` receives the path on the server.
    fn request<T: Send + 'static>(
        &self,
        op: OpCode,
        user_path: &str,
        is_write: bool,
        decode: Decode<T>,
        body: impl FnOnce(&str, &mut Vec<u8>),
    ) -> Reply<T> {
        let checked = Client::check_path(user_path)
            .and_then(|()| self.check_size(user_path, user_path.len()));
        if let Err(error) = checked {
            return Reply::refused(error);
        }
        let server_path = self.chroot.to_server(user_path);
        let context = self.context(user_path, is_write);
        self.shared().submit(op, context, None, decode, |out| body(&server_path, out))
    }

    /// Submits a read, with or without a watch.
    fn read<T: Send + 'static>(
        &self,
        op: OpCode,
        user_path: &str,
        watch: Option<WatchKind>,
        decode: Decode<T>,
    ) -> Reply<T> {
        let Some(kind) = watch else {
            return self.request(op, user_path, false, decode, |server_path, out| {
                out.put_str(server_path);
                out.put_bool(false);
            });
        };
        self.watching(op, user_path, kind, 1, decode, |server_path, out| {
            out.put_str(server_path);
            out.put_bool(true);
        })
    }

    fn watching<T: Send + 'static>(
        &self,
        op: OpCode,
        user_path: &str,
        kind: WatchKind,
        events_max: usize,
        decode: Decode<T>,
        body: impl FnOnce(&str, &mut Vec<u8>),
    ) -> Reply<T> {
        let checked = Client::check_path(user_path)
            .and_then(|()| self.check_size(user_path, user_path.len()));
        if let Err(error) = checked {
            return Reply::refused(error);
        }
        let server_path = self.chroot.to_server(user_path);
        let shared = self.shared();
        let inbox = Inbox::new(shared.watcher_id(), self.chroot.clone(), events_max);
        let watcher = WatchHandle(inbox.clone());
        let request = WatchRequest { kind, path: (*server_path).into(), watcher };
        let end = WatchEnd::new(shared.clone(), inbox, kind, (*server_path).into());
        let context = self.context(user_path, false);
        shared.submit(op, context, Some((end, request)), decode, |out| body(&server_path, out))
    }

    // Nodes.

    /// Creates a node and returns its path, which ends with a number for a sequential node.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/queue", "", CreateMode::Persistent).await?;
    ///     let path = client.create("/queue/n-", "job", CreateMode::EphemeralSequential).await?;
    ///     assert_eq!(path, "/queue/n-0000000000");
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "createNode")]
    pub fn create(&self, path: &str, data: impl AsRef<[u8]>, mode: CreateMode) -> Reply<String> {
        self.create_as(path, data.as_ref(), &CreateOptions::new(mode), false, created_path)
    }

    /// Creates a node with all options; returns its path and [`Stat`].
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, CreateOptions, acls};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let options = CreateOptions::new(CreateMode::Container).acl(acls::open());
    ///     let created = client.create_with("/locks", "", &options).await?;
    ///     assert_eq!(created.stat.version, 0);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "withACL")]
    #[doc(alias = "withMode")]
    #[doc(alias = "create2")]
    #[doc(alias = "createTTL")]
    #[doc(alias = "createContainer")]
    pub fn create_with(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: &CreateOptions,
    ) -> Reply<Created> {
        self.create_as(path, data.as_ref(), options, true, created)
    }

    fn create_as<T: Send + 'static>(
        &self,
        path: &str,
        data: &[u8],
        options: &CreateOptions,
        with_stat: bool,
        decode: Decode<T>,
    ) -> Reply<T> {
        let bytes = path.len() + data.len() + options.acl_bytes() / 2;
        let checked = options.check(path).and_then(|()| self.check_size(path, bytes));
        if let Err(error) = checked {
            return Reply::refused(error);
        }
        let server_path = match path {
            // The name of a sequential node may consist of its number only.
            _ if path.ends_with('/') => {
                format!("{}/", self.chroot.to_server(&path[..path.len() - 1])).into()
            }
            _ => self.chroot.to_server(path),
        };
        let context = self.context(path, true);
        self.shared().submit(options.op(with_stat), context, None, decode, |out| {
            options.encode(&server_path, data, out);
        })
    }

    /// Deletes a node.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/old", "", CreateMode::Persistent).await?;
    ///     client.delete("/old", Version::Any).await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "rm")]
    pub fn delete(&self, path: &str, version: impl Into<Version>) -> Reply<()> {
        let version = version.into();
        self.request(OpCode::Delete, path, true, nothing, |server_path, out| {
            out.put_str(server_path);
            out.put_i32(version.code());
        })
    }

    /// Returns the [`Stat`] of a node (versions, times, owner, number of children), or `None` if
    /// the node does not exist.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert!(client.exists("/").await?.is_some());
    ///     assert!(client.exists("/absent").await?.is_none());
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "checkExists")]
    pub fn exists(&self, path: &str) -> Reply<Option<Stat>> {
        self.read(OpCode::Exists, path, None, |context, _, answer| existing(context, answer))
    }

    /// Does the same as [`Client::exists`] and sets a watch for the node's creation, deletion and
    /// change of data.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, EventType};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (_, watch) = client.exists_and_watch("/flag").await?;
    ///     client.create("/flag", "", CreateMode::Ephemeral).await?;
    ///     assert_eq!(watch.await?.kind, EventType::NodeCreated);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "exists")]
    #[doc(alias = "checkExists")]
    #[doc(alias = "watched")]
    pub fn exists_and_watch(&self, path: &str) -> Reply<(Option<Stat>, Watch)> {
        self.read(OpCode::Exists, path, Some(WatchKind::Exist), |context, watch, answer| {
            Ok((existing(context, answer)?, WatchEnd::one_shot(watch)))
        })
    }

    /// Returns the data and the [`Stat`] of a node.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/n", "data", CreateMode::Persistent).await?;
    ///     assert_eq!(client.get("/n").await?.data, "data");
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getData")]
    #[doc(alias = "get_data")]
    pub fn get(&self, path: &str) -> Reply<Node> {
        self.read(OpCode::GetData, path, None, |context, _, answer| node(context, answer))
    }

    /// Does the same as [`Client::get`] and sets a watch for the node's deletion and change of
    /// data.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, EventType, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/n", "1", CreateMode::Persistent).await?;
    ///     let (node, watch) = client.get_and_watch("/n").await?;
    ///     client.set("/n", "2", Version::Any).await?;
    ///     assert_eq!(watch.await?.kind, EventType::NodeDataChanged);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getData")]
    #[doc(alias = "DataWatch")]
    #[doc(alias = "usingWatcher")]
    #[doc(alias = "watched")]
    pub fn get_and_watch(&self, path: &str) -> Reply<(Node, Watch)> {
        self.read(OpCode::GetData, path, Some(WatchKind::Data), node_and_watch)
    }

    /// Does the same as [`Client::get_and_watch`], for siblings that are served in the order of
    /// creation, such as the contenders of a lock. When the node is deleted, an Ironkeeper server
    /// sends with the event the czxid of the parent's oldest remaining child
    /// ([`WatchEvent::oldest_sibling`](crate::WatchEvent::oldest_sibling)), so that a waiting
    /// client need not list the children. The server omits it if it does not know it; Apache's
    /// servers never send it.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/line", "", CreateMode::Persistent).await?;
    ///     let first = client.create("/line/n-", "", CreateMode::EphemeralSequential).await?;
    ///     let second = client.create("/line/n-", "", CreateMode::EphemeralSequential).await?;
    ///     let ours = client.get(&second).await?.stat.czxid;
    ///     let (_, watch) = client.get_and_watch_in_line(&first).await?;
    ///     client.delete(&first, Version::Any).await?;
    ///     assert_eq!(watch.await?.oldest_sibling, Some(ours));
    ///     Ok(())
    /// }
    /// ```
    pub fn get_and_watch_in_line(&self, path: &str) -> Reply<(Node, Watch)> {
        let kind = WatchKind::Data;
        self.watching(OpCode::GetData, path, kind, 1, node_and_watch, |server_path, out| {
            out.put_str(server_path);
            DataWatch::InLine.encode(out);
        })
    }

    /// Sets the data of a node and returns its new [`Stat`].
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/n", "1", CreateMode::Persistent).await?;
    ///     assert_eq!(client.set("/n", "2", Version::Any).await?.version, 1);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "setData")]
    #[doc(alias = "set_data")]
    pub fn set(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        version: impl Into<Version>,
    ) -> Reply<Stat> {
        let (data, version) = (data.as_ref(), version.into());
        if let Err(error) = self.check_size(path, path.len() + data.len()) {
            return Reply::refused(error);
        }
        self.request(OpCode::SetData, path, true, stat, |server_path, out| {
            out.put_str(server_path);
            out.put_buf(Some(data));
            out.put_i32(version.code());
        })
    }

    /// Returns the names of a node's children, in no particular order.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.children("/").await?, ["zookeeper"]);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getChildren")]
    #[doc(alias = "get_children")]
    #[doc(alias = "ls")]
    pub fn children(&self, path: &str) -> Reply<Vec<String>> {
        self.read(OpCode::GetChildren, path, None, |context, _, answer| {
            names(context, &mut Reader::new(answer.body_of(context)?))
        })
    }

    /// Returns the names of a node's children, and the [`Stat`] of the node itself.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (children, stat) = client.children_and_stat("/").await?;
    ///     assert_eq!(stat.num_children as usize, children.len());
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getChildren")]
    #[doc(alias = "getChildren2")]
    pub fn children_and_stat(&self, path: &str) -> Reply<(Vec<String>, Stat)> {
        self.read(OpCode::GetChildren2, path, None, |context, _, answer| {
            names_and_stat(context, answer)
        })
    }

    /// Does the same as [`Client::children_and_stat`] and sets a watch for changes of the list and
    /// for the node's deletion.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, EventType};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (_, _, watch) = client.children_and_watch("/").await?;
    ///     client.create("/new", "", CreateMode::Persistent).await?;
    ///     assert_eq!(watch.await?.kind, EventType::NodeChildrenChanged);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getChildren")]
    #[doc(alias = "ChildrenWatch")]
    #[doc(alias = "usingWatcher")]
    pub fn children_and_watch(&self, path: &str) -> Reply<(Vec<String>, Stat, Watch)> {
        self.read(OpCode::GetChildren2, path, Some(WatchKind::Child), |context, watch, answer| {
            let (names, stat) = names_and_stat(context, answer)?;
            Ok((names, stat, WatchEnd::one_shot(watch)))
        })
    }

    /// Returns the number of descendants of a node.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/a", "", CreateMode::Persistent).await?;
    ///     client.create("/a/b", "", CreateMode::Persistent).await?;
    ///     assert_eq!(client.all_children_number("/a").await?, 1);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getAllChildrenNumber")]
    pub fn all_children_number(&self, path: &str) -> Reply<i32> {
        self.request(
            OpCode::GetAllChildrenNumber,
            path,
            false,
            |context, _, answer| {
                Reader::new(answer.body_of(context)?).i32().map_err(malformed(context))
            },
            |server_path, out| out.put_str(server_path),
        )
    }

    /// Returns the paths of all ephemeral nodes of this session that begin with `prefix`.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/me", "", CreateMode::Ephemeral).await?;
    ///     assert_eq!(client.ephemerals("/").await?, ["/me"]);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getEphemerals")]
    pub fn ephemerals(&self, prefix: &str) -> Reply<Vec<String>> {
        self.request(
            OpCode::GetEphemerals,
            prefix,
            false,
            |context, _, answer| {
                let mut paths = names(context, &mut Reader::new(answer.body_of(context)?))?;
                for path in &mut paths {
                    *path = context.chroot.to_user(path).to_owned();
                }
                Ok(paths)
            },
            |server_path, out| out.put_str(server_path),
        )
    }

    /// Waits until the server has applied all transactions that were committed before. Later reads
    /// of this client see every change for which another client has received a reply.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let synced = client.sync("/");
    ///     let fresh = client.children("/").await?;
    ///     synced.await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn sync(&self, path: &str) -> Reply<()> {
        self.request(OpCode::Sync, path, false, nothing, |server_path, out| {
            out.put_str(server_path);
        })
    }

    /// Fails unless the node exists and has this version. Use [`Client::transaction`] for several
    /// checks, or for a check together with changes.
    ///
    /// ```
    /// use ironkeeper_client::{Client, ErrorKind};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.check("/", 0).await?;
    ///     assert_eq!(client.check("/", 7).await.unwrap_err().kind(), ErrorKind::BadVersion);
    ///     Ok(())
    /// }
    /// ```
    pub fn check(&self, path: &str, version: impl Into<Version>) -> Reply<()> {
        self.transaction().check(path, version).commit_as(|context, watch, answer| {
            decode_committed(context, watch, answer).map(|_| ())
        })
    }

    /// Returns a builder for changes that are applied all together or not at all. See
    /// [`Transaction`].
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client
    ///         .transaction()
    ///         .create("/a", "", CreateMode::Persistent)
    ///         .create("/a/b", "", CreateMode::Persistent)
    ///         .commit()
    ///         .await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "multi")]
    #[doc(alias = "inTransaction")]
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// Returns a builder for several reads in one request. See [`MultiRead`].
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let results = client.multi_read().get("/").children("/").send().await?;
    ///     assert_eq!(results.len(), 2);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "multi")]
    pub fn multi_read(&self) -> MultiRead {
        MultiRead::new(self.clone())
    }

    // Watches.

    /// Sets a persistent watch. The node need not exist. See [`Watcher`].
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, WatchItem, WatchMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut watcher = client.watch("/app", WatchMode::Persistent).await?;
    ///     client.create("/app", "", CreateMode::Persistent).await?;
    ///     assert!(matches!(watcher.next().await, Some(WatchItem::Event(_))));
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "addWatch")]
    #[doc(alias = "add_watch")]
    #[doc(alias = "PersistentWatcher")]
    pub fn watch(&self, path: &str, mode: WatchMode) -> Reply<Watcher> {
        let events_max = self.handle.watch_events_max;
        self.watching(
            OpCode::AddWatch,
            path,
            mode.kind(),
            events_max,
            |context, watch, answer| {
                answer.body_of(context)?;
                Ok(WatchEnd::lasting(watch))
            },
            |server_path, out| {
                out.put_str(server_path);
                out.put_i32(mode.code());
            },
        )
    }

    /// Checks that the server has such a watch of this client; fails with [`ErrorKind::NoWatcher`]
    /// if not.
    ///
    /// ```
    /// use ironkeeper_client::{Client, ErrorKind, WatchType};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (_, _watch) = client.get_and_watch("/").await?;
    ///     client.check_watches("/", WatchType::Data).await?;
    ///     let none = client.check_watches("/", WatchType::Children).await.unwrap_err();
    ///     assert_eq!(none.kind(), ErrorKind::NoWatcher);
    ///     Ok(())
    /// }
    /// ```
    pub fn check_watches(&self, path: &str, kind: WatchType) -> Reply<()> {
        self.request(OpCode::CheckWatches, path, false, nothing, |server_path, out| {
            out.put_str(server_path);
            out.put_i32(kind.code());
        })
    }

    /// Removes all watches of this client on a node. A [`Watch`] fails with
    /// [`ErrorKind::NoWatcher`], a [`Watcher`] ends.
    ///
    /// ```
    /// use ironkeeper_client::{Client, ErrorKind, WatchType};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (_, watch) = client.get_and_watch("/").await?;
    ///     client.remove_watches("/", WatchType::Any).await?;
    ///     assert_eq!(watch.await.unwrap_err().kind(), ErrorKind::NoWatcher);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "removeAllWatches")]
    #[doc(alias = "remove_all_watches")]
    pub fn remove_watches(&self, path: &str, kind: WatchType) -> Reply<()> {
        if let Err(error) = Client::check_path(path) {
            return Reply::refused(error);
        }
        self.shared().remove_all_watches(
            self.context(path, false),
            &self.chroot.to_server(path),
            kind,
        )
    }

    // Access.

    /// Returns the ACL of a node, and its [`Stat`].
    ///
    /// ```
    /// use ironkeeper_client::{Client, Perms};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (acl, _) = client.get_acl("/").await?;
    ///     assert_eq!(acl[0].perms, Perms::ALL);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getACL")]
    #[doc(alias = "get_acls")]
    pub fn get_acl(&self, path: &str) -> Reply<(Vec<Acl>, Stat)> {
        self.request(
            OpCode::GetAcl,
            path,
            false,
            |context, _, answer| {
                let mut reader = Reader::new(answer.body_of(context)?);
                let acl = AclVec::decode(&mut reader).map_err(malformed(context))?;
                let stat = Stat::decode(&mut reader).map_err(malformed(context))?;
                Ok((acl.map(|acl| acl.to_vec()).unwrap_or_default(), stat))
            },
            |server_path, out| out.put_str(server_path),
        )
    }

    /// Sets the ACL of a node. The version is that of the ACL, `aversion`.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode, Version, acls};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/n", "", CreateMode::Persistent).await?;
    ///     let stat = client.set_acl("/n", &acls::read(), Version::Any).await?;
    ///     assert_eq!(stat.aversion, 1);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "setACL")]
    #[doc(alias = "set_acls")]
    pub fn set_acl(&self, path: &str, list: &[Acl], version: impl Into<Version>) -> Reply<Stat> {
        let version = version.into();
        let bytes: usize = list.iter().map(|acl| 12 + acl.scheme.len() + acl.id.len()).sum();
        if let Err(error) = self.check_size(path, path.len() + bytes) {
            return Reply::refused(error);
        }
        if list.is_empty() {
            return Reply::refused(Error::at(ErrorKind::InvalidAcl, path));
        }
        self.request(OpCode::SetAcl, path, true, stat, |server_path, out| {
            out.put_str(server_path);
            acl::encode_list(list, out);
            out.put_i32(version.code());
        })
    }

    /// Adds credentials to this connection and all later ones. Rejected credentials end the
    /// session, as with every ZooKeeper client. Without a connection the credentials wait for one,
    /// for any time; the reply need not be awaited.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.add_auth("digest", "user:password").await?;
    ///     assert_eq!(client.who_am_i().await?[1].user, "user");
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "addAuthInfo")]
    #[doc(alias = "authorization")]
    pub fn add_auth(&self, scheme: &str, auth: impl AsRef<[u8]>) -> Reply<()> {
        let auth = auth.as_ref();
        let slot = Slot::new(RequestContext::default(), None, nothing);
        let token = slot.clone();
        let added =
            self.shared().with_machine(|machine| machine.authenticate(scheme, auth, Some(token)));
        if let Err((Some(token), failure)) = added {
            token.failed(failure);
        }
        Reply::waiting(slot, self.shared().clone())
    }

    /// Returns the identities of this client on the server.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.who_am_i().await?[0].scheme, "ip");
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "whoAmI")]
    pub fn who_am_i(&self) -> Reply<Vec<Identity>> {
        let context = RequestContext::default();
        let decode: Decode<Vec<Identity>> = |context, _, answer| {
            let malformed = malformed(context);
            let mut reader = Reader::new(answer.body_of(context)?);
            let count = reader.count(8).map_err(&malformed)?.unwrap_or(0);
            let mut identities = Vec::with_capacity(count);
            for _ in 0..count {
                let scheme = reader.opt_str().map_err(&malformed)?.unwrap_or_default().into_owned();
                let user = reader.opt_str().map_err(&malformed)?.unwrap_or_default().into_owned();
                identities.push(Identity { scheme, user });
            }
            Ok(identities)
        };
        self.shared().submit(OpCode::WhoAmI, context, None, decode, |_| {})
    }

    // The ensemble.

    /// Returns the membership of the ensemble, as text. The chroot has no effect.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let config = client.config().await?;
    ///     assert!(config.data.is_empty()); // a server that stands alone
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getConfig")]
    #[doc(alias = "get_config")]
    pub fn config(&self) -> Reply<Node> {
        self.outside_chroot().get(CONFIG_PATH)
    }

    /// Does the same as [`Client::config`] and sets a watch for the next change.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (config, watch) = client.config_and_watch().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn config_and_watch(&self) -> Reply<(Node, Watch)> {
        self.outside_chroot().get_and_watch(CONFIG_PATH)
    }

    /// Changes the membership of the ensemble and returns the new one. The arguments are the
    /// servers that join and the ids of servers that leave, or the list of all members. With
    /// `from_config` the change is applied only if the membership has that version.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let leaving = client.reconfig(None, Some("3"), None, None).await;
    ///     assert!(leaving.is_err()); // a server that stands alone has no ensemble to change
    ///     Ok(())
    /// }
    /// ```
    pub fn reconfig(
        &self,
        joining: Option<&str>,
        leaving: Option<&str>,
        members: Option<&str>,
        from_config: Option<i64>,
    ) -> Reply<Node> {
        let bytes = [joining, leaving, members].iter().flatten().map(|text| text.len()).sum();
        if let Err(error) = self.check_size(CONFIG_PATH, bytes) {
            return Reply::refused(error);
        }
        let context = RequestContext { is_write: true, ..RequestContext::default() };
        let decode: Decode<Node> = |context, _, answer| node(context, answer);
        self.shared().submit(OpCode::Reconfig, context, None, decode, |out| {
            out.put_opt_str(joining);
            out.put_opt_str(leaving);
            out.put_opt_str(members);
            out.put_i64(from_config.unwrap_or(-1));
        })
    }

    fn outside_chroot(&self) -> Client {
        Client { handle: self.handle.clone(), chroot: Chroot::default() }
    }

    // The session.

    /// Returns a handle of the same session whose paths are relative to `path`.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/app", "", CreateMode::Persistent).await?;
    ///     let app = client.at("/app")?;
    ///     app.create("/x", "", CreateMode::Persistent).await?;
    ///     assert!(client.exists("/app/x").await?.is_some());
    ///     assert_eq!(app.chroot(), "/app");
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "usingNamespace")]
    #[doc(alias = "chroot")]
    pub fn at(&self, path: &str) -> Result<Client> {
        Client::check_path(path)?;
        Ok(Client { handle: self.handle.clone(), chroot: self.chroot.join(path) })
    }

    /// Returns the chroot of this handle; `/` if it has none.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.at("/app")?.chroot(), "/app");
    ///     Ok(())
    /// }
    /// ```
    pub fn chroot(&self) -> &str {
        self.chroot.as_str()
    }

    /// Returns the id of the session; zero before the first connection.
    ///
    /// ```
    /// use ironkeeper_client::{Client, SessionId};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_ne!(client.session_id(), SessionId::NONE);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getSessionId")]
    #[doc(alias = "client_id")]
    pub fn session_id(&self) -> SessionId {
        lock(&self.shared().core).machine.session().0
    }

    /// Returns whether both handles use the same session: both derive from one client object.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let (client, other) = (
    ///         Client::connect("127.0.0.1:2181").await?,
    ///         Client::connect("127.0.0.1:2181").await?,
    ///     );
    ///     assert!(client.has_same_session_as(&client.clone()));
    ///     assert!(!client.has_same_session_as(&other));
    ///     Ok(())
    /// }
    /// ```
    pub fn has_same_session_as(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// Returns a random (version 4) UUID as text, for unique names. It is not suitable as a secret.
    ///
    /// A client with a [seed](crate::ClientBuilder::seed) and a session returns the next UUID of a
    /// sequence that is determined by the seed and the session id, so that clients with the same
    /// seed do not return the same UUID.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.random_uuid().len(), 36);
    ///     assert_ne!(client.random_uuid(), client.random_uuid());
    ///     Ok(())
    /// }
    /// ```
    pub fn random_uuid(&self) -> String {
        self.shared().random_uuid()
    }

    /// Returns the password with which another client object can resume this session. A secret.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (id, password) = (client.session_id(), client.session_password());
    ///     let same = Client::builder("127.0.0.1:2181").resume(id, password).connect().await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getSessionPasswd")]
    pub fn session_password(&self) -> [u8; 16] {
        lock(&self.shared().core).machine.session().1
    }

    /// Returns the session timeout that the server granted: the time without a packet from the
    /// client after which it expires the session. It can be longer or shorter than the
    /// [`ClientBuilder::session_timeout`] requested. Before the first connection, the requested
    /// timeout.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert!(client.session_timeout() > std::time::Duration::ZERO);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getSessionTimeout")]
    #[doc(alias = "negotiated_session_timeout")]
    #[doc(alias = "getLastNegotiatedSessionTimeoutMs")]
    pub fn session_timeout(&self) -> Duration {
        lock(&self.shared().core).machine.timeout()
    }

    /// Returns the runtime of the session: the one that was current when it was started. A future
    /// that leaves work behind when it is dropped should spawn it there, because it may be dropped
    /// outside of any runtime, or in one that is shutting down.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let reading = client.runtime().spawn({
    ///         let client = client.clone();
    ///         async move { client.get("/zookeeper").await }
    ///     });
    ///     reading.await??;
    ///     Ok(())
    /// }
    /// ```
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.shared().runtime
    }

    /// Returns the largest zxid in the replies that this client has received.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let stat = client.set("/", "x", -1).await?;
    ///     assert!(client.last_zxid() >= stat.mzxid);
    ///     Ok(())
    /// }
    /// ```
    pub fn last_zxid(&self) -> Zxid {
        lock(&self.shared().core).machine.last_zxid()
    }

    /// Returns the connected server, as in the connect string.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.server().unwrap().to_string(), "127.0.0.1:2181");
    ///     Ok(())
    /// }
    /// ```
    pub fn server(&self) -> Option<Host> {
        lock(&self.shared().core).machine.server().cloned()
    }

    /// Returns why there is no connection at the moment, as far as known; `None` while there is
    /// one.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     // No server listens there.
    ///     let client = Client::builder("127.0.0.1:1").start()?;
    ///     client.get("/").await.unwrap_err();
    ///     assert!(client.trouble().is_some_and(|why| why.starts_with("127.0.0.1:1: ")));
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "last_error")]
    #[doc(alias = "lastError")]
    pub fn trouble(&self) -> Option<String> {
        lock(&self.shared().core).machine.trouble().map(str::to_owned)
    }

    /// Returns the number of watches that this client has set and that have not fired.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (_, watch) = client.get_and_watch("/").await?;
    ///     assert_eq!(client.watch_count(), 1);
    ///     drop(watch);
    ///     assert_eq!(client.watch_count(), 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn watch_count(&self) -> usize {
        lock(&self.shared().core).machine.watch_count()
    }

    /// Returns the connection state.
    ///
    /// ```
    /// use ironkeeper_client::{Client, ConnectionState};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.state(), ConnectionState::Connected);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getState")]
    #[doc(alias = "client_state")]
    pub fn state(&self) -> ConnectionState {
        lock(&self.shared().states).current()
    }

    /// Returns whether the session is live and accepts writes, as far as known without a request:
    /// the client is connected to a server that accepts writes, and has received a packet from it
    /// within two thirds of the session timeout. The result is current even if [`Client::state`] is
    /// not yet, for example when this process was suspended and the session's driver has not been
    /// polled since.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert!(client.is_in_touch());
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "is_connected")]
    #[doc(alias = "isConnected")]
    pub fn is_in_touch(&self) -> bool {
        lock(&self.shared().core).machine.is_in_touch(tokio::time::Instant::now().into_std())
    }

    /// Subscribes to the changes of the connection state, from now on. See [`States`].
    ///
    /// ```
    /// use ironkeeper_client::{Client, ConnectionState};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut states = client.states();
    ///     client.close().await?;
    ///     assert_eq!(states.next().await, Some(ConnectionState::Closed));
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "ConnectionStateListener")]
    #[doc(alias = "add_listener")]
    pub fn states(&self) -> States {
        lock(&self.shared().states).subscribe()
    }

    /// Waits until the client is connected. Fails if the session has ended.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder("127.0.0.1:2181").start()?;
    ///     client.connected().await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "blockUntilConnected")]
    #[doc(alias = "wait_until_connected")]
    pub async fn connected(&self) -> Result<()> {
        self.reaches(ConnectionState::is_connected).await
    }

    /// Waits for a state that satisfies `wanted`. Fails if the session has ended.
    pub(crate) async fn reaches(&self, wanted: fn(ConnectionState) -> bool) -> Result<()> {
        let (mut states, mut state) = {
            let mut subscribers = lock(&self.shared().states);
            (subscribers.subscribe(), subscribers.current())
        };
        loop {
            match state {
                _ if wanted(state) => return Ok(()),
                ConnectionState::Closed => return Err(Error::new(ErrorKind::Closed)),
                ConnectionState::Lost => return Err(Error::new(ErrorKind::SessionExpired)),
                ConnectionState::AuthFailed => return Err(Error::new(ErrorKind::AuthFailed)),
                _ => {}
            }
            match states.next().await {
                Some(next) => state = next,
                None => state = self.state(),
            }
        }
    }

    /// Closes the session after all earlier requests. When this returns, its ephemeral nodes are
    /// deleted if the client was connected; otherwise they are deleted when the session expires.
    ///
    /// ```
    /// use ironkeeper_client::{Client, ErrorKind};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.close().await?;
    ///     assert_eq!(client.get("/").await.unwrap_err().kind(), ErrorKind::Closed);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "stop")]
    #[doc(alias = "disconnect")]
    pub async fn close(&self) -> Result<()> {
        let slot = Slot::new(RequestContext::default(), None, nothing);
        self.shared().close(Some(slot.clone()));
        // The machine fails the token with `Closed`, which is success here.
        match Reply::waiting(slot, self.shared().clone()).await {
            Err(error) if error.kind() != ErrorKind::Closed => Err(error),
            _ => Ok(()),
        }
    }
}

const CONFIG_PATH: &str = "/zookeeper/config";

fn created_path(
    context: &RequestContext,
    _: Option<WatchEnd>,
    answer: Answer<'_>,
) -> Result<String> {
    let mut reader = Reader::new(answer.body_of(context)?);
    let path = reader.str().map_err(malformed(context))?;
    Ok(context.chroot.to_user(&path).to_owned())
}

fn created(context: &RequestContext, _: Option<WatchEnd>, answer: Answer<'_>) -> Result<Created> {
    let mut reader = Reader::new(answer.body_of(context)?);
    let path = reader.str().map_err(malformed(context))?;
    let stat = Stat::decode(&mut reader).map_err(malformed(context))?;
    Ok(Created { path: context.chroot.to_user(&path).to_owned(), stat })
}

fn stat(context: &RequestContext, _: Option<WatchEnd>, answer: Answer<'_>) -> Result<Stat> {
    Stat::decode(&mut Reader::new(answer.body_of(context)?)).map_err(malformed(context))
}

fn existing(context: &RequestContext, answer: Answer<'_>) -> Result<Option<Stat>> {
    if answer.err == ErrorCode::NoNode.code() {
        return Ok(None);
    }
    stat(context, None, answer).map(Some)
}

fn node(context: &RequestContext, answer: Answer<'_>) -> Result<Node> {
    node_of(&mut Reader::new(answer.body_of(context)?)).map_err(malformed(context))
}

fn node_and_watch(
    context: &RequestContext,
    watch: Option<WatchEnd>,
    answer: Answer<'_>,
) -> Result<(Node, Watch)> {
    Ok((node(context, answer)?, WatchEnd::one_shot(watch)))
}

fn names(context: &RequestContext, reader: &mut Reader<'_>) -> Result<Vec<String>> {
    let names = reader.str_vec().map_err(malformed(context))?;
    Ok(names.iter().flat_map(|names| names.iter()).map(|name| name.into_owned()).collect())
}

fn names_and_stat(context: &RequestContext, answer: Answer<'_>) -> Result<(Vec<String>, Stat)> {
    let mut reader = Reader::new(answer.body_of(context)?);
    let names = names(context, &mut reader)?;
    Ok((names, Stat::decode(&mut reader).map_err(malformed(context))?))
}
