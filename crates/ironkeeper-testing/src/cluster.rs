//! An ensemble in the process of the test.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use ironkeeper_proto::SessionId;

use crate::cluster_builder::ClusterBuilder;
use crate::error::Error;
use crate::port::HeldPort;
use crate::role::Role;
use crate::server::{TestServer, until};

/// An ensemble in this process: servers that elect a leader, replicate every write and tolerate the
/// failure of a minority. The equivalent of Curator's `TestingCluster`.
///
/// Each member is a complete [`TestServer`]; members are numbered from 1, voters first. The members
/// communicate over TCP in ZooKeeper's protocol. Dropping the cluster stops all members and removes
/// the data.
///
/// ```
/// use ironkeeper_testing::{Role, TestCluster};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let cluster = TestCluster::start(3)?;
///     println!("connect your client to {}", cluster.connect_string());
///
///     let stopped = cluster.stop_leader()?;
///     cluster.wait_until_serving()?;
///     assert_ne!(cluster.leader(), Some(stopped));
///
///     cluster.restart(stopped)?;
///     cluster.wait_until_serving()?;
///     assert_eq!(cluster.server(stopped).role(), Role::Follower);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "TestingCluster")]
pub struct TestCluster {
    members: Vec<Member>,
    /// The sides of the partition; `None` while all members can connect to each other.
    sides: Mutex<Option<Vec<BTreeSet<i64>>>>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) server: TestServer,
    /// The quorum and the election port, reserved also while the member is stopped.
    pub(crate) _ports: [HeldPort; 2],
}

impl TestCluster {
    /// Starts `voters` voting members and returns when all of them serve clients.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     assert!(cluster.leader().is_some());
    ///     Ok(())
    /// }
    /// ```
    pub fn start(voters: usize) -> Result<TestCluster, Error> {
        TestCluster::builder().voters(voters).start()
    }

    /// Returns a builder that sets members, ports, directory and settings.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::builder().voters(3).observers(1).start()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }

    pub(crate) fn of(members: Vec<Member>) -> TestCluster {
        TestCluster { members, sides: Mutex::default() }
    }

    /// Returns the connect string with all members, including stopped members.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     assert_eq!(cluster.connect_string().split(',').count(), 3);
    ///     Ok(())
    /// }
    /// ```
    pub fn connect_string(&self) -> String {
        let servers = self.members.iter().map(|member| member.server.connect_string());
        servers.collect::<Vec<_>>().join(",")
    }

    /// Returns the ids of the members, voters first.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     assert_eq!(cluster.ids().collect::<Vec<_>>(), [1, 2, 3]);
    ///     Ok(())
    /// }
    /// ```
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        1..=self.members.len() as i64
    }

    /// Returns the member `id`.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     cluster.server(2).drop_connections()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    /// If there is no member `id`.
    pub fn server(&self, id: i64) -> &TestServer {
        let index = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let member = index.and_then(|index| self.members.get(index));
        &member.unwrap_or_else(|| panic!("the cluster has no member {id}")).server
    }

    /// Returns the id of the leader, or `None`. In a partitioned network two members can be leading
    /// for a moment, until the leader without a quorum notices; then the smaller id is returned.
    ///
    /// ```
    /// use ironkeeper_testing::{Role, TestCluster};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     let leader = cluster.leader().expect("there is one");
    ///     assert_eq!(cluster.server(leader).role(), Role::Leader);
    ///     Ok(())
    /// }
    /// ```
    pub fn leader(&self) -> Option<i64> {
        self.ids().find(|id| self.server(*id).role() == Role::Leader)
    }

    /// Waits until every running member serves clients. Fails after a minute, which is certain if
    /// the running members are no quorum or the network is partitioned.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     cluster.stop(1)?;
    ///     cluster.wait_until_serving()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn wait_until_serving(&self) -> Result<(), Error> {
        until("the cluster has no leader, or not all members follow it", || {
            let roles: Vec<Role> = self.members.iter().map(|member| member.server.role()).collect();
            roles.iter().all(|role| *role == Role::Stopped || role.serves())
                && roles.contains(&Role::Leader)
        })
    }

    /// Stops a member. Its data and ports are kept for [`TestCluster::restart`].
    ///
    /// ```
    /// use ironkeeper_testing::{Role, TestCluster};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     cluster.stop(2)?;
    ///     assert_eq!(cluster.server(2).role(), Role::Stopped);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "killServer")]
    pub fn stop(&self, id: i64) -> Result<(), Error> {
        self.server(id).stop()
    }

    /// Stops the leader and returns its id. Waits for a leader first if there is none.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     let stopped = cluster.stop_leader()?;
    ///     assert!(!cluster.server(stopped).is_running());
    ///     Ok(())
    /// }
    /// ```
    pub fn stop_leader(&self) -> Result<i64, Error> {
        let mut leader = None;
        until("the cluster has no leader", || {
            leader = self.leader();
            leader.is_some()
        })?;
        let leader = leader.ok_or(Error::Stopped)?;
        self.stop(leader)?;
        Ok(leader)
    }

    /// Starts a member with its old data and ports; stops it first if it is running. Call
    /// [`TestCluster::wait_until_serving`] afterwards to wait until the member has rejoined.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     cluster.restart(1)?;
    ///     cluster.wait_until_serving()?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "restartServer")]
    pub fn restart(&self, id: i64) -> Result<(), Error> {
        let sides = self.sides.lock().unwrap_or_else(PoisonError::into_inner);
        self.server(id).restart()?;
        self.cut_off(id, sides.as_deref());
        Ok(())
    }

    /// Partitions the network between the members: two members can connect to each other only if
    /// they are on the same side. A member on no side is isolated. Clients can connect to all
    /// members.
    ///
    /// ```
    /// use ironkeeper_testing::{Role, TestCluster};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     let lonely = cluster.leader().expect("there is one");
    ///     let others: Vec<i64> = cluster.ids().filter(|id| *id != lonely).collect();
    ///     cluster.partition(&[&[lonely], &others]);
    ///     cluster.wait_for_role(lonely, Role::Looking)?;
    ///     cluster.heal();
    ///     cluster.wait_until_serving()?;
    ///     assert_ne!(cluster.leader(), Some(lonely));
    ///     Ok(())
    /// }
    /// ```
    pub fn partition(&self, sides: &[&[i64]]) {
        let sides = sides.iter().map(|side| side.iter().copied().collect()).collect();
        self.set_sides(Some(sides));
    }

    /// Ends the partition that [`TestCluster::partition`] created.
    ///
    /// ```
    /// use ironkeeper_testing::TestCluster;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     cluster.partition(&[&[1], &[2, 3]]);
    ///     cluster.heal();
    ///     cluster.wait_until_serving()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn heal(&self) {
        self.set_sides(None);
    }

    /// Waits until the member `id` has this role. Fails after a minute.
    ///
    /// ```
    /// use ironkeeper_testing::{Role, TestCluster};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     // One of three is not enough.
    ///     cluster.stop(2)?;
    ///     cluster.stop(3)?;
    ///     cluster.wait_for_role(1, Role::Looking)?;
    ///     Ok(())
    /// }
    /// ```
    pub fn wait_for_role(&self, id: i64, role: Role) -> Result<(), Error> {
        until("a member does not get the role it should have", || self.server(id).role() == role)
    }

    /// Expires a session at once, whichever member its client is connected to. When this returns,
    /// no member has the session any more. Returns false if there is no such session.
    ///
    /// ```
    /// use ironkeeper_testing::{SessionId, TestCluster};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let cluster = TestCluster::start(3)?;
    ///     assert!(!cluster.kill_session(SessionId(0x1234))?);
    ///     Ok(())
    /// }
    /// ```
    pub fn kill_session(&self, session: SessionId) -> Result<bool, Error> {
        let leader = self.leader().ok_or(Error::Stopped)?;
        if !self.server(leader).expire(session)? {
            return Ok(false);
        }
        until("a session does not end", || {
            !self.members.iter().any(|member| member.server.knows_session(session))
        })?;
        Ok(true)
    }

    fn set_sides(&self, sides: Option<Vec<BTreeSet<i64>>>) {
        let mut known = self.sides.lock().unwrap_or_else(PoisonError::into_inner);
        for id in self.ids() {
            self.cut_off(id, sides.as_deref());
        }
        *known = sides;
    }

    /// Passes to the member `id` the set of members that it cannot connect to.
    fn cut_off(&self, id: i64, sides: Option<&[BTreeSet<i64>]>) {
        let reaches = |other: &i64| {
            *other == id
                || sides.is_none_or(|sides| {
                    sides.iter().any(|side| side.contains(&id) && side.contains(other))
                })
        };
        let others = self.ids().filter(|other| !reaches(other)).collect();
        self.server(id).cut_off(&others);
    }
}
