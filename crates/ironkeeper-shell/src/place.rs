//! The location of a subtree: a path in this session, or `host:port/path` on another server.

use std::time::Duration;

use ironkeeper_client::Client;

use super::context::Context;
use super::failure::{Failure, Outcome};
use super::path_form;

/// The timeout of the connection to another server.
const CONNECTED_WITHIN: Duration = Duration::from_secs(3);
/// The timeout for closing a session with another server.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Place {
    pub client: Client,
    pub path: String,
    /// The connect string, or `None` for the session of the shell.
    server: Option<String>,
}

impl Place {
    /// Parses a location. `/path` is in the session of the shell; anything else is
    /// `host:port[,host:port]/path`. `auth`, in the form `scheme:auth`, authenticates with the
    /// other servers; the session of the shell uses `addauth`.
    pub async fn open(context: &Context, text: &str, auth: Option<&str>) -> Outcome<Place> {
        // A single slash at the end is accepted, because completion inserts it.
        let text = match text.strip_suffix('/') {
            Some(rest) if !rest.is_empty() && rest.contains('/') && !rest.ends_with('/') => rest,
            _ => text,
        };
        if text.starts_with('/') || !text.contains('/') {
            path_form::check(text)?;
            return Ok(Place { client: context.client()?, path: text.to_owned(), server: None });
        }
        let (server, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        path_form::check(path)?;
        let mut builder = context.session.builder(server).connect_timeout(CONNECTED_WITHIN);
        if let Some(auth) = auth {
            let (scheme, auth) = auth.split_once(':').ok_or_else(|| {
                Failure::bad_usage(
                    "-auth must have the form scheme:auth, like digest:user:password",
                )
            })?;
            builder = builder.auth(scheme, auth);
        }
        let client = builder
            .connect()
            .await
            .map_err(|error| Failure::message(format!("Cannot connect to {server}: {error}")))?;
        Ok(Place { client, path: path.to_owned(), server: Some(server.to_owned()) })
    }

    /// Returns whether both locations are on the same servers.
    pub fn is_beside(&self, other: &Place) -> bool {
        self.server == other.server
    }

    /// Returns whether `other` is this location or in its subtree.
    pub fn contains(&self, other: &Place) -> bool {
        let inside = || {
            let rest = other.path.strip_prefix(&self.path)?;
            Some(rest.is_empty() || rest.starts_with('/') || self.path == "/")
        };
        self.is_beside(other) && inside().unwrap_or(false)
    }

    /// Returns the location as it was typed.
    pub fn shown(&self) -> String {
        self.at(&self.path)
    }

    /// Returns a path of this location as text, with its servers if they are not those of the
    /// shell.
    pub fn at(&self, path: &str) -> String {
        match &self.server {
            Some(server) => format!("{server}{path}"),
            None => path.to_owned(),
        }
    }

    /// Closes the session with another server. Without this call the server expires the session.
    pub async fn close(&self) {
        if self.server.is_some() {
            let _ = tokio::time::timeout(CLOSED_WITHIN, self.client.close()).await;
        }
    }
}
