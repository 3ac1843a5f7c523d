//! Settings and start of a [`TestCluster`].

use std::path::PathBuf;

use ironkeeper_server::panics::Place;

use crate::builder::Builder;
use crate::cluster::{Member, TestCluster};
use crate::error::Error;
use crate::port::HeldPort;

/// Builder of a [`TestCluster`], returned by [`TestCluster::builder`].
///
/// ```
/// use ironkeeper_testing::TestCluster;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let cluster =
///         TestCluster::builder().voters(3).observers(1).set("jute.maxbuffer", 4096).start()?;
///     assert_eq!(cluster.ids().count(), 4);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    voters: usize,
    observers: usize,
    data_dir: Option<PathBuf>,
    client_ports: Vec<u16>,
    member: Builder,
}

impl ClusterBuilder {
    pub(crate) fn new() -> ClusterBuilder {
        // In ticks of 50 ms: limits of 30 s and 20 s, because a test machine can be busy for
        // seconds. A stopped server is noticed at once anyway, since its connections are closed.
        let member = Builder::new().set("initLimit", 600).set("syncLimit", 400);
        let client_ports = Vec::new();
        ClusterBuilder { voters: 3, observers: 0, data_dir: None, client_ports, member }
    }

    /// Sets the number of voting members; the default is three.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::builder().voters(1).start()?;
    ///     assert_eq!(cluster.leader(), Some(1));
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn voters(mut self, voters: usize) -> ClusterBuilder {
        self.voters = voters;
        self
    }

    /// Sets the number of observers; the default is zero. Their ids follow the ids of the voters.
    ///
    /// ```
    /// use ironkeeper_testing::{Role, TestCluster};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::builder().voters(1).observers(1).start()?;
    ///     assert_eq!(cluster.server(2).role(), Role::Observer);
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn observers(mut self, observers: usize) -> ClusterBuilder {
        self.observers = observers;
        self
    }

    /// Stores the data in the directories `1`, `2` and so on below `dir`, and keeps them there.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     drop(TestCluster::builder().voters(1).data_dir(dir.path()).start()?);
    ///     assert!(dir.path().join("1/version-2").is_dir());
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> ClusterBuilder {
        self.data_dir = Some(dir.into());
        self
    }

    /// Sets the client ports on 127.0.0.1, beginning with the first member. Members without an
    /// entry use any free port.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    ///     let cluster = TestCluster::builder().voters(1).client_ports([free]).start()?;
    ///     assert_eq!(cluster.server(1).port(), free);
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn client_ports(mut self, ports: impl IntoIterator<Item = u16>) -> ClusterBuilder {
        self.client_ports = ports.into_iter().collect();
        self
    }

    /// Sets a key of `zoo.cfg` for all members, as [`Builder::set`] does for one server.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::builder().set("localSessionsEnabled", true).start()?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl ToString) -> ClusterBuilder {
        self.member = self.member.set(key, value);
        self
    }

    /// Calls [`Builder::planted_panic`] for all members.
    #[doc(hidden)]
    #[must_use]
    pub fn planted_panic(mut self, place: Place) -> ClusterBuilder {
        self.member = self.member.planted_panic(place);
        self
    }

    /// Starts all members and returns when all of them serve clients.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::builder().start()?;
    ///     assert!(cluster.ids().all(|id| cluster.server(id).role().serves()));
    ///     Ok(())
    /// }
    /// ```
    pub fn start(self) -> Result<TestCluster, Error> {
        let take = || HeldPort::take(0).map_err(Error::Port);
        let mut ports = Vec::new();
        for _ in 0..self.voters + self.observers {
            ports.push([take()?, take()?]);
        }
        // Without this setting a single server would run standalone.
        let mut member = self.member.set("standaloneEnabled", false);
        for (index, [quorum, election]) in ports.iter().enumerate() {
            let role = if index < self.voters { "participant" } else { "observer" };
            let (quorum, election) = (quorum.address(), election.address().port());
            let line = format!("{quorum}:{election}:{role}");
            member = member.set(format!("server.{}", index + 1), line);
        }
        let mut members = Vec::new();
        for (index, ports) in ports.into_iter().enumerate() {
            let id = index as i64 + 1;
            let mut builder =
                member.clone().port(self.client_ports.get(index).copied().unwrap_or(0));
            if let Some(dir) = &self.data_dir {
                builder = builder.data_dir(dir.join(id.to_string()));
            }
            let server = builder.start_as(Some(id))?;
            members.push(Member { server, _ports: ports });
        }
        let cluster = TestCluster::of(members);
        cluster.wait_until_serving()?;
        Ok(cluster)
    }
}
