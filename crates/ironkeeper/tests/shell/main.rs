//! The shell as a process: at a prompt in a pseudo-terminal, with a single command, and with a
//! pipe.

mod copying;
mod editing;
mod exporting;
mod following;
mod looking;
mod one_command;
mod piped;
mod process;
mod prompt;
mod pseudo_terminal;
mod scene;
mod servers;
mod tls;
