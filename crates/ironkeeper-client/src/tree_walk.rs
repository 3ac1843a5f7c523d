//! A walk through all nodes of a subtree, with many requests in flight.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use ironkeeper_proto::Stat;

use crate::client::{Client, Node};
use crate::error::{ErrorKind, Result};
use crate::reply::Reply;

/// The number of nodes whose requests are in flight.
const WINDOW: usize = 256;

/// A node visited by a [`TreeWalk`].
///
/// ```
/// use ironkeeper_client::Client;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let root = client.walk("/").next().await.unwrap()?;
///     assert_eq!((root.path.as_str(), root.depth), ("/", 0));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visited {
    /// The path of the node.
    pub path: String,
    /// The depth below the start; 0 for the start itself.
    pub depth: usize,
    /// The [`Stat`] of the node.
    pub stat: Stat,
    /// The data of the node, if requested by [`TreeWalk::with_data`].
    pub data: Option<Bytes>,
}

/// A stream of all nodes of a subtree: its root first, each node before its children, siblings in
/// the order of their names. Created by [`Client::walk`].
///
/// Nodes that are deleted during the walk are skipped. An error is the last item.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     for path in ["/t/b", "/t/a/x"] {
///         client.create_recursive(path, "data", CreateMode::Persistent).await?;
///     }
///     let mut walk = client.walk("/t").depth_first();
///     let mut paths = Vec::new();
///     while let Some(node) = walk.next().await {
///         paths.push(node?.path);
///     }
///     assert_eq!(paths, ["/t", "/t/a", "/t/a/x", "/t/b"]);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a walk goes no further than it is followed"]
#[doc(alias = "ZKUtil")]
pub struct TreeWalk {
    client: Client,
    depth_first: bool,
    with_data: bool,
    depth_max: usize,
    /// Nodes to visit, next first. The requests of the first `WINDOW` nodes are in flight.
    ahead: VecDeque<Ahead>,
}

#[derive(Debug)]
struct Ahead {
    path: String,
    depth: usize,
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    children: Reply<(Vec<String>, Stat)>,
    answer: Option<(Vec<String>, Stat)>,
    node: Option<Reply<Node>>,
}

impl Client {
    /// Walks a subtree. See [`TreeWalk`].
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut walk = client.walk("/zookeeper");
    ///     let mut count = 0;
    ///     while let Some(node) = walk.next().await {
    ///         node?;
    ///         count += 1;
    ///     }
    ///     assert!(count >= 3);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "visitSubTreeDFS")]
    #[doc(alias = "listSubTreeBFS")]
    pub fn walk(&self, path: &str) -> TreeWalk {
        let start = Ahead { path: path.to_owned(), depth: 0, asked: None };
        TreeWalk {
            client: self.clone(),
            depth_first: false,
            with_data: false,
            depth_max: usize::MAX,
            ahead: VecDeque::from([start]),
        }
    }
}

impl TreeWalk {
    /// Visits each subtree completely before the next sibling. The default visits all nodes of one
    /// depth before the nodes of the next.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut walk = client.walk("/zookeeper").depth_first();
    ///     assert_eq!(walk.next().await.unwrap()?.path, "/zookeeper");
    ///     Ok(())
    /// }
    /// ```
    pub fn depth_first(mut self) -> TreeWalk {
        self.depth_first = true;
        self
    }

    /// Reads the data as well.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/n", "data", CreateMode::Persistent).await?;
    ///     let node = client.walk("/n").with_data().next().await.unwrap()?;
    ///     assert_eq!(node.data.unwrap(), "data");
    ///     Ok(())
    /// }
    /// ```
    pub fn with_data(mut self) -> TreeWalk {
        self.with_data = true;
        self
    }

    /// Limits the depth; 0 visits only the start.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut walk = client.walk("/").max_depth(0);
    ///     assert!(walk.next().await.is_some());
    ///     assert!(walk.next().await.is_none());
    ///     Ok(())
    /// }
    /// ```
    pub fn max_depth(mut self, depth: usize) -> TreeWalk {
        self.depth_max = depth;
        self
    }

    /// Returns the next node; `None` at the end.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut walk = client.walk("/");
    ///     while let Some(node) = walk.next().await {
    ///         println!("{}", node?.path);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn next(&mut self) -> Option<Result<Visited>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Visited>>> {
        loop {
            for ahead in self.ahead.iter_mut().take(WINDOW) {
                if ahead.asked.is_none() {
                    ahead.asked = Some(Asked {
                        children: self.client.children_and_stat(&ahead.path),
                        answer: None,
                        node: self.with_data.then(|| self.client.get(&ahead.path)),
                    });
                }
            }
            let Some(next) = self.ahead.front_mut() else { return Poll::Ready(None) };
            let Some(asked) = &mut next.asked else { return Poll::Ready(None) };
            let answer = ready!(asked.poll(cx));
            let Some(Ahead { path, depth, .. }) = self.ahead.pop_front() else {
                return Poll::Ready(None);
            };
            let (children, stat, data) = match answer {
                Ok(answer) => answer,
                // The start must exist; other nodes may have been deleted since they were listed.
                Err(error) if error.kind() == ErrorKind::NoNode && depth > 0 => continue,
                Err(error) => {
                    self.ahead.clear();
                    return Poll::Ready(Some(Err(error)));
                }
            };
            if depth < self.depth_max {
                self.add(&path, depth + 1, children);
            }
            return Poll::Ready(Some(Ok(Visited { path, depth, stat, data })));
        }
    }

    fn add(&mut self, parent: &str, depth: usize, mut names: Vec<String>) {
        names.sort_unstable();
        let parent = if parent == "/" { "" } else { parent };
        let children = names.into_iter().map(|name| Ahead {
            path: format!("{parent}/{name}"),
            depth,
            asked: None,
        });
        if self.depth_first {
            for child in children.rev() {
                self.ahead.push_front(child);
            }
        } else {
            self.ahead.extend(children);
        }
    }
}

type Answer = (Vec<String>, Stat, Option<Bytes>);

impl Asked {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer>> {
        if self.answer.is_none() {
            match ready!(Pin::new(&mut self.children).poll(cx)) {
                Ok(answer) => self.answer = Some(answer),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let node = match &mut self.node {
            None => None,
            Some(reply) => match ready!(Pin::new(reply).poll(cx)) {
                Ok(node) => Some(node),
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        let (children, stat) = self.answer.take().unwrap_or_default();
        // Data and stat must match, so both come from `get`; the list of children was read shortly
        // before.
        let (stat, data) = match node {
            Some(node) => (node.stat, Some(node.data)),
            None => (stat, None),
        };
        Poll::Ready(Ok((children, stat, data)))
    }
}

impl Stream for TreeWalk {
    type Item = Result<Visited>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Visited>>> {
        self.get_mut().poll(cx)
    }
}
