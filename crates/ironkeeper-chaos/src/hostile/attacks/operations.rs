//! For each operation of the protocol, the most expensive requests of one client within the limits.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use ironkeeper_peers::connection::Link;
use ironkeeper_peers::server;
use ironkeeper_proto::{CreateMode, OpCode, Put, SessionId, acl};

use super::{
    client_with_identities, clients, create_all, distinct_entries, repeat, repeat_from,
    repeat_with, wide,
};
use crate::hostile::attack::{Attack, Strike, attack, hold, strike};
use crate::hostile::client::{Client, connect_request};
use crate::hostile::op::Op;
use crate::hostile::target::Target;

/// The largest data that fits into a frame together with a path.
const DATA_MAX: usize = 1_000_000;

pub const ALL: &[Attack] = &[
    attack("connect", "Sessions are opened as fast as the server allows.", connect).leaves(64),
    attack("connect: others' sessions", "Unknown sessions are claimed in a loop.", claim),
    attack("create", "Nodes with 42,000 distinct ACL entries.", create).leaves(400),
    attack("create2", "Nodes with a megabyte of data, deleted again.", create2),
    attack("createContainer", "Containers that are emptied at once.", create_container).leaves(64),
    // As in Apache, 10,000 of these nodes are deleted per minute.
    attack("createTTL", "Nodes that live for a millisecond.", create_ttl).leaves(256),
    attack("delete", "Paths of half a million levels that do not exist.", delete),
    attack("setData", "A megabyte on a node with 1,000 watchers.", set_data).leaves(64),
    attack("setACL", "Two lists of 42,000 entries in turn on a node.", set_acl).leaves(200),
    attack("getACL", "A list of 40,000 entries, from four connections.", get_acl),
    attack("getData", "A megabyte of data, from four connections.", get_data),
    attack("exists", "Watches on paths of 10,000 bytes that do not exist.", exists).leaves(64),
    attack("getChildren", "100,000 children, from four connections.", get_children),
    attack("getChildren2", "100,000 children with long names, and a watch.", get_children2),
    attack("getAllChildrenNumber", "Counts 200,000 nodes in a loop.", get_all_children_number),
    attack("getEphemerals", "50,000 ephemeral nodes of a session in a loop.", get_ephemerals),
    attack("multi", "25,000 operations of which the last one fails.", multi),
    attack("multi: creates", "20,000 creates in one transaction, then deletes.", multi_creates)
        .leaves(64),
    attack("multiRead", "700 reads, 4,000 ACL entries, 1,000 identities.", multi_read),
    attack("sync", "Paths of a megabyte to be echoed.", sync),
    attack("reconfig", "A list of members of a megabyte.", reconfig).on_ensemble(),
    attack("setWatches", "All watches that fit into a frame, again and again.", set_watches),
    attack("setWatches2", "The same with persistent and recursive watches.", set_watches2),
    attack("addWatch", "200,000 recursive watches on different paths.", add_watch),
    attack("removeWatches", "Watches set and removed, among 100,000 others.", remove_watches),
    attack("checkWatches", "Long paths looked up among 100,000 watches.", check_watches),
    attack("auth", "Identities without end on one connection.", auth),
    attack("sasl", "Tokens of a megabyte.", sasl),
    attack("whoAmI", "A connection with 1,000 identities asks who it is.", who_am_i),
    attack("ping", "Pings without a pause from four connections.", ping),
    attack("closeSession", "Sessions with 20,000 ephemeral nodes end.", close_session).leaves(64),
    attack("four-letter words", "dump, wchp, wchc, cons with 100,000 watches.", words),
];

fn connect(target: &Target) -> Result<Strike> {
    let port = target.port();
    Ok(repeat_with(move |_| drop(Client::connect_for(port, 1))))
}

fn claim(target: &Target) -> Result<Strike> {
    let port = target.port();
    Ok(repeat_with(move |turn| {
        if let Ok(mut link) = Link::open(port) {
            link.write(&connect_request(SessionId((1 << 56) + turn as i64), 30_000));
            link.read(Duration::from_secs(5));
        }
    }))
}

fn create(target: &Target) -> Result<Strike> {
    let mut client = Client::connect(target.port())?;
    let entries = distinct_entries(42_000);
    Ok(repeat_with(move |turn| {
        let (path, mode) = (format!("/acl{turn}"), CreateMode::Persistent);
        let _ = client.ask(&Op::create_as(OpCode::Create, &path, b"", mode, &entries));
        let _ = client.ask(&Op::delete(&path));
    }))
}

fn create2(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mode = CreateMode::Persistent;
    let large = Op::create_as(OpCode::Create2, "/large", &[7; DATA_MAX], mode, &acl::open());
    Ok(repeat(Client::connect(port)?, port, vec![large, Op::delete("/large")]))
}

fn create_container(target: &Target) -> Result<Strike> {
    let mut client = Client::connect(target.port())?;
    let container = |path: &str| {
        let (code, mode) = (OpCode::CreateContainer, CreateMode::Container);
        Op::create_as(code, path, b"", mode, &acl::open())
    };
    Ok(repeat_with(move |turn| {
        let paths: Vec<String> = (0..50).map(|at| format!("/container{turn}-{at}")).collect();
        let ops = paths.iter().flat_map(|path| {
            let child = format!("{path}/child");
            [container(path), Op::create(&child, b""), Op::delete(&child)]
        });
        let _ = client.ask_all(&ops.collect::<Vec<Op>>());
    }))
}

fn create_ttl(target: &Target) -> Result<Strike> {
    let mut client = Client::connect(target.port())?;
    Ok(repeat_with(move |turn| {
        let ttl = |at: usize| {
            let (code, mode) = (OpCode::CreateTtl, CreateMode::PersistentWithTtl);
            Op::create_as(code, &format!("/ttl{turn}-{at}"), b"", mode, &acl::open())
        };
        let _ = client.ask_all(&(0..200).map(ttl).collect::<Vec<Op>>());
    }))
}

fn delete(target: &Target) -> Result<Strike> {
    let port = target.port();
    let path = "/a".repeat(500_000);
    Ok(repeat(Client::connect(port)?, port, vec![Op::delete(&path)]))
}

fn set_data(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    client.ask(&Op::create("/watched", b""))?;
    let mut watchers = clients(port, target.count(1_000))?;
    let watch = Op::numbered(OpCode::AddWatch, "/watched", 0);
    for watcher in &mut watchers {
        watcher.ask(&watch)?;
    }
    let writes = repeat(client, port, vec![Op::set_data("/watched", &[7; DATA_MAX])]);
    Ok(strike(move |until| {
        let _ = writes.run(until);
        drop(watchers);
    }))
}

fn set_acl(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    client.ask(&Op::create("/acl", b""))?;
    let mut lists = [distinct_entries(42_000), distinct_entries(41_999)];
    // This entry lets any client change the node.
    lists.iter_mut().for_each(|list| list[0] = acl::open().remove(0));
    let ops = lists.iter().map(|list| Op::set_acl("/acl", list)).collect();
    Ok(repeat(client, port, ops))
}

fn get_acl(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    let mut entries = distinct_entries(40_000);
    entries.push(acl::open().remove(0));
    let mode = CreateMode::Persistent;
    client.ask(&Op::create_as(OpCode::Create, "/acl", b"", mode, &entries))?;
    Ok(repeat_from(clients(port, 4)?, port, vec![Op::on_path(OpCode::GetAcl, "/acl"); 8]))
}

fn get_data(target: &Target) -> Result<Strike> {
    let port = target.port();
    Client::connect(port)?.ask(&Op::create("/large", &[7; DATA_MAX]))?;
    Ok(repeat_from(clients(port, 4)?, port, vec![Op::get_data("/large"); 8]))
}

fn exists(target: &Target) -> Result<Strike> {
    let mut client = Client::connect(target.port())?;
    let (padding, mut left) = ("x".repeat(10_000), target.count(10_000));
    Ok(repeat_with(move |turn| {
        if left == 0 {
            return thread::sleep(Duration::from_millis(10));
        }
        let watch = |at| Op::read(OpCode::Exists, &format!("/{turn}-{at}-{padding}"), true);
        let _ = client.ask_all(&(0..100).map(watch).collect::<Vec<Op>>());
        left = left.saturating_sub(100);
    }))
}

fn get_children(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    create_all(&mut client, &wide("/wide", target.count(100_000), 8))?;
    let list = Op::read(OpCode::GetChildren, "/wide", false);
    Ok(repeat_from(clients(port, 4)?, port, vec![list; 4]))
}

fn get_children2(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    create_all(&mut client, &wide("/wide", target.count(100_000), 200))?;
    let list = Op::read(OpCode::GetChildren2, "/wide", true);
    Ok(repeat_from(clients(port, 4)?, port, vec![list; 2]))
}

fn get_all_children_number(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    create_all(&mut client, &wide("/wide", target.count(200_000), 8))?;
    let count = Op::on_path(OpCode::GetAllChildrenNumber, "/");
    Ok(repeat_from(clients(port, 4)?, port, vec![count; 200]))
}

fn get_ephemerals(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    create_ephemerals(&mut client, target.count(50_000))?;
    Ok(repeat(client, port, vec![Op::on_path(OpCode::GetEphemerals, "/"); 8]))
}

fn create_ephemerals(client: &mut Client, count: usize) -> Result<()> {
    let session = client.session.session;
    let paths: Vec<String> = (0..count).map(|at| format!("/{session}-{at}")).collect();
    for paths in paths.chunks(5_000) {
        let parts: Vec<Op> = paths.iter().map(|path| Op::ephemeral(path)).collect();
        client.ask(&Op::many(OpCode::Multi, &parts))?;
    }
    Ok(())
}

fn multi(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    client.ask(&Op::create("/m", b""))?;
    let mut parts = vec![Op::set_data("/m", b"x"); 25_000];
    parts.push(Op::delete("/missing"));
    Ok(repeat(client, port, vec![Op::many(OpCode::Multi, &parts)]))
}

fn multi_creates(target: &Target) -> Result<Strike> {
    let port = target.port();
    let paths: Vec<String> = (0..15_000).map(|at| format!("/m{at}")).collect();
    let creates: Vec<Op> = paths.iter().map(|path| Op::create(path, b"")).collect();
    let deletes: Vec<Op> = paths.iter().map(|path| Op::delete(path)).collect();
    let ops = [creates, deletes].map(|parts| Op::many(OpCode::Multi, &parts));
    Ok(repeat(Client::connect(port)?, port, ops.to_vec()))
}

fn multi_read(target: &Target) -> Result<Strike> {
    let port = target.port();
    let client = super::work::reader_of_large_acl(port, 4_000, 1_000)?;
    let reads = vec![Op::get_data("/acl"); 700];
    Ok(repeat(client, port, vec![Op::many(OpCode::MultiRead, &reads)]))
}

fn sync(target: &Target) -> Result<Strike> {
    let port = target.port();
    let echo = Op::on_path(OpCode::Sync, &"/".repeat(DATA_MAX));
    Ok(repeat_from(clients(port, 4)?, port, vec![echo; 4]))
}

fn reconfig(target: &Target) -> Result<Strike> {
    let port = target.port();
    let joining = "server.9=127.0.0.1:1:2;3,".repeat(40_000);
    let op = Op::new(OpCode::Reconfig, |body| {
        body.put_str(&joining);
        body.put_opt_str(None);
        body.put_opt_str(None);
        body.put_i64(-1);
    });
    Ok(repeat(Client::connect(port)?, port, vec![op]))
}

fn set_watches(target: &Target) -> Result<Strike> {
    set_watches_by(target, OpCode::SetWatches, 30_000)
}

fn set_watches2(target: &Target) -> Result<Strike> {
    set_watches_by(target, OpCode::SetWatches2, 18_000)
}

fn set_watches_by(target: &Target, code: OpCode, count: usize) -> Result<Strike> {
    let port = target.port();
    let paths: Vec<String> = (0..count).map(|at| format!("/{at:05}")).collect();
    Ok(repeat(Client::connect(port)?, port, vec![Op::set_watches(code, i64::MAX, &paths)]))
}

fn add_watch(target: &Target) -> Result<Strike> {
    let mut client = Client::connect(target.port())?;
    let mut left = target.count(200_000);
    Ok(repeat_with(move |turn| {
        if left == 0 {
            let _ = client.ask(&Op::create(&format!("/{turn}"), b""));
            return;
        }
        let watch = |at| Op::watch_below(&format!("/a/b/{turn}-{at}"));
        let _ = client.ask_all(&(0..1_000).map(watch).collect::<Vec<Op>>());
        left = left.saturating_sub(1_000);
    }))
}

/// Connects a client with 100,000 watches.
fn watcher(target: &Target) -> Result<Client> {
    let mut client = Client::connect(target.port())?;
    let paths: Vec<String> = (0..target.count(100_000)).map(|at| format!("/w/{at:06}")).collect();
    for paths in paths.chunks(20_000) {
        client.ask(&Op::set_watches(OpCode::SetWatches, i64::MAX, paths))?;
    }
    Ok(client)
}

fn remove_watches(target: &Target) -> Result<Strike> {
    let client = watcher(target)?;
    let path = "/a".repeat(50_000);
    let ops = vec![
        Op::watch_below(&path),
        Op::numbered(OpCode::RemoveWatches, &path, 3),
        Op::watch_below("/"),
        Op::numbered(OpCode::RemoveWatches, "/", 3),
    ];
    Ok(repeat(client, target.port(), ops))
}

fn check_watches(target: &Target) -> Result<Strike> {
    let client = watcher(target)?;
    let op = Op::numbered(OpCode::CheckWatches, &"/a".repeat(50_000), 3);
    Ok(repeat(client, target.port(), vec![op; 10]))
}

fn auth(target: &Target) -> Result<Strike> {
    let port = target.port();
    let mut client = Client::connect(port)?;
    Ok(repeat_with(move |turn| {
        let identity = |at| Op::auth(&format!("{turn}-{at}:{}", "p".repeat(1_000)));
        if client.ask_all(&(0..100).map(identity).collect::<Vec<Op>>()).is_err()
            && let Ok(fresh) = Client::connect(port)
        {
            client = fresh;
        }
    }))
}

fn sasl(target: &Target) -> Result<Strike> {
    let port = target.port();
    let token = Op::new(OpCode::Sasl, |body| body.put_buf(Some(&[0; DATA_MAX])));
    Ok(repeat(Client::connect(port)?, port, vec![token]))
}

fn who_am_i(target: &Target) -> Result<Strike> {
    let port = target.port();
    let client = client_with_identities(port, 1_000)?;
    Ok(repeat(client, port, vec![Op::bare(OpCode::WhoAmI); 50]))
}

fn ping(target: &Target) -> Result<Strike> {
    let port = target.port();
    Ok(repeat_from(clients(port, 4)?, port, vec![Op::bare(OpCode::Ping); 200]))
}

fn close_session(target: &Target) -> Result<Strike> {
    let port = target.port();
    let count = target.count(20_000);
    Ok(repeat_with(move |_| {
        if let Ok(mut client) = Client::connect(port) {
            let _ = create_ephemerals(&mut client, count);
            let _ = client.close();
        }
    }))
}

fn words(target: &Target) -> Result<Strike> {
    let port = target.port();
    let watcher = watcher(target)?;
    let sessions = clients(port, target.count(500))?;
    Ok(strike(move |until| {
        thread::scope(|scope| {
            for word in ["dump", "wchp", "wchc", "cons", "mntr"] {
                let ask = move |_| drop(server::ask(port, word));
                scope.spawn(move || drop(repeat_with(ask).run(until)));
            }
        });
        hold(until, (watcher, sessions));
    }))
}
