//! Errors of recipes, in addition to the errors of single requests.

use ironkeeper_client::ErrorKind;

use crate::lost::Lost;

/// The result type of all recipes.
pub type Result<T, E = RecipeError> = std::result::Result<T, E>;

/// The error of a recipe.
///
/// ```
/// use ironkeeper_recipes::RecipeError;
///
/// fn worth_a_new_client(error: &RecipeError) -> bool {
///     error.is_session_over()
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// A request failed, and a retry would not help.
    #[error(transparent)]
    Client(#[from] ironkeeper_client::Error),
    /// What the caller releases or uses, such as a lock or a leadership, was lost before.
    #[error("{path}: {why}")]
    Lost {
        /// The node that represents it.
        path: String,
        /// The reason of the loss.
        why: Lost,
    },
    /// The caller does not hold what it tries to release.
    #[error("{path}: not held, so it cannot be released")]
    NotHeld {
        /// The path of the recipe.
        path: String,
    },
    /// Another client deleted the node of a waiting caller.
    #[error("{path}: our node was deleted by somebody else while we waited")]
    NodeGone {
        /// The node.
        path: String,
    },
    /// The node is owned by another session than the client's, so the caller does not hold what the
    /// node represents.
    #[error("{path}: the node belongs to another session")]
    ForeignSession {
        /// The node.
        path: String,
    },
    /// The path is in use by a recipe of another kind.
    #[error("{path}: in use by another recipe ({recipe}), as its child {child} shows")]
    OtherRecipe {
        /// The path of the recipe.
        path: String,
        /// The child that belongs to the other recipe.
        child: String,
        /// The other recipe.
        recipe: &'static str,
    },
    /// A node of the recipe contains data that the recipe did not write.
    #[error("{path}: {why}")]
    Malformed {
        /// The node.
        path: String,
        /// The reason why the node is malformed.
        why: String,
    },
    /// A schema forbids the operation. No request was sent.
    #[error("{path}: forbidden by the schema {schema:?}: {why}")]
    Schema {
        /// The node.
        path: String,
        /// The name of the schema.
        schema: String,
        /// The rule that forbids it.
        why: String,
    },
    /// The arguments are invalid.
    #[error("{0}")]
    Misuse(String),
    /// The wait was part of a deadlock, and this participant was chosen as the victim.
    #[error("{path}: given up to end a deadlock: {cycle}")]
    Deadlock {
        /// The waiting node.
        path: String,
        /// The cycle of the wait-for graph.
        cycle: String,
    },
    /// The round of a cyclic barrier was ended before all parties had arrived.
    #[error("{path}: the round was ended before all had come")]
    Broken {
        /// The path of the barrier.
        path: String,
    },
    /// The queue is empty.
    #[error("{path}: the queue is empty")]
    Empty {
        /// The path of the queue.
        path: String,
    },
    /// A limited resource is exhausted.
    #[error("{path}: {what}")]
    Exhausted {
        /// The path of the recipe.
        path: String,
        /// The exhausted resource.
        what: &'static str,
    },
    /// The clock of this machine is too far behind the ids that were issued before.
    #[error("{path}: the clock is {behind_ms} ms behind the ids that were handed out before")]
    ClockBehind {
        /// The path of the recipe.
        path: String,
        /// The lag in milliseconds.
        behind_ms: i64,
    },
    /// The recipe was closed, or its task ended, while a caller waited for it.
    #[error("{path}: closed")]
    Closed {
        /// The path of the recipe.
        path: String,
    },
}

impl RecipeError {
    /// Returns whether the session has ended, so that a new client is needed.
    pub fn is_session_over(&self) -> bool {
        match self {
            RecipeError::Client(error) => error.is_session_over(),
            RecipeError::Lost { why, .. } => *why == Lost::SessionEnded,
            RecipeError::ForeignSession { .. } => true,
            _ => false,
        }
    }

    /// Returns the error of the failed request, if a request failed.
    pub fn client_error(&self) -> Option<&ironkeeper_client::Error> {
        match self {
            RecipeError::Client(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the kind of the failed request's error, if a request failed.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.client_error().map(ironkeeper_client::Error::kind)
    }
}
