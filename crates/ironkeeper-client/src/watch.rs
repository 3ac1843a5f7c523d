//! Watches: one-shot watches are futures, persistent watches are streams.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use ironkeeper_proto::Zxid;
use ironkeeper_proto::watch_event::EventType;

use crate::chroot::Chroot;
use crate::error::{Error, ErrorKind, Result};
use crate::lock;
use crate::reply::Reply;
use crate::session::machine::{Machine, RawEvent};
use crate::session::watches::{self, WatchKind, WatcherId};
use crate::shared::{Shared, Token};

/// A change of a node.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, EventType};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let (absent, watch) = client.exists_and_watch("/flag").await?;
///     assert!(absent.is_none());
///     client.create("/flag", "", CreateMode::Persistent).await?;
///     let event = watch.await?;
///     assert_eq!((event.kind, event.path.as_str()), (EventType::NodeCreated, "/flag"));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "WatchedEvent")]
pub struct WatchEvent {
    /// The type of the change.
    pub kind: EventType,
    /// The path of the node.
    pub path: String,
    /// The transaction that changed the node, if the server sends it. Apache does so since 3.9,
    /// except for events that a server generates after a reconnect.
    pub zxid: Option<Zxid>,
    /// For a deleted node: the czxid of its oldest remaining sibling. Set only for watches of
    /// [`Client::get_and_watch_in_line`](crate::Client::get_and_watch_in_line), and not by every
    /// server.
    pub oldest_sibling: Option<Zxid>,
}

/// The kind of persistent watch that [`Client::watch`](crate::Client::watch) sets.
///
/// ```
/// use ironkeeper_client::{Client, WatchMode};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let everything = client.watch("/", WatchMode::Recursive).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "AddWatchMode")]
pub enum WatchMode {
    /// The node itself: its creation, its deletion, its data, and the list of its children.
    Persistent,
    /// The node and everything below it: creations, deletions and changes of data.
    Recursive,
}

impl WatchMode {
    pub(crate) fn kind(self) -> WatchKind {
        match self {
            WatchMode::Persistent => WatchKind::Persistent,
            WatchMode::Recursive => WatchKind::Recursive,
        }
    }

    /// Returns the mode of an addWatch request.
    pub(crate) fn code(self) -> i32 {
        match self {
            WatchMode::Persistent => 0,
            WatchMode::Recursive => 1,
        }
    }
}

/// The kinds of watches that a request removes or checks.
///
/// ```
/// use ironkeeper_client::{Client, WatchType};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let (_, watch) = client.exists_and_watch("/x").await?;
///     client.remove_watches("/x", WatchType::Data).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "WatcherType")]
pub enum WatchType {
    /// One-shot watches of the list of children.
    Children,
    /// One-shot watches of data or existence.
    Data,
    /// All watches.
    Any,
    /// Watches of [`WatchMode::Persistent`]. Servers since 3.9.
    Persistent,
    /// Watches of [`WatchMode::Recursive`]. Servers since 3.9.
    Recursive,
}

impl WatchType {
    pub(crate) fn code(self) -> i32 {
        match self {
            WatchType::Children => 1,
            WatchType::Data => 2,
            WatchType::Any => 3,
            WatchType::Persistent => 4,
            WatchType::Recursive => 5,
        }
    }
}

/// An item of the stream of a [`Watcher`].
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, WatchItem, WatchMode};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut watcher = client.watch("/app", WatchMode::Recursive).await?;
///     client.create("/app", "", CreateMode::Persistent).await?;
///     match watcher.next().await {
///         Some(WatchItem::Event(event)) => assert_eq!(event.path, "/app"),
///         Some(WatchItem::Gap) => { /* read everything again */ }
///         Some(WatchItem::SessionEnded) | None => { /* start over with a new client */ }
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// A node changed.
    Event(WatchEvent),
    /// Events may be missing here: the client reconnected, or the buffer was full because the
    /// consumer did not take events. A read after this item returns a state that is not older than
    /// the gap.
    Gap,
    /// The session has ended. This is the last item.
    SessionEnded,
}

/// The queue of a watch's events, shared with the session.
#[derive(Debug)]
pub(crate) struct Inbox {
    id: WatcherId,
    chroot: Chroot,
    unwanted: AtomicBool,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    /// Bounded by `max`; one gap may follow the last event.
    items: VecDeque<WatchItem>,
    max: usize,
    /// The reason why no more items follow.
    ended: Option<ErrorKind>,
    waker: Option<Waker>,
}

/// The handle of a watch in the session's watch table.
#[derive(Clone, Debug)]
pub(crate) struct WatchHandle(pub(crate) Arc<Inbox>);

impl watches::Watcher for WatchHandle {
    fn id(&self) -> WatcherId {
        self.0.id
    }

    fn is_wanted(&self) -> bool {
        !self.0.unwanted.load(Ordering::Acquire)
    }
}

impl Inbox {
    pub(crate) fn new(id: WatcherId, chroot: Chroot, max: usize) -> Arc<Inbox> {
        let content = Content { items: VecDeque::new(), max, ended: None, waker: None };
        Arc::new(Inbox {
            id,
            chroot,
            unwanted: AtomicBool::new(false),
            content: Mutex::new(content),
        })
    }

    pub(crate) fn put_event(&self, event: &RawEvent) {
        self.put(WatchItem::Event(WatchEvent {
            kind: event.kind,
            path: self.chroot.to_user(&event.path).to_owned(),
            zxid: (event.zxid > Zxid::ZERO).then_some(event.zxid),
            oldest_sibling: event.oldest_sibling,
        }));
    }

    pub(crate) fn put_gap(&self) {
        self.put(WatchItem::Gap);
    }

    fn put(&self, item: WatchItem) {
        let mut content = lock(&self.content);
        let behind_gap = content.items.back() == Some(&WatchItem::Gap);
        if content.items.len() >= content.max && behind_gap {
            // Covered by the gap.
            return;
        }
        let full = content.items.len() >= content.max;
        if !(item == WatchItem::Gap && behind_gap) {
            content.items.push_back(if full { WatchItem::Gap } else { item });
        }
        let waker = content.waker.take();
        drop(content);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn end(&self, why: ErrorKind) {
        let mut content = lock(&self.content);
        content.ended.get_or_insert(why);
        let waker = content.waker.take();
        drop(content);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<std::result::Result<WatchItem, ErrorKind>> {
        let mut content = lock(&self.content);
        if let Some(item) = content.items.pop_front() {
            return Poll::Ready(Ok(item));
        }
        if let Some(why) = content.ended {
            return Poll::Ready(Err(why));
        }
        content.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The registration of a watch at the session. [`Watch`] and [`Watcher`] own one and end it on
/// drop.
struct Registration {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    kind: WatchKind,
    /// The path on the server, chroot included.
    path: Box<str>,
}

impl Registration {
    /// Removes the watcher from the session's table. It does not check whether the server's watch
    /// is still needed, because that check scans all pending requests, and many watches may be
    /// dropped at a time.
    fn forget(&self) {
        if !self.inbox.unwanted.swap(true, Ordering::AcqRel) {
            self.take_out(&mut lock(&self.shared.core).machine);
        }
    }

    /// Removes the watcher, and the server's watch if no other watcher needs it.
    fn remove(&self) -> Option<Reply<()>> {
        let is_useless = |machine: &mut Machine<_, _>| self.withdraw(machine);
        self.shared.remove_watch_if(self.kind, &self.path, is_useless)
    }

    /// Removes the watcher from the table. Returns whether the server's watch is useless now.
    fn withdraw(&self, machine: &mut Machine<Token, WatchHandle>) -> bool {
        if self.inbox.unwanted.swap(true, Ordering::AcqRel) {
            return false;
        }
        let found = self.take_out(machine);
        (found || !self.kind.is_one_shot()) && !machine.is_watched(self.kind, &self.path)
    }

    fn take_out(&self, machine: &mut Machine<Token, WatchHandle>) -> bool {
        let id = self.inbox.id;
        let mut found = machine.forget_watch(self.kind, &self.path, id);
        if self.kind == WatchKind::Exist {
            found |= machine.forget_watch(WatchKind::Data, &self.path, id);
        }
        found
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.path)
    }
}

/// Either kind of watch, as the reply to a request returns it.
#[derive(Debug)]
pub(crate) enum WatchEnd {
    OneShot(Watch),
    Lasting(Watcher),
}

impl WatchEnd {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: Arc<Inbox>,
        kind: WatchKind,
        path: Box<str>,
    ) -> WatchEnd {
        let registration = Registration { shared, inbox, kind, path };
        if kind.is_one_shot() {
            WatchEnd::OneShot(Watch { registration })
        } else {
            WatchEnd::Lasting(Watcher { registration, is_over: false })
        }
    }

    pub(crate) fn one_shot(this: Option<WatchEnd>) -> Watch {
        match this {
            Some(WatchEnd::OneShot(watch)) => watch,
            other => unreachable!("the request was made with a one-shot watch, not {other:?}"),
        }
    }

    pub(crate) fn lasting(this: Option<WatchEnd>) -> Watcher {
        match this {
            Some(WatchEnd::Lasting(watcher)) => watcher,
            other => unreachable!("the request was made with a lasting watch, not {other:?}"),
        }
    }
}

/// A watch that fires once. It is a future that resolves to the event, or to an error when the
/// session ends.
///
/// A watch survives reconnects; an event during the interruption is delivered afterwards. Dropping
/// the watch removes it. A watch does not keep the session alive; the [`Client`](crate::Client)
/// does.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, EventType, Version};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create("/config", "a", CreateMode::Persistent).await?;
///     let (node, watch) = client.get_and_watch("/config").await?;
///     client.set("/config", "b", node.stat.version).await?;
///     assert_eq!(watch.await?.kind, EventType::NodeDataChanged);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a watch that is dropped is forgotten"]
pub struct Watch {
    registration: Registration,
}

impl Watch {
    /// Removes the watch on the server as well, unless another watch of this client needs it there.
    /// A dropped watch stays on the server until it fires, which costs only memory of the server.
    ///
    /// ```
    /// use ironkeeper_client::{Client, WatchType};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let (_, watch) = client.get_and_watch("/").await?;
    ///     watch.remove().await?;
    ///     assert!(client.check_watches("/", WatchType::Data).await.is_err());
    ///     Ok(())
    /// }
    /// ```
    pub async fn remove(self) -> Result<()> {
        let Some(removing) = self.registration.remove() else { return Ok(()) };
        match removing.await {
            // The watch has fired already.
            Err(error) if error.kind() == ErrorKind::NoWatcher => Ok(()),
            other => other,
        }
    }
}

impl Future for Watch {
    type Output = Result<WatchEvent>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<WatchEvent>> {
        loop {
            return match self.registration.inbox.poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(WatchItem::Event(event))) => Poll::Ready(Ok(event)),
                // One-shot watches have no gaps: poll again.
                Poll::Ready(Ok(_)) => continue,
                Poll::Ready(Err(why)) => Poll::Ready(Err(Error::new(why))),
            };
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.registration.forget();
    }
}

/// A persistent watch: a stream of [`WatchItem`]s that reports every possible loss of events.
///
/// Dropping it removes the watch, also on the server. A watcher does not keep the session alive;
/// the [`Client`](crate::Client) does.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, WatchItem, WatchMode};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut watcher = client.watch("/jobs", WatchMode::Recursive).await?;
///     client.create("/jobs", "", CreateMode::Persistent).await?;
///     client.create("/jobs/1", "", CreateMode::Persistent).await?;
///     for expected in ["/jobs", "/jobs/1"] {
///         let Some(WatchItem::Event(event)) = watcher.next().await else { panic!() };
///         assert_eq!(event.path, expected);
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a watcher that is dropped ends its watch"]
#[doc(alias = "PersistentWatcher")]
#[doc(alias = "addWatch")]
pub struct Watcher {
    registration: Registration,
    is_over: bool,
}

impl Watcher {
    /// Returns the next item; `None` after [`WatchItem::SessionEnded`], or when the watch was
    /// removed.
    ///
    /// ```
    /// use ironkeeper_client::{Client, WatchItem, WatchMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut watcher = client.watch("/", WatchMode::Persistent).await?;
    ///     client.set("/", "new", -1).await?;
    ///     assert!(matches!(watcher.next().await, Some(WatchItem::Event(_))));
    ///     Ok(())
    /// }
    /// ```
    pub async fn next(&mut self) -> Option<WatchItem> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match self.registration.inbox.poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(item)) => Poll::Ready(Some(item)),
            Poll::Ready(Err(why)) => {
                self.is_over = true;
                let removed = why == ErrorKind::NoWatcher;
                Poll::Ready((!removed).then_some(WatchItem::SessionEnded))
            }
        }
    }

    /// Removes the watch and waits until the server has removed it.
    ///
    /// ```
    /// use ironkeeper_client::{Client, WatchMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let watcher = client.watch("/", WatchMode::Recursive).await?;
    ///     watcher.remove().await?;
    ///     assert_eq!(client.watch_count(), 0);
    ///     Ok(())
    /// }
    /// ```
    pub async fn remove(self) -> Result<()> {
        match self.registration.remove() {
            Some(removing) => removing.await,
            None => Ok(()),
        }
    }
}

impl Stream for Watcher {
    type Item = WatchItem;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.get_mut().poll(cx)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Registration { shared, kind, path, .. } = &self.registration;
        shared.unwatch_if(*kind, path, |machine| self.registration.withdraw(machine));
    }
}
