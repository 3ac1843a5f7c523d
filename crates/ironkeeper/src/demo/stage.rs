//! The context of a demo: a server in this process, the clients of the demo, and an observer
//! session that prints each change of the tree.

use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ironkeeper_client::{
    Client, ErrorKind, EventType, SessionId, WatchEvent, WatchItem, WatchMode, Watcher,
};
use ironkeeper_testing::TestServer;
use tokio::task::JoinHandle;

/// The timeout of every wait in a demo.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of characters of a node's data that are printed.
const DATA_SHOWN_MAX: usize = 60;

/// The context of a demo, see the head of this file.
#[derive(Debug)]
pub struct Stage {
    server: TestServer,
    eyes: Client,
    events: Watcher,
    cast: HashMap<SessionId, &'static str>,
    pace: Duration,
    colour: bool,
}

/// A client of the demo, with a session of its own.
#[derive(Clone, Debug)]
pub struct Actor {
    pub name: &'static str,
    pub client: Client,
}

impl Stage {
    /// Starts a server with an empty tree and an observer session.
    pub async fn open(pace: Duration) -> Result<Stage> {
        let server = TestServer::builder().set("extendedTypesEnabled", "true").start()?;
        let eyes = Client::connect(&server.connect_string()).await?;
        let events = eyes.watch("/", WatchMode::Recursive).await?;
        let colour = std::io::stdout().is_terminal();
        Ok(Stage { server, eyes, events, cast: HashMap::new(), pace, colour })
    }

    /// Connects a client under a name.
    pub async fn enter(&mut self, name: &'static str) -> Result<Actor> {
        let client = Client::connect(&self.server.connect_string()).await?;
        self.cast.insert(client.session_id(), name);
        Ok(Actor { name, client })
    }

    /// Ends the session of a client, as after a crash.
    pub async fn kill(&mut self, actor: &Actor) -> Result<()> {
        self.server.kill_session(actor.client.session_id())?;
        self.tells(format!("{} has crashed; the server ends its session", actor.name)).await
    }

    /// Ends the session of a client, as after a session timeout.
    pub async fn expire(&mut self, actor: &Actor) -> Result<()> {
        self.server.kill_session(actor.client.session_id())?;
        self.tells(format!("{} was silent for too long: its session is over", actor.name)).await
    }

    /// Prints the title of a demo.
    pub fn title(&self, number: usize, of: usize, name: &str, what: &str) {
        println!("\n{} {}", self.paint("1;36", &format!("[{number}/{of}] {name}:")), what);
    }

    /// Prints the location of a demo's code.
    pub fn source(&self, file: &str, function: &str) {
        println!("  {:>8} {}", "", self.paint("2", &format!("code: {file}, fn {function}")));
    }

    /// Prints the pending changes of the tree, then what a client has done.
    pub async fn says(&mut self, actor: &Actor, line: impl Display) -> Result<()> {
        self.look().await?;
        println!("  {} {line}", self.paint("1", &format!("{:>8}", actor.name)));
        tokio::time::sleep(self.pace).await;
        Ok(())
    }

    /// Prints the pending changes of the tree, then an explanation.
    pub async fn tells(&mut self, line: impl Display) -> Result<()> {
        self.look().await?;
        println!("  {:>8} {}", "", self.paint("3", &line.to_string()));
        tokio::time::sleep(self.pace).await;
        Ok(())
    }

    /// Prints all changes of the tree up to now.
    async fn look(&mut self) -> Result<()> {
        // The server sends events before the reply to a later sync.
        self.eyes.sync("/").await?;
        loop {
            let Some(item) = now_or_never(self.events.next()).await else { return Ok(()) };
            let event = event_of(item)?;
            self.show(&event).await?;
        }
    }

    /// Prints changes of the tree until a node is created whose path contains `part`.
    pub async fn until_created(&mut self, part: &str) -> Result<()> {
        loop {
            let item = tokio::time::timeout(PATIENCE, self.events.next())
                .await
                .with_context(|| format!("no node {part} has appeared"))?;
            let event = event_of(item)?;
            self.show(&event).await?;
            if event.kind == EventType::NodeCreated && event.path.contains(part) {
                return Ok(());
            }
        }
    }

    async fn show(&self, event: &WatchEvent) -> Result<()> {
        let path = short(&event.path);
        let (sign, colour) = match event.kind {
            EventType::NodeCreated => ("+", "32"),
            EventType::NodeDeleted => ("-", "31"),
            _ => ("~", "33"),
        };
        let detail = match event.kind {
            EventType::NodeDeleted => String::new(),
            _ => self.detail(&event.path).await?,
        };
        println!("  {:>8} {}{detail}", "", self.paint(colour, &format!("{sign} {path}")));
        Ok(())
    }

    /// Describes the data and the ephemeral owner of a node.
    async fn detail(&self, path: &str) -> Result<String> {
        let node = match self.eyes.get(path).await {
            Ok(node) => node,
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok("   (gone again)".into()),
            Err(error) => return Err(error.into()),
        };
        let mut detail = String::new();
        if !node.data.is_empty() {
            let text: String =
                String::from_utf8_lossy(&node.data).chars().take(DATA_SHOWN_MAX).collect();
            detail += &format!(" = {:?}", text);
        }
        let owner = SessionId(node.stat.ephemeral_owner);
        if let Some(name) = self.cast.get(&owner) {
            detail += &format!("   (ephemeral of {name})");
        }
        Ok(detail)
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Prints the remaining changes of the tree.
    pub async fn close(mut self) -> Result<()> {
        self.look().await
    }
}

/// Runs a future concurrently with the demo.
pub fn meanwhile<T: Send + 'static, E: Into<anyhow::Error> + Send + 'static>(
    doing: impl Future<Output = Result<T, E>> + Send + 'static,
) -> JoinHandle<Result<T>> {
    tokio::spawn(async move { doing.await.map_err(Into::into) })
}

/// Waits for the result of a task started by [`meanwhile`].
pub async fn done<T>(doing: JoinHandle<Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, doing).await.context("it takes too long")??
}

fn event_of(item: Option<WatchItem>) -> Result<WatchEvent> {
    match item {
        Some(WatchItem::Event(event)) => Ok(event),
        other => bail!("the eyes of the stage have lost sight of the tree: {other:?}"),
    }
}

/// Returns the output of a future if it is ready, without waiting.
async fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = std::future::ready(()) => None,
    }
}

/// Removes the protection id from a path: it is long and of no use to the reader.
fn short(path: &str) -> String {
    const MARK: &str = "_c_";
    const ID_LEN: usize = 36;
    let Some(at) = path.find(MARK) else { return path.to_owned() };
    let id = at + MARK.len();
    match path.get(id..id + ID_LEN) {
        Some(text) if text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') => {
            format!("{}…{}", &path[..id], &path[id + ID_LEN..])
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_shown_short_and_other_names_as_they_are() {
        let marked = "/lock/_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000000";
        assert_eq!(short(marked), "/lock/_c_…-lock-0000000000");
        assert_eq!(short("/lock/_c_short"), "/lock/_c_short");
        assert_eq!(short("/plain"), "/plain");
    }
}
