//! Four-letter words: short commands in the place of a frame's length.

/// Defines [`FourLetterWord`] from the only list of the words.
macro_rules! four_letter_words {
    ($($(#[doc = $meaning:literal])* $word:ident = $name:literal,)*) => {
        /// A command known to every ZooKeeper server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FourLetterWord {
            $($(#[doc = $meaning])* $word,)*
        }

        impl FourLetterWord {
            /// All words in alphabetical order.
            pub const ALL: [FourLetterWord; [$($name),*].len()] = [$(FourLetterWord::$word),*];

            /// Returns the word as it is sent.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FourLetterWord::$word => $name,)*
                }
            }
        }
    };
}

four_letter_words! {
    /// The configuration.
    Conf = "conf",
    /// The connections with all details.
    Cons = "cons",
    /// Resets the statistics of all connections.
    Crst = "crst",
    /// The sizes of the data directories.
    Dirs = "dirs",
    /// The sessions by the time of their expiry, and the ephemerals.
    Dump = "dump",
    /// The environment of the process.
    Envi = "envi",
    /// The trace mask.
    Gtmk = "gtmk",
    /// The digests of the tree at past zxids.
    Hash = "hash",
    /// Whether the server serves reads only.
    Isro = "isro",
    /// All metrics.
    Mntr = "mntr",
    /// Whether the process answers at all.
    Ruok = "ruok",
    /// Resets the statistics of the server.
    Srst = "srst",
    /// The state of the server.
    Srvr = "srvr",
    /// The state of the server and its clients.
    Stat = "stat",
    /// Sets the trace mask to the eight bytes that follow.
    Stmk = "stmk",
    /// The watches by session.
    Wchc = "wchc",
    /// The watches by path.
    Wchp = "wchp",
    /// The number of watches.
    Wchs = "wchs",
}

impl FourLetterWord {
    /// Returns the word with exactly these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<FourLetterWord> {
        FourLetterWord::ALL.into_iter().find(|word| word.name().as_bytes() == bytes)
    }

    /// Returns the word of this name.
    pub fn from_name(name: &str) -> Option<FourLetterWord> {
        FourLetterWord::from_bytes(name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_four_letters_and_are_found_by_name() {
        assert!(FourLetterWord::ALL.is_sorted_by_key(|word| word.name()));
        for word in FourLetterWord::ALL {
            assert_eq!(word.name().len(), 4);
            assert_eq!(FourLetterWord::from_name(word.name()), Some(word));
        }
        assert_eq!(FourLetterWord::from_name("RUOK"), None);
        assert_eq!(FourLetterWord::from_bytes(b"help"), None);
    }
}
