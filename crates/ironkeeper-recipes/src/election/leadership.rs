//! The handle of an elected leader.

use ironkeeper_client::{Client, Transaction, Version, Zxid};

use crate::error::Result;
use crate::guard::Guard;
use crate::place::patient;

/// A leadership, identified by its node and its fencing token. It is cheap to clone and to pass to
/// the parts of a program; dropping it does not end the leadership.
#[derive(Clone, Debug)]
pub struct Leadership {
    client: Client,
    path: String,
    session: i64,
    token: Zxid,
}

impl Leadership {
    pub(crate) fn of(guard: &Guard) -> Leadership {
        Leadership {
            client: guard.client().clone(),
            path: guard.path().to_owned(),
            session: guard.session_id().0,
            token: guard.fencing_token(),
        }
    }

    /// Returns the path of the leader's node.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns a number that increases from leader to leader. A receiver of requests from leaders
    /// can reject requests whose token is smaller than the largest it has received.
    #[doc(alias = "fence")]
    #[doc(alias = "czxid")]
    pub fn fencing_token(&self) -> Zxid {
        self.token
    }

    /// Returns whether the session that leads is open and the client is connected. Makes no
    /// request, and does not detect that another client has deleted the node.
    pub fn is_connected(&self) -> bool {
        self.client.is_in_touch() && self.client.session_id().0 == self.session
    }

    /// Asks the server whether the leadership is still valid.
    pub async fn check(&self) -> Result<bool> {
        let found = self.client.retry(&patient(), || self.client.exists(&self.path)).await?;
        Ok(found.is_some_and(|stat| stat.czxid == self.token))
    }

    /// Adds a check to a transaction, so that the server applies it only under this leadership.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        transaction.check(&self.path, Version::Any)
    }

    /// Returns a transaction that the server applies only under this leadership.
    pub fn transaction(&self) -> Transaction {
        self.fence(self.client.transaction())
    }
}
