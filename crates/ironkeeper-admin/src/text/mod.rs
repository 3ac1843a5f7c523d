//! The texts of the four-letter words.
//!
//! They are those of Apache ZooKeeper 3.9, byte for byte, because scripts and monitors parse them.
//! Each function renders one word from plain data and is named after it.

mod connections;
mod dump;
mod environment;
pub(crate) mod java;
mod monitor;
mod not_measured;
mod server;
mod watches;

pub use connections::cons;
pub use dump::dump;
pub use environment::envi;
pub use monitor::mntr;
pub use server::{conf, dirs, hash, srvr, stat};
pub use watches::{wchc, wchp, wchs};

use ironkeeper_proto::four_letter::FourLetterWord;

use crate::Service;

/// Renders the reply to a word that needs a serving server. Apache ends it with a line feed, except
/// for `hash`.
pub fn not_serving(word: FourLetterWord) -> String {
    let text = "This ZooKeeper instance is not currently serving requests";
    if word == FourLetterWord::Hash { text.to_owned() } else { format!("{text}\n") }
}

/// Renders `isro`.
pub fn isro(service: Service) -> &'static str {
    match service {
        Service::ReadsAndWrites => "rw",
        Service::ReadsOnly => "ro",
        Service::Nothing => "null",
    }
}

/// Renders `ruok`.
pub const RUOK: &str = "imok";
/// Renders `crst`, after the reset.
pub const CRST: &str = "Connection stats reset.\n";
/// Renders `srst`, after the reset.
pub const SRST: &str = "Server stats reset.\n";
