//! What a leader has in hand.

use ironkeeper_client::{Client, Transaction, Version, Zxid};

use crate::error::Result;
use crate::guard::Guard;
use crate::place::patient;

/// A leadership: by which node, and with which token. Cheap to clone and to hand to the parts of a
/// program; it holds nothing itself.
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

    /// The node of the leader.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A number that grows from leader to leader. Whoever takes orders from leaders can refuse those
    /// with a smaller token than the largest seen.
    #[doc(alias = "fence")]
    #[doc(alias = "czxid")]
    pub fn fencing_token(&self) -> Zxid {
        self.token
    }

    /// Whether the session that leads lives and the connection stands. Makes no request, and does not
    /// know of a node that somebody has deleted.
    pub fn is_connected(&self) -> bool {
        self.client.is_in_touch() && self.client.session_id().0 == self.session
    }

    /// Asks the server whether it is still in force.
    pub async fn check(&self) -> Result<bool> {
        let found = self.client.retry(&patient(), || self.client.exists(&self.path)).await?;
        Ok(found.is_some_and(|stat| stat.czxid == self.token))
    }

    /// Lets a transaction take place only under this leadership, by a check that the server makes.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        transaction.check(&self.path, Version::Any)
    }

    /// A transaction that takes place only under this leadership.
    pub fn transaction(&self) -> Transaction {
        self.fence(self.client.transaction())
    }
}
