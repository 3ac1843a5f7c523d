//! The error codes of the client protocol.

/// A protocol error, as encoded in a reply header. These are replies to clients, not internal
/// failures of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorCode {
    SystemError = -1,
    /// The result of the operations of a failed multi that follow the failing one.
    RuntimeInconsistency = -2,
    DataInconsistency = -3,
    ConnectionLoss = -4,
    MarshallingError = -5,
    Unimplemented = -6,
    OperationTimeout = -7,
    BadArguments = -8,
    UnknownSession = -12,
    NewConfigNoQuorum = -13,
    ReconfigInProgress = -14,
    ApiError = -100,
    NoNode = -101,
    NoAuth = -102,
    BadVersion = -103,
    NoChildrenForEphemerals = -108,
    NodeExists = -110,
    NotEmpty = -111,
    SessionExpired = -112,
    InvalidCallback = -113,
    InvalidAcl = -114,
    AuthFailed = -115,
    SessionMoved = -118,
    NotReadOnly = -119,
    EphemeralOnLocalSession = -120,
    NoWatcher = -121,
    RequestTimeout = -122,
    ReconfigDisabled = -123,
    SessionClosedRequireSaslAuth = -124,
    QuotaExceeded = -125,
    ThrottledOp = -127,
}

impl ErrorCode {
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

    pub fn code(self) -> i32 {
        self as i32
    }

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
