//! The directories, ports and `zoo.cfg` files of the members of a cluster.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ironkeeper_config::{Config, Sources};
use ironkeeper_proto::ServerId;
use ironkeeper_proto::membership::PeerRole;
use socket2::{Domain, Socket, Type};

/// The same distance from the client ports as between Apache's usual 2888 and 3888 and 2181.
const QUORUM_PORT_OFFSET: u16 = 707;
const ELECTION_PORT_OFFSET: u16 = 1707;

#[derive(Debug)]
pub struct Layout {
    pub dir: PathBuf,
    pub places: Vec<Place>,
    /// Keeps the ports of stopped servers reserved. Empty if the cluster existed before this run.
    _ports: Ports,
}

/// The directory, ports and role of one member.
#[derive(Clone, Debug)]
pub struct Place {
    pub id: i64,
    pub votes: bool,
    /// `host:port`.
    pub client: String,
    pub client_port: u16,
    pub config: PathBuf,
    pub log: PathBuf,
}

impl Layout {
    /// Loads the cluster that exists in `dir`, or creates a new one. `settings` are additional
    /// lines for the configuration of a new cluster.
    pub fn prepare(
        dir: &Path,
        voters: u8,
        observers: u8,
        first_port: u16,
        settings: &[String],
    ) -> Result<Layout> {
        let found = left_in(dir)?;
        let (places, ports) = match found.is_empty() {
            true => create(dir, voters, observers, first_port, settings)?,
            false if !settings.is_empty() => bail!(
                "there is a cluster in {} already, with its own settings: edit the zoo.cfg of \
                 each member, or name \
                 another --data-dir",
                dir.display()
            ),
            false => (found, Ports::default()),
        };
        Ok(Layout { dir: dir.to_owned(), places, _ports: ports })
    }
}

fn place(dir: &Path, id: i64, votes: bool, client_port: u16) -> Place {
    let own = dir.join(id.to_string());
    let client = format!("127.0.0.1:{client_port}");
    let (config, log) = (own.join("zoo.cfg"), own.join("server.log"));
    Place { id, votes, client, client_port, config, log }
}

/// Returns the members whose files are in `dir`, ordered by id.
fn left_in(dir: &Path) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(places),
        Err(error) => return Err(error).with_context(|| dir.display().to_string()),
    };
    for entry in entries {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<i64>().ok()) else { continue };
        let config = dir.join(&name).join("zoo.cfg");
        if !config.exists() {
            continue;
        }
        let loaded = Config::from_file(&config, "", "")
            .with_context(|| format!("{} cannot be used", config.display()))?;
        let ensemble = loaded.config.ensemble.as_ref();
        let me = ensemble.and_then(|ensemble| ensemble.membership.members.get(&ServerId(id)));
        let votes = me.is_none_or(|me| me.role == PeerRole::Participant);
        places.push(place(dir, id, votes, loaded.config.client_address.port));
    }
    places.sort_by_key(|place| place.id);
    Ok(places)
}

fn create(
    dir: &Path,
    voters: u8,
    observers: u8,
    first_port: u16,
    settings: &[String],
) -> Result<(Vec<Place>, Ports)> {
    let mut ports = Ports::default();
    let mut servers = String::new();
    let mut places = Vec::new();
    for index in 0..u16::from(voters) + u16::from(observers) {
        let id = i64::from(index) + 1;
        let votes = index < u16::from(voters);
        let wanted = |offset: u16| match first_port {
            0 => 0,
            first => first.saturating_add(offset).saturating_add(index),
        };
        let client_port = ports.take(wanted(0))?;
        let quorum = ports.take(wanted(QUORUM_PORT_OFFSET))?;
        let election = ports.take(wanted(ELECTION_PORT_OFFSET))?;
        let role = if votes { "participant" } else { "observer" };
        writeln!(servers, "server.{id}=127.0.0.1:{quorum}:{election}:{role}")?;
        places.push(place(dir, id, votes, client_port));
    }
    for place in &places {
        write_files(place, &servers, settings)
            .with_context(|| place.config.display().to_string())?;
    }
    if cfg!(not(target_os = "linux")) {
        ports.held.clear();
    }
    Ok((places, ports))
}

fn write_files(place: &Place, servers: &str, settings: &[String]) -> Result<()> {
    let Some(dir) = place.config.parent() else { bail!("it is in no directory") };
    let Some(text) = dir.to_str() else { bail!("the path of its directory is no text") };
    fs::create_dir_all(dir)?;
    fs::write(dir.join("myid"), format!("{}\n", place.id))?;
    let config = format!(
        "# Written by ironkeeper dev-cluster.\n\
         tickTime=2000\ninitLimit=10\nsyncLimit=5\n\
         dataDir={text}\n\
         clientPortAddress=127.0.0.1\nclientPort={}\n\
         4lw.commands.whitelist=*\n\
         autopurge.purgeInterval=1\n\
         # Also a single server is an ensemble here, that others can observe.\n\
         standaloneEnabled=false\n{servers}",
        place.client_port
    );
    // A key in `settings` replaces the default line; the configuration parser would report a
    // repeated key as overridden.
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let chosen: Vec<String> = settings.iter().map(|line| key(line)).collect();
    let mut config: String = config
        .lines()
        .filter(|line| !chosen.contains(&key(line)))
        .map(|l| format!("{l}\n"))
        .collect();
    for line in settings {
        writeln!(config, "{line}")?;
    }
    Config::from_sources(&Sources { zoo_cfg: &config, my_id: Some("1"), ..Sources::default() })
        .context("--set makes a configuration that cannot be used")?;
    Ok(fs::write(&place.config, config)?)
}

/// Reserved ports.
#[derive(Debug, Default)]
struct Ports {
    /// Bound so that the system assigns the ports to no other process, but not listening. Linux
    /// lets a member listen on the same port nevertheless; on other systems the sockets are closed.
    held: Vec<Socket>,
}

impl Ports {
    /// Reserves the port `wanted`, or any free port if `wanted` is zero or in use.
    fn take(&mut self, wanted: u16) -> Result<u16> {
        let mut socket = bind(wanted).or_else(|_| bind(0)).context("there is no free port")?;
        // Sockets that do not listen may share a port, so duplicates must be detected here.
        while self.has(port(&socket)?) {
            socket = bind(0).context("there is no free port")?;
        }
        let port = port(&socket)?;
        self.held.push(socket);
        Ok(port)
    }

    fn has(&self, wanted: u16) -> bool {
        self.held.iter().any(|held| port(held).is_ok_and(|port| port == wanted))
    }
}

fn port(socket: &Socket) -> Result<u16> {
    let address = socket.local_addr()?.as_socket().context("a port of another kind")?;
    Ok(address.port())
}

fn bind(port: u16) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Allows ports with connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_found_again_as_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let made = Layout::prepare(dir.path(), 3, 1, 0, &[]).unwrap();
        assert_eq!(made.places.len(), 4);
        let found = Layout::prepare(dir.path(), 5, 0, 0, &[]).unwrap();
        let facts = |layout: &Layout| {
            let place = |place: &Place| (place.id, place.votes, place.client.clone());
            layout.places.iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!(facts(&found), facts(&made));
        assert!(!facts(&found)[3].1);
    }

    #[test]
    fn a_port_that_is_taken_is_replaced() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_ne!(Ports::default().take(port).unwrap(), port);
    }
}
