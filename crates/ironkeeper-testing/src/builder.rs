//! Settings and start of a [`TestServer`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use ironkeeper_config::{Config, Sources};
use ironkeeper_server::panics::Place;

use crate::error::Error;
use crate::port::HeldPort;
use crate::server::{DataDir, TestServer};

/// The settings of a test server that differ from the defaults of a server: short intervals, no
/// connection limit, no fsync. [`Builder::set`] replaces any of them.
const DEFAULTS: [(&str, &str); 11] = [
    // Session timeouts from 100 ms, and up to an hour, so that a session survives a debugger's
    // pause.
    ("tickTime", "50"),
    ("minSessionTimeout", "100"),
    ("maxSessionTimeout", "3600000"),
    // The data need not survive a power cut.
    ("forceSync", "no"),
    ("preAllocSize", "64"),
    ("maxClientCnxns", "0"),
    ("4lw.commands.whitelist", "*"),
    ("extendedTypesEnabled", "true"),
    // Empty containers and expired TTL nodes are deleted within 50 ms.
    ("znode.container.checkIntervalMs", "50"),
    ("znode.container.maxPerMinute", "1000000"),
    ("autopurge.purgeInterval", "0"),
];

/// Builder of a [`TestServer`], returned by [`TestServer::builder`].
///
/// ```
/// use ironkeeper_testing::TestServer;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let server =
///         TestServer::builder().set("jute.maxbuffer", "4096").set("skipACL", "yes").start()?;
///     assert_ne!(server.port(), 0);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "InstanceSpec")]
pub struct Builder {
    port: u16,
    data_dir: Option<PathBuf>,
    settings: BTreeMap<String, String>,
    planted_panic: Option<Place>,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        let settings = DEFAULTS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Builder { port: 0, data_dir: None, settings: settings.into(), planted_panic: None }
    }

    /// Listens on this port of 127.0.0.1 instead of any free one.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let held = ironkeeper_testing::HeldPort::take(0)?;
    ///     let free = held.address().port();
    ///     let server = TestServer::builder().port(free).start()?;
    ///     assert_eq!(server.port(), free);
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn port(mut self, port: u16) -> Builder {
        self.port = port;
        self
    }

    /// Stores the data in `dir` and keeps it there after the server is dropped; without this call
    /// the data is in a temporary directory. `dir` may contain the data of an earlier server,
    /// Ironkeeper or Apache ZooKeeper.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     drop(TestServer::builder().data_dir(dir.path()).start()?);
    ///     assert!(dir.path().join("version-2").is_dir());
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Builder {
        self.data_dir = Some(dir.into());
        self
    }

    /// Sets a key of `zoo.cfg`, or a Java system property of Apache ZooKeeper under the same name.
    /// The start fails if the key is unknown or has no effect.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::builder()
    ///         .set("tickTime", "2000")
    ///         .set("enforceQuota", "true")
    ///         .start()?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts are written as they are")]
    pub fn set(mut self, key: impl Into<String>, value: impl ToString) -> Builder {
        self.settings.insert(key.into(), value.to_string());
        self
    }

    /// Makes the server panic at `place` after the node `/panic-N` is created, where N is the id of
    /// the server (1 if standalone). For tests of a server that panics; has no effect without debug
    /// assertions.
    #[doc(hidden)]
    #[must_use]
    pub fn planted_panic(mut self, place: Place) -> Builder {
        self.planted_panic = Some(place);
        self
    }

    /// Starts the server. Clients can connect when this returns.
    ///
    /// ```
    /// use ironkeeper_testing::TestServer;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let server = TestServer::builder().start()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn start(self) -> Result<TestServer, Error> {
        self.start_as(None)
    }

    /// Starts the server as member `my_id` of an ensemble, or standalone if `None`.
    pub(crate) fn start_as(self, my_id: Option<i64>) -> Result<TestServer, Error> {
        let dir = match self.data_dir {
            Some(dir) => DataDir::Given(dir),
            None => {
                let prefix = "ironkeeper-test-";
                let dir = tempfile::Builder::new().prefix(prefix).tempdir().map_err(Error::Dir)?;
                DataDir::Temporary(dir)
            }
        };
        let port = HeldPort::take(self.port).map_err(Error::Port)?;
        let mut config = config(&self.settings, my_id)?;
        // Set directly and not in `zoo.cfg`, because a path need not be UTF-8.
        dir.path().clone_into(&mut config.data_dir);
        if !self.settings.contains_key("dataLogDir") {
            dir.path().clone_into(&mut config.data_log_dir);
        }
        config.client_address.host = Some(port.address().ip().to_string());
        config.client_address.port = port.address().port();
        config.planted_panic = self.planted_panic;
        TestServer::launch(config, port, dir)
    }
}

fn config(settings: &BTreeMap<String, String>, my_id: Option<i64>) -> Result<Config, Error> {
    for (key, instead) in
        [("clientPort", "port"), ("clientPortAddress", "port"), ("dataDir", "data_dir")]
    {
        if settings.contains_key(key) {
            return Err(Error::Setting(format!("{key} is set with Builder::{instead}")));
        }
    }
    // `zoo.cfg` requires both keys; `start_as` replaces the values.
    let mut zoo_cfg = String::from("dataDir=unset\nclientPort=1\n");
    for (key, value) in settings {
        zoo_cfg.push_str(&format!("{}={}\n", escape(key), escape(value)));
    }
    let my_id = my_id.map(|id| id.to_string());
    let sources = Sources { zoo_cfg: &zoo_cfg, my_id: my_id.as_deref(), ..Sources::default() };
    let loaded = Config::from_sources(&sources)?;
    let notice = loaded.notices.iter().find(|notice| notice.deserves_attention());
    if let Some(notice) = notice {
        return Err(Error::Setting(notice.to_string()));
    }
    Ok(loaded.config)
}

/// Returns `text` with all characters that are special in a property file as Java escapes.
fn escape(text: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '\\' | '=' | ':' | '#' | '!');
    let mut escaped = String::new();
    for c in text.chars() {
        if plain(c) {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use ironkeeper_proto::four_letter::FourLetterWord;

    use super::*;

    #[test]
    fn any_text_is_the_same_after_the_property_file() {
        for text in ["plain", "a=b: c", "C:\\data\\x", "# no comment", "ä🦀\n line", "a\\"] {
            let line = format!("key={}", escape(text));
            let entries = ironkeeper_config::properties::parse(&line).expect("one entry");
            assert_eq!(entries[0].value, text);
        }
    }

    #[test]
    fn the_defaults_are_all_in_effect() {
        let config =
            config(&Builder::new().settings, None).expect("a configuration without notices");
        assert_eq!((config.tick_time_ms, config.min_session_timeout_ms), (50, 100));
        assert!(config.extended_types_enabled && !config.force_sync);
        assert!(config.four_letter_words.allows(FourLetterWord::Wchc));
    }

    #[track_caller]
    fn check_refused(key: &str, expected: &str) {
        let refused = Builder::new().set(key, "1").start().expect_err("a refusal").to_string();
        assert!(refused.contains(expected), "{refused}");
    }

    #[test]
    fn a_setting_that_would_not_do_its_job_fails_the_start() {
        check_refused("tikTime", "tickTime");
        check_refused("clientPort", "Builder::port");
        check_refused("secureClientPort", "TLS");
    }
}
