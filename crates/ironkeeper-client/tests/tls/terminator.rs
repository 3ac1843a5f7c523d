//! A server behind TLS, for tests. The keys in this directory are public.

use std::sync::Arc;

use ironkeeper_testing::TestServer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

pub const AUTHORITY: &[u8] = include_bytes!("authority.pem");
pub const SERVER: (&[u8], &[u8]) = (include_bytes!("server.pem"), include_bytes!("server.key"));
pub const CLIENT: (&[u8], &[u8]) = (include_bytes!("client.pem"), include_bytes!("client.key"));

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().unwrap()
}

/// Terminates TLS and forwards to the server; optionally requires client certificates.
pub async fn terminator(server: &TestServer, wants_certificates: bool) -> u16 {
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
