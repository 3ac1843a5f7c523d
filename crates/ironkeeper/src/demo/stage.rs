//! The stage of a demo: a server in this process, the clients that play on it, and a pair of eyes that
//! tells what happens on the tree.

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

/// The longest a scene waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// As much of a node's data as is shown.
const DATA_SHOWN_MAX: usize = 60;

/// See the head of this file.
#[derive(Debug)]
pub struct Stage {
    server: TestServer,
    eyes: Client,
    events: Watcher,
    cast: HashMap<SessionId, &'static str>,
    pace: Duration,
    colour: bool,
}

/// Somebody on the stage, with a session of its own.
#[derive(Clone, Debug)]
pub struct Actor {
    pub name: &'static str,
    pub client: Client,
}

impl Stage {
    /// An empty stage.
    pub async fn open(pace: Duration) -> Result<Stage> {
        let server = TestServer::builder().set("extendedTypesEnabled", "true").start()?;
        let eyes = Client::connect(&server.connect_string()).await?;
        let events = eyes.watch("/", WatchMode::Recursive).await?;
        let colour = std::io::stdout().is_terminal();
        Ok(Stage { server, eyes, events, cast: HashMap::new(), pace, colour })
    }

    /// Somebody comes in.
    pub async fn enter(&mut self, name: &'static str) -> Result<Actor> {
        let client = Client::connect(&self.server.connect_string()).await?;
        self.cast.insert(client.session_id(), name);
        Ok(Actor { name, client })
    }

    /// Somebody dies without a word: its session ends, as after a crash.
    pub async fn kill(&mut self, actor: &Actor) -> Result<()> {
        self.server.kill_session(actor.client.session_id())?;
        self.tells(format!("{} has crashed; the server ends its session", actor.name)).await
    }

    /// Somebody is silent for so long that its session ends.
    pub async fn expire(&mut self, actor: &Actor) -> Result<()> {
        self.server.kill_session(actor.client.session_id())?;
        self.tells(format!("{} was silent for too long: its session is over", actor.name)).await
    }

    /// The head of a scene.
    pub fn title(&self, number: usize, of: usize, name: &str, what: &str) {
        println!("\n{} {}", self.paint("1;36", &format!("[{number}/{of}] {name}:")), what);
    }

    /// Where the code of a scene is.
    pub fn source(&self, file: &str, function: &str) {
        println!("  {:>8} {}", "", self.paint("2", &format!("code: {file}, fn {function}")));
    }

    /// Tells what somebody has done, after what it has done to the tree.
    pub async fn says(&mut self, actor: &Actor, line: impl Display) -> Result<()> {
        self.look().await?;
        println!("  {} {line}", self.paint("1", &format!("{:>8}", actor.name)));
        tokio::time::sleep(self.pace).await;
        Ok(())
    }

    /// A word of explanation.
    pub async fn tells(&mut self, line: impl Display) -> Result<()> {
        self.look().await?;
        println!("  {:>8} {}", "", self.paint("3", &line.to_string()));
        tokio::time::sleep(self.pace).await;
        Ok(())
    }

    /// Shows everything that has happened on the tree until now.
    async fn look(&mut self) -> Result<()> {
        // Events come before the answer of a sync that was sent after them.
        self.eyes.sync("/").await?;
        loop {
            let Some(item) = now_or_never(self.events.next()).await else { return Ok(()) };
            let event = event_of(item)?;
            self.show(&event).await?;
        }
    }

    /// Shows the tree until a node appears whose path contains this.
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

    /// What a node holds and whose it is.
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

    /// Shows what is left to show.
    pub async fn close(mut self) -> Result<()> {
        self.look().await
    }
}

/// Lets somebody do something while the scene goes on.
pub fn meanwhile<T: Send + 'static, E: Into<anyhow::Error> + Send + 'static>(
    doing: impl Future<Output = Result<T, E>> + Send + 'static,
) -> JoinHandle<Result<T>> {
    tokio::spawn(async move { doing.await.map_err(Into::into) })
}

/// The end of what [`meanwhile`] began.
pub async fn done<T>(doing: JoinHandle<Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, doing).await.context("it takes too long")??
}

fn event_of(item: Option<WatchItem>) -> Result<WatchEvent> {
    match item {
        Some(WatchItem::Event(event)) => Ok(event),
        other => bail!("the eyes of the stage have lost sight of the tree: {other:?}"),
    }
}

/// What a future gives if it is ready, without waiting for it.
async fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = std::future::ready(()) => None,
    }
}

/// Without the ids that mark a node as somebody's: they are long, and say nothing to people.
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
