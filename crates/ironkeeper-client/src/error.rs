//! Errors of requests: kind, path and outcome.

use std::fmt;

use ironkeeper_proto::ErrorCode;
use ironkeeper_proto::path::PathError;

use crate::multi::OpResult;

/// The result of a request.
///
/// ```
/// fn version_of(node: ironkeeper_client::Result<ironkeeper_client::Node>) -> Option<i32> {
///     node.ok().map(|node| node.stat.version)
/// }
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// Whether a failed request may have been applied.
///
/// ```
/// use ironkeeper_client::{Error, Happened};
///
/// fn safe_to_repeat(error: &Error) -> bool {
///     error.happened() == Happened::No && error.is_retriable()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "in_doubt")]
#[doc(alias = "maybe_applied")]
pub enum Happened {
    /// The request was not applied, and will not be.
    No,
    /// The outcome is unknown: the reply was lost, or it does not state the outcome.
    Maybe,
}

/// The kind of an [`Error`]: first the error codes of the server, then the errors that the client
/// detects.
///
/// ```
/// use ironkeeper_client::{Client, ErrorKind};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let error = client.get("/nothing/here").await.unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::NoNode);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "KeeperException.Code")]
pub enum ErrorKind {
    /// The node, or the parent of a node to be created, does not exist.
    #[doc(alias = "NoNodeException")]
    #[doc(alias = "NoNodeError")]
    NoNode,
    /// A node with this path exists already.
    #[doc(alias = "NodeExistsException")]
    #[doc(alias = "NodeExistsError")]
    NodeExists,
    /// The node has another version than the expected one.
    #[doc(alias = "BadVersionException")]
    #[doc(alias = "BadVersionError")]
    BadVersion,
    /// The node has children.
    #[doc(alias = "NotEmptyException")]
    #[doc(alias = "NotEmptyError")]
    NotEmpty,
    /// The ACL does not permit the operation to the identities of this connection.
    #[doc(alias = "NoAuthException")]
    #[doc(alias = "NoAuthError")]
    NoAuth,
    /// Ephemeral nodes have no children.
    NoChildrenForEphemerals,
    /// The ACL is empty or malformed, or contains no identity.
    InvalidAcl,
    /// The server rejects an argument.
    BadArguments,
    /// The server, or its configuration, does not support this operation.
    Unimplemented,
    /// The server could not decode the request.
    MarshallingError,
    /// A write was sent to a server without a quorum.
    NotReadOnly,
    /// Local sessions own no ephemeral nodes.
    EphemeralOnLocalSession,
    /// There is no such watch.
    NoWatcher,
    /// The quota of the subtree is exceeded.
    QuotaExceeded,
    /// The server is overloaded and rejected the request.
    ThrottledOp,
    /// The server's configuration does not permit changes of the membership.
    ReconfigDisabled,
    /// Another change of the membership is in progress.
    ReconfigInProgress,
    /// No quorum of the new membership is connected to the leader.
    NewConfigNoQuorum,
    /// The session now belongs to another connection.
    SessionMoved,
    /// An operation of a multi that was not executed because an earlier one failed, or that was
    /// rolled back because a later one failed.
    RolledBack,
    /// Any other code of a server.
    Other(i32),

    /// The connection broke before the reply arrived. [`Error::happened`] tells whether a write may
    /// have been applied.
    #[doc(alias = "ConnectionLossException")]
    #[doc(alias = "ConnectionClosedError")]
    ConnectionLoss,
    /// The session has expired.
    #[doc(alias = "SessionExpiredException")]
    #[doc(alias = "SessionExpiredError")]
    SessionExpired,
    /// The server rejected the credentials; the client cannot be used any more.
    #[doc(alias = "AuthFailedException")]
    #[doc(alias = "AuthFailedError")]
    AuthFailed,
    /// The client was closed.
    Closed,
    /// No server accepted the session within the timeout.
    ConnectTimeout,
    /// The path is invalid.
    InvalidPath(PathError),
    /// An argument that no server accepts.
    InvalidArgument,
    /// The request is larger than servers accept.
    RequestTooLarge,
    /// The reply is larger than the client's limit.
    ReplyTooLarge,
    /// The reply could not be decoded.
    MalformedReply,
    /// The unsent requests exceed the client's limit.
    Overloaded,
    /// The connect string is invalid.
    BadConnectString,
    /// The TLS settings are unusable.
    BadTlsSettings,
}

impl ErrorKind {
    pub(crate) fn from_code(code: i32) -> ErrorKind {
        let Some(known) = ErrorCode::from_code(code) else { return ErrorKind::Other(code) };
        match known {
            ErrorCode::NoNode => ErrorKind::NoNode,
            ErrorCode::NodeExists => ErrorKind::NodeExists,
            ErrorCode::BadVersion => ErrorKind::BadVersion,
            ErrorCode::NotEmpty => ErrorKind::NotEmpty,
            ErrorCode::NoAuth => ErrorKind::NoAuth,
            ErrorCode::NoChildrenForEphemerals => ErrorKind::NoChildrenForEphemerals,
            ErrorCode::InvalidAcl => ErrorKind::InvalidAcl,
            ErrorCode::BadArguments => ErrorKind::BadArguments,
            ErrorCode::Unimplemented => ErrorKind::Unimplemented,
            ErrorCode::MarshallingError => ErrorKind::MarshallingError,
            ErrorCode::NotReadOnly => ErrorKind::NotReadOnly,
            ErrorCode::EphemeralOnLocalSession => ErrorKind::EphemeralOnLocalSession,
            ErrorCode::NoWatcher => ErrorKind::NoWatcher,
            ErrorCode::QuotaExceeded => ErrorKind::QuotaExceeded,
            ErrorCode::ThrottledOp => ErrorKind::ThrottledOp,
            ErrorCode::ReconfigDisabled => ErrorKind::ReconfigDisabled,
            ErrorCode::ReconfigInProgress => ErrorKind::ReconfigInProgress,
            ErrorCode::NewConfigNoQuorum => ErrorKind::NewConfigNoQuorum,
            ErrorCode::SessionMoved => ErrorKind::SessionMoved,
            ErrorCode::SessionExpired => ErrorKind::SessionExpired,
            ErrorCode::AuthFailed | ErrorCode::SessionClosedRequireSaslAuth => {
                ErrorKind::AuthFailed
            }
            ErrorCode::RuntimeInconsistency => ErrorKind::RolledBack,
            ErrorCode::ConnectionLoss => ErrorKind::ConnectionLoss,
            _ => ErrorKind::Other(code),
        }
    }

    /// Returns the code of the ZooKeeper protocol, if this kind has one.
    ///
    /// ```
    /// use ironkeeper_client::{ErrorCode, ErrorKind};
    /// assert_eq!(ErrorKind::NoNode.code(), Some(ErrorCode::NoNode));
    /// assert_eq!(ErrorKind::ConnectTimeout.code(), None);
    /// ```
    pub fn code(self) -> Option<ErrorCode> {
        Some(match self {
            ErrorKind::NoNode => ErrorCode::NoNode,
            ErrorKind::NodeExists => ErrorCode::NodeExists,
            ErrorKind::BadVersion => ErrorCode::BadVersion,
            ErrorKind::NotEmpty => ErrorCode::NotEmpty,
            ErrorKind::NoAuth => ErrorCode::NoAuth,
            ErrorKind::NoChildrenForEphemerals => ErrorCode::NoChildrenForEphemerals,
            ErrorKind::InvalidAcl => ErrorCode::InvalidAcl,
            ErrorKind::BadArguments => ErrorCode::BadArguments,
            ErrorKind::Unimplemented => ErrorCode::Unimplemented,
            ErrorKind::MarshallingError => ErrorCode::MarshallingError,
            ErrorKind::NotReadOnly => ErrorCode::NotReadOnly,
            ErrorKind::EphemeralOnLocalSession => ErrorCode::EphemeralOnLocalSession,
            ErrorKind::NoWatcher => ErrorCode::NoWatcher,
            ErrorKind::QuotaExceeded => ErrorCode::QuotaExceeded,
            ErrorKind::ThrottledOp => ErrorCode::ThrottledOp,
            ErrorKind::ReconfigDisabled => ErrorCode::ReconfigDisabled,
            ErrorKind::ReconfigInProgress => ErrorCode::ReconfigInProgress,
            ErrorKind::NewConfigNoQuorum => ErrorCode::NewConfigNoQuorum,
            ErrorKind::SessionMoved => ErrorCode::SessionMoved,
            ErrorKind::RolledBack => ErrorCode::RuntimeInconsistency,
            ErrorKind::ConnectionLoss => ErrorCode::ConnectionLoss,
            ErrorKind::SessionExpired | ErrorKind::Closed => ErrorCode::SessionExpired,
            ErrorKind::AuthFailed => ErrorCode::AuthFailed,
            ErrorKind::Other(code) => return ErrorCode::from_code(code),
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::NoNode => "the node does not exist",
            ErrorKind::NodeExists => "the node exists already",
            ErrorKind::BadVersion => "the node has another version",
            ErrorKind::NotEmpty => "the node has children",
            ErrorKind::NoAuth => "the ACL does not allow it",
            ErrorKind::NoChildrenForEphemerals => "ephemeral nodes cannot have children",
            ErrorKind::InvalidAcl => "the ACL is not valid",
            ErrorKind::BadArguments => "the server refuses the arguments",
            ErrorKind::Unimplemented => "the server does not support the operation",
            ErrorKind::MarshallingError => "the server could not read the request",
            ErrorKind::NotReadOnly => "the server is read-only",
            ErrorKind::EphemeralOnLocalSession => "a local session cannot own ephemeral nodes",
            ErrorKind::NoWatcher => "there is no such watch",
            ErrorKind::QuotaExceeded => "the quota is exceeded",
            ErrorKind::ThrottledOp => "the server is overloaded",
            ErrorKind::ReconfigDisabled => "reconfiguration is disabled",
            ErrorKind::ReconfigInProgress => "another reconfiguration is under way",
            ErrorKind::NewConfigNoQuorum => "the new ensemble has no quorum in touch",
            ErrorKind::SessionMoved => "the session moved to another connection",
            ErrorKind::RolledBack => "not done, because another operation failed",
            ErrorKind::Other(code) => {
                return match ErrorCode::from_code(*code) {
                    Some(known) => write!(f, "the server says {} ({code})", known.text()),
                    None => write!(f, "the server says {code}"),
                };
            }
            ErrorKind::ConnectionLoss => "the connection was lost",
            ErrorKind::SessionExpired => "the session has expired",
            ErrorKind::AuthFailed => "the server refused the credentials",
            ErrorKind::Closed => "the client is closed",
            ErrorKind::ConnectTimeout => "no server answered in time",
            ErrorKind::InvalidPath(why) => return write!(f, "invalid path: {why}"),
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::RequestTooLarge => "the request is larger than servers accept",
            ErrorKind::ReplyTooLarge => "the reply is larger than the client's limit",
            ErrorKind::MalformedReply => "the reply could not be read",
            ErrorKind::Overloaded => "too much is waiting to be sent",
            ErrorKind::BadConnectString => "invalid connect string",
            ErrorKind::BadTlsSettings => "the TLS settings cannot be used",
        })
    }
}

/// A failed request: the kind of the error, the path, and whether the request may have been
/// applied.
///
/// ```
/// use ironkeeper_client::{Client, Happened, Version};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let error = client.delete("/absent", Version::Any).await.unwrap_err();
///     assert_eq!(error.path(), Some("/absent"));
///     assert_eq!(error.happened(), Happened::No);
///     assert!(!error.is_retriable());
///     assert_eq!(error.to_string(), "/absent: the node does not exist");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "KeeperException")]
#[doc(alias = "KazooException")]
pub struct Error {
    kind: ErrorKind,
    happened: Happened,
    path: Option<Box<str>>,
    detail: Option<Box<str>>,
    failed: Option<Box<FailedMulti>>,
}

#[derive(Clone, Debug)]
struct FailedMulti {
    at: usize,
    results: Vec<Result<OpResult>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Error {
        Error { kind, happened: Happened::No, path: None, detail: None, failed: None }
    }

    pub(crate) fn at(kind: ErrorKind, path: &str) -> Error {
        Error::new(kind).with_path(path)
    }

    pub(crate) fn with_path(mut self, path: &str) -> Error {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<Box<str>>) -> Error {
        self.detail = Some(detail.into());
        self
    }

    pub(crate) fn maybe_happened(mut self) -> Error {
        self.happened = Happened::Maybe;
        self
    }

    pub(crate) fn of_multi(mut self, at: usize, results: Vec<Result<OpResult>>) -> Error {
        self.failed = Some(Box::new(FailedMulti { at, results }));
        self
    }

    /// Returns the kind of the error.
    ///
    /// ```
    /// use ironkeeper_client::{Client, ErrorKind};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let error = client.get("/absent").await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::NoNode);
    ///     Ok(())
    /// }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the code of the ZooKeeper protocol, if the error has one.
    ///
    /// ```
    /// use ironkeeper_client::{Client, ErrorCode};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let error = client.get("/absent").await.unwrap_err();
    ///     assert_eq!(error.code(), Some(ErrorCode::NoNode));
    ///     Ok(())
    /// }
    /// ```
    pub fn code(&self) -> Option<ErrorCode> {
        self.kind.code()
    }

    /// Returns whether the request may have been applied although it failed.
    ///
    /// ```
    /// use ironkeeper_client::{Client, Happened};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let error = client.delete("/absent", -1).await.unwrap_err();
    ///     assert_eq!(error.happened(), Happened::No);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "may_have_happened")]
    #[doc(alias = "in_doubt")]
    #[doc(alias = "maybe_applied")]
    pub fn happened(&self) -> Happened {
        self.happened
    }

    /// Returns the path of the request, as the caller gave it.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert_eq!(client.get("/absent").await.unwrap_err().path(), Some("/absent"));
    ///     Ok(())
    /// }
    /// ```
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns whether the client cannot be used any more: its session has ended, and with it the
    /// ephemeral nodes.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.close().await?;
    ///     assert!(client.get("/").await.unwrap_err().is_session_over());
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "is_session_expired")]
    #[doc(alias = "session_expired")]
    pub fn is_session_over(&self) -> bool {
        matches!(self.kind, ErrorKind::SessionExpired | ErrorKind::AuthFailed | ErrorKind::Closed)
    }

    /// Returns whether the same request may succeed later. Before a write is repeated, check
    /// [`Error::happened`] as well.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     assert!(!client.get("/absent").await.unwrap_err().is_retriable());
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "is_retryable")]
    #[doc(alias = "isRecoverable")]
    pub fn is_retriable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::ConnectionLoss
                | ErrorKind::SessionMoved
                | ErrorKind::NotReadOnly
                | ErrorKind::ThrottledOp
                | ErrorKind::Overloaded
                | ErrorKind::NewConfigNoQuorum
                | ErrorKind::ReconfigInProgress
                | ErrorKind::Other(-7 | -122)
        )
    }

    /// Returns the index of the failed operation of a multi, counted from zero.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let error = client
    ///         .transaction()
    ///         .check("/", -1)
    ///         .delete("/absent", -1)
    ///         .commit()
    ///         .await
    ///         .unwrap_err();
    ///     assert_eq!(error.failed_operation(), Some(1));
    ///     Ok(())
    /// }
    /// ```
    pub fn failed_operation(&self) -> Option<usize> {
        self.failed.as_ref().map(|failed| failed.at)
    }

    /// Returns the server's result of each operation of a failed multi. Empty for all other
    /// requests.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let error = client
    ///         .transaction()
    ///         .check("/", -1)
    ///         .delete("/absent", -1)
    ///         .commit()
    ///         .await
    ///         .unwrap_err();
    ///     assert_eq!(error.multi_results().len(), 2);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "getResults")]
    pub fn multi_results(&self) -> &[Result<OpResult>] {
        self.failed.as_ref().map_or(&[], |failed| &failed.results)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        if let Some(failed) = &self.failed {
            write!(f, "operation {} of {}: ", failed.at + 1, failed.results.len())?;
        }
        write!(f, "{}", self.kind)?;
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        match self.happened {
            Happened::No => Ok(()),
            Happened::Maybe => f.write_str("; the request may have been carried out"),
        }
    }
}

impl std::error::Error for Error {}
