//! What can go wrong in a recipe, beyond what can go wrong in a request.

use ironkeeper_client::ErrorKind;

use crate::lost::Lost;

/// The result of everything a recipe does.
pub type Result<T, E = RecipeError> = std::result::Result<T, E>;

/// Why a recipe could not do what it was asked for.
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
    /// A request failed, and repeating it would not help.
    #[error(transparent)]
    Client(#[from] ironkeeper_client::Error),
    /// What was to be given back or used had been lost before.
    #[error("{path}: {why}")]
    Lost {
        /// The node that stood for it.
        path: String,
        /// How it was lost.
        why: Lost,
    },
    /// The caller holds nothing that it could give back.
    #[error("{path}: not held, so it cannot be released")]
    NotHeld {
        /// The path of the recipe.
        path: String,
    },
    /// Somebody else deleted the node by which the caller waited its turn.
    #[error("{path}: our node was deleted by somebody else while we waited")]
    NodeGone {
        /// The node.
        path: String,
    },
    /// The node is owned by another session than the one that asked: what it stands for is not ours.
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
        /// The child that gave it away.
        child: String,
        /// What it is a part of.
        recipe: &'static str,
    },
    /// A node of the recipe holds what the recipe did not put there.
    #[error("{path}: {why}")]
    Malformed {
        /// The node.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The rules for a path forbid it. Nothing was asked of the server.
    #[error("{path}: forbidden by the schema {schema:?}: {why}")]
    Schema {
        /// The node.
        path: String,
        /// The name of the schema.
        schema: String,
        /// Which rule.
        why: String,
    },
    /// The arguments make no sense.
    #[error("{0}")]
    Misuse(String),
    /// The wait would never have ended, and this participant was chosen to give way.
    #[error("{path}: given up to end a deadlock: {cycle}")]
    Deadlock {
        /// The node that waited.
        path: String,
        /// Who waits for whom.
        cycle: String,
    },
    /// The round of a cyclic barrier was ended before all had come.
    #[error("{path}: the round was ended before all had come")]
    Broken {
        /// The path of the barrier.
        path: String,
    },
    /// There is nothing in the queue.
    #[error("{path}: the queue is empty")]
    Empty {
        /// The path of the queue.
        path: String,
    },
    /// There is none left of what there is a limited number of.
    #[error("{path}: {what}")]
    Exhausted {
        /// The path of the recipe.
        path: String,
        /// What has run out.
        what: &'static str,
    },
    /// The clock of this machine is too far behind the ids that have been handed out already.
    #[error("{path}: the clock is {behind_ms} ms behind the ids that were handed out before")]
    ClockBehind {
        /// The path of the recipe.
        path: String,
        /// How far, in milliseconds.
        behind_ms: i64,
    },
    /// The recipe was closed, or its task ended, while somebody waited for it.
    #[error("{path}: closed")]
    Closed {
        /// The path of the recipe.
        path: String,
    },
}

impl RecipeError {
    /// Whether the session is over, so that a new client is needed.
    pub fn is_session_over(&self) -> bool {
        match self {
            RecipeError::Client(error) => error.is_session_over(),
            RecipeError::Lost { why, .. } => *why == Lost::SessionEnded,
            RecipeError::ForeignSession { .. } => true,
            _ => false,
        }
    }

    /// The failure of the request behind this, if it was one.
    pub fn client_error(&self) -> Option<&ironkeeper_client::Error> {
        match self {
            RecipeError::Client(error) => Some(error),
            _ => None,
        }
    }

    /// The kind of the failed request behind this, if it was one.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.client_error().map(ironkeeper_client::Error::kind)
    }
}
