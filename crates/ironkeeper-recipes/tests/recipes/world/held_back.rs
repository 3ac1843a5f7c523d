//! A client that is kept from its second connection until somebody lets it: what a lost reply leaves
//! behind can be met by others meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use ironkeeper_client::{Client, Host, Opening, Transport};
use ironkeeper_testing::FaultyProxy;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::{SESSION_TIMEOUT, World};

/// Dropping it lets the client in.
pub(super) type Knock = oneshot::Sender<()>;

/// A client behind a proxy, and its knock when it comes for the second time.
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
                // Nobody listens when the work is done: then there is nothing to wait for. A knock that is
                // dropped is the answer.
                if knocks.send(knock).await.is_ok() {
                    let _ = let_in.await;
                }
            }
            Ok(Box::new(TcpStream::connect(address).await?) as _)
        })
    }
}
