//! The prompt, which shows the state of the connection even if it changes while a line is typed.
//!
//! The line editor requests the text of the prompt whenever it draws the line, for instance below a
//! notice that the connection was lost. It measures the prompt only once, so every text of one
//! prompt must have the same width: a shorter text is padded, and in a longer one the server name
//! is cut. If too little of the name would remain, the first text stays, and only the notice
//! reports the change.

use ironkeeper_client::{ConnectString, Host};
use rustyline::Prompt;

use super::session::{Connection, STATE_WORDS, Session, SharedClient};

/// The minimal number of characters of a cut name.
const NAME_CHARS_MIN: usize = 6;

/// A prompt that follows the state of the connection, see the head of this file.
#[derive(Debug)]
pub struct LivePrompt {
    client: SharedClient,
    /// The text that was shown first.
    first: String,
    /// The texts for all possible states of the connection that fit.
    texts: Vec<(Connection, String)>,
}

impl LivePrompt {
    /// Creates the prompt for the command with this number, with the directory of `cd`.
    pub fn new(session: &Session, directory: &str, number: usize) -> LivePrompt {
        let client = session.shared_client();
        let shape = Shape::new(session.connect_string(), directory, number);
        let (first, texts) = shape.texts(&client.connection());
        LivePrompt { client, first, texts }
    }
}

impl Prompt for LivePrompt {
    fn raw(&self) -> &str {
        let now = self.client.connection();
        let text = self.texts.iter().find(|(connection, _)| *connection == now);
        text.map_or(&self.first, |(_, text)| text)
    }
}

/// The parts of the prompt that do not change while a line is typed.
#[derive(Debug)]
struct Shape {
    /// Empty if the connect string contains no servers.
    servers: Vec<Host>,
    /// The text after the server name: the number of other servers, and the chroot.
    behind_name: String,
    /// The text after the state.
    directory: String,
    number: usize,
}

impl Shape {
    fn new(connect_string: &str, directory: &str, number: usize) -> Shape {
        let parsed = connect_string.parse::<ConnectString>();
        let servers = parsed.map(|parsed| parsed.servers().to_vec()).unwrap_or_default();
        let others = match servers.len() {
            0 | 1 => String::new(),
            count => format!(",+{}", count - 1),
        };
        let chroot = connect_string.find('/').map_or("", |at| &connect_string[at..]);
        let behind_name = format!("{others}{chroot}");
        Shape { servers, behind_name, directory: directory.to_owned(), number }
    }

    /// Returns the text for the current connection, and the texts of the same width for all other
    /// states.
    fn texts(&self, now: &Connection) -> (String, Vec<(Connection, String)>) {
        let name = self.name(now);
        let width = name.chars().count() + now.word.len();
        let first = self.text(&name, now.word, 0);
        let servers = self.servers.iter().cloned().map(Some).chain([None]);
        let connections = servers.flat_map(|server| {
            STATE_WORDS.map(move |word| Connection { server: server.clone(), word })
        });
        let texts = connections.filter_map(|connection| {
            let text = self.fitted(&self.name(&connection), connection.word, width)?;
            Some((connection, text))
        });
        (first, texts.collect())
    }

    /// Returns the connected server, or the first one.
    fn name(&self, connection: &Connection) -> String {
        let server = connection.server.as_ref().or(self.servers.first());
        server.map(Host::to_string).unwrap_or_default()
    }

    fn fitted(&self, name: &str, word: &'static str, width: usize) -> Option<String> {
        let room = width.checked_sub(word.len())?;
        let count = name.chars().count();
        if count <= room {
            return Some(self.text(name, word, room - count));
        }
        let kept = room.checked_sub(1).filter(|kept| *kept >= NAME_CHARS_MIN)?;
        let cut: String = name.chars().take(kept).chain(['…']).collect();
        Some(self.text(&cut, word, 0))
    }

    fn text(&self, name: &str, word: &str, padding: usize) -> String {
        let Shape { behind_name, directory, number, .. } = self;
        format!("[zk: {name}{behind_name}({word}){directory} {number}] {:padding$}", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(server: Option<&Host>, word: &'static str) -> Connection {
        Connection { server: server.cloned(), word }
    }

    fn shown<'a>(texts: &'a [(Connection, String)], wanted: &Connection) -> Option<&'a str> {
        texts.iter().find(|(connection, _)| connection == wanted).map(|(_, text)| text.as_str())
    }

    #[test]
    fn every_text_of_a_prompt_has_the_width_of_the_first() {
        let shape = Shape::new("db1:2181,db2.example.com:2181/app", "/x", 7);
        let [short, long] = &shape.servers[..] else { panic!("two servers") };
        let (first, texts) = shape.texts(&connection(Some(short), "CONNECTING"));
        assert_eq!(first, "[zk: db1:2181,+1/app(CONNECTING)/x 7] ");
        let width = first.chars().count();
        assert!(texts.iter().all(|(_, text)| text.chars().count() == width), "{texts:?}");
        assert_eq!(
            shown(&texts, &connection(Some(short), "CONNECTED")),
            Some("[zk: db1:2181,+1/app(CONNECTED)/x 7]  ")
        );
        assert_eq!(
            shown(&texts, &connection(Some(long), "CONNECTED")),
            Some("[zk: db2.exam…,+1/app(CONNECTED)/x 7] ")
        );
        // Too few characters of the name would remain.
        assert_eq!(shown(&texts, &connection(Some(short), "CONNECTEDREADONLY")), None);
    }

    #[test]
    fn a_connection_that_is_lost_shows_in_the_width_of_the_connected_prompt() {
        let shape = Shape::new("localhost:2181", "", 0);
        let (first, texts) = shape.texts(&connection(shape.servers.first(), "CONNECTED"));
        assert_eq!(first, "[zk: localhost:2181(CONNECTED) 0] ");
        assert_eq!(
            shown(&texts, &connection(None, "CONNECTING")),
            Some("[zk: localhost:21…(CONNECTING) 0] ")
        );
    }
}
