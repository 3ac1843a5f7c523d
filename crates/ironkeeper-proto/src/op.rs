//! Operation codes and create modes.

/// The type of a request, and of the record in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum OpCode {
    /// Creates a node; the reply contains its path.
    Create = 1,
    /// Deletes a node.
    Delete = 2,
    /// Reads the stat of a node that may not exist.
    Exists = 3,
    /// Reads the data of a node.
    GetData = 4,
    /// Sets the data of a node.
    SetData = 5,
    /// Reads the access control list of a node.
    GetAcl = 6,
    /// Sets the access control list of a node.
    SetAcl = 7,
    /// Lists the children of a node.
    GetChildren = 8,
    /// Waits until the server has applied what the leader had committed.
    Sync = 9,
    /// Keeps the session alive.
    Ping = 11,
    /// Lists the children of a node, with its stat.
    GetChildren2 = 12,
    /// Checks the version of a node; only in a multi or alone.
    Check = 13,
    /// Several writes that are applied together or not at all.
    Multi = 14,
    /// Creates a node; the reply contains its path and its stat.
    Create2 = 15,
    /// Changes the membership of the ensemble.
    Reconfig = 16,
    /// Checks that a watch exists.
    CheckWatches = 17,
    /// Removes watches.
    RemoveWatches = 18,
    /// Creates a container, which the server deletes after its last child.
    CreateContainer = 19,
    /// Deletes an empty container; servers send it to themselves.
    DeleteContainer = 20,
    /// Creates a node with a time to live.
    CreateTtl = 21,
    /// Several reads of one state of the tree.
    MultiRead = 22,
    /// Adds an identity to the connection.
    Auth = 100,
    /// Sets one-shot watches again after a reconnect.
    SetWatches = 101,
    /// A step of a SASL exchange.
    Sasl = 102,
    /// Lists the ephemeral nodes of the session.
    GetEphemerals = 103,
    /// Counts the descendants of a node.
    GetAllChildrenNumber = 104,
    /// Sets watches of all kinds again after a reconnect.
    SetWatches2 = 105,
    /// Sets a persistent watch.
    AddWatch = 106,
    /// Lists the identities of the connection.
    WhoAmI = 107,
    /// The type of the transaction of a failed write, and of an error result in a multi reply.
    Error = -1,
    /// Opens a session.
    CreateSession = -10,
    /// Closes a session.
    CloseSession = -11,
}

impl OpCode {
    /// Returns the number in a request header.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Returns the operation with this number.
    pub fn from_code(code: i32) -> Option<OpCode> {
        use OpCode::*;
        Some(match code {
            1 => Create,
            2 => Delete,
            3 => Exists,
            4 => GetData,
            5 => SetData,
            6 => GetAcl,
            7 => SetAcl,
            8 => GetChildren,
            9 => Sync,
            11 => Ping,
            12 => GetChildren2,
            13 => Check,
            14 => Multi,
            15 => Create2,
            16 => Reconfig,
            17 => CheckWatches,
            18 => RemoveWatches,
            19 => CreateContainer,
            20 => DeleteContainer,
            21 => CreateTtl,
            22 => MultiRead,
            100 => Auth,
            101 => SetWatches,
            102 => Sasl,
            103 => GetEphemerals,
            104 => GetAllChildrenNumber,
            105 => SetWatches2,
            106 => AddWatch,
            107 => WhoAmI,
            -1 => Error,
            -10 => CreateSession,
            -11 => CloseSession,
            _ => return None,
        })
    }

    /// Returns how a server handles the operation when a client sends it.
    pub fn class(self) -> OpClass {
        use OpCode::*;
        match self {
            Exists | GetData | GetAcl | GetChildren | GetChildren2 | GetAllChildrenNumber
            | GetEphemerals | MultiRead | CheckWatches | RemoveWatches | SetWatches
            | SetWatches2 | AddWatch | WhoAmI => OpClass::Read,
            Create | Create2 | CreateContainer | CreateTtl | Delete | SetData | SetAcl | Multi
            | Reconfig | Sync => OpClass::Write,
            Ping => OpClass::Ping,
            CloseSession => OpClass::Close,
            Auth | Sasl => OpClass::Auth,
            Check | DeleteContainer | CreateSession | Error => OpClass::Internal,
        }
    }

    /// Returns the letters that `cons` shows for a connection's last operation.
    pub fn short_name(self) -> &'static str {
        use OpCode::*;
        match self {
            Create | Create2 | CreateContainer | CreateTtl => "CREA",
            Delete | DeleteContainer => "DELE",
            Exists => "EXIS",
            GetData => "GETD",
            SetData => "SETD",
            GetAcl => "GETA",
            SetAcl => "SETA",
            GetChildren | GetChildren2 => "GETC",
            Sync => "SYNC",
            Ping => "PING",
            Check => "CHEC",
            Multi => "MULT",
            Reconfig => "RECO",
            CheckWatches => "CHKW",
            RemoveWatches => "REMW",
            MultiRead => "MLTR",
            SetWatches => "SETW",
            SetWatches2 => "STW2",
            GetEphemerals => "GETE",
            GetAllChildrenNumber => "GETACN",
            AddWatch => "ADDW",
            WhoAmI => "HOMI",
            CreateSession => "SESS",
            CloseSession => "CLOS",
            Auth | Sasl | Error => "NA",
        }
    }
}

/// How a server handles an operation of a client, see [`OpCode::class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Served from memory, in the order of the session's requests.
    Read,
    /// Ordered among the transactions: the writes and sync.
    Write,
    /// Keeps the session alive. Served like a read.
    Ping,
    /// Ends the session. Ordered among the transactions.
    Close,
    /// Proves an identity of the connection. Processed without waiting for earlier requests.
    Auth,
    /// Part of a multi, of a transaction or of the communication between servers. A client must
    /// not send it as a request.
    Internal,
}

/// The kind of node that a create requests (the `flags` field of the request).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum CreateMode {
    /// A node that remains until it is deleted.
    Persistent = 0,
    /// A node that is deleted when its session ends.
    Ephemeral = 1,
    /// A persistent node whose name gets a number.
    PersistentSequential = 2,
    /// An ephemeral node whose name gets a number.
    EphemeralSequential = 3,
    /// A container, which the server deletes after its last child.
    Container = 4,
    /// A node that is deleted when it has no children and was not changed for its time to live.
    PersistentWithTtl = 5,
    /// The same, with a number in its name.
    PersistentSequentialWithTtl = 6,
}

impl CreateMode {
    /// Returns the mode with these flags.
    pub fn from_flags(flags: i32) -> Option<CreateMode> {
        use CreateMode::*;
        Some(match flags {
            0 => Persistent,
            1 => Ephemeral,
            2 => PersistentSequential,
            3 => EphemeralSequential,
            4 => Container,
            5 => PersistentWithTtl,
            6 => PersistentSequentialWithTtl,
            _ => return None,
        })
    }

    /// Returns the flags in a request.
    pub fn flags(self) -> i32 {
        self as i32
    }

    /// Returns whether the node is deleted when its session ends.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
    }

    /// Returns whether the name gets a number.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::PersistentSequentialWithTtl
        )
    }

    /// Returns whether the node has a time to live.
    pub fn is_ttl(self) -> bool {
        matches!(self, CreateMode::PersistentWithTtl | CreateMode::PersistentSequentialWithTtl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_find_their_way_back() {
        let known: Vec<OpCode> = (-20..200).filter_map(OpCode::from_code).collect();
        assert_eq!(known.len(), 32);
        for op in known {
            assert_eq!(OpCode::from_code(op.code()), Some(op));
        }
    }

    #[test]
    fn each_operation_has_the_class_that_clients_see() {
        let of_class = |class: OpClass| -> Vec<i32> {
            let known = (-20..200).filter_map(OpCode::from_code);
            known.filter(|op| op.class() == class).map(OpCode::code).collect()
        };
        let reads = [3, 4, 6, 8, 12, 17, 18, 22, 101, 103, 104, 105, 106, 107];
        assert_eq!(of_class(OpClass::Read), reads);
        assert_eq!(of_class(OpClass::Write), [1, 2, 5, 7, 9, 14, 15, 16, 19, 21]);
        assert_eq!(of_class(OpClass::Ping), [11]);
        assert_eq!(of_class(OpClass::Close), [-11]);
        assert_eq!(of_class(OpClass::Auth), [100, 102]);
        assert_eq!(of_class(OpClass::Internal), [-10, -1, 13, 20]);
    }
}
