//! The exchange of messages by which a client authenticates.
//!
//! A client starts with a proof (`auth`, operation 100), which is complete in one step, or with a
//! token (`sasl`, operation 102). The server replies to each token with a token of its own, until
//! an id is proven or the exchange has failed. The connection keeps the state between two tokens.

use ironkeeper_proto::ErrorCode;

use super::{AuthConfig, AuthId, Scheme};

/// A message of a client.
#[derive(Clone, Copy, Debug)]
pub enum AuthMessage<'a> {
    Proof { scheme: &'a str, proof: Option<&'a [u8]> },
    Token(&'a [u8]),
}

/// What the server does after a message; an error code instead closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Adds these ids to the identity of the connection, and confirms.
    Proven(Vec<AuthId>),
    /// Replies with this token, which may be null. The exchange continues with the next message.
    Token(Option<Vec<u8>>),
}

/// The state of a connection's exchange between two tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exchange {
    /// SASL is not configured: the reply to every token is a null token, as in Apache ZooKeeper.
    #[default]
    NoSasl,
}

impl Exchange {
    /// Processes the next message of the client.
    pub fn step(
        &mut self,
        config: &AuthConfig,
        message: AuthMessage<'_>,
    ) -> Result<Step, ErrorCode> {
        match (self, message) {
            (_, AuthMessage::Proof { scheme, proof }) => {
                let scheme = Scheme::from_name(scheme).ok_or(ErrorCode::AuthFailed)?;
                scheme.prove(config, proof)
            }
            (Exchange::NoSasl, AuthMessage::Token(_)) => Ok(Step::Token(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_complete_in_one_step_and_an_unknown_scheme_fails() {
        let (config, mut exchange) = (AuthConfig::default(), Exchange::default());
        let mut step =
            |scheme| exchange.step(&config, AuthMessage::Proof { scheme, proof: Some(b"u:p") });
        let id = AuthId::new(Scheme::Digest, super::super::digest_id("u:p"));
        assert_eq!(step("digest"), Ok(Step::Proven(vec![id])));
        assert_eq!(step("ip"), Ok(Step::Proven(Vec::new())));
        assert_eq!(step("kerberos"), Err(ErrorCode::AuthFailed));
    }

    #[test]
    fn without_sasl_every_token_gets_a_null_token() {
        let (config, mut exchange) = (AuthConfig::default(), Exchange::default());
        for token in [&b""[..], b"token"] {
            let step = exchange.step(&config, AuthMessage::Token(token));
            assert_eq!(step, Ok(Step::Token(None)));
        }
    }
}
