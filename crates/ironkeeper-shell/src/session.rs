//! The session of the shell: connects, closes, reconnects to other servers; and the names of its
//! states.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ironkeeper_client::{
    Client, ClientBuilder, ConnectString, ConnectionState, Host, TlsTransport,
};
use tokio::task::JoinHandle;

use super::events::{Event, Events, Teller};
use super::failure::{Failure, Outcome};
use super::watches::Watches;

/// The connection settings, used by every `connect`.
#[derive(Debug)]
pub struct Settings {
    pub timeout: Duration,
    pub read_only: bool,
    /// Whether `connect` waits for the connection.
    pub wait: bool,
    /// `None` for plain TCP.
    pub tls: Option<TlsTransport>,
}

/// The current client. The line editor uses it to complete paths.
#[derive(Clone, Debug, Default)]
pub struct SharedClient(Arc<Mutex<Option<Client>>>);

impl SharedClient {
    pub fn current(&self) -> Option<Client> {
        self.lock().clone()
    }

    /// Returns the state of the connection for the prompt.
    pub fn connection(&self) -> Connection {
        use ConnectionState::{AuthFailed, Connected, ReadOnly, Reconnected};
        let client = self.current();
        let word = match client.as_ref().map(Client::state) {
            Some(Connected | Reconnected) => "CONNECTED",
            Some(ReadOnly) => "CONNECTEDREADONLY",
            Some(AuthFailed) => "AUTH_FAILED",
            Some(state) if !state.is_final() => "CONNECTING",
            _ => "CLOSED",
        };
        Connection { server: client.and_then(|client| client.server()), word }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state of the connection, as a prompt shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The connected server.
    pub server: Option<Host>,
    /// The state in the notation of zkCli's prompt: one of [`STATE_WORDS`].
    pub word: &'static str,
}

pub const STATE_WORDS: [&str; 5] =
    ["CONNECTED", "CONNECTEDREADONLY", "AUTH_FAILED", "CONNECTING", "CLOSED"];

#[derive(Debug)]
pub struct Session {
    settings: Settings,
    connect_string: String,
    client: SharedClient,
    /// The task that sends the state changes of the client as events.
    teller: Option<JoinHandle<()>>,
    events: Events,
    pub watches: Watches,
}

impl Session {
    /// Creates a session that is not connected.
    pub fn new(settings: Settings, events: Events) -> Session {
        Session {
            settings,
            connect_string: String::new(),
            client: SharedClient::default(),
            teller: None,
            watches: Watches::new(events.clone()),
            events,
        }
    }

    /// Returns a client builder for these servers, with the transport of the shell.
    pub fn builder(&self, connect_string: &str) -> ClientBuilder {
        let builder = Client::builder(connect_string);
        match &self.settings.tls {
            Some(tls) => builder.transport(tls.clone()),
            None => builder,
        }
    }

    /// Closes the existing session and starts to connect. Does not check that a server is
    /// reachable, unless the settings require to wait.
    pub async fn connect(&mut self, connect_string: &str) -> Outcome {
        // Checked first: a typing error must not close the session and delete its ephemeral nodes.
        connect_string.parse::<ConnectString>()?;
        self.close().await;
        connect_string.clone_into(&mut self.connect_string);
        let client = self
            .builder(connect_string)
            .session_timeout(self.settings.timeout)
            .read_only(self.settings.read_only)
            .start()?;
        let mut states = client.states();
        let (events, connected) = (self.events.clone(), client.clone());
        self.teller = Some(tokio::spawn(async move {
            let mut server = None;
            while let Some(state) = states.next().await {
                if state.is_connected() {
                    server = connected.server().map(|server| server.to_string());
                }
                if let Some(word) = event_word(state) {
                    events.tell(Teller(0), Event::of_session(word, server.clone())).await;
                }
            }
        }));
        *self.client.lock() = Some(client);
        if self.settings.wait {
            self.wait_connected(self.settings.timeout).await?;
        }
        Ok(())
    }

    /// Waits until the session is connected, at most for `at_most`.
    pub async fn wait_connected(&self, at_most: Duration) -> Outcome {
        let client = self.client()?;
        match tokio::time::timeout(at_most, client.connected()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                Err(Failure::message(format!("Cannot connect to {}: {error}", self.connect_string)))
            }
            Err(_) => {
                let why = client.trouble().map(|why| format!(" ({why})")).unwrap_or_default();
                Err(Failure::message(format!(
                    "Cannot connect to {}: no server answered within {} ms{why}",
                    self.connect_string,
                    at_most.as_millis()
                )))
            }
        }
    }

    /// Closes the session, which deletes its ephemeral nodes. Does nothing if there is none.
    pub async fn close(&mut self) {
        let client = self.client.lock().take();
        if let Some(client) = client {
            // If the server is unreachable, it expires the session.
            let _ = client.close().await;
        }
        if let Some(teller) = self.teller.take() {
            let _ = teller.await;
        }
        self.watches = Watches::new(self.events.clone());
    }

    pub fn client(&self) -> Outcome<Client> {
        match self.client.current() {
            Some(client) if !client.state().is_final() => Ok(client),
            _ => Err(Failure::NotConnected),
        }
    }

    pub fn shared_client(&self) -> SharedClient {
        self.client.clone()
    }

    pub fn connect_string(&self) -> &str {
        &self.connect_string
    }

    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Returns whether this session was ever connected.
    pub fn was_connected(&self) -> bool {
        self.client.current().is_some_and(|client| client.state() != ConnectionState::Connecting)
    }

    /// Returns the message that no server is reachable, with the reason if it is known.
    pub fn cannot_connect(&self) -> String {
        match self.client.current().and_then(|client| client.trouble()) {
            Some(why) => format!("Cannot connect to {}: {why}", self.connect_string),
            None => format!("Cannot connect to {}", self.connect_string),
        }
    }
}

/// Returns the name of the state in the events of Java clients.
fn event_word(state: ConnectionState) -> Option<&'static str> {
    Some(match state {
        ConnectionState::Connected | ConnectionState::Reconnected => "SyncConnected",
        ConnectionState::ReadOnly => "ConnectedReadOnly",
        ConnectionState::Suspended => "Disconnected",
        ConnectionState::Lost => "Expired",
        ConnectionState::Closed => "Closed",
        ConnectionState::AuthFailed => "AuthFailed",
        _ => return None,
    })
}
