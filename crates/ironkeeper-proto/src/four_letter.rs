//! Four-letter words: short commands in the place of a frame's length.

/// A command known to every ZooKeeper server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FourLetterWord {
    Conf,
    Cons,
    Crst,
    Dirs,
    Dump,
    Envi,
    Gtmk,
    Hash,
    Isro,
    Mntr,
    Ruok,
    Srst,
    Srvr,
    Stat,
    Stmk,
    Wchc,
    Wchp,
    Wchs,
}

impl FourLetterWord {
    pub const ALL: [FourLetterWord; 18] = {
        use FourLetterWord::*;
        [
            Conf, Cons, Crst, Dirs, Dump, Envi, Gtmk, Hash, Isro, Mntr, Ruok, Srst, Srvr, Stat,
            Stmk, Wchc, Wchp, Wchs,
        ]
    };

    pub fn name(self) -> &'static str {
        use FourLetterWord::*;
        match self {
            Conf => "conf",
            Cons => "cons",
            Crst => "crst",
            Dirs => "dirs",
            Dump => "dump",
            Envi => "envi",
            Gtmk => "gtmk",
            Hash => "hash",
            Isro => "isro",
            Mntr => "mntr",
            Ruok => "ruok",
            Srst => "srst",
            Srvr => "srvr",
            Stat => "stat",
            Stmk => "stmk",
            Wchc => "wchc",
            Wchp => "wchp",
            Wchs => "wchs",
        }
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<FourLetterWord> {
        FourLetterWord::ALL.into_iter().find(|word| word.name().as_bytes() == bytes)
    }
}
