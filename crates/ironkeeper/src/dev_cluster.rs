//! `ironkeeper dev-cluster`: an ensemble on this machine, for experiments.
//!
//! Every member is a separate process, so it can be killed like a real server. Commands come from
//! the terminal or a pipe. After each command that changes the cluster, its state is printed once
//! it has settled.

mod command;
mod input;
mod layout;
mod member;

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use command::Command;
use input::Input;
use layout::Layout;
use member::Member;

use crate::serve::stop_signal;
use ironkeeper_shell::four_letter::Overview;
use ironkeeper_shell::table::Table;

/// The number of bytes that are read from the end of a log.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// How long a change may take to settle; after that, the state is printed as it is.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// The interval at which the state that a change waits for is printed.
const TOLD_AFTER: Duration = Duration::from_secs(2);
/// The pause between two polls of the members.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Run an ensemble on this machine, for experiments
///
/// Starts the servers as processes, shows their ports and roles, and reads commands: kill 2, start
/// 2, pause 1, status, quit. Tab completes them; arrow up recalls commands, also of earlier runs,
/// which are kept in ~/.local/state/ironkeeper. Data and logs are in a temporary directory unless
/// you specify one, which is then kept: an ensemble found there is started again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The number of voting servers
    #[arg(value_name = "SERVERS", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=15))]
    servers: u8,
    /// The number of observers
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    observers: u8,
    /// Keep data and logs here
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The client port of the first server, the others follow; 0 for any. Ports in use are replaced
    #[arg(long, value_name = "PORT", default_value_t = 2181)]
    port: u16,
    /// A line for the zoo.cfg of every server, for instance reconfigEnabled=true; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<String>,
}

fn setting(text: &str) -> Result<String, String> {
    let is_setting = text.split_once('=').is_some_and(|(key, _)| !key.trim().is_empty());
    match is_setting && !text.contains(['\n', '\r']) {
        true => Ok(text.to_owned()),
        false => Err("it has to be KEY=VALUE, as in a zoo.cfg".to_owned()),
    }
}

/// Runs the cluster. `log` is the log filter of the members, if one was specified.
pub fn run(args: &Args, log: Option<&str>) -> Result<()> {
    let (dir, _temporary) = match &args.data_dir {
        Some(dir) => (std::path::absolute(dir)?, None),
        None => {
            let dir = tempfile::Builder::new().prefix("ironkeeper-dev-cluster-").tempdir();
            let dir = dir.context("no temporary directory can be made")?;
            (dir.path().to_owned(), Some(dir))
        }
    };
    let layout = Layout::prepare(&dir, args.servers, args.observers, args.port, &args.set)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Cluster::start(layout, log)?.serve().await })
}

struct Cluster {
    layout: Layout,
    members: Vec<Member>,
}

impl Cluster {
    fn start(layout: Layout, log: Option<&str>) -> Result<Cluster> {
        let member = |place: &layout::Place| Member::new(place.clone(), log.map(str::to_owned));
        let mut members: Vec<Member> = layout.places.iter().map(member).collect();
        for member in &mut members {
            member.start()?;
        }
        Ok(Cluster { layout, members })
    }

    /// Executes commands until `quit`, the end of the input, or a signal. Member processes are
    /// killed on drop, so an error leaves none behind.
    async fn serve(mut self) -> Result<()> {
        let settled = self.settle(Instant::now()).await;
        let clients = self.layout.places.iter().map(|place| place.client.as_str());
        let clients = clients.collect::<Vec<_>>().join(",");
        let servers = match self.members.len() {
            1 => "1 server".to_owned(),
            count => format!("{count} servers"),
        };
        println!("{servers}, {settled}, data in {}", self.layout.dir.display());
        self.show().await?;
        println!("connect  ironkeeper shell -server {clients}");
        println!("{}", command::HELP);
        let mut input = Input::open(self.layout.places.iter().map(|place| place.id).collect());
        let mut stop = Box::pin(stop_signal());
        loop {
            let line = tokio::select! {
                // Checked first: after a signal no prompt may appear, because it would change the
                // terminal modes.
                biased;
                _ = &mut stop => {
                    input.abandon();
                    break;
                }
                line = input.next() => line,
            };
            let command = match line.as_deref().map(command::parse) {
                None | Some(Ok(Some(Command::Quit))) => {
                    input.close();
                    break;
                }
                Some(Ok(None)) => continue,
                Some(Ok(Some(command))) => command,
                Some(Err(complaint)) => {
                    println!("{complaint}");
                    continue;
                }
            };
            self.obey(command).await?;
        }
        for member in &mut self.members {
            member.terminate();
        }
        for member in &mut self.members {
            member.ended().await;
        }
        Ok(())
    }

    async fn obey(&mut self, command: Command) -> Result<()> {
        let began = Instant::now();
        let (Command::Kill(id)
        | Command::Stop(id)
        | Command::Start(id)
        | Command::Pause(id)
        | Command::Resume(id)
        | Command::Log(id, _)) = command
        else {
            if command == Command::Help {
                println!("{}", command::HELP);
                return Ok(());
            }
            return self.show().await;
        };
        let Some(member) = self.members.iter_mut().find(|member| member.place.id == id) else {
            println!("there is no server {id}");
            return Ok(());
        };
        match command {
            Command::Kill(_) => member.kill().await,
            Command::Stop(_) => {
                member.terminate();
                member.ended().await;
            }
            Command::Start(_) if member.is_running() => {
                println!("server {id} runs already");
                return Ok(());
            }
            Command::Start(_) => member.start()?,
            Command::Pause(_) => member.pause(),
            Command::Resume(_) => member.resume(),
            Command::Log(_, lines) => {
                let log = &member.place.log;
                for line in last_lines(log, lines).with_context(|| log.display().to_string())? {
                    println!("{line}");
                }
                println!("all of it: {}", log.display());
                return Ok(());
            }
            Command::Status | Command::Help | Command::Quit => return Ok(()),
        }
        println!("{}", self.settle(began).await);
        self.show().await
    }

    /// Waits until every running member serves requests, and describes the outcome.
    async fn settle(&mut self, since: Instant) -> String {
        let until = Instant::now() + SETTLED_WITHIN;
        let mut told_at = Instant::now() + TOLD_AFTER;
        loop {
            let looks = self.look().await;
            let up = looks.iter().filter(|look| look.is_up).count();
            let serving = looks.iter().filter(|look| look.overview.is_some()).count();
            let voters_up = looks.iter().filter(|look| look.is_up && look.votes).count();
            let voters = looks.iter().filter(|look| look.votes).count();
            let took = since.elapsed().as_secs_f64();
            if voters_up * 2 <= voters {
                return format!("{voters_up} of {voters} voters are up, which is no quorum");
            }
            // A leader that was paused considers itself the leader until it receives a packet of
            // the new leader.
            let mut leaders = looks.iter().filter(|look| look.leads());
            if let (Some(leader), None) = (leaders.next(), leaders.next())
                && serving == up
            {
                return format!("server {} leads, after {took:.2} s", leader.id);
            }
            if Instant::now() > until {
                return format!("not settled after {took:.0} s: look at the logs");
            }
            if Instant::now() > told_at {
                let leads = looks.iter().filter(|look| look.leads()).count();
                eprintln!(
                    "{took:.0} s: {serving} of {up} servers serve, {leads} of them as a leader; a \
                     member that is silent is given up after tickTime x syncLimit"
                );
                told_at = Instant::now() + TOLD_AFTER;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Polls all members concurrently.
    async fn look(&mut self) -> Vec<Look> {
        let mut asked = Vec::new();
        for member in &mut self.members {
            let (id, votes, is_up) = (member.place.id, member.place.votes, member.is_up());
            let answer = is_up.then(|| tokio::spawn(member.ask()));
            asked.push((id, votes, is_up, answer));
        }
        let mut looks = Vec::new();
        for (id, votes, is_up, answer) in asked {
            let overview = match answer {
                Some(answer) => answer.await.ok().flatten(),
                None => None,
            };
            looks.push(Look { id, votes, is_up, overview });
        }
        looks
    }

    async fn show(&mut self) -> Result<()> {
        let looks = self.look().await;
        let mut table = Table::new(&["SERVER", "CLIENTS", "ROLE", "PID", "ZXID", "NODES", "LOG"]);
        table.align_right(&[3, 5]);
        for (look, member) in looks.iter().zip(&self.members) {
            let (role, zxid, nodes) = match &look.overview {
                Some(overview) => {
                    let nodes = overview.nodes.map_or("-".to_owned(), |nodes| nodes.to_string());
                    (overview.mode.clone(), overview.zxid.clone(), nodes)
                }
                None => (member.condition().to_owned(), "-".to_owned(), "-".to_owned()),
            };
            table.row(vec![
                look.id.to_string(),
                member.place.client.clone(),
                role,
                member.pid().map_or("-".to_owned(), |pid| pid.to_string()),
                zxid,
                nodes,
                member.place.log.display().to_string(),
            ]);
        }
        print!("{table}");
        Ok(std::io::stdout().flush()?)
    }
}

/// The result of polling one member.
struct Look {
    id: i64,
    votes: bool,
    /// The process runs and is not paused.
    is_up: bool,
    /// `None` if the member does not serve requests.
    overview: Option<Overview>,
}

impl Look {
    fn leads(&self) -> bool {
        // A single voter forms no ensemble and reports the mode standalone.
        self.overview.as_ref().is_some_and(|seen| seen.is_leader() || seen.mode == "standalone")
    }
}

/// Returns the last lines of a file.
fn last_lines(file: &std::path::Path, count: usize) -> std::io::Result<Vec<String>> {
    let mut file = std::fs::File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(count);
    Ok(lines[first..].iter().map(|line| (*line).to_owned()).collect())
}
