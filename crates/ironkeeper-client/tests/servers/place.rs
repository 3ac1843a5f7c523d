//! The environment of a test: a server, and a chroot on it for this test.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironkeeper_client::{Client, ConnectionState, ErrorKind, RetryPolicy, States};
use ironkeeper_testing::{FaultyProxy, TestServer};

/// Only a test that hangs takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Place {
    own: Option<TestServer>,
    address: String,
    chroot: String,
}

impl Place {
    pub async fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (own, address) = match std::env::var("IRONKEEPER_TEST_SERVER") {
            Ok(address) => (None, address),
            Err(_) => {
                let server = TestServer::builder()
                    .set("extendedTypesEnabled", true)
                    .set("maxClientCnxns", 0)
                    .set("maxSessionTimeout", 40_000)
                    .start()
                    .expect("a server starts");
                let address = server.connect_string();
                (Some(server), address)
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let chroot = format!("/test-{}-{}-{count}", now.as_nanos(), std::process::id());
        let place = Place { own, address, chroot };
        place.client().await.create_chroot().await.expect("a place for the test");
        place
    }

    /// Returns the server's address without the chroot.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns true if the server is the `TestServer` of this process; other servers may support
    /// less.
    pub fn has_own_server(&self) -> bool {
        self.own.is_some()
    }

    pub fn chroot(&self) -> &str {
        &self.chroot
    }

    pub fn connect_string(&self) -> String {
        format!("{}{}", self.address, self.chroot)
    }

    pub async fn client(&self) -> Client {
        let connected = Client::builder(&self.connect_string()).connect().await;
        connected.expect("the server is there")
    }

    pub fn proxy(&self) -> FaultyProxy {
        FaultyProxy::start(self.address.clone()).expect("a proxy starts")
    }

    /// Returns the connect string that uses these proxies.
    pub fn through(&self, proxies: &[&FaultyProxy]) -> String {
        let list: Vec<String> = proxies.iter().map(|proxy| proxy.connect_string()).collect();
        format!("{}{}", list.join(","), self.chroot)
    }

    /// Stops the server and starts it again with its data.
    pub async fn restart(&self) {
        match &self.own {
            Some(server) => server.restart().expect("the server restarts"),
            None => {
                let control = std::env::var("IRONKEEPER_TEST_CONTROL")
                    .expect("IRONKEEPER_TEST_CONTROL says who restarts the server");
                let asked = tokio::task::spawn_blocking(move || {
                    let mut stream = TcpStream::connect(control)?;
                    stream.write_all(b"restart\n")?;
                    let mut answer = String::new();
                    BufReader::new(stream).read_line(&mut answer)
                });
                let answered = asked.await.expect("no panic").expect("the server restarts");
                assert!(answered > 0, "whoever restarts the server has gone");
            }
        }
    }

    /// Ends a client's session from another client, which needs only its id and password.
    pub async fn expire(&self, client: &Client) {
        // The client reconnects when the twin takes over its session, and may do so before the
        // twin's close. So repeat until the server does not know the session any more.
        loop {
            let twin = Client::builder(&self.connect_string())
                .resume(client.session_id(), client.session_password())
                .connect()
                .await;
            match twin {
                Ok(twin) => twin.close().await.expect("the session can be ended"),
                Err(error) if error.kind() == ErrorKind::SessionExpired => return,
                Err(error) => panic!("the session cannot be taken over: {error}"),
            }
        }
    }
}

/// Panics instead of hanging.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens soon")
}

/// Waits for a state; other states may precede it.
pub async fn until(states: &mut States, wanted: ConnectionState) {
    soon(async {
        while let Some(state) = states.next().await {
            if state == wanted {
                return;
            }
        }
        panic!("the states ended without {wanted}");
    })
    .await;
}

/// Returns a policy for requests that must succeed in the end.
pub fn patiently() -> RetryPolicy {
    RetryPolicy::until_elapsed(PATIENCE, Duration::from_millis(5))
}
