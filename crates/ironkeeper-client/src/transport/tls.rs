//! TLS over TCP, with rustls.

use std::io;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Opening, Transport, tcp};
use crate::error::{Error, ErrorKind, Result};
use crate::hosts::Host;

/// The trusted authorities, and the certificate of the client.
///
/// ```no_run
/// use std::fs::read;
///
/// use ironkeeper_client::{Client, TlsSettings, TlsTransport};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let settings = TlsSettings::new()
///         .trust(read("authority.pem")?)
///         .identity(read("me.pem")?, read("me.key")?)
///         .server_name("zookeeper.example");
///     let transport = TlsTransport::new(&settings)?;
///     let client = Client::builder("zk1:2281").transport(transport).connect().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Default)]
pub struct TlsSettings {
    authorities: Vec<u8>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl TlsSettings {
    /// Creates settings without a trusted authority.
    ///
    /// ```
    /// use ironkeeper_client::{TlsSettings, TlsTransport};
    /// assert!(TlsTransport::new(&TlsSettings::new()).is_err());
    /// ```
    pub fn new() -> TlsSettings {
        TlsSettings::default()
    }

    /// Trusts servers whose certificates were issued by one of the authorities in this PEM text.
    ///
    /// ```no_run
    /// fn main() -> std::io::Result<()> {
    ///     let authorities = std::fs::read("authority.pem")?;
    ///     let settings = ironkeeper_client::TlsSettings::new().trust(authorities);
    ///     Ok(())
    /// }
    /// ```
    pub fn trust(mut self, authorities_pem: impl AsRef<[u8]>) -> TlsSettings {
        self.authorities.extend_from_slice(authorities_pem.as_ref());
        self.authorities.push(b'\n');
        self
    }

    /// Sets the client's certificate (with its chain) and private key, as PEM texts.
    ///
    /// ```no_run
    /// fn main() -> std::io::Result<()> {
    ///     let (certificates, key) = (std::fs::read("me.pem")?, std::fs::read("me.key")?);
    ///     let settings = ironkeeper_client::TlsSettings::new().identity(certificates, key);
    ///     Ok(())
    /// }
    /// ```
    pub fn identity(
        mut self,
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> TlsSettings {
        self.identity = Some((certificates_pem.as_ref().into(), key_pem.as_ref().into()));
        self
    }

    /// Sets the name in the certificates of all servers. The default is each server's name in the
    /// connect string.
    ///
    /// ```
    /// let settings = ironkeeper_client::TlsSettings::new().server_name("zookeeper.example");
    /// ```
    pub fn server_name(mut self, name: &str) -> TlsSettings {
        self.server_name = Some(name.to_owned());
        self
    }
}

impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("TlsSettings")
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// TLS over TCP. Requires the feature `tls`.
///
/// ```no_run
/// use ironkeeper_client::{Client, TlsSettings, TlsTransport};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let settings = TlsSettings::new().trust(std::fs::read("authority.pem")?);
///     let transport = TlsTransport::new(&settings)?;
///     let client = Client::builder("zk.example:2281").transport(transport).connect().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
#[doc(alias = "SSL")]
#[doc(alias = "zookeeper.client.secure")]
pub struct TlsTransport {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl TlsTransport {
    /// Creates a transport from settings. Returns an error if a text is not PEM or there is no
    /// trusted authority.
    ///
    /// ```
    /// use ironkeeper_client::{TlsSettings, TlsTransport};
    /// assert!(TlsTransport::new(&TlsSettings::new()).is_err());
    /// ```
    pub fn new(settings: &TlsSettings) -> Result<TlsTransport> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&settings.authorities)? {
            roots.add(certificate).map_err(unusable)?;
        }
        if roots.is_empty() {
            return Err(unusable("there is no authority to trust"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots);
        let config = match &settings.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(unusable)?;
                config.with_client_auth_cert(certificates(chain)?, key).map_err(unusable)?
            }
        };
        let transport = TlsTransport::from_config(Arc::new(config));
        match &settings.server_name {
            None => Ok(transport),
            Some(name) => {
                let name = ServerName::try_from(name.clone()).map_err(unusable)?;
                Ok(TlsTransport { server_name: Some(name), ..transport })
            }
        }
    }

    /// Creates a transport from a configuration of rustls, for options that [`TlsSettings`] does
    /// not have.
    pub fn from_config(config: Arc<ClientConfig>) -> TlsTransport {
        TlsTransport { config, server_name: None }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<_, _>>().map_err(unusable)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn unusable(why: impl ToString) -> Error {
    Error::new(ErrorKind::BadTlsSettings).with_detail(why.to_string())
}

impl std::fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsTransport")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn open(&self, server: &Host) -> Opening {
        let (server, connector) = (server.clone(), TlsConnector::from(self.config.clone()));
        let name = self.server_name.clone();
        Box::pin(async move {
            let name = match name {
                Some(name) => name,
                None => ServerName::try_from(server.name().to_owned())
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
            };
            let stream = tcp::open(&server).await?;
            Ok(Box::new(connector.connect(name, stream).await?) as _)
        })
    }
}
