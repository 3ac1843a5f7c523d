//! The ports where other servers dial us.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ironkeeper_proto::quorum_packet::Sender;
use ironkeeper_zab::{Input, Port};
use tokio::net::TcpStream;

use super::intake::{Expect, Intake};
use super::link::Link;
use super::settings::Endpoint;
use super::switchboard::Switchboard;
use super::{PeerError, link_task};
use crate::server;

/// The wait after a failed accept, such as one for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 128;
/// How many connections somebody has opened to one of our ports there may be. An ensemble has some
/// dozens of members at most.
const ACCEPTED_MAX: usize = 512;

/// Takes hold of all addresses of all endpoints.
pub(super) fn bind_all(endpoints: &[Endpoint]) -> Result<Vec<TcpListener>, PeerError> {
    let mut listeners = Vec::new();
    for endpoint in endpoints {
        let fail = |error| PeerError { address: endpoint.to_string(), error };
        let found = (endpoint.host.as_str(), endpoint.port).to_socket_addrs().map_err(fail)?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort();
        addresses.dedup();
        for address in addresses {
            listeners.push(server::bind(address, BACKLOG).map_err(fail)?);
        }
    }
    Ok(listeners)
}

/// Takes in connections for as long as the runtime lives.
pub(super) async fn accept(board: Arc<Switchboard>, listener: TcpListener, port: Port) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("cannot wait for other servers: {error}"),
    };
    let accepted = Arc::new(());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if Arc::strong_count(&accepted) > ACCEPTED_MAX {
                    tracing::warn!("refused {peer}: {ACCEPTED_MAX} servers are connected already");
                    continue;
                }
                if let Err(error) = admit(&board, stream, peer, port, Arc::clone(&accepted)) {
                    tracing::debug!("the connection of {peer} could not be set up: {error}");
                }
            }
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(
    board: &Arc<Switchboard>,
    stream: TcpStream,
    peer: SocketAddr,
    port: Port,
    accepted: Arc<()>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    board.keep_alive(&stream);
    let (reader, writer) = stream.into_split();
    let link = Arc::new(Link::new(board.next_id(), port, peer, writer));
    let (expect, announce) = match port {
        Port::Election => (Expect::Opening, None),
        Port::Quorum => (Expect::Packets(Sender::Learner), Some(Input::Accepted { link: link.id })),
    };
    let intake = Intake::new(expect, board.settings.field_bytes_max);
    let board = Arc::clone(board);
    tokio::spawn(async move {
        link_task::run(board, link, reader, intake, announce).await;
        drop(accepted);
    });
    Ok(())
}
