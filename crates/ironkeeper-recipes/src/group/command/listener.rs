//! The receivers of commands.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version, Zxid};

use super::{MARK, Paths};
use crate::error::{RecipeError, Result};
use crate::escape::to_name;
use crate::node::PersistentNode;
use crate::place::{create_containers, join, patient};
use crate::reads::get_children;
use crate::receipt::{Receipts, refusal};

/// A listener that receives and executes commands.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::group::{CommandListener, Console, Outcome};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut anna = CommandListener::join(&client, "/commands/shell", "anna").await?;
///     tokio::spawn(async move {
///         while let Ok(command) = anna.next().await {
///             let answer = format!("done: {}", String::from_utf8_lossy(command.data()));
///             let _ = command.answer(answer).await;
///         }
///     });
///
///     let console = Console::open(&client, "/commands/shell").await?;
///     let sent = console.send("reload").await?;
///     let answers = sent.collect_within(Duration::from_secs(30)).await?;
///     assert_eq!(answers["anna"], Outcome::Answered("done: reload".into()));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct CommandListener {
    client: Client,
    id: String,
    paths: Paths,
    node: PersistentNode,
    /// The czxid of this listener's node when it joined. Older commands are ignored.
    since: Zxid,
    /// The names in the last list of commands, all of which were processed.
    known: BTreeSet<String>,
    pending: VecDeque<Command>,
    receipts: Arc<Receipts>,
}

impl CommandListener {
    /// Joins as a listener with a name. If the name is in use, waits until it is free.
    pub async fn join(client: &Client, path: &str, id: &str) -> Result<CommandListener> {
        if id.is_empty() {
            return Err(RecipeError::Misuse(format!("{path}: a listener needs a name")));
        }
        let paths = Paths::below(path);
        let node = join(&paths.listeners, &to_name(id));
        let node = PersistentNode::builder(client, node).start();
        let since = loop {
            let created = node.created().await?;
            let found = client.retry(&patient(), || client.exists(&created)).await?;
            // `None`: another client has just deleted the node, and it is being created again.
            if let Some(stat) = found {
                break stat.czxid;
            }
            tokio::task::yield_now().await;
        };
        Ok(CommandListener {
            client: client.clone(),
            id: id.to_owned(),
            receipts: Arc::new(Receipts::new(join(path, "receipts"))),
            paths,
            node,
            since,
            known: BTreeSet::new(),
            pending: VecDeque::new(),
        })
    }

    /// Returns the name of this listener.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits for the next command. The future may be dropped at any await: no command is lost.
    pub async fn next(&mut self) -> Result<Command> {
        let (client, commands) = (&self.client, &self.paths.commands);
        loop {
            if let Some(command) = self.pending.pop_front() {
                return Ok(command);
            }
            let (names, watch) =
                match client.retry(&patient(), || client.children_and_watch(commands)).await {
                    Ok((names, _, watch)) => (names, watch),
                    // The server removed the empty container.
                    Err(error) if error.kind() == ErrorKind::NoNode => {
                        create_containers(client, &join(commands, MARK)).await?;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
            let new: Vec<&str> = names
                .iter()
                .map(String::as_str)
                .filter(|name| !self.known.contains(*name) && self.paths.box_of(name).is_some())
                .collect();
            let nodes = get_children(client, commands, new.iter().copied()).await?;
            let found = new.iter().zip(nodes).filter_map(|(name, node)| {
                let node = node.filter(|node| node.stat.czxid > self.since)?;
                Some(Command {
                    client: client.clone(),
                    path: join(commands, name),
                    answer: join(&self.paths.box_of(name)?, &to_name(&self.id)),
                    data: node.data,
                    zxid: node.stat.czxid,
                    receipts: self.receipts.clone(),
                })
            });
            let mut found: Vec<Command> = found.collect();
            // Sequence numbers start again in a new container, so sort by zxid.
            found.sort_by_key(|command| command.zxid);
            self.pending.extend(found);
            self.known = names.into_iter().collect();
            if self.pending.is_empty() {
                watch.await?;
            }
        }
    }

    /// Leaves, and waits until the node is deleted.
    pub async fn leave(self) -> Result<()> {
        self.node.close().await
    }
}

/// A received command.
#[derive(Debug)]
pub struct Command {
    client: Client,
    path: String,
    answer: String,
    data: Bytes,
    zxid: Zxid,
    receipts: Arc<Receipts>,
}

impl Command {
    /// Returns the data of the command.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Returns the transaction that sent the command. Commands are ordered by it.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Answers the command. Returns `false` if the command was withdrawn.
    pub async fn answer(self, answer: impl AsRef<[u8]>) -> Result<bool> {
        let answer = answer.as_ref();
        let answered = self.receipts.commit(&self.client, |once| {
            let once = once.check(&self.path, Version::Any);
            once.create(&self.answer, answer, CreateMode::Persistent)
        });
        match answered.await {
            Ok(()) => Ok(true),
            Err(error) => match refusal(&error) {
                Some(ErrorKind::NoNode) => Ok(false),
                _ => Err(error),
            },
        }
    }
}
