//! Invalid peers and a damaged disk: garbage, invalid lengths and epochs, connections without
//! packets, a second server with a member's id, a member of another ensemble, a damaged log.
//! Members keep serving, no process terminates, and no client receives a wrong reply.

mod attacks;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::ports;
use ironkeeper_peers::server::{Program, Server};
use ironkeeper_steps::tally::Tally;

use crate::ensemble::load::Load;
use crate::ensemble::{Stage, judge};

const WRITES: u64 = 100;
/// The number of writes that make the newest log long enough.
const LOG_WRITES: u64 = 500;
/// The smallest log that is damaged: large enough that its middle is not its tail.
const LOG_BYTES_MIN: usize = 10_000;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let mut cluster =
        Cluster::start(&stage.membership, stage.programs, &Terms::default(), &stage.dir)?;
    let load = Load::start(&cluster, stage.seed)?;
    load.wait_for_writes(WRITES)?;
    let mut play = Play { stage, cluster: &mut cluster, load: &load, tally: Tally::default() };
    play.attacks()?;
    play.second_of_an_id()?;
    play.non_member_with_history()?;
    play.damaged_log()?;
    let mut tally = play.tally;
    tally.add(judge(&cluster, load)?);
    Ok(tally)
}

struct Play<'a> {
    stage: &'a Stage<'a>,
    cluster: &'a mut Cluster,
    load: &'a Load,
    tally: Tally,
}

impl Play<'_> {
    /// Checks that writes continue and that every member is still the same process and serves.
    fn unharmed(&mut self, what: &str, pids: &[Option<u32>]) -> Result<()> {
        self.load.wait_for_new_write().with_context(|| what.to_owned())?;
        self.load.wait_for_writes(WRITES).with_context(|| what.to_owned())?;
        self.cluster.wait_until_all_serve().with_context(|| what.to_owned())?;
        let same = self.pids() == pids;
        self.tally.check(what, same.then_some(()).ok_or_else(|| "a member fell".to_owned()));
        Ok(())
    }

    /// Checks that one of our members has logged the error.
    fn told(&mut self, what: &str, words: &str) {
        let mut ours = self
            .cluster
            .members()
            .filter(|member| matches!(member.program(), Program::Ironkeeper(_)));
        let is_told = ours.any(|member| member.log_tail(usize::MAX).contains(words));
        self.tally.check(
            &format!("{what}: a clear error"),
            is_told.then_some(()).ok_or_else(|| format!("no log has {words:?}")),
        );
    }

    fn pids(&self) -> Vec<Option<u32>> {
        self.cluster.members().map(Server::pid).collect()
    }

    fn attacks(&mut self) -> Result<()> {
        let pids = self.pids();
        for attack in attacks::ALL {
            for at in 0..self.cluster.size() {
                let ports = self.cluster.peer_ports(at);
                // A rejected, reset or ignored connection is acceptable.
                let _ = (attack.run)(ports, self.stage.seed);
            }
            self.unharmed(attack.name, &pids)?;
            if let Some(words) = attack.says {
                self.told(attack.name, words);
            }
            self.cluster.tell(&format!("{}: unharmed", attack.name));
        }
        Ok(())
    }

    /// Returns the first member of ours after this one, cyclically.
    fn ours_after(&self, member: usize) -> Result<usize> {
        let size = self.cluster.size();
        (1..size)
            .map(|step| (member + step) % size)
            .find(|at| matches!(self.cluster.member(*at).program(), Program::Ironkeeper(_)))
            .context("no other member is ours")
    }

    /// Configures an Ironkeeper server outside of the ensemble: it knows the members, and has `id`
    /// and its own directory.
    fn non_member(&self, id: usize, name: &str) -> Result<Server> {
        let port = ports::one()?;
        let (quorum, election) = (ports::one()?, ports::one()?);
        let member = self.cluster.member(self.ours_after(0)?);
        let setup = member
            .setup()
            .clone()
            .at_port(port)
            .set(&format!("server.{id}"), format!("127.0.0.1:{quorum}:{election}"));
        let server = Server::prepare(member.program(), setup, &self.stage.dir.join(name))?;
        fs::write(server.data_dir().join("myid"), format!("{id}\n"))?;
        Ok(server)
    }

    /// Starts a server with a copied configuration whose `myid` was not changed.
    fn second_of_an_id(&mut self) -> Result<()> {
        let pids = self.pids();
        let mut double = self.non_member(1, "double")?;
        double.launch()?;
        self.load.wait_for_writes(5 * WRITES).context("two servers have the id 1")?;
        double.kill()?;
        self.unharmed("two servers with one id", &pids)?;
        self.told("two servers with one id", "duplicate myid");
        self.cluster.tell("two servers with one id: unharmed");
        Ok(())
    }

    /// Starts a server with another history, with larger zxids, that is configured as a member.
    fn non_member_with_history(&mut self) -> Result<()> {
        let pids = self.pids();
        let id = self.cluster.size() + 1;
        let mut other = self.non_member(id, "other")?;
        // Epochs that no member has reached yet.
        let files = other.data_dir().join("version-2");
        fs::create_dir_all(&files)?;
        for file in ["acceptedEpoch", "currentEpoch"] {
            fs::write(files.join(file), "1000")?;
        }
        other.launch()?;
        self.load.wait_for_writes(5 * WRITES).context("a server of another ensemble is there")?;
        other.kill()?;
        self.unharmed("a server of another ensemble", &pids)?;
        self.cluster.tell("a server of another ensemble: unharmed");
        Ok(())
    }

    /// Damages the middle of a follower's log (one of ours): the follower must log the error and
    /// must not serve. After its data was deleted it rejoins.
    fn damaged_log(&mut self) -> Result<()> {
        let leader = self.cluster.wait_for_leader(|_| true)?;
        let victim = self.ours_after(leader)?;
        self.load.wait_for_writes(LOG_WRITES)?;
        let member = self.cluster.member_mut(victim);
        member.kill()?;
        let files = member.data_dir().join("version-2");
        let log = newest_log(&files)?;
        let mut bytes = fs::read(&log)?;
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        ensure!(end > LOG_BYTES_MIN, "{} is too short to be damaged", log.display());
        // Records follow these bytes, so the damage cannot be mistaken for a torn tail.
        for byte in &mut bytes[end / 2..end / 2 + 16] {
            *byte ^= 0x55;
        }
        fs::write(&log, bytes)?;
        let before = member.log_tail(usize::MAX).len();
        let refused = member.start_again();
        let said = member.log_tail(usize::MAX).split_off(before);
        let name =
            log.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.tally.check(
            "a damaged log is refused, by its name",
            match refused {
                Ok(()) => Err("the member serves".to_owned()),
                Err(_) if said.contains(&name) => Ok(()),
                Err(why) => Err(format!("{why:#}")),
            },
        );
        self.load.wait_for_writes(WRITES).context("without the member whose log is damaged")?;
        let member = self.cluster.member_mut(victim);
        if member.pid().is_some() {
            member.kill()?;
        }
        fs::remove_dir_all(&files)?;
        member.start_again().context("the member whose data was removed")?;
        self.load.wait_for_writes(WRITES)?;
        self.cluster.tell("a damaged log: refused, and replaced");
        Ok(())
    }
}

/// Returns the transaction log that every start reads. Older logs may end before the last snapshot.
fn newest_log(files: &std::path::Path) -> Result<PathBuf> {
    let first_zxid = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        u64::from_str_radix(name.strip_prefix("log.")?, 16).ok()
    };
    fs::read_dir(files)?
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| first_zxid(path).is_some())
        .max_by_key(first_zxid)
        .context("a member has a log")
}
