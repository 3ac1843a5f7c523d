//! The handshake: the first frame in each direction, which has no header.

use crate::ids::{SessionId, Zxid};
use crate::jute::{DecodeError, Put, Reader};

/// The length of a session password.
pub const PASSWORD_LEN: usize = 16;

/// The first frame that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest<'a> {
    /// Always zero.
    pub protocol_version: i32,
    /// The last zxid that the client has seen. A server that is older rejects the client.
    pub last_zxid_seen: Zxid,
    /// The session timeout that the client requests, in milliseconds.
    pub timeout_ms: i32,
    /// The session to continue; [`SessionId::NONE`] for a new one.
    pub session: SessionId,
    /// The password of the session.
    pub password: &'a [u8],
    /// `None` if the client is too old to send the byte; then the reply omits it as well.
    pub read_only: Option<bool>,
}

impl<'a> ConnectRequest<'a> {
    /// Decodes the record.
    pub fn decode(bytes: &'a [u8]) -> Result<ConnectRequest<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        Ok(ConnectRequest {
            protocol_version: reader.i32()?,
            last_zxid_seen: Zxid(reader.i64()?),
            timeout_ms: reader.i32()?,
            session: SessionId(reader.i64()?),
            password: reader.buf()?.unwrap_or_default(),
            read_only: if reader.is_empty() { None } else { Some(reader.bool()?) },
        })
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i32(self.protocol_version);
        out.put_i64(self.last_zxid_seen.0);
        out.put_i32(self.timeout_ms);
        out.put_i64(self.session.0);
        out.put_buf(Some(self.password));
        if let Some(read_only) = self.read_only {
            out.put_bool(read_only);
        }
    }
}

/// The server's reply. A timeout of zero means that the session does not exist or has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// The session timeout in milliseconds that the server has granted.
    pub timeout_ms: i32,
    /// The id of the session.
    pub session: SessionId,
    /// The password with which the client can continue the session.
    pub password: [u8; PASSWORD_LEN],
    /// Whether the server is in read-only mode. `None` if the client did not send the byte.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// Returns the reply to a client whose session does not exist.
    pub fn refused(read_only: Option<bool>) -> ConnectResponse {
        ConnectResponse {
            timeout_ms: 0,
            session: SessionId::NONE,
            password: [0; PASSWORD_LEN],
            read_only,
        }
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i32(0);
        out.put_i32(self.timeout_ms);
        out.put_i64(self.session.0);
        out.put_buf(Some(&self.password));
        if let Some(read_only) = self.read_only {
            out.put_bool(read_only);
        }
    }

    /// Decodes the record.
    pub fn decode(bytes: &[u8]) -> Result<ConnectResponse, DecodeError> {
        let mut reader = Reader::new(bytes);
        reader.i32()?;
        let timeout_ms = reader.i32()?;
        let session = SessionId(reader.i64()?);
        let password = reader.buf()?.unwrap_or_default();
        let password = password
            .try_into()
            .map_err(|_| DecodeError::BadLength(password.len().try_into().unwrap_or(i32::MAX)))?;
        let read_only = if reader.is_empty() { None } else { Some(reader.bool()?) };
        Ok(ConnectResponse { timeout_ms, session, password, read_only })
    }
}
