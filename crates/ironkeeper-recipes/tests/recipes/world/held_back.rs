//! A client whose second connection waits for permission, so that other clients can act on the
//! state that a lost reply leaves behind.

use std::sync::atomic::{AtomicBool, Ordering};

use ironkeeper_client::{Client, Host, Opening, Transport};
use ironkeeper_testing::FaultyProxy;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::{SESSION_TIMEOUT, World};

/// The permission for the second connection, given by dropping it.
pub(super) type Knock = oneshot::Sender<()>;

/// Returns a client behind a proxy, and the channel that receives its `Knock` when it reconnects.
pub(super) async fn client(world: &World, proxy: &FaultyProxy) -> (Client, mpsc::Receiver<Knock>) {
    let (knocks, knocking) = mpsc::channel(1);
    let address = format!("{}{}", proxy.connect_string(), world.root);
    let door =
        Door { knocks, has_opened: AtomicBool::new(false), has_knocked: AtomicBool::new(false) };
    let client = Client::builder(&address)
        .session_timeout(SESSION_TIMEOUT)
        .transport(door)
        .connect()
        .await
        .expect("the server is there");
    (client, knocking)
}

#[derive(Debug)]
struct Door {
    knocks: mpsc::Sender<Knock>,
    has_opened: AtomicBool,
    has_knocked: AtomicBool,
}

impl Transport for Door {
    fn open(&self, server: &Host) -> Opening {
        let address = (server.name().to_owned(), server.port());
        let is_second = self.has_opened.swap(true, Ordering::AcqRel)
            && !self.has_knocked.swap(true, Ordering::AcqRel);
        let knocks = self.knocks.clone();
        Box::pin(async move {
            if is_second {
                let (knock, let_in) = oneshot::channel();
                // If the work is done, the receiver is dropped and there is nothing to wait for. A
                // dropped `Knock` is the permission.
                if knocks.send(knock).await.is_ok() {
                    let _ = let_in.await;
                }
            }
            Ok(Box::new(TcpStream::connect(address).await?) as _)
        })
    }
}
