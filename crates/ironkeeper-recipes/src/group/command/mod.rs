//! Commands from a console to all who listen, and their answers.
//!
//! # On the tree
//! ```text
//! /commands/shell                              container
//!   listeners/anna                             ephemeral: one that listens
//!   commands/<uuid>-command-0000000007         ephemeral, of the console: a command
//!   answers/<uuid>                             persistent: the box for the answers to it
//!     anna                                     persistent: an answer
//! ```
//!
//! # Steps
//! 1. [`CommandListener::join`]: keep an ephemeral node; it listens to what comes later than that.
//! 2. [`Console::send`]: create the command and its box in one transaction. Those whose node is older
//!    are the ones who have to answer.
//! 3. [`CommandListener::next`]: watch the list of commands; hand out the new ones in their order.
//! 4. [`Command::answer`]: create the answer, in one transaction with a check that the command is still
//!    there.
//! 5. [`Broadcast::next`]: watch the box and the listeners. Who is gone without an answer will not give one.
//! 6. At the end delete the command, then the box. What a console that died has left is removed by the next
//!    one that opens.
//!
//! # Guarantees
//! A listener gets every command that is sent after it has joined and that is not withdrawn before it
//! looks, once, in the order of sending; also those sent while it was disconnected. Console and listeners
//! agree on who has to answer, since the transactions decide. A listener answers once; an answer that
//! nobody waits for any more is refused. Each command costs a listener two watch events, for its coming
//! and its going, and one more if the server removes the empty container meanwhile; each answer costs the
//! console one.
//!
//! # When things break
//! - Disconnected: everything goes on after the reconnect.
//! - The console's session over: its commands go; [`Broadcast::next`] fails.
//! - A listener's session over: the console is told that it is gone. Commands under way may have been
//!   carried out or not.
//! - A [`Broadcast`] or the future of [`Console::send`] dropped: the command is withdrawn in the
//!   background. Who has seen it may carry it out.

mod broadcast;
mod console;
mod listener;

pub use broadcast::{Broadcast, Outcome};
pub use console::Console;
pub use listener::{Command, CommandListener};

use crate::place::join;

const MARK: &str = "-command-";

/// Where things are.
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

    /// The box that belongs to the name of a command.
    fn box_of(&self, command: &str) -> Option<String> {
        Some(join(&self.answers, command.split_once(MARK)?.0))
    }
}
