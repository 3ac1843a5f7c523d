//! Members fall behind, or are ahead, and are synchronized by DIFF, by SNAP and by TRUNC.
//!
//! The last member leads at first and synchronizes the first one: once by DIFF, once by SNAP. Then
//! the last member logs a write that no other member receives, and rejoins an ensemble that the
//! member before it leads: that write must be removed, by TRUNC, or by SNAP if the new epoch
//! already has transactions. If an Apache server took part, its log shows which way was used.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ironkeeper_client::CreateMode;
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::server::Server;
use ironkeeper_steps::tally::Tally;

use crate::ensemble::background::Background;
use crate::ensemble::{Stage, digests};

/// More transactions than leaders keep in memory for learners (`commitLogCount`).
const MANY: usize = 700;
const FEW: usize = 20;
const SESSION: Duration = Duration::from_secs(30);

/// The way in which a learner is synchronized.
#[derive(Debug, Clone, Copy)]
enum Way {
    Diff,
    Snap,
    Trunc,
}

impl Way {
    /// Returns the corresponding texts in Apache's logs: of the learner, and of the leader, which
    /// does not log TRUNC.
    fn words(self) -> [&'static str; 2] {
        match self {
            Way::Diff => ["Getting a diff from the leader", "Sending DIFF"],
            Way::Snap => ["Getting a snapshot from leader", "Sending snapshot"],
            Way::Trunc => ["Truncating log to get in sync", ""],
        }
    }
}

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    // With this flag neither program synchronizes from the log on disk, so a member far behind gets
    // a SNAP.
    let terms = Terms { flags: vec!["-Dzookeeper.snapshotSizeFactor=-1"], ..Terms::default() };
    let cluster = Cluster::prepare(&stage.membership, stage.programs, &terms, &stage.dir)?;
    ensure!(cluster.size() == 3, "three members play this");
    let mut play =
        Play { cluster, clients: Background::start()?, tally: Tally::default(), written: 0 };
    play.begin()?;
    play.behind(FEW, Way::Diff)?;
    play.behind(MANY, Way::Snap)?;
    play.ahead(0, Way::Trunc)?;
    play.ahead(FEW, Way::Snap)?;
    play.tally.failures.extend(digests::disagreements(&play.cluster));
    Ok(play.tally)
}

struct Play {
    cluster: Cluster,
    clients: Background,
    tally: Tally,
    written: usize,
}

impl Play {
    /// Starts the ensemble so that the last member leads: with equal histories the larger id wins.
    fn begin(&mut self) -> Result<()> {
        for at in [0, 2] {
            self.cluster.member_mut(at).launch()?;
        }
        self.cluster.wait_for_leader(|at| at == 2)?;
        self.cluster.member_mut(1).launch()?;
        self.cluster.wait_until_all_serve()?;
        // A member without any history always gets a SNAP.
        self.write(FEW)?;
        self.settle()
    }

    /// Writes through the running members. Opens no session if `count == 0`, because that is a
    /// transaction too.
    fn write(&mut self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let running: Vec<String> = self
            .cluster
            .members()
            .filter(|server| server.pid().is_some())
            .map(Server::address)
            .collect();
        let client = self.clients.connect(&running.join(","), SESSION)?;
        let first = self.written;
        self.written += count;
        self.clients.wait("writing", async {
            let replies: Vec<_> = (first..first + count)
                .map(|number| client.create(&format!("/n{number}"), "data", CreateMode::Persistent))
                .collect();
            for reply in replies {
                reply.await?;
            }
            Ok(client.close().await?)
        })
    }

    /// Lets the first member miss `count` writes and synchronizes it.
    fn behind(&mut self, count: usize, way: Way) -> Result<()> {
        self.cluster.member_mut(0).stop()?;
        self.write(count)?;
        self.returns(0, 2, way)
    }

    /// Lets the last member log a write that no other member receives, and restarts it after the
    /// others have elected a leader and written `count` nodes.
    fn ahead(&mut self, count: usize, way: Way) -> Result<()> {
        self.lead(2)?;
        self.settle()?;
        let lonely = format!("/lonely-{}", self.written);
        let client = self.clients.connect(&self.cluster.member(2).address(), SESSION)?;
        // Opening the session is a transaction, too: a member without it would not be elected
        // later, and a member that still runs would receive the write.
        self.wait_until_equal()?;
        for at in [0, 1] {
            self.cluster.member(at).pause()?;
        }
        let reply = client.create(&lonely, "nobody else has this", CreateMode::Persistent);
        let logged = self.cluster.wait(|| log_holds(self.cluster.member(2), &lonely));
        for at in [2, 0, 1] {
            self.cluster.member_mut(at).kill()?;
        }
        drop((reply, client));
        logged.context("the leader did not log what it was asked to write")?;
        for at in [0, 1] {
            self.cluster.member_mut(at).launch()?;
        }
        self.cluster.wait_for_leader(|at| at == 1)?;
        self.write(count)?;
        self.returns(2, 1, way)?;
        let clients = &self.clients;
        for server in self.cluster.members() {
            let client = clients.connect(&server.address(), SESSION)?;
            let there = clients.wait("looking for what must be gone", async {
                client.sync("/").await?;
                let there = client.exists(&lonely).await?;
                client.close().await?;
                Ok(there)
            })?;
            let gone =
                there.is_none().then_some(()).ok_or_else(|| format!("{} has it", server.address()));
            self.tally.check(&format!("{lonely} is gone"), gone);
        }
        Ok(())
    }

    /// Makes this member the leader: it has the largest id of the members with equal histories.
    fn lead(&mut self, wanted: usize) -> Result<()> {
        self.settle()?;
        for _ in 0..5 {
            let leader = self.cluster.wait_for_leader(|_| true)?;
            if leader == wanted {
                return Ok(());
            }
            self.cluster.member_mut(leader).stop()?;
            self.cluster.wait_for_leader(|at| at != leader)?;
            self.cluster.member_mut(leader).start_again()?;
        }
        bail!("member {} does not come to lead", wanted + 1)
    }

    /// Waits until all members have applied the same transactions.
    fn wait_until_equal(&self) -> Result<()> {
        let is_equal = || {
            let mut zxids = self.cluster.members().map(Server::last_zxid);
            let first = zxids.next().flatten();
            first.is_some() && zxids.all(|zxid| zxid == first)
        };
        self.cluster.wait(is_equal).context("the members do not come to the same transaction")
    }

    /// Waits until all members have all transactions: a sync through each member has returned.
    fn settle(&self) -> Result<()> {
        for server in self.cluster.members() {
            let client = self.clients.connect(&server.address(), SESSION)?;
            self.clients.wait("settling", async {
                client.sync("/").await?;
                Ok(client.close().await?)
            })?;
        }
        Ok(())
    }

    /// Starts a member again and checks that the leader synchronizes it in this way.
    fn returns(&mut self, learner: usize, leader: usize, way: Way) -> Result<()> {
        let before = [learner, leader].map(|at| log_text(self.cluster.member(at)).len());
        self.cluster.member_mut(learner).start_again()?;
        let words = way.words();
        for (at, from, words) in [(learner, before[0], words[0]), (leader, before[1], words[1])] {
            if self.cluster.is_apache(at) {
                let log = log_text(self.cluster.member(at));
                let said = log[from..].contains(words).then_some(());
                let name = format!("{way:?} from member {} to member {}", leader + 1, learner + 1);
                self.tally.check(
                    &name,
                    said.ok_or_else(|| {
                        format!(
                            "member {} does not say {words:?}:\n{}",
                            at + 1,
                            sync_lines(&log[from..])
                        )
                    }),
                );
            }
        }
        self.compare(&format!("after {way:?}"))
    }

    /// Checks that every member has all written nodes.
    fn compare(&mut self, when: &str) -> Result<()> {
        let written = self.written;
        for server in self.cluster.members() {
            let client = self.clients.connect(&server.address(), SESSION)?;
            let found = self.clients.wait("counting", async {
                client.sync("/").await?;
                let names = client.children("/").await?;
                client.close().await?;
                Ok(names.iter().filter(|name| name.starts_with('n')).count())
            })?;
            let all = (found == written).then_some(());
            let why = || format!("{found} of {written} nodes on {}", server.address());
            self.tally.check(&format!("all nodes are there {when}"), all.ok_or_else(why));
        }
        Ok(())
    }
}

/// Returns a member's whole log as lossy UTF-8.
fn log_text(server: &Server) -> String {
    String::from_utf8_lossy(&fs::read(server.log_path()).unwrap_or_default()).into_owned()
}

/// Returns the log lines about synchronization, for an error message.
fn sync_lines(log: &str) -> String {
    const WORDS: [&str; 5] = ["DIFF", "SNAP", "TRUNC", "napshot", "runcat"];
    let lines = log.lines().filter(|line| WORDS.iter().any(|word| line.contains(word)));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns whether a member's transaction log contains this text.
fn log_holds(server: &Server, text: &str) -> bool {
    let Ok(files) = fs::read_dir(server.data_dir().join("version-2")) else { return false };
    files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log."))
        })
        .filter_map(|path| fs::read(path).ok())
        .any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}
