//! TLS between the client and a server behind a TLS terminator.

#![cfg(feature = "tls")]

mod terminator;

use std::time::Duration;

use ironkeeper_client::{
    Client, ClientBuilder, CreateMode, Error, ErrorKind, TlsSettings, TlsTransport, Version,
};
use ironkeeper_testing::TestServer;
use terminator::{AUTHORITY, CLIENT, SERVER, terminator};

fn builder(port: u16, settings: &TlsSettings) -> ClientBuilder {
    let transport = TlsTransport::new(settings).expect("settings that can work");
    Client::builder(&format!("127.0.0.1:{port}")).transport(transport)
}

async fn connect(port: u16, settings: &TlsSettings) -> Client {
    let patient = builder(port, settings).connect_timeout(Duration::from_secs(60));
    patient.connect().await.expect("a handshake")
}

/// Returns the connect error; the timeout covers the first handshake on a busy machine.
async fn refused(port: u16, settings: &TlsSettings) -> Error {
    let brief = builder(port, settings).connect_timeout(Duration::from_secs(4));
    brief.connect().await.expect_err("a refusal")
}

#[tokio::test]
async fn requests_of_all_sizes_pass_through_tls() {
    let server = TestServer::start().unwrap();
    let port = terminator(&server, false).await;
    let client = connect(port, &TlsSettings::new().trust(AUTHORITY)).await;
    let large = vec![7; 1_000_000];
    client.create("/large", &large, CreateMode::Persistent).await.unwrap();
    // More bytes than the buffers in between hold, in both directions at once.
    let writes: Vec<_> = (0..20).map(|_| client.set("/large", &large, Version::Any)).collect();
    let reads: Vec<_> = (0..20).map(|_| client.get("/large")).collect();
    for write in writes {
        write.await.unwrap();
    }
    for read in reads {
        assert_eq!(read.await.unwrap().data, large);
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn names_and_authorities_are_checked() {
    let server = TestServer::start().unwrap();
    let port = terminator(&server, false).await;
    let trusting = TlsSettings::new().trust(AUTHORITY);
    connect(port, &trusting.clone().server_name("zookeeper.test")).await;
    let wrong = refused(port, &trusting.server_name("other.test")).await;
    assert_eq!(wrong.kind(), ErrorKind::ConnectTimeout);
    assert!(wrong.to_string().contains("certificate"), "{wrong}");
    // The client's certificate is not the authority that signed the server's.
    let stranger = refused(port, &TlsSettings::new().trust(CLIENT.0)).await;
    assert!(stranger.to_string().contains("certificate"), "{stranger}");
}

#[tokio::test]
async fn clients_show_their_certificates() {
    let server = TestServer::start().unwrap();
    let port = terminator(&server, true).await;
    let settings = TlsSettings::new().trust(AUTHORITY);
    refused(port, &settings).await;
    let client = connect(port, &settings.identity(CLIENT.0, CLIENT.1)).await;
    assert!(client.exists("/").await.unwrap().is_some());
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    for settings in [
        TlsSettings::new(),
        TlsSettings::new().trust("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
        TlsSettings::new().trust(AUTHORITY).identity(CLIENT.0, SERVER.0),
        TlsSettings::new().trust(AUTHORITY).server_name("not a name"),
    ] {
        let error = TlsTransport::new(&settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadTlsSettings, "{error}");
    }
}
