//! The error codes of the client protocol.

/// A protocol error, as encoded in a reply header. These are replies to clients, not internal
/// failures of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorCode {
    /// An internal error of the server.
    SystemError = -1,
    /// The result of the operations of a failed multi that follow the failing one.
    RuntimeInconsistency = -2,
    /// Data that contradicts itself.
    DataInconsistency = -3,
    /// The connection was lost. Clients report it; servers do not send it.
    ConnectionLoss = -4,
    /// The request could not be decoded.
    MarshallingError = -5,
    /// The operation is unknown or not supported.
    Unimplemented = -6,
    /// The operation took too long. Clients report it; servers do not send it.
    OperationTimeout = -7,
    /// An argument is invalid.
    BadArguments = -8,
    /// The session is unknown.
    UnknownSession = -12,
    /// No quorum of the new configuration is synchronized.
    NewConfigNoQuorum = -13,
    /// Another reconfiguration is in progress.
    ReconfigInProgress = -14,
    /// The boundary of the codes for errors of the API; not an error of its own.
    ApiError = -100,
    /// The node does not exist.
    NoNode = -101,
    /// The access control list denies the operation.
    NoAuth = -102,
    /// The version of the node is not the expected one.
    BadVersion = -103,
    /// Ephemeral nodes cannot have children.
    NoChildrenForEphemerals = -108,
    /// The node exists already.
    NodeExists = -110,
    /// The node has children.
    NotEmpty = -111,
    /// The session has expired.
    SessionExpired = -112,
    /// The callback is invalid. Clients report it; servers do not send it.
    InvalidCallback = -113,
    /// The access control list is invalid.
    InvalidAcl = -114,
    /// The authentication failed.
    AuthFailed = -115,
    /// The session has moved to another server.
    SessionMoved = -118,
    /// The server is in read-only mode and the operation writes.
    NotReadOnly = -119,
    /// A local session cannot create ephemeral nodes.
    EphemeralOnLocalSession = -120,
    /// There is no such watch.
    NoWatcher = -121,
    /// The request took too long. Clients report it; servers do not send it.
    RequestTimeout = -122,
    /// Reconfiguration is disabled.
    ReconfigDisabled = -123,
    /// The server requires SASL authentication and closes the session.
    SessionClosedRequireSaslAuth = -124,
    /// A quota would be exceeded.
    QuotaExceeded = -125,
    /// The server is overloaded and has rejected the operation.
    ThrottledOp = -127,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [ErrorCode; 31] = [
        ErrorCode::SystemError,
        ErrorCode::RuntimeInconsistency,
        ErrorCode::DataInconsistency,
        ErrorCode::ConnectionLoss,
        ErrorCode::MarshallingError,
        ErrorCode::Unimplemented,
        ErrorCode::OperationTimeout,
        ErrorCode::BadArguments,
        ErrorCode::UnknownSession,
        ErrorCode::NewConfigNoQuorum,
        ErrorCode::ReconfigInProgress,
        ErrorCode::ApiError,
        ErrorCode::NoNode,
        ErrorCode::NoAuth,
        ErrorCode::BadVersion,
        ErrorCode::NoChildrenForEphemerals,
        ErrorCode::NodeExists,
        ErrorCode::NotEmpty,
        ErrorCode::SessionExpired,
        ErrorCode::InvalidCallback,
        ErrorCode::InvalidAcl,
        ErrorCode::AuthFailed,
        ErrorCode::SessionMoved,
        ErrorCode::NotReadOnly,
        ErrorCode::EphemeralOnLocalSession,
        ErrorCode::NoWatcher,
        ErrorCode::RequestTimeout,
        ErrorCode::ReconfigDisabled,
        ErrorCode::SessionClosedRequireSaslAuth,
        ErrorCode::QuotaExceeded,
        ErrorCode::ThrottledOp,
    ];

    /// Returns the code in a reply header.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Returns the error with this code.
    pub fn from_code(code: i32) -> Option<ErrorCode> {
        ErrorCode::ALL.into_iter().find(|error| error.code() == code)
    }

    /// Returns the text that Java clients print after `KeeperErrorCode = `.
    pub fn text(self) -> &'static str {
        match self {
            ErrorCode::SystemError => "SystemError",
            ErrorCode::RuntimeInconsistency => "RuntimeInconsistency",
            ErrorCode::DataInconsistency => "DataInconsistency",
            ErrorCode::ConnectionLoss => "ConnectionLoss",
            ErrorCode::MarshallingError => "MarshallingError",
            ErrorCode::Unimplemented => "Unimplemented",
            ErrorCode::OperationTimeout => "OperationTimeout",
            ErrorCode::BadArguments => "BadArguments",
            ErrorCode::UnknownSession => "Unknown error UNKNOWNSESSION",
            ErrorCode::NewConfigNoQuorum => "NewConfigNoQuorum",
            ErrorCode::ReconfigInProgress => "ReconfigInProgress",
            ErrorCode::ApiError => "APIError",
            ErrorCode::NoNode => "NoNode",
            ErrorCode::NoAuth => "NoAuth",
            ErrorCode::BadVersion => "BadVersion",
            ErrorCode::NoChildrenForEphemerals => "NoChildrenForEphemerals",
            ErrorCode::NodeExists => "NodeExists",
            ErrorCode::NotEmpty => "Directory not empty",
            ErrorCode::SessionExpired => "Session expired",
            ErrorCode::InvalidCallback => "Invalid callback",
            ErrorCode::InvalidAcl => "InvalidACL",
            ErrorCode::AuthFailed => "AuthFailed",
            ErrorCode::SessionMoved => "Session moved",
            ErrorCode::NotReadOnly => "Not a read-only call",
            ErrorCode::EphemeralOnLocalSession => "Ephemeral node on local session",
            ErrorCode::NoWatcher => "No such watcher",
            ErrorCode::RequestTimeout => "Unknown error REQUESTTIMEOUT",
            ErrorCode::ReconfigDisabled => "Reconfig is disabled",
            ErrorCode::SessionClosedRequireSaslAuth => {
                "Session closed because client failed to authenticate"
            }
            ErrorCode::QuotaExceeded => "Quota has exceeded",
            ErrorCode::ThrottledOp => "Op throttled due to high load",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_finds_its_way_back() {
        for error in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(error.code()), Some(error));
        }
        assert_eq!(ErrorCode::from_code(0), None);
    }
}
