//! The failures of a command, with the messages of zkCli.

use std::io;

use ironkeeper_client::{Error, ErrorCode, ErrorKind, Happened};
use serde::Serialize;

use super::path_form;

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong; the usage is printed.
    Usage,
    /// The arguments are wrong; the message and the usage are printed.
    BadUsage(String),
    /// The command does not exist.
    UnknownCommand(String),
    /// Any other failure, as a message.
    Message(String),
    /// The message is already printed.
    Reported,
    /// The command succeeded except for nodes without read permission, which are already printed.
    Incomplete,
    /// An error of the server or of the client library.
    Client(Error),
    /// There is no session: it was closed by `close`, or it ended.
    NotConnected,
    /// The reader of the output has closed it. This ends the command, but is not a failure.
    OutputClosed,
    /// Interrupted by the user.
    Interrupted,
}

impl Failure {
    pub fn bad_usage(text: impl Into<String>) -> Failure {
        Failure::BadUsage(text.into())
    }

    pub fn message(text: impl Into<String>) -> Failure {
        Failure::Message(text.into())
    }

    /// Returns the exit status of a process that ends with this failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::UnknownCommand(_) => 127,
            Failure::Interrupted => 130,
            Failure::OutputClosed => 0,
            Failure::Incomplete => 2,
            _ => 1,
        }
    }

    /// Returns the text form; `usage` is the usage line of the command.
    pub fn text(&self, usage: &str) -> String {
        match self {
            Failure::BadUsage(text) => format!("{text}\n{usage}"),
            Failure::UnknownCommand(_) => {
                format!("{}\nType help for the commands.", self.sentence(usage))
            }
            _ => self.sentence(usage),
        }
    }

    /// Returns the JSON form.
    pub fn record(&self, usage: &str) -> ErrorRecord {
        let shows_usage = matches!(self, Failure::Usage | Failure::BadUsage(_));
        let mut record = ErrorRecord {
            error: if matches!(self, Failure::Usage) {
                "wrong usage".to_owned()
            } else {
                self.sentence(usage)
            },
            code: None,
            path: None,
            usage: shows_usage.then(|| usage.to_owned()),
            maybe_done: false,
        };
        if let Failure::Client(error) = self {
            record.code = error.code().map(|code| format!("{code:?}"));
            record.path = error.path().map(str::to_owned);
            record.maybe_done = error.happened() == Happened::Maybe;
        }
        record
    }

    fn sentence(&self, usage: &str) -> String {
        match self {
            Failure::Usage => usage.to_owned(),
            Failure::BadUsage(text) | Failure::Message(text) => text.clone(),
            Failure::UnknownCommand(name) => format!("Command not found: {name}"),
            Failure::Client(error) => client_text(error),
            Failure::NotConnected => "Not connected".to_owned(),
            Failure::Interrupted => "Interrupted".to_owned(),
            Failure::Reported | Failure::Incomplete | Failure::OutputClosed => String::new(),
        }
    }

    /// Returns whether nothing is printed for this failure.
    pub fn is_silent(&self) -> bool {
        matches!(self, Failure::Reported | Failure::Incomplete | Failure::OutputClosed)
    }
}

/// A failure in JSON.
#[derive(Debug, Serialize)]
pub struct ErrorRecord {
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
    /// The connection was lost and the request may have been applied.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    maybe_done: bool,
}

fn client_text(error: &Error) -> String {
    let path = error.path().unwrap_or("null");
    match error.kind() {
        ErrorKind::NoNode => format!("Node does not exist: {path}"),
        ErrorKind::NodeExists => format!("Node already exists: {path}"),
        ErrorKind::NotEmpty => format!("Node not empty: {path}"),
        ErrorKind::NoChildrenForEphemerals => format!("Ephemerals cannot have children: {path}"),
        ErrorKind::NotReadOnly => format!("Not a read-only call: {path}"),
        ErrorKind::InvalidAcl => format!("Acl is not valid : {path}"),
        ErrorKind::NoAuth => format!("Insufficient permission : {path}"),
        ErrorKind::BadArguments => format!("Arguments are not valid : {path}"),
        ErrorKind::BadVersion => format!("version No is not valid : {path}"),
        ErrorKind::QuotaExceeded => format!("Quota has exceeded : {path}"),
        ErrorKind::ReconfigInProgress => {
            "Another reconfiguration is in progress -- concurrent reconfigs not supported (yet)".to_owned()
        }
        ErrorKind::NewConfigNoQuorum => {
            "No quorum of new config is connected and up-to-date with the leader of last committed config - \
             try invoking reconfiguration after new servers are connected and synced"
                .to_owned()
        }
        ErrorKind::InvalidPath(_) => {
            error.path().and_then(path_form::complaint).unwrap_or_else(|| error.to_string())
        }
        // Errors that the client detected itself have their own text.
        ErrorKind::ConnectionLoss | ErrorKind::SessionExpired | ErrorKind::Other(_) => keeper_text(error),
        kind if kind.code().is_some_and(|code| !matches!(code, ErrorCode::SessionExpired)) => {
            keeper_text(error)
        }
        _ => error.to_string(),
    }
}

/// Returns `KeeperErrorCode = … for /path`, the format of Java clients.
fn keeper_text(error: &Error) -> String {
    let Some(code) = error.code() else { return error.to_string() };
    let mut text = format!("KeeperErrorCode = {}", code.text());
    if let Some(path) = error.path() {
        text += &format!(" for {path}");
    }
    if error.happened() == Happened::Maybe {
        text += " (it may have been carried out)";
    }
    text
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Message(error.to_string()),
        }
    }
}
