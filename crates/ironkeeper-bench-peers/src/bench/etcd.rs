//! An etcd cluster for comparison, and a load generator with the same requests as `ironkeeper
//! bench`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ironkeeper_peers::cache::Etcd;
use ironkeeper_peers::ports;
use ironkeeper_steps::process;

use super::load::{ENSEMBLE_LOADS, Load};
use super::table::{Measures, Side};
use super::{Plan, SETTLE, resident_bytes_of};

/// The longest time until a started cluster listens.
const READY_MAX: Duration = Duration::from_secs(60);

/// Starts one etcd cluster, measures it and stops it.
pub fn round(
    plan: &Plan,
    etcd: &Etcd,
    members: u8,
    dir: &Path,
    measures: &mut Measures,
) -> Result<()> {
    let mut cluster = Cluster::start(etcd, members, dir)?;
    // The cluster is ready when a write through any member is acknowledged.
    cluster.wait_for_write()?;
    if plan.wants(&["ensemble-idle"]) {
        thread::sleep(SETTLE);
        let bytes = cluster
            .members
            .iter()
            .map(|member| resident_bytes_of(member.id()))
            .sum::<Result<u64>>()?;
        measures.add("ensemble-idle", Side::Etcd, bytes as f64);
    }
    for load in ENSEMBLE_LOADS.iter().filter(|load| plan.wants(&[load.name])) {
        let result = cluster.measure(load, plan.seconds, measures);
        measures.note_failure(result.with_context(|| format!("{} on etcd", load.name)));
    }
    if plan.wants(&["ensemble-failover"]) {
        let took = cluster.fail_over()?;
        eprintln!("  {:<20} {took:.1}", "ensemble-failover");
        measures.add("ensemble-failover", Side::Etcd, took);
    }
    Ok(())
}

struct Cluster<'a> {
    etcd: &'a Etcd,
    members: Vec<Child>,
    endpoints: Vec<String>,
}

impl<'a> Cluster<'a> {
    fn start(etcd: &'a Etcd, members: u8, dir: &Path) -> Result<Cluster<'a>> {
        let mut urls = Vec::new();
        for number in 0..members {
            let url = || Ok::<_, anyhow::Error>(format!("http://127.0.0.1:{}", ports::one()?));
            urls.push((format!("m{number}"), url()?, url()?));
        }
        let peers: Vec<String> =
            urls.iter().map(|(name, peer, _)| format!("{name}={peer}")).collect();
        let mut cluster = Cluster { etcd, members: Vec::new(), endpoints: Vec::new() };
        for (name, peer, client) in &urls {
            let data = dir.join(name);
            fs::create_dir_all(&data)?;
            let log = File::create(dir.join(format!("{name}.log")))?;
            let child = Command::new(&etcd.member)
                .args(["--name", name, "--log-level", "warn", "--data-dir"])
                .arg(data)
                .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
                .args(["--listen-client-urls", client, "--advertise-client-urls", client])
                .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"])
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .context("cannot run etcd")?;
            cluster.members.push(child);
            cluster.endpoints.push(client.clone());
        }
        for endpoint in &cluster.endpoints {
            listens(endpoint)?;
        }
        Ok(cluster)
    }

    fn load(&self) -> Command {
        let mut command = Command::new(&self.etcd.load);
        command.arg(self.endpoints.join(",")).stdin(Stdio::null());
        command
    }

    /// Waits until a write is acknowledged.
    fn wait_for_write(&self) -> Result<()> {
        process::run(self.load().arg("wait")).map(drop)
    }

    fn measure(&self, load: &Load, seconds: f64, measures: &mut Measures) -> Result<()> {
        // The arguments are those of `ironkeeper bench`: work, -c, connections, -p, requests in
        // flight.
        let [work, _, connections, _, in_flight] = load.args else {
            bail!("{} is no load for etcd", load.name)
        };
        let mut child = self
            .load()
            .args([work, connections, in_flight])
            .arg(seconds.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run the load")?;
        let stdout = child.stdout.take().context("stdout was piped")?;
        let mut before = 0.0;
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["begin"] => before = self.cpu_seconds()?,
                ["end", operations, elapsed] => {
                    let (operations, elapsed): (f64, f64) = (operations.parse()?, elapsed.parse()?);
                    let rate = operations / elapsed;
                    measures.add(load.name, Side::Etcd, rate);
                    eprintln!("  {:<20} {rate:.1}", load.name);
                    if let Some(row) = load.cpu_row {
                        let cpu = (self.cpu_seconds()? - before) / operations * 1e6;
                        measures.add(row, Side::Etcd, cpu);
                    }
                }
                _ => bail!("the load said {line:?}"),
            }
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("the load ended with {status}");
        }
        Ok(())
    }

    /// Kills the leader and returns the milliseconds until a write is acknowledged.
    fn fail_over(&mut self) -> Result<f64> {
        let said = process::run(self.load().arg("leader"))?;
        let leader: usize =
            said.trim().parse().with_context(|| format!("the load said {said:?}"))?;
        let child = self.members.get_mut(leader).context("the leader is a member")?;
        child.kill()?;
        let struck = Instant::now();
        child.wait()?;
        self.wait_for_write()?;
        Ok(struck.elapsed().as_secs_f64() * 1e3)
    }

    fn cpu_seconds(&self) -> Result<f64> {
        self.members.iter().map(|member| crate::measured::cpu_seconds(member.id())).sum()
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Both calls fail only if the process has already terminated.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// Waits until the port of a URL accepts connections.
fn listens(url: &str) -> Result<()> {
    let port =
        url.rsplit(':').next().and_then(|port| port.parse().ok()).context("a URL with a port")?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let deadline = Instant::now() + READY_MAX;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > deadline {
            bail!("etcd does not listen on {url} after {READY_MAX:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
