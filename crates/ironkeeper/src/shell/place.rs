//! A subtree somewhere: a path in this session, or `host:port/path` on another server.

use std::time::Duration;

use ironkeeper_client::Client;

use super::context::Context;
use super::failure::{Failure, Outcome};
use super::path_form;

/// How long another server has to answer.
const CONNECTED_WITHIN: Duration = Duration::from_secs(3);
/// How long the end of a session there may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Place {
    pub client: Client,
    pub path: String,
    /// The servers, unless they are those of the shell.
    server: Option<String>,
}

impl Place {
    /// `/path` is here. Anything else names servers first: `host:port[,host:port]/path`. `auth`, in the form
    /// `scheme:auth`, is who we are there; here it is up to `addauth`.
    pub async fn open(context: &Context, text: &str, auth: Option<&str>) -> Outcome<Place> {
        // One slash at the end is no error: completion writes it.
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

    /// Whether both are in the tree of this session.
    pub fn is_beside(&self, other: &Place) -> bool {
        self.server == other.server
    }

    /// Whether a path is this place or in the subtree there.
    pub fn contains(&self, other: &Place) -> bool {
        let inside = || {
            let rest = other.path.strip_prefix(&self.path)?;
            Some(rest.is_empty() || rest.starts_with('/') || self.path == "/")
        };
        self.is_beside(other) && inside().unwrap_or(false)
    }

    /// The place as it was typed.
    pub fn shown(&self) -> String {
        self.at(&self.path)
    }

    /// A path there, told apart from one here.
    pub fn at(&self, path: &str) -> String {
        match &self.server {
            Some(server) => format!("{server}{path}"),
            None => path.to_owned(),
        }
    }

    /// Ends the session with another server. Without this the server finds out by itself.
    pub async fn close(&self) {
        if self.server.is_some() {
            let _ = tokio::time::timeout(CLOSED_WITHIN, self.client.close()).await;
        }
    }
}
