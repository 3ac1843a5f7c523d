//! The options and the result of a create.

use std::time::Duration;

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::stat::TTL_MS_MAX;
use ironkeeper_proto::{Acl, CreateMode, OpCode, Perms, Stat, acl, path};

use crate::error::{Error, ErrorKind, Result};

/// The options of a create: the mode, the ACL and the TTL of the node.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::{Acl, CreateMode, CreateOptions, Perms};
///
/// let options = CreateOptions::new(CreateMode::PersistentWithTtl)
///     .ttl(Duration::from_secs(60))
///     .acl(vec![Acl::new(Perms::ALL, "auth", "")]);
/// assert_eq!(options.mode(), CreateMode::PersistentWithTtl);
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "CreateBuilder")]
pub struct CreateOptions {
    mode: CreateMode,
    /// `None`: the open ACL, `world:anyone` with all permissions.
    acl: Option<Vec<Acl>>,
    ttl: Option<Duration>,
    null_data: bool,
}

impl CreateOptions {
    /// Creates options for a node of this mode with the open ACL.
    ///
    /// ```
    /// use ironkeeper_client::{CreateMode, CreateOptions};
    /// let options = CreateOptions::new(CreateMode::Ephemeral);
    /// ```
    pub fn new(mode: CreateMode) -> CreateOptions {
        CreateOptions { mode, acl: None, ttl: None, null_data: false }
    }

    /// Sets the ACL. The default gives all permissions to `world:anyone`.
    ///
    /// ```
    /// use ironkeeper_client::{CreateOptions, acls};
    /// let options = CreateOptions::default().acl(acls::creator());
    /// ```
    pub fn acl(mut self, acl: Vec<Acl>) -> CreateOptions {
        self.acl = Some(acl);
        self
    }

    /// Sets the TTL of a TTL node: the time after which it is deleted if it was not changed and has
    /// no children.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::{CreateMode, CreateOptions};
    /// let options = CreateOptions::new(CreateMode::PersistentWithTtl).ttl(Duration::from_secs(60));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> CreateOptions {
        self.ttl = Some(ttl);
        self
    }

    /// Sends null as the data. Servers and some clients distinguish null from empty data.
    ///
    /// ```
    /// use ironkeeper_client::CreateOptions;
    /// let options = CreateOptions::default().null_data();
    /// ```
    pub fn null_data(mut self) -> CreateOptions {
        self.null_data = true;
        self
    }

    /// Returns the mode of the node.
    ///
    /// ```
    /// use ironkeeper_client::{CreateMode, CreateOptions};
    /// assert_eq!(CreateOptions::default().mode(), CreateMode::Persistent);
    /// ```
    pub fn mode(&self) -> CreateMode {
        self.mode
    }

    /// Returns the ACL, if it was set.
    ///
    /// ```
    /// use ironkeeper_client::CreateOptions;
    /// assert!(CreateOptions::default().access().is_none());
    /// ```
    pub fn access(&self) -> Option<&[Acl]> {
        self.acl.as_deref()
    }

    pub(crate) fn check(&self, user_path: &str) -> Result<()> {
        let refuse =
            |why: &str| Err(Error::at(ErrorKind::InvalidArgument, user_path).with_detail(why));
        // The server appends the number of a sequential node, so its path may end with a slash.
        let checked = match self.mode.is_sequential() {
            true => path::validate(&format!("{user_path}0")),
            false => path::validate(user_path),
        };
        checked.map_err(|why| Error::at(ErrorKind::InvalidPath(why), user_path))?;
        match (self.mode.is_ttl(), self.ttl) {
            (true, None) => return refuse("a TTL node needs a TTL"),
            (false, Some(_)) => return refuse("only TTL nodes have a TTL"),
            (true, Some(ttl)) if ttl.as_millis() < 1 || ttl.as_millis() > TTL_MS_MAX as u128 => {
                return refuse("a TTL is at least 1 ms and at most 2^40-1 ms");
            }
            _ => {}
        }
        match &self.acl {
            Some(acl) if acl.is_empty() => Err(Error::at(ErrorKind::InvalidAcl, user_path)),
            _ => Ok(()),
        }
    }

    /// Returns the operation that creates a node of this mode.
    pub(crate) fn op(&self, with_stat: bool) -> OpCode {
        match self.mode {
            CreateMode::Container => OpCode::CreateContainer,
            _ if self.mode.is_ttl() => OpCode::CreateTtl,
            _ if with_stat => OpCode::Create2,
            _ => OpCode::Create,
        }
    }

    pub(crate) fn encode(&self, server_path: &str, data: &[u8], out: &mut impl Put) {
        out.put_str(server_path);
        out.put_buf(if self.null_data { None } else { Some(data) });
        match &self.acl {
            Some(list) => acl::encode_list(list, out),
            None => {
                out.put_len(1);
                out.put_raw(acl::OPEN_ENCODED);
            }
        }
        out.put_i32(self.mode.flags());
        if self.mode.is_ttl() {
            let ttl_ms = self.ttl.map_or(0, |ttl| ttl.as_millis());
            out.put_i64(i64::try_from(ttl_ms).unwrap_or(i64::MAX));
        }
    }

    /// Returns an upper bound for the encoded size of the ACL.
    pub(crate) fn acl_bytes(&self) -> usize {
        let list = self.acl.iter().flatten();
        list.map(|acl| 12 + 2 * (acl.scheme.len() + acl.id.len())).sum::<usize>() + 64
    }
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions::new(CreateMode::Persistent)
    }
}

impl From<CreateMode> for CreateOptions {
    fn from(mode: CreateMode) -> CreateOptions {
        CreateOptions::new(mode)
    }
}

/// A node that was created.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, CreateOptions};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let options = CreateOptions::new(CreateMode::PersistentSequential);
///     let created = client.create_with("/zookeeper/job-", "data", &options).await?;
///     assert!(created.path.starts_with("/zookeeper/job-000000000"));
///     assert_eq!(created.stat.data_length, 4);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// The path, with the number of a sequential node.
    pub path: String,
    /// The [`Stat`] of the node.
    pub stat: Stat,
}

/// Common ACLs.
///
/// ```
/// use ironkeeper_client::acls;
/// assert_eq!(acls::open()[0].scheme, "world");
/// ```
pub mod acls {
    use super::*;

    /// Returns the open ACL: `world:anyone` has all permissions.
    ///
    /// ```
    /// assert_eq!(ironkeeper_client::acls::open()[0].id, "anyone");
    /// ```
    #[doc(alias = "OPEN_ACL_UNSAFE")]
    pub fn open() -> Vec<Acl> {
        acl::open()
    }

    /// Returns the ACL that gives `world:anyone` the read permission.
    ///
    /// ```
    /// use ironkeeper_client::{Perms, acls};
    /// assert_eq!(acls::read()[0].perms, Perms::READ);
    /// ```
    #[doc(alias = "READ_ACL_UNSAFE")]
    pub fn read() -> Vec<Acl> {
        vec![Acl::new(Perms::READ, "world", "anyone")]
    }

    /// Returns the ACL that gives all permissions to the identities with which the creating client
    /// has authenticated, and none to others.
    ///
    /// ```
    /// assert_eq!(ironkeeper_client::acls::creator()[0].scheme, "auth");
    /// ```
    #[doc(alias = "CREATOR_ALL_ACL")]
    pub fn creator() -> Vec<Acl> {
        vec![Acl::new(Perms::ALL, "auth", "")]
    }
}
