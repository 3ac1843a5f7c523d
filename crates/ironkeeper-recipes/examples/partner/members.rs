//! Group members, persistent nodes, and services.
//!
//! ```text
//! join NAME PATH ID DATA             -> NAME held, when it is a member
//! members PATH ID=DATA,ID=DATA       -> PATH has them, when exactly these are members
//! keep NAME MODE PATH DATA           -> NAME held at PATH; MODE: ephemeral, sequential, ttl (1 h)
//! register NAME PATH SERVICE ID PORT -> NAME held, when the instance is registered
//! find PATH SERVICE ID               -> found URI PAYLOAD
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::group::{Group, GroupMember};
use ironkeeper_recipes::node::{PersistentNode, TtlNode};
use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance, UriSpec};

use crate::held::{Held, Names};
use crate::{Answer, Anything};

const HOUR: Duration = Duration::from_secs(3600);

/// Waits until the members are exactly `wanted`.
async fn until_members(client: &Client, path: &str, wanted: &str) -> Anything<()> {
    let mut members = BTreeMap::new();
    for member in wanted.split(',').filter(|member| !member.is_empty()) {
        let (id, data) = member.split_once('=').ok_or("not a member")?;
        members.insert(id.to_owned(), Bytes::copy_from_slice(data.as_bytes()));
    }
    let group = Group::open(client, path).await?;
    let mut events = group.events();
    while group.members() != members {
        events.next().await.ok_or("the session is over")?;
    }
    Ok(())
}

async fn keep(client: &Client, mode: &str, path: &str, data: &str) -> Anything<(Held, String)> {
    let data = data.to_owned();
    if mode == "ttl" {
        let node = TtlNode::start(client, path, HOUR, data)?;
        node.created().await?;
        return Ok((Held::Ttl(node), path.to_owned()));
    }
    let mode = match mode {
        "sequential" => CreateMode::EphemeralSequential,
        _ => CreateMode::Ephemeral,
    };
    let node = PersistentNode::builder(client, path).mode(mode).data(data).start();
    let created = node.created().await?;
    Ok((Held::Node(node), created))
}

pub async fn obey(client: &Client, names: &Names, words: &[&str]) -> Answer {
    Ok(Some(match words[..] {
        ["join", name, path, id, data] => {
            let member = GroupMember::join(client, path, id, data.to_owned()).await?;
            names.hold(name, Held::Member(member))
        }
        ["members", path] => {
            until_members(client, path, "").await?;
            format!("{path} has them")
        }
        ["members", path, wanted] => {
            until_members(client, path, wanted).await?;
            format!("{path} has them")
        }
        ["keep", name, mode, path, data] => {
            let (held, path) = keep(client, mode, path, data).await?;
            format!("{} at {path}", names.hold(name, held))
        }
        ["register", name, path, service, id, port] => {
            let instance = ServiceInstance::new(service)
                .with_id(id)
                .with_address("rust.example")
                .with_port(port.parse()?)
                .with_payload("from Rust".into())
                .with_uri_spec(UriSpec::parse("{scheme}://{address}:{port}/{name}")?);
            let registration = ServiceDiscovery::new(client, path).register(instance).await?;
            names.hold(name, Held::Registered(registration))
        }
        ["find", path, service, id] => {
            let found = ServiceDiscovery::new(client, path).instance(service, id).await?;
            let found = found.ok_or("no such instance")?;
            let (uri, payload) =
                (found.uri().unwrap_or_default(), found.payload.unwrap_or_default());
            format!("found {uri} {payload}")
        }
        _ => return Ok(None),
    }))
}
