//! Dialling another server.
//!
//! A server may have several addresses, and a name may resolve to several. They are tried in order;
//! if an address does not respond within `NEXT_ADDRESS_AFTER`, the next is tried in parallel, so
//! that an address that drops all packets costs that time and not the whole timeout.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::settings::Endpoint;
use crate::wire::Stream;

/// The time without a response of one address after which the next is tried as well.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// Connects to the first endpoint that responds. Resolves names now, so that a server with a new
/// address is found; a slow name does not delay the others.
pub(super) async fn dial(endpoints: &[Endpoint], within: Duration) -> io::Result<Stream> {
    let until = Instant::now() + within;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "it is in no configuration");
    let mut lookups = JoinSet::new();
    for endpoint in endpoints {
        lookups.spawn(look_up(endpoint.clone()));
    }
    let mut attempts = JoinSet::new();
    let mut waiting = VecDeque::new();
    let mut next_at = Instant::now();
    loop {
        if (attempts.is_empty() || Instant::now() >= next_at)
            && let Some(address) = waiting.pop_front()
        {
            attempts.spawn(Stream::connect(address));
            next_at = Instant::now() + NEXT_ADDRESS_AFTER;
        }
        if attempts.is_empty() && lookups.is_empty() {
            return Err(failure);
        }
        tokio::select! {
            Some(outcome) = lookups.join_next() => match joined(outcome) {
                Ok(found) => waiting.extend(found),
                Err(error) => failure = error,
            },
            Some(outcome) = attempts.join_next() => match joined(outcome) {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            },
            () = sleep_until(next_at), if !waiting.is_empty() => {}
            () = sleep_until(until) => return Err(late()),
        }
    }
}

async fn look_up(Endpoint { host, port }: Endpoint) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect())
}

/// Returns whether an endpoint has this address, in its canonical form.
pub(super) async fn any_is_at(endpoints: Vec<Endpoint>, ip: IpAddr) -> bool {
    let mut lookups: JoinSet<_> = endpoints.into_iter().map(look_up).collect();
    while let Some(found) = lookups.join_next().await {
        let found = joined(found).unwrap_or_default();
        if found.iter().any(|address| address.ip().to_canonical() == ip) {
            return true;
        }
    }
    false
}

/// Returns the result of a task; an error if it panicked.
fn joined<T>(outcome: Result<io::Result<T>, JoinError>) -> io::Result<T> {
    outcome.map_err(io::Error::from).flatten()
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}

/// Parses `host:port`, the host perhaps in brackets.
pub(super) fn endpoint(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some(Endpoint { host: host.to_owned(), port: port.parse().ok()? })
}
