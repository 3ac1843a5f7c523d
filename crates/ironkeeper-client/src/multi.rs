//! Several operations in one request.

use bytes::Bytes;
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::{OpCode, Reader, Stat};

use crate::client::{Client, Node, Version, node_of};
use crate::create::CreateOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::reply::{Answer, Decode, Reply, RequestContext, malformed};
use crate::watch::WatchEnd;

/// The result of one operation of a transaction or of a multi-read.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, OpResult, Version};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let results = client
///         .transaction()
///         .create("/t", "x", CreateMode::Persistent)
///         .set("/t", "y", Version::Any)
///         .commit()
///         .await?;
///     assert!(matches!(&results[0], OpResult::Created { path, .. } if path == "/t"));
///     assert!(matches!(&results[1], OpResult::Set(stat) if stat.version == 1));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpResult {
    /// A node was created. Servers before 3.9 do not send the [`Stat`].
    Created {
        /// The path of the node, with the number of a sequential node.
        path: String,
        /// The [`Stat`] of the node.
        stat: Option<Stat>,
    },
    /// A node was deleted.
    Deleted,
    /// The data was set; the new [`Stat`].
    Set(Stat),
    /// The check succeeded.
    Checked,
    /// A node that was read.
    Node(Node),
    /// The names of a node's children.
    Children(Vec<String>),
}

/// Operations that are applied all together or not at all. Created by
/// [`Client::transaction`](crate::Client::transaction).
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let error = client
///         .transaction()
///         .create("/t", "", CreateMode::Persistent)
///         .delete("/absent", Version::Any)
///         .commit()
///         .await
///         .unwrap_err();
///     assert_eq!((error.kind(), error.failed_operation()), (ErrorKind::NoNode, Some(1)));
///     assert_eq!(error.path(), Some("/absent"));
///     assert!(client.exists("/t").await?.is_none());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before commit()"]
#[doc(alias = "multi")]
#[doc(alias = "CuratorOp")]
pub struct Transaction {
    client: Client,
    body: Vec<u8>,
    operations: Vec<Box<str>>,
    /// The first error in an argument, which every server would reject.
    refused: Option<Error>,
}

impl Transaction {
    pub(crate) fn new(client: Client) -> Transaction {
        Transaction { client, body: Vec::new(), operations: Vec::new(), refused: None }
    }

    /// Creates a node.
    ///
    /// ```
    /// use ironkeeper_client::{Client, CreateMode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.transaction().create("/n", "data", CreateMode::Ephemeral).commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn create(
        self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
    ) -> Transaction {
        let options = options.into();
        let check = options.check(path);
        let extra = options.acl_bytes();
        let data = data.as_ref();
        self.add(options.op(true), path, check, data.len() + extra, |server_path, body| {
            options.encode(server_path, data, body);
        })
    }

    /// Sets the data of a node.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.transaction().set("/", "data", 0).commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn set(
        self,
        path: &str,
        data: impl AsRef<[u8]>,
        version: impl Into<Version>,
    ) -> Transaction {
        let (data, version) = (data.as_ref(), version.into());
        let check = Client::check_path(path);
        self.add(OpCode::SetData, path, check, data.len(), |server_path, body| {
            body.put_str(server_path);
            body.put_buf(Some(data));
            body.put_i32(version.code());
        })
    }

    /// Deletes a node.
    ///
    /// ```
    /// use ironkeeper_client::{Client, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let absent = client.transaction().delete("/absent", Version::Any).commit().await;
    ///     assert!(absent.is_err());
    ///     Ok(())
    /// }
    /// ```
    pub fn delete(self, path: &str, version: impl Into<Version>) -> Transaction {
        self.path_and_version(OpCode::Delete, path, version.into())
    }

    /// Applies the transaction only if the node exists and has this version.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.transaction().check("/", 0).commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn check(self, path: &str, version: impl Into<Version>) -> Transaction {
        self.path_and_version(OpCode::Check, path, version.into())
    }

    fn path_and_version(self, op: OpCode, path: &str, version: Version) -> Transaction {
        self.add(op, path, Client::check_path(path), 0, |server_path, body| {
            body.put_str(server_path);
            body.put_i32(version.code());
        })
    }

    fn add(
        mut self,
        op: OpCode,
        path: &str,
        check: Result<()>,
        extra_bytes: usize,
        encode: impl FnOnce(&str, &mut Vec<u8>),
    ) -> Transaction {
        // Once the body is too large, no further data is copied.
        let check = check.and_then(|()| {
            self.client.check_size(path, self.body.len() + 2 * path.len() + extra_bytes)
        });
        match check {
            Ok(()) if self.refused.is_none() => {
                MultiHeader { kind: op.code(), done: false, err: -1 }.encode(&mut self.body);
                encode(&self.client.chroot.to_server(path), &mut self.body);
            }
            Ok(()) => {}
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        self.operations.push(path.into());
        self
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.transaction().check("/", 0).len(), 1);
    ///     Ok(())
    /// }
    /// ```
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether there are no operations.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert!(client.transaction().is_empty());
    ///     Ok(())
    /// }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Sends the operations. Returns one result for each of them, or an error with the index of the
    /// failed one.
    ///
    /// ```
    /// use ironkeeper_client::{Client, OpResult};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let results = client.transaction().check("/", 0).commit().await?;
    ///     assert_eq!(results, [OpResult::Checked]);
    ///     Ok(())
    /// }
    /// ```
    pub fn commit(self) -> Reply<Vec<OpResult>> {
        self.commit_as(decode_committed)
    }

    pub(crate) fn commit_as<T: Send + 'static>(self, decode: Decode<T>) -> Reply<T> {
        if let Some(error) = self.refused {
            return Reply::refused(error);
        }
        let context = RequestContext {
            chroot: self.client.chroot.clone(),
            is_write: true,
            operations: self.operations,
            ..RequestContext::default()
        };
        let body = self.body;
        self.client.shared().submit(OpCode::Multi, context, None, decode, |out| {
            out.extend_from_slice(&body);
            MultiHeader::END.encode(out);
        })
    }
}

/// Reads in one request. Created by [`Client::multi_read`](crate::Client::multi_read).
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, OpResult};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create("/r", "data", CreateMode::Persistent).await?;
///     let results = client.multi_read().get("/r").children("/r").get("/absent").send().await?;
///     assert!(matches!(&results[0], Ok(OpResult::Node(node)) if node.data == "data"));
///     assert!(matches!(&results[1], Ok(OpResult::Children(names)) if names.is_empty()));
///     assert_eq!(results[2].as_ref().unwrap_err().path(), Some("/absent"));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before send()"]
#[doc(alias = "multi")]
pub struct MultiRead {
    inner: Transaction,
}

impl MultiRead {
    pub(crate) fn new(client: Client) -> MultiRead {
        MultiRead { inner: Transaction::new(client) }
    }

    /// Reads the data of a node.
    ///
    /// ```
    /// use ironkeeper_client::{Client, OpResult};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let results = client.multi_read().get("/").send().await?;
    ///     assert!(matches!(&results[0], Ok(OpResult::Node(_))));
    ///     Ok(())
    /// }
    /// ```
    pub fn get(self, path: &str) -> MultiRead {
        self.add(OpCode::GetData, path)
    }

    /// Reads the names of a node's children.
    ///
    /// ```
    /// use ironkeeper_client::{Client, OpResult};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let results = client.multi_read().children("/").send().await?;
    ///     assert!(
    ///         matches!(&results[0], Ok(OpResult::Children(names)) if names == &["zookeeper"])
    ///     );
    ///     Ok(())
    /// }
    /// ```
    pub fn children(self, path: &str) -> MultiRead {
        self.add(OpCode::GetChildren, path)
    }

    fn add(self, op: OpCode, path: &str) -> MultiRead {
        let inner = self.inner.add(op, path, Client::check_path(path), 0, |server_path, body| {
            body.put_str(server_path);
            body.put_bool(false);
        });
        MultiRead { inner }
    }

    /// Sends the reads. Returns one result for each of them, independent of the others.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let results = client.multi_read().get("/absent").get("/").send().await?;
    ///     assert!(results[0].is_err() && results[1].is_ok());
    ///     Ok(())
    /// }
    /// ```
    pub fn send(self) -> Reply<Vec<Result<OpResult>>> {
        let Transaction { client, body, operations, refused } = self.inner;
        if let Some(error) = refused {
            return Reply::refused(error);
        }
        let context = RequestContext {
            chroot: client.chroot.clone(),
            operations,
            ..RequestContext::default()
        };
        client.shared().submit(OpCode::MultiRead, context, None, decode_read, |out| {
            out.extend_from_slice(&body);
            MultiHeader::END.encode(out);
        })
    }
}

fn decode_read(
    context: &RequestContext,
    _: Option<WatchEnd>,
    answer: Answer<'_>,
) -> Result<Vec<Result<OpResult>>> {
    decode_results(context, answer.body_of(context)?)
}

pub(crate) fn decode_committed(
    context: &RequestContext,
    _: Option<WatchEnd>,
    answer: Answer<'_>,
) -> Result<Vec<OpResult>> {
    let results = decode_results(context, answer.body_of(context)?)?;
    // Operations before the failed one have error code 0, operations after it
    // `RuntimeInconsistency`.
    let failed = results
        .iter()
        .position(|result| matches!(result, Err(error) if error.kind() != ErrorKind::RolledBack));
    let failed = failed.or_else(|| results.iter().position(Result::is_err));
    match failed {
        None => results.into_iter().collect(),
        Some(at) => {
            let error = match &results[at] {
                Err(error) => error.clone(),
                Ok(_) => unreachable!("the position of an error"),
            };
            Err(error.of_multi(at, results))
        }
    }
}

fn decode_results(context: &RequestContext, body: &[u8]) -> Result<Vec<Result<OpResult>>> {
    let malformed = malformed(context);
    let mut reader = Reader::new(body);
    let mut results = Vec::with_capacity(context.operations.len());
    loop {
        let header = MultiHeader::decode(&mut reader).map_err(&malformed)?;
        if header.done {
            break;
        }
        let Some(path) = context.operations.get(results.len()) else {
            return Err(context.unreadable("too many results"));
        };
        results.push(decode_result(context, path, header.kind, &mut reader)?);
    }
    if results.len() != context.operations.len() {
        return Err(context.unreadable("too few results"));
    }
    Ok(results)
}

/// Decodes one result. The outer error is a malformed reply, the inner one the server's error for
/// the operation.
fn decode_result(
    context: &RequestContext,
    path: &str,
    kind: i32,
    reader: &mut Reader<'_>,
) -> Result<Result<OpResult>> {
    let malformed = malformed(context);
    let created = |path: &str| context.chroot.to_user(path).to_owned();
    Ok(Ok(match OpCode::from_code(kind) {
        Some(OpCode::Create) => {
            OpResult::Created { path: created(&reader.str().map_err(&malformed)?), stat: None }
        }
        Some(OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl) => OpResult::Created {
            path: created(&reader.str().map_err(&malformed)?),
            stat: Some(Stat::decode(reader).map_err(&malformed)?),
        },
        Some(OpCode::Delete) => OpResult::Deleted,
        Some(OpCode::Check) => OpResult::Checked,
        Some(OpCode::SetData) => OpResult::Set(Stat::decode(reader).map_err(&malformed)?),
        Some(OpCode::GetData) => OpResult::Node(node_of(reader).map_err(&malformed)?),
        Some(OpCode::GetChildren) => {
            let names = reader.str_vec().map_err(&malformed)?;
            OpResult::Children(
                names.iter().flat_map(|names| names.iter()).map(|name| name.into_owned()).collect(),
            )
        }
        Some(OpCode::Error) => {
            let code = reader.i32().map_err(&malformed)?;
            // Code 0: the operation succeeded, but a later one failed.
            let kind = if code == 0 { ErrorKind::RolledBack } else { ErrorKind::from_code(code) };
            return Ok(Err(Error::at(kind, path)));
        }
        _ => {
            return Err(context.unreadable(format!("a result of type {kind}")));
        }
    }))
}

/// Copies the data out of the receive buffer, which the data would otherwise keep allocated.
pub(crate) fn owned(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
