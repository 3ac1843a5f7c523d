//! Creates the nodes of a run before it and deletes them after it.
//!
//! All nodes are below one prefix, whose data marks it as created by the load generator. Only a
//! marked prefix is ever deleted, and without `clean` only by the run that created it, so a
//! mistyped `--prefix` deletes no data of other applications.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ironkeeper_proto::{AclVec, CreateMode, ErrorCode, OpCode, Put, Reader};

use super::options::Common;
use super::session::{Session, code_name, unexpected};
use super::template::{Layout, append_request, put_create_rest};

const MARK: &[u8] = b"made by ironkeeper bench";

/// The parent of all nodes of a run.
#[derive(Debug)]
pub(crate) struct Prefix {
    path: String,
    server: SocketAddr,
    timeout_ms: i32,
    remove: bool,
}

impl Prefix {
    /// Creates the prefix, or uses the existing one.
    pub(crate) fn make(server: SocketAddr, common: &Common) -> Result<Prefix> {
        let mut session = Session::open(server, common.session_timeout)?;
        let path = common.prefix.clone();
        let made = create(&mut session, &path, MARK)
            .with_context(|| format!("cannot make {path}; its parent has to exist"))?;
        session.close()?;
        let remove = made && !common.keep;
        Ok(Prefix { path, server, timeout_ms: common.session_timeout, remove })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Creates a child of the prefix, which must not exist, and returns its path.
    pub(crate) fn make_child(&self, name: &str) -> Result<String> {
        let path = format!("{}/{name}", self.path);
        let mut session = Session::open(self.server, self.timeout_ms)?;
        if !create(&mut session, &path, b"")? {
            bail!("{path} exists already");
        }
        session.close()?;
        Ok(path)
    }

    /// Deletes the prefix and its subtree if this run created it and `--keep` is not set.
    pub(crate) fn remove(self) -> Result<()> {
        if self.remove {
            let mut session = Session::open(self.server, self.timeout_ms)?;
            sweep(&mut session, &self.path)
                .with_context(|| format!("cannot remove {}", self.path))?;
            session.close()?;
        }
        Ok(())
    }
}

/// Creates the folders and nodes of a layout. Existing nodes are used unchanged.
pub(crate) fn make_nodes(
    server: SocketAddr,
    common: &Common,
    layout: &Layout,
    nodes: u32,
    size: u32,
) -> Result<()> {
    make_folders(server, common, layout, nodes)?;
    let mut session = Session::open(server, common.session_timeout)?;
    let first_missing = first_missing(&mut session, layout, nodes)?;
    make_all(&mut session, (first_missing..nodes).map(|node| layout.path(node)), size)?;
    session.close()
}

pub(crate) fn make_folders(
    server: SocketAddr,
    common: &Common,
    layout: &Layout,
    nodes: u32,
) -> Result<()> {
    let mut session = Session::open(server, common.session_timeout)?;
    make_all(&mut session, layout.folders(nodes), 0)?;
    session.close()
}

/// Deletes the prefix and its subtree if an earlier run created it. Returns the number of nodes.
pub(crate) fn clean(server: SocketAddr, common: &Common) -> Result<u64> {
    let mut session = Session::open(server, common.session_timeout)?;
    let path = &common.prefix;
    let body = session.call(OpCode::GetData, |out| {
        out.put_str(path);
        out.put_bool(false);
    })?;
    let removed = match body {
        Err(code) if code == ErrorCode::NoNode.code() => 0,
        Err(code) => return Err(unexpected(code)).with_context(|| format!("cannot read {path}")),
        Ok(body) if Reader::new(&body).buf()? == Some(MARK) => sweep(&mut session, path)?,
        Ok(_) => bail!("{path} was not made by this program, so it is not removed"),
    };
    session.close()?;
    Ok(removed)
}

/// Returns milliseconds since 1970: a name that no earlier run has used.
pub(crate) fn unix_millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// Creates one node; returns `false` if it exists.
fn create(session: &mut Session, path: &str, data: &[u8]) -> Result<bool> {
    let answer = session.call(OpCode::Create, |out| {
        out.put_str(path);
        out.put_buf(Some(data));
        AclVec::OPEN.encode(out);
        out.put_i32(CreateMode::Persistent.flags());
    })?;
    match answer {
        Ok(_) => Ok(true),
        Err(code) if code == ErrorCode::NodeExists.code() => Ok(false),
        Err(code) => Err(unexpected(code)),
    }
}

fn make_all(session: &mut Session, paths: impl Iterator<Item = String>, size: u32) -> Result<()> {
    let codes = session.codes(paths, |path, xid, out| {
        append_request(xid, OpCode::Create, out, |out| {
            out.put_str(path);
            put_create_rest(out, size);
        });
    })?;
    match codes.into_iter().find(|code| *code != 0 && *code != ErrorCode::NodeExists.code()) {
        Some(code) => Err(unexpected(code)).context("cannot make the nodes to work on"),
        None => Ok(()),
    }
}

/// Returns the first node that does not exist, so that a large tree of `fill` is not created again.
/// Nodes are created in order, so the existing ones come first.
fn first_missing(session: &mut Session, layout: &Layout, nodes: u32) -> Result<u32> {
    let (mut low, mut high) = (0, nodes);
    while low < high {
        let middle = low + (high - low) / 2;
        let answer = session.call(OpCode::Exists, |out| {
            out.put_str(&layout.path(middle));
            out.put_bool(false);
        })?;
        match answer {
            Ok(_) => low = middle + 1,
            Err(code) if code == ErrorCode::NoNode.code() => high = middle,
            Err(code) => return Err(unexpected(code)),
        }
    }
    Ok(low)
}

/// Deletes a node and its subtree, children first. Returns the number of deleted nodes.
fn sweep(session: &mut Session, root: &str) -> Result<u64> {
    let mut removed = 0;
    // A stack of nodes to delete, parents below their children. A node whose children have children
    // is pushed again and deleted when it is popped the second time.
    let mut left = vec![root.to_owned()];
    while let Some(parent) = left.pop() {
        let paths = children(session, &parent)?;
        let codes = session.codes(&paths, |path, xid, out| {
            append_request(xid, OpCode::Delete, out, |out| {
                out.put_str(path);
                out.put_i32(-1);
            });
        })?;
        let mut full = Vec::new();
        for (path, code) in paths.iter().zip(codes) {
            match ErrorCode::from_code(code) {
                None if code == 0 => removed += 1,
                Some(ErrorCode::NotEmpty) => full.push(path.clone()),
                Some(ErrorCode::NoNode) => {}
                _ => bail!("deleting {path}: {}", code_name(code)),
            }
        }
        if full.is_empty() {
            let answer = session.call(OpCode::Delete, |out| {
                out.put_str(&parent);
                out.put_i32(-1);
            })?;
            match answer {
                Ok(_) => removed += 1,
                Err(code) if code == ErrorCode::NoNode.code() => {}
                Err(code) => bail!("deleting {parent}: {}", code_name(code)),
            }
        } else {
            left.push(parent);
            left.append(&mut full);
        }
    }
    Ok(removed)
}

fn children(session: &mut Session, path: &str) -> Result<Vec<String>> {
    let answer = session.call(OpCode::GetChildren, |out| {
        out.put_str(path);
        out.put_bool(false);
    })?;
    let body = match answer {
        Ok(body) => body,
        Err(code) if code == ErrorCode::NoNode.code() => return Ok(Vec::new()),
        Err(code) => return Err(unexpected(code)).with_context(|| format!("cannot list {path}")),
    };
    let names = Reader::new(&body).str_vec()?.context("the server sent no list of children")?;
    Ok(names.iter().map(|name| format!("{path}/{name}")).collect())
}
