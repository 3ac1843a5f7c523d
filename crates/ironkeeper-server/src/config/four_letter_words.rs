//! Which four-letter words a server answers.

/// Every word of ZooKeeper 3.9, sorted.
const WORDS: [&str; 18] = [
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst",
    "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
];

/// The white-list of four-letter words: a set that always contains `srvr`, which Apache's own
/// scripts rely on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FourLetterWords {
    /// Bit `i` allows `WORDS[i]`.
    allowed: u32,
}

impl FourLetterWords {
    /// Only `srvr`, the default.
    pub fn least() -> Self {
        let mut words = Self { allowed: 0 };
        words.allow("srvr");
        words
    }

    /// All words.
    pub fn all() -> Self {
        Self { allowed: (1 << WORDS.len()) - 1 }
    }

    /// Adds a word. False if there is no such word.
    pub fn allow(&mut self, word: &str) -> bool {
        let index = WORDS.binary_search(&word);
        if let Ok(index) = index {
            self.allowed |= 1 << index;
        }
        index.is_ok()
    }

    /// Whether the word may be answered.
    pub fn allows(self, word: &str) -> bool {
        WORDS.binary_search(&word).is_ok_and(|index| self.allowed & (1 << index) != 0)
    }

    /// Whether the word is one of ZooKeeper's, allowed or not.
    pub fn is_known(word: &str) -> bool {
        WORDS.binary_search(&word).is_ok()
    }

    /// The allowed words in alphabetical order.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        WORDS.into_iter().filter(move |word| self.allows(word))
    }
}

impl Default for FourLetterWords {
    fn default() -> Self {
        Self::least()
    }
}

impl std::fmt::Debug for FourLetterWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted_so_that_they_can_be_searched() {
        assert!(WORDS.is_sorted());
    }

    #[test]
    fn srvr_is_always_allowed_and_others_when_added() {
        let mut words = FourLetterWords::default();
        assert_eq!(words.iter().collect::<Vec<_>>(), ["srvr"]);
        assert!(words.allow("mntr"));
        assert!(!words.allow("help"));
        assert_eq!(words.iter().collect::<Vec<_>>(), ["mntr", "srvr"]);
        assert!(words.allows("mntr") && !words.allows("ruok") && !words.allows("help"));
    }

    #[test]
    fn all_allows_every_known_word_and_nothing_else() {
        assert_eq!(FourLetterWords::all().iter().count(), 18);
        assert!(!FourLetterWords::all().allows("help"));
        assert!(FourLetterWords::is_known("wchp") && !FourLetterWords::is_known("SRVR"));
    }
}
