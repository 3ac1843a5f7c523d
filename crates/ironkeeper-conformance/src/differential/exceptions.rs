//! The known differences between the two servers, each with its reason.
//!
//! A known difference is handled in one of two ways. Either the generator never sends the request
//! ([`Way::NotAsked`]) and a case in [`super::rules`] asserts what Ironkeeper does instead, or the
//! replies are normalized ([`Way::MadeEqual`]) because the protocol does not specify the point. All
//! other differences are errors.

use ironkeeper_proto::op::{CreateMode, OpCode};

use super::script::{AclList, Request, Step, Text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    NotAsked,
    MadeEqual,
}

impl Way {
    pub fn as_str(self) -> &'static str {
        match self {
            Way::NotAsked => "not asked",
            Way::MadeEqual => "made equal",
        }
    }
}

#[derive(Debug)]
pub struct Exception {
    pub what: &'static str,
    pub way: Way,
    pub why: &'static str,
}

pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        what: "createTTL (21) with flags other than 5 and 6",
        way: Way::NotAsked,
        why: "Apache logs a transaction that crashes it, now and at every restart; ours answers -8",
    },
    Exception {
        what: "deleteContainer (20) from a client",
        way: Way::NotAsked,
        why: "Apache deletes any empty node without looking at its ACL; ours answers -6 and closes",
    },
    Exception {
        what: "createSession (-10) from a client",
        way: Way::NotAsked,
        why: "Apache runs its internal operation and answers with a bare handshake; ours answers -6 and closes",
    },
    Exception {
        what: "a wrong password for a session that is connected",
        way: Way::NotAsked,
        why: "Apache closes the rightful connection before it looks at the password; ours looks first",
    },
    Exception {
        what: "create (1) and create2 (15) with flags 4, createContainer (19) with other flags",
        way: Way::NotAsked,
        why: "operation and flag disagree: Apache makes one kind of node and counts the digest of another; \
              ours answers -8",
    },
    Exception {
        what: "the body behind an error of multiRead (22)",
        way: Way::MadeEqual,
        why: "an error reply has no body in the protocol; Apache sends what it had so far, ours sends none",
    },
    Exception {
        what: "order of children, ephemerals and the rows of whoAmI",
        way: Way::MadeEqual,
        why: "Apache lists hash sets; clients sort",
    },
    Exception {
        what: "order of the entries that `auth` in an ACL expands to",
        way: Way::MadeEqual,
        why: "Apache walks a hash set of the connection's ids",
    },
    Exception {
        what: "order of events when a session ends with several ephemerals",
        way: Way::MadeEqual,
        why: "one transaction deletes them all, and Apache walks a hash set",
    },
    Exception {
        what: "auth (100), sasl (102) or an unknown operation behind other requests of one write",
        way: Way::NotAsked,
        why: "Apache answers them when it reads them, so they overtake what came before at random",
    },
    Exception {
        what: "requests behind closeSession in one write",
        way: Way::NotAsked,
        why: "whether Apache still reads them is a race with its closing of the socket",
    },
    Exception {
        what: "changes of / itself in the same write as creates directly below it",
        way: Way::NotAsked,
        why: "Apache keeps pending changes of / and of its alias, the empty path, apart, so the outcome is \
              a race there",
    },
    Exception {
        what: "a quota node whose text is not a quota",
        way: Way::NotAsked,
        why: "Apache reads it while it applies the next change below the quota and crashes, now and at every \
              restart; ours takes what it cannot read for unset",
    },
    Exception {
        what: "several writes below an enforced quota in one write",
        way: Way::NotAsked,
        why: "both count what is applied, not what is on its way, so which of them still passes is a race",
    },
    Exception {
        what: "requests behind setACL (7) in one write",
        way: Way::NotAsked,
        why: "Apache checks them against the old list until the new one is applied, which is a race; ours \
              goes by the new one",
    },
    Exception {
        what: "a null scheme or id in an ACL entry beside others, or in a multi",
        way: Way::NotAsked,
        why: "Apache falls over it while it looks for duplicates, or not, by the permissions of the \
              neighbours, and leaves a multi halfway; ours answers as for the entry alone",
    },
    Exception {
        what: "a null path in a create whose flags are bad as well",
        way: Way::NotAsked,
        why: "two faults in one request: Apache tells of the flags, ours of the path",
    },
    Exception {
        what: "characters above U+FFFF in a user name, or in the id of an ACL entry in a multi",
        way: Way::NotAsked,
        why: "both write them in a form that neither can read back; Apache notices inside a multi or at its \
              next restart, ours at once",
    },
    Exception {
        what: "a null path or list in setWatches (101, 105), a null path in addWatch (106)",
        way: Way::NotAsked,
        why: "Apache does what stands before the null, or watches a path nothing can have; ours answers -5 \
              and does nothing",
    },
    Exception {
        what: "requests with xid -1",
        way: Way::NotAsked,
        why: "their replies cannot be told from watch events",
    },
];

/// Returns whether the table excludes this request, on its own (not as part of a multi).
pub fn is_hazard(request: &Request) -> bool {
    match request {
        Request::Create { flags, path: Text(None), .. } if !(0..=4).contains(flags) => true,
        Request::Auth { auth, .. } => is_beyond_plane_0(auth),
        Request::Create { op, flags, path, data, acl, .. } => {
            flag_disagrees(*op, *flags) || spoils_quota(path, data) || mixes_nulls(acl)
        }
        Request::SetAcl { acl, .. } => mixes_nulls(acl),
        Request::SetWatches { lists, .. } => {
            lists.iter().any(|list| list.as_ref().is_none_or(|paths| paths.contains(&Text::NULL)))
        }
        Request::AddWatch { path, .. } => *path == Text::NULL,
        Request::SetData { path, data, .. } => spoils_quota(path, data),
        Request::Multi { operations, .. } => operations.iter().any(|(kind, operation)| {
            if let Request::Create { path, data, .. } | Request::SetData { path, data, .. } =
                operation
                && spoils_quota(path, data)
            {
                return true;
            }
            if matches!(operation, Request::Create { acl, .. } if has_null(acl)
                || acl.iter().flatten().any(|entry| is_beyond_plane_0(&entry.id)))
            {
                return true;
            }
            // In a multi the flag has precedence: an ordinary create with flag 4 creates a
            // container, and a createTTL without a TTL flag is an ordinary create.
            matches!(operation, Request::Create { flags, .. }
                if *kind == OpCode::CreateContainer.code()
                    && *flags != CreateMode::Container.flags())
        }),
        Request::Bytes { op, .. } => [
            OpCode::CreateTtl,
            OpCode::DeleteContainer,
            OpCode::CreateSession,
            OpCode::CreateContainer,
        ]
        .iter()
        .any(|hazard| hazard.code() == *op),
        _ => false,
    }
}

/// Returns whether a path names a node that holds a quota or its usage.
pub fn is_quota_node(path: &Text) -> bool {
    let Some(path) = &path.0 else { return false };
    path.ends_with(b"/zookeeper_limits") || path.ends_with(b"/zookeeper_stats")
}

fn spoils_quota(path: &Text, data: &Text) -> bool {
    is_quota_node(path) && !data.0.as_deref().is_some_and(is_quota_text)
}

/// Returns whether a text consists of `key=number` pairs, the format of quotas.
fn is_quota_text(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    text.split([',', ';']).all(|pair| {
        let pair = pair.strip_suffix('=').unwrap_or(pair);
        pair.split_once('=')
            .is_some_and(|(key, value)| !key.is_empty() && value.parse::<i64>().is_ok())
    })
}

fn flag_disagrees(op: i32, flags: i32) -> bool {
    let Some(mode) = CreateMode::from_flags(flags) else { return false };
    let container = op == OpCode::CreateContainer.code();
    let ttl = op == OpCode::CreateTtl.code();
    match mode {
        CreateMode::Container => !container,
        // Apache rejects these.
        CreateMode::PersistentWithTtl | CreateMode::PersistentSequentialWithTtl => false,
        _ => container || ttl,
    }
}

/// Returns whether a request must not follow another request in one write: Apache replies to it in
/// the network layer, or it closes the connection.
pub fn must_be_first(request: &Request) -> bool {
    let op = request.op();
    op == OpCode::Auth.code() || op == OpCode::Sasl.code()
}

/// Returns whether a request must not share a write with any other request.
pub fn must_be_alone(request: &Request) -> bool {
    let op = request.op();
    OpCode::from_code(op).is_none()
        || [OpCode::Error, OpCode::Check, OpCode::Sasl].iter().any(|alone| alone.code() == op)
}

/// Returns whether a request must not precede another request in one write.
pub fn must_be_last(request: &Request) -> bool {
    let op = request.op();
    op == OpCode::SetAcl.code() || op == OpCode::CloseSession.code()
}

/// Returns whether a text has characters that Java stores as two (surrogate pairs).
pub fn is_beyond_plane_0(text: &Text) -> bool {
    let Some(bytes) = &text.0 else { return false };
    String::from_utf8_lossy(bytes).chars().any(|character| character > '\u{ffff}')
}

fn has_null(acl: &AclList) -> bool {
    acl.iter().flatten().any(|entry| entry.id == Text::NULL || entry.scheme == Text::NULL)
}

fn mixes_nulls(acl: &AclList) -> bool {
    has_null(acl) && acl.iter().flatten().count() > 1
}

pub fn ignores_error_body(op: i32) -> bool {
    op == OpCode::MultiRead.code()
}

/// Sorts neighbouring entries that may be the expansion of one `auth` entry.
pub fn settle_expanded_entries(entries: &mut [(i32, String, String)]) {
    for run in entries.chunk_by_mut(|a, b| a.0 == b.0 && a.1 == b.1 && a.1 == "\"digest\"") {
        run.sort();
    }
}

/// Returns whether a step may end a session, after which events of one transaction have no fixed
/// order.
pub fn may_end_session(step: &Step) -> bool {
    match step {
        Step::Send { frames, .. } => {
            frames.iter().any(|frame| frame.request.op() == OpCode::CloseSession.code())
        }
        Step::AwaitExpired { .. } | Step::AwaitEvent { .. } => true,
        _ => false,
    }
}
