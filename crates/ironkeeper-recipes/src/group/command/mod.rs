//! Commands from a console to all listeners, and their answers.
//!
//! # On the tree
//! ```text
//! /commands/shell                              container
//!   listeners/anna                             ephemeral: a listener
//!   commands/<uuid>-command-0000000007         ephemeral, owned by the console: a command
//!   answers/<uuid>                             persistent: the box for the answers to the command
//!     anna                                     persistent: an answer
//! ```
//!
//! # Steps
//! 1. [`CommandListener::join`]: keep an ephemeral node; the listener receives commands with a
//!    larger czxid.
//! 2. [`Console::send`]: create the command and its box in one transaction. The listeners whose
//!    node has a smaller czxid have to answer.
//! 3. [`CommandListener::next`]: watch the list of commands; return the new ones in the order of
//!    their czxid.
//! 4. [`Command::answer`]: create the answer, in one transaction with a check that the command
//!    still exists.
//! 5. [`Broadcast::next`]: watch the box and the listeners. A listener that left without an answer
//!    is reported as [`Outcome::Gone`].
//! 6. At the end delete the command, then the box. The next console that opens deletes the boxes of
//!    consoles whose session has ended.
//!
//! # Guarantees
//! A listener receives every command that is sent after it has joined and that is not withdrawn
//! before it reads the list: once, in the order of sending, also after a reconnect. The console and
//! the listeners agree on which listeners have to answer, because the order of the transactions
//! decides. A listener answers once; an answer to a withdrawn command is rejected. Each command
//! costs a listener two watch events, for its creation and its deletion, and one more if the server
//! removes the empty container meanwhile; each answer costs the console one.
//!
//! # When things break
//! - The connection is lost: all operations continue after the reconnect.
//! - The session of the console has ended: its commands are deleted; [`Broadcast::next`] fails.
//! - The session of a listener has ended: the console receives [`Outcome::Gone`]. The listener may
//!   have executed its pending commands or not.
//! - A [`Broadcast`] or the future of [`Console::send`] is dropped: the command is withdrawn in the
//!   background. A listener that has received it may execute it.

mod broadcast;
mod console;
mod listener;

pub use broadcast::{Broadcast, Outcome};
pub use console::Console;
pub use listener::{Command, CommandListener};

use crate::place::join;

const MARK: &str = "-command-";

/// The paths of the recipe.
#[derive(Clone, Debug)]
struct Paths {
    listeners: String,
    commands: String,
    answers: String,
}

impl Paths {
    fn below(path: &str) -> Paths {
        let part = |name| join(path, name);
        Paths { listeners: part("listeners"), commands: part("commands"), answers: part("answers") }
    }

    /// Returns the path of the box that belongs to the name of a command.
    fn box_of(&self, command: &str) -> Option<String> {
        Some(join(&self.answers, command.split_once(MARK)?.0))
    }
}
