//! `-client-configuration FILE`: the properties that configure TLS for Apache's client.
//!
//! Stores are PEM files: the trust store contains the certificates of authorities, the key store a
//! private key and its certificates. A property is an error if ignoring it would make the
//! connection less secure than configured; other ignored properties are reported on standard error.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ironkeeper_client::{TlsSettings, TlsTransport};
use ironkeeper_config::properties;

/// Properties that are ignored without a message: specific to the Java client, or valid only if
/// empty.
const MEANINGLESS: [&str; 8] = [
    "zookeeper.clientCnxnSocket",
    "zookeeper.sasl.client",
    "zookeeper.ssl.keyStore.password",
    "zookeeper.ssl.keyStore.passwordPath",
    "zookeeper.ssl.keyStore.type",
    "zookeeper.ssl.trustStore.password",
    "zookeeper.ssl.trustStore.passwordPath",
    "zookeeper.ssl.trustStore.type",
];

/// Returns the transport that a file configures; `None` for plain TCP.
pub fn transport(file: &str) -> Result<Option<TlsTransport>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    Configuration::parse(&text)
        .and_then(|configuration| configuration.transport())
        .with_context(|| file.to_owned())
}

/// The content of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Configuration {
    secure: bool,
    key_store: Option<String>,
    trust_store: Option<String>,
}

impl Configuration {
    fn parse(text: &str) -> Result<Configuration> {
        let mut found = Configuration::default();
        for entry in properties::parse(text)? {
            let (key, value) = (entry.key.as_str(), entry.value);
            match key {
                "zookeeper.client.secure" => found.secure = value.eq_ignore_ascii_case("true"),
                "zookeeper.ssl.keyStore.location" => found.key_store = Some(value),
                "zookeeper.ssl.trustStore.location" => found.trust_store = Some(value),
                "zookeeper.ssl.keyStore.password" | "zookeeper.ssl.keyStore.passwordPath"
                    if !value.is_empty() =>
                {
                    bail!("{key}: keys with a password are not supported; {CONVERT}")
                }
                "zookeeper.ssl.hostnameVerification" if value.eq_ignore_ascii_case("true") => {}
                "zookeeper.ssl.hostnameVerification" => {
                    bail!("{key}={value}: the name in a server's certificate is always checked")
                }
                "zookeeper.sasl.client" if value.eq_ignore_ascii_case("true") => {
                    bail!("{key}={value}: SASL is not supported")
                }
                other if MEANINGLESS.contains(&other) => {}
                other => eprintln!("{other} has no effect (line {})", entry.line),
            }
        }
        Ok(found)
    }

    fn transport(&self) -> Result<Option<TlsTransport>> {
        if !self.secure {
            return Ok(None);
        }
        let Some(trusted) = &self.trust_store else {
            bail!(
                "zookeeper.ssl.trustStore.location is missing: the PEM file of the authorities to trust"
            );
        };
        let mut settings = TlsSettings::new().trust(read_store(trusted)?);
        if let Some(ours) = &self.key_store {
            let pem = read_store(ours)?;
            settings = settings.identity(&pem, &pem);
        }
        Ok(Some(TlsTransport::new(&settings)?))
    }
}

/// Advice for a store that is not a PEM file.
const CONVERT: &str = "`openssl pkcs12 -in STORE.p12 -out STORE.pem -nodes` makes a PEM file without password of a \
                       PKCS12 store, `keytool -importkeystore -deststoretype pkcs12` one of those of a JKS store";

fn read_store(path: &str) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {path}"))?;
    if !bytes.windows(11).any(|window| window == b"-----BEGIN ") {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        bail!("{name} is not a PEM file; {CONVERT}");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str) -> String {
        let refused = Configuration::parse(text).and_then(|found| found.transport());
        format!("{:#}", refused.expect_err("a refusal"))
    }

    #[test]
    fn without_secure_the_connection_is_plain() {
        let found = Configuration::parse("zookeeper.ssl.trustStore.location=/nowhere").unwrap();
        assert!(found.transport().unwrap().is_none());
    }

    #[test]
    fn what_a_java_client_needs_besides_is_no_obstacle() {
        let text = "zookeeper.client.secure = TRUE\nzookeeper.sasl.client=false\n\
                    zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n\
                    zookeeper.ssl.keyStore.location=/k.pem\nzookeeper.ssl.keyStore.type=PEM\n\
                    zookeeper.ssl.trustStore.location=/t.pem\nzookeeper.ssl.trustStore.password=x\n";
        let expected = Configuration {
            secure: true,
            key_store: Some("/k.pem".to_owned()),
            trust_store: Some("/t.pem".to_owned()),
        };
        assert_eq!(Configuration::parse(text).unwrap(), expected);
    }

    #[test]
    fn nothing_is_made_less_safe_than_the_file_says() {
        let secure = "zookeeper.client.secure=true\n";
        assert!(refused(secure).contains("trustStore.location is missing"));
        let missing = refused(&format!("{secure}zookeeper.ssl.trustStore.location=/nowhere.pem"));
        assert!(missing.starts_with("cannot read /nowhere.pem"), "{missing}");
        assert!(refused("zookeeper.sasl.client=true").contains("SASL"));
        assert!(refused("zookeeper.ssl.hostnameVerification=false").contains("always checked"));
        assert!(refused("zookeeper.ssl.keyStore.password=x").contains("openssl pkcs12"));
    }

    #[test]
    fn a_java_store_is_refused_with_the_way_out() {
        let store = tempfile::NamedTempFile::new().unwrap();
        fs::write(store.path(), b"\xfe\xed\xfe\xed store").unwrap();
        let path = store.path().display();
        let text =
            format!("zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location={path}");
        assert!(refused(&text).contains("is not a PEM file"));
    }
}
