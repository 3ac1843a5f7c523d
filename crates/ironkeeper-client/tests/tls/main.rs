//! TLS between the client and a server behind a terminator. The keys in this folder protect nothing.

#![cfg(feature = "tls")]

use std::sync::Arc;
use std::time::Duration;

use ironkeeper_client::{
    Client, ClientBuilder, CreateMode, Error, ErrorKind, TlsSettings, TlsTransport, Version,
};
use ironkeeper_testing::TestServer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

const AUTHORITY: &[u8] = include_bytes!("authority.pem");
const SERVER: (&[u8], &[u8]) = (include_bytes!("server.pem"), include_bytes!("server.key"));
const CLIENT: (&[u8], &[u8]) = (include_bytes!("client.pem"), include_bytes!("client.key"));

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().unwrap()
}

/// Takes TLS off and hands on to the server. Wants certificates from clients if told so.
async fn terminator(server: &TestServer, wants_certificates: bool) -> u16 {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = if wants_certificates {
        let mut roots = RootCertStore::empty();
        roots.add(certificates(AUTHORITY).remove(0)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        config.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        config.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_slice(SERVER.1).unwrap();
    let config = config.with_single_cert(certificates(SERVER.0), key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let upstream = server.address();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await?;
                let mut inside = TcpStream::connect(upstream).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    port
}

fn builder(port: u16, settings: &TlsSettings) -> ClientBuilder {
    let transport = TlsTransport::new(settings).expect("settings that can work");
    Client::builder(&format!("127.0.0.1:{port}")).transport(transport)
}

async fn connect(port: u16, settings: &TlsSettings) -> Client {
    let patient = builder(port, settings).connect_timeout(Duration::from_secs(60));
    patient.connect().await.expect("a handshake")
}

/// Why there is no connection, after as much time as the first handshake may take on a busy machine.
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
    // More than the buffers in between hold, in both directions at once.
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
    // The certificate of a server is no authority.
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
