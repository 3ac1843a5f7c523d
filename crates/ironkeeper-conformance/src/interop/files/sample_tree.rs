//! A sample tree that contains every kind of state that is stored on disk.

use anyhow::{Result, bail};
use ironkeeper_proto::acl::{self, Acl, Perms};
use ironkeeper_proto::{CreateMode, OpCode, SessionId};

use super::client::{Client, create_body, delete_body, set_body};

/// Nodes that make snapshots take longer, so that writes are applied meanwhile.
const FILL: usize = 1_500;
/// A TTL longer than any run.
const TTL_MS: i64 = 3_600_000;
/// The largest data: with the rest of its request it is below the default limit.
const LARGE: usize = 900_000;

/// Creates the sample tree of one round and leaves two sessions open that own ephemeral nodes.
pub fn create(port: u16, round: usize) -> Result<Vec<SessionId>> {
    let mut client = Client::open(port)?;
    let root = format!("/sample-{round}");
    let open = acl::open();
    let keep = CreateMode::Persistent;
    let under = |name: &str| format!("{root}/{name}");
    client.create(&root, Some(b"the root of a round"), keep, &open)?;
    client.create(&under("null"), None, keep, &open)?;
    client.create(&under("empty"), Some(b""), keep, &open)?;
    client.create(&under("large"), Some(&vec![b'x'; LARGE]), keep, &open)?;
    client.create(&under("gr\u{fc}n \u{65e5}\u{672c}"), Some(b"\0\xff\x80"), keep, &open)?;
    for version in 0..4_u8 {
        client.set(&under("null"), Some(&[version; 3]))?;
    }
    client.set(&under("null"), None)?;
    client.set(&under("empty"), Some(b""))?;

    client.create(&under("queue"), None, keep, &open)?;
    for _ in 0..5 {
        let item = under("queue/item-");
        client.create(&item, Some(b"i"), CreateMode::PersistentSequential, &open)?;
        let gone = client.create(&item, Some(b"d"), CreateMode::PersistentSequential, &open)?;
        client.delete(&gone)?;
    }

    client.create(&under("container"), None, CreateMode::Container, &open)?;
    client.create(&under("container/child"), None, keep, &open)?;
    client.create(&under("container-unused"), Some(b"c"), CreateMode::Container, &open)?;
    client.create_ttl(&under("ttl"), CreateMode::PersistentWithTtl, TTL_MS)?;
    client.create_ttl(&under("ttl-"), CreateMode::PersistentSequentialWithTtl, TTL_MS + 1)?;

    create_acls(&mut client, &root)?;
    create_quota(&mut client, round)?;

    let done = client.multi(&[
        (OpCode::Create, create_body(&under("multi"), Some(b"1"), keep, &open)),
        (OpCode::SetData, set_body(&under("multi"), Some(b"2"))),
        (
            OpCode::Create2,
            create_body(&under("multi/child-"), None, CreateMode::PersistentSequential, &open),
        ),
        (OpCode::Create, create_body(&under("multi-gone"), None, keep, &open)),
        (OpCode::Delete, delete_body(&under("multi-gone"))),
    ])?;
    if !done {
        bail!("a multi was refused");
    }
    let done = client.multi(&[
        (OpCode::SetData, set_body(&under("multi"), Some(b"never"))),
        (OpCode::Delete, delete_body(&under("no such node"))),
    ])?;
    if done {
        bail!("a multi that must fail did not");
    }

    for number in 0..FILL {
        let path = if number == 0 { under("fill") } else { under(&format!("fill/{number:05}")) };
        client.send(OpCode::Create, &create_body(&path, Some(&[b'f'; 150]), keep, &open));
    }
    for _ in 0..FILL {
        match client.receive()? {
            Some(reply) if reply.outcome.is_ok() => {}
            other => bail!("a create was answered with {other:?}"),
        }
    }

    // One session is closed, which deletes its nodes; two stay open.
    let mut ending = Client::open(port)?;
    ending.create(&under("mortal"), None, CreateMode::Ephemeral, &open)?;
    ending.create(&under("mortal-"), None, CreateMode::EphemeralSequential, &open)?;
    let mut second = Client::open(port)?;
    for (number, owner) in [&mut client, &mut second].into_iter().enumerate() {
        owner.create(
            &under(&format!("alive-{number}")),
            Some(b"e"),
            CreateMode::Ephemeral,
            &open,
        )?;
        owner.create(&under("alive-"), None, CreateMode::EphemeralSequential, &open)?;
    }
    ending.close()?;
    Ok(vec![client.session(), second.session()])
}

fn create_acls(client: &mut Client, root: &str) -> Result<()> {
    let reader = Acl::new(Perms::READ, "world", "anyone");
    // user:password
    let user = Acl::new(Perms::ALL, "digest", "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=");
    let address = Acl::new(Perms::WRITE.or(Perms::READ), "ip", "10.1.0.0/16");
    client.add_auth("digest", b"someone:secret")?;
    let mine = Acl::new(Perms::ALL, "auth", "");
    let lists: [&[Acl]; 5] = [
        std::slice::from_ref(&reader),
        std::slice::from_ref(&user),
        &[reader.clone(), user.clone(), address.clone()],
        std::slice::from_ref(&mine),
        &[address, mine.clone()],
    ];
    for (number, list) in lists.into_iter().enumerate() {
        let path = format!("{root}/acl-{number}");
        client.create(&path, Some(b"guarded"), CreateMode::Persistent, list)?;
    }
    let path = format!("{root}/acl-changed");
    client.create(&path, None, CreateMode::Persistent, &acl::open())?;
    client.set_acl(&path, &[Acl::new(Perms::ALL, "world", "anyone"), user])?;
    client.set_acl(&path, &acl::open())?;
    client.set_acl(&format!("{root}/acl-3"), &[mine, reader])
}

/// Creates a quota as Apache's shell does, and nodes that it counts.
fn create_quota(client: &mut Client, round: usize) -> Result<()> {
    let open = acl::open();
    let name = format!("limited-{round}");
    let quota = format!("/zookeeper/quota/{name}");
    let keep = CreateMode::Persistent;
    client.create(&format!("/{name}"), Some(b"12345"), keep, &open)?;
    client.create(&quota, None, keep, &open)?;
    let limits: &[u8] = b"count=100,bytes=100000=;byteHardLimit=200000;countHardLimit=200";
    client.create(&format!("{quota}/zookeeper_limits"), Some(limits), keep, &open)?;
    let stats: &[u8] = b"count=1,bytes=5";
    client.create(&format!("{quota}/zookeeper_stats"), Some(stats), keep, &open)?;
    for number in 0..6 {
        client.create(&format!("/{name}/{number}"), Some(b"1234567"), keep, &open)?;
    }
    client.set(&format!("/{name}/3"), Some(b"longer than before"))?;
    client.delete(&format!("/{name}/0"))
}
