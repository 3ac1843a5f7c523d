//! The ports on which other servers dial us.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_node::{Expect, Intake};
use ironkeeper_proto::quorum_packet::Sender;
use ironkeeper_zab::{Input, Port};
use tokio::task::AbortHandle;

use super::link::Link;
use super::permits::Permits;
use super::registry::Registry;
use super::settings::{Endpoint, OwnAddresses};
use super::{PeerError, link_task};
use crate::server;
use crate::wire::Stream;

/// The wait between two attempts to bind our ports.
const BIND_PAUSE: Duration = Duration::from_secs(1);
/// The wait after a failed accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 128;

/// The ports we listen on.
#[derive(Debug)]
pub(super) struct Ports {
    open: Vec<OpenPort>,
}

#[derive(Debug)]
struct OpenPort {
    port: Port,
    endpoint: Endpoint,
    permits: Arc<Permits>,
    /// The sockets that are not served yet.
    listeners: Vec<TcpListener>,
    tasks: Vec<AbortHandle>,
}

impl Ports {
    /// Binds all ports. Fails if another process uses a port; tries again if a name cannot be
    /// resolved or an address does not exist yet.
    pub(super) fn open(own: &OwnAddresses, tries: Option<u32>) -> Result<Ports, PeerError> {
        let mut tried: u32 = 0;
        loop {
            let opened: Result<Vec<OpenPort>, PeerError> =
                wanted(own).map(OpenPort::open).collect();
            tried = tried.saturating_add(1);
            match opened {
                Ok(open) => return Ok(Ports { open }),
                Err(error) if Some(tried) == tries || error.is_in_use() => return Err(error),
                Err(error) => tracing::warn!(%error, "peer port not bound, retrying"),
            }
            std::thread::sleep(BIND_PAUSE);
        }
    }

    /// Starts to accept connections on ports that are not served yet.
    pub(super) fn serve(&mut self, registry: &Arc<Registry>) {
        for open in &mut self.open {
            for listener in open.listeners.drain(..) {
                let task = tokio::spawn(accept(
                    Arc::clone(registry),
                    listener,
                    open.port,
                    Arc::clone(&open.permits),
                ));
                open.tasks.push(task.abort_handle());
            }
        }
    }

    /// Opens and closes ports so that they match our present addresses.
    pub(super) fn change(&mut self, registry: &Arc<Registry>) {
        let own = registry.own();
        self.open.retain(|open| {
            let stays = wanted(&own).any(|(port, end)| (port, end) == (open.port, &open.endpoint));
            if !stays {
                open.tasks.iter().for_each(AbortHandle::abort);
            }
            stays
        });
        for (port, endpoint) in wanted(&own) {
            if !self.open.iter().any(|open| (open.port, &open.endpoint) == (port, endpoint)) {
                match OpenPort::open((port, endpoint)) {
                    Ok(opened) => self.open.push(opened),
                    Err(error) => tracing::error!(%error, "peer port not bound"),
                }
            }
        }
        self.serve(registry);
    }
}

/// Returns the endpoints on which we should listen.
fn wanted(own: &OwnAddresses) -> impl Iterator<Item = (Port, &Endpoint)> {
    let election = own.election_binds.iter().map(|endpoint| (Port::Election, endpoint));
    election.chain(own.quorum_binds.iter().map(|endpoint| (Port::Quorum, endpoint)))
}

impl OpenPort {
    /// Binds all addresses of an endpoint.
    fn open((port, endpoint): (Port, &Endpoint)) -> Result<OpenPort, PeerError> {
        let fail = |error| PeerError { address: endpoint.to_string(), error };
        let found = (endpoint.host.as_str(), endpoint.port).to_socket_addrs().map_err(fail)?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort();
        addresses.dedup();
        let listeners: io::Result<Vec<TcpListener>> =
            addresses.into_iter().map(|address| server::bind(address, BACKLOG)).collect();
        let listeners = listeners.map_err(fail)?;
        let (endpoint, permits) = (endpoint.clone(), Arc::default());
        Ok(OpenPort { port, endpoint, permits, listeners, tasks: Vec::new() })
    }
}

/// Accepts connections until the runtime ends.
async fn accept(registry: Arc<Registry>, listener: TcpListener, port: Port, permits: Arc<Permits>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "peer port not served"),
    };
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let stream = Stream::accepted(socket, peer);
                if let Err(error) = admit(&registry, stream, port, &permits) {
                    tracing::debug!(addr = %peer, %error, "peer connection not set up");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "peer connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(
    registry: &Arc<Registry>,
    stream: Stream,
    port: Port,
    permits: &Arc<Permits>,
) -> io::Result<()> {
    stream.set_nodelay()?;
    registry.keep_alive(&stream);
    let peer = stream.peer();
    let (reader, writer) = stream.split();
    let link = Arc::new(Link::new(
        registry.next_id(),
        port,
        peer,
        writer,
        Arc::clone(&registry.unsent_total),
    ));
    let (expect, announce) = match port {
        Port::Election => (Expect::Opening, None),
        Port::Quorum => {
            (Expect::Packets(Sender::Learner), Some(Input::Accepted { link: link.id() }))
        }
    };
    let intake = Intake::new(expect, registry.settings.field_bytes_max);
    let permit = permits.admit(&link);
    tokio::spawn(link_task::run(
        Arc::clone(registry),
        link,
        reader,
        intake,
        announce,
        Some(permit),
    ));
    Ok(())
}
