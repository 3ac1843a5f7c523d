//! Operation codes and create modes.

/// The type of a request, and of the record in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum OpCode {
    Create = 1,
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetAcl = 6,
    SetAcl = 7,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    GetChildren2 = 12,
    Check = 13,
    Multi = 14,
    Create2 = 15,
    Reconfig = 16,
    CheckWatches = 17,
    RemoveWatches = 18,
    CreateContainer = 19,
    DeleteContainer = 20,
    CreateTtl = 21,
    MultiRead = 22,
    Auth = 100,
    SetWatches = 101,
    Sasl = 102,
    GetEphemerals = 103,
    GetAllChildrenNumber = 104,
    SetWatches2 = 105,
    AddWatch = 106,
    WhoAmI = 107,
    /// The type of the transaction of a failed write, and of an error result in a multi reply.
    Error = -1,
    CreateSession = -10,
    CloseSession = -11,
}

impl OpCode {
    pub fn code(self) -> i32 {
        self as i32
    }

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
    Persistent = 0,
    Ephemeral = 1,
    PersistentSequential = 2,
    EphemeralSequential = 3,
    Container = 4,
    PersistentWithTtl = 5,
    PersistentSequentialWithTtl = 6,
}

impl CreateMode {
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

    pub fn flags(self) -> i32 {
        self as i32
    }

    pub fn is_ephemeral(self) -> bool {
        matches!(self, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
    }

    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::PersistentSequentialWithTtl
        )
    }

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
