//! Prints events as they arrive: as the `WATCHER::` block of zkCli, or as a JSON object. At a
//! prompt an event of the session is one line.
//!
//! Watches and the session send events to a separate thread, because printing above a line that is
//! being typed can block on the line editor, and the line editor can block on the session
//! (completion of paths).
//!
//! zkCli has one watcher for everything and prints a notification once, independent of the number
//! of watches that it triggers. Here every watch receives the event, so duplicates are detected by
//! the content of the event and by the watches that have already reported it.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde::{Serialize, Serializer};
use tokio::sync::mpsc;

use super::output::Output;

/// The number of events that may wait for the terminal. Further events stay in the watches, within
/// their own bounds.
const WAITING_MAX: usize = 1024;
/// The number of notifications that are kept to detect duplicates.
const REMEMBERED_MAX: usize = 256;

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `SyncConnected`, `Disconnected`, …
    pub state: &'static str,
    /// `None` for events of the session, else `NodeCreated`, …
    pub kind: &'static str,
    pub path: Option<String>,
    /// -1 if there is none.
    pub zxid: i64,
    /// For events of the session: the connected server, or the last one.
    pub server: Option<String>,
}

impl Event {
    pub fn of_session(state: &'static str, server: Option<String>) -> Event {
        Event { state, kind: "None", path: None, zxid: -1, server }
    }

    fn is_of_session(&self) -> bool {
        self.path.is_none()
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_deref().unwrap_or("null");
        write!(
            f,
            "\nWATCHER::\n\nWatchedEvent state:{} type:{} path:{path} zxid: {}",
            self.state, self.kind, self.zxid
        )
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            event: &'a str,
            state: &'a str,
            path: Option<&'a str>,
            zxid: Option<String>,
        }
        let zxid = (self.zxid >= 0).then(|| format!("0x{:x}", self.zxid));
        Fields { event: self.kind, state: self.state, path: self.path.as_deref(), zxid }
            .serialize(serializer)
    }
}

/// An event of the session at a prompt, as one line, because every failover causes two of them. In
/// JSON it is the event.
#[derive(Debug)]
struct Notice<'a>(&'a Event);

impl Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.0.server.as_deref().unwrap_or("a server");
        match self.0.state {
            "SyncConnected" => write!(f, "Connected to {server}"),
            "ConnectedReadOnly" => write!(f, "Connected to {server}, which is read-only"),
            "Disconnected" => write!(f, "Disconnected from {server}; connecting again"),
            "Expired" => f.write_str("The session has expired; connect opens another one"),
            "Closed" => f.write_str("The session is closed"),
            "AuthFailed" => f.write_str("The server refused the credentials of addauth"),
            other => write!(f, "Session: {other}"),
        }
    }
}

impl Serialize for Notice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// The source of an event: one registered watch, or the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Teller(pub u64);

/// The sender of events that are to be printed.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<(Teller, Event)>,
    printed: Arc<AtomicBool>,
}

impl Events {
    /// Starts the printing thread. It ends when all senders are dropped.
    pub fn start(output: Output, interactive: bool) -> (Events, JoinHandle<()>) {
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let printed = Arc::new(AtomicBool::new(true));
        let on = Arc::clone(&printed);
        let thread = std::thread::spawn(move || {
            let mut told = Told::default();
            while let Some((teller, event)) = receiver.blocking_recv() {
                if !told.is_news(teller, &event) || !on.load(Ordering::Relaxed) {
                    continue;
                }
                match (event.is_of_session(), interactive) {
                    (false, _) => output.event(&event),
                    (true, true) => output.event(&Notice(&event)),
                    // Scripts read results from standard output, and an event of the connection is
                    // not a result.
                    (true, false) => output.event_aside(&event),
                }
            }
        });
        (Events { sender, printed }, thread)
    }

    /// Sends an event to the printing thread. Waits while its queue is full.
    pub async fn tell(&self, teller: Teller, event: Event) {
        // The printing thread ends only after the last sender is dropped.
        let _ = self.sender.send((teller, event)).await;
    }

    pub fn are_printed(&self) -> bool {
        self.printed.load(Ordering::Relaxed)
    }

    pub fn print(&self, on: bool) {
        self.printed.store(on, Ordering::Relaxed);
    }
}

/// The recent notifications, and the sources that have reported each.
#[derive(Debug, Default)]
struct Told {
    notifications: VecDeque<(Event, Vec<Teller>)>,
}

impl Told {
    /// Returns whether this is a new notification, not one that another watch has reported. A watch
    /// never reports a notification twice, so the same event from the same watch is another
    /// notification.
    fn is_news(&mut self, teller: Teller, event: &Event) -> bool {
        let known = self
            .notifications
            .iter_mut()
            .find(|(told, tellers)| event.zxid > 0 && told == event && !tellers.contains(&teller));
        if let Some((_, tellers)) = known {
            tellers.push(teller);
            return false;
        }
        if self.notifications.len() == REMEMBERED_MAX {
            self.notifications.pop_front();
        }
        self.notifications.push_back((event.clone(), vec![teller]));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &'static str, zxid: i64) -> Event {
        Event { state: "SyncConnected", kind, path: Some("/a".to_owned()), zxid, server: None }
    }

    #[test]
    fn events_have_zkclis_form() {
        assert_eq!(
            event("NodeDataChanged", 37).to_string(),
            "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDataChanged path:/a zxid: 37"
        );
        assert_eq!(
            Event::of_session("Closed", None).to_string(),
            "\nWATCHER::\n\nWatchedEvent state:Closed type:None path:null zxid: -1"
        );
        assert_eq!(
            serde_json::to_string(&event("NodeCreated", 37)).unwrap(),
            r#"{"event":"NodeCreated","state":"SyncConnected","path":"/a","zxid":"0x25"}"#
        );
    }

    #[test]
    fn at_a_prompt_an_event_of_the_session_is_one_line() {
        let server = || Some("db2:2181".to_owned());
        for (state, line) in [
            ("SyncConnected", "Connected to db2:2181"),
            ("ConnectedReadOnly", "Connected to db2:2181, which is read-only"),
            ("Disconnected", "Disconnected from db2:2181; connecting again"),
            ("Expired", "The session has expired; connect opens another one"),
        ] {
            assert_eq!(Notice(&Event::of_session(state, server())).to_string(), line);
        }
        assert_eq!(
            serde_json::to_string(&Notice(&Event::of_session("Closed", server()))).unwrap(),
            r#"{"event":"None","state":"Closed","path":null,"zxid":null}"#
        );
    }

    #[test]
    fn a_notification_is_printed_once_however_many_watches_it_fires() {
        let mut told = Told::default();
        let deleted = event("NodeDeleted", 5);
        assert!(told.is_news(Teller(1), &deleted));
        assert!(!told.is_news(Teller(2), &deleted));
        // Two changes of one transaction: each watch reports the same event twice.
        assert!(told.is_news(Teller(1), &deleted));
        assert!(!told.is_news(Teller(2), &deleted));
        assert!(told.is_news(Teller(1), &event("NodeDeleted", 6)));
        // Events for changes during a disconnection have no zxid by which duplicates could be
        // detected.
        assert!(told.is_news(Teller(1), &event("NodeDeleted", -1)));
        assert!(told.is_news(Teller(2), &event("NodeDeleted", -1)));
    }
}
