//! `config`: prints the membership that the server has.

use std::fmt::{self, Display};

use ironkeeper_client::Node;
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::{Arguments, Opt};
use crate::stat_text::StatText;

pub const COMMAND: Command = Command {
    name: "config",
    aliases: &[],
    usage: "[-c] [-w] [-s]",
    summary: "Show the configuration of the ensemble.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("c", "only its version, and where clients connect"),
        Opt::flag("w", "tell of the next change"),
        Opt::flag("s", "show the Stat of the configuration as well"),
    ],
    examples: &["config", "config -c"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

const PATH: &str = "/zookeeper/config";

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let node = if arguments.has("w") {
        let (node, watch) = client.config_and_watch().await?;
        context.session.watches.once_of_data(PATH, watch);
        node
    } else {
        client.config().await?
    };
    let mut shown = Config::new(&node, arguments.has("s") || context.out.is_json());
    if arguments.has("c") {
        shown.config = client_addresses(&shown.config);
    }
    context.out.emit(&shown)
}

/// The membership as text, printed by `config` and `reconfig`.
#[derive(Serialize)]
pub struct Config {
    pub config: String,
    stat: Option<StatText>,
}

impl Config {
    pub fn new(node: &Node, with_stat: bool) -> Config {
        let config = match node.is_null() {
            true => "null".to_owned(),
            false => String::from_utf8_lossy(&node.data).into_owned(),
        };
        Config { config, stat: with_stat.then_some(StatText(node.stat)) }
    }
}

impl Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.config)?;
        match &self.stat {
            Some(stat) => write!(f, "\n{stat}"),
            None => Ok(()),
        }
    }
}

/// Returns the version and the client addresses of a membership: `100000000 a:2181,b:2181`.
fn client_addresses(config: &str) -> String {
    let mut version = "";
    let mut addresses = Vec::new();
    for (key, value) in config.lines().filter_map(|line| line.split_once('=')) {
        if key.trim() == "version" {
            version = value.trim();
        }
        if key.trim().starts_with("server.")
            && let Some((_, client)) = value.trim().rsplit_once(';')
        {
            // A port without an address means all addresses.
            addresses.push(match client.contains(':') {
                true => client.to_owned(),
                false => format!("0.0.0.0:{client}"),
            });
        }
    }
    format!("{version} {}", addresses.join(","))
}

#[cfg(test)]
mod tests {
    use super::client_addresses;

    #[test]
    fn client_addresses_are_found_behind_the_semicolon() {
        let config = "server.1=h1:2888:3888:participant;0.0.0.0:2181\nserver.2=h2:2888:3888;2182\nversion=100000000";
        assert_eq!(client_addresses(config), "100000000 0.0.0.0:2181,0.0.0.0:2182");
        assert_eq!(client_addresses(""), " ");
    }
}
