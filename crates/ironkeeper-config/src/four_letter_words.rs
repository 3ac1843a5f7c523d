//! The four-letter words that a server accepts.

/// Every word of ZooKeeper 3.9, sorted.
const WORDS: [&str; 18] = [
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst",
    "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
];

/// The whitelist of four-letter words. It always contains `srvr`, which Apache's own scripts need.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FourLetterWords {
    /// Bit `i` allows `WORDS[i]`.
    allowed: u32,
    /// Whether these are the words of a server without a configuration.
    is_unconfigured: bool,
}

/// The words of a server without a configuration: they change nothing and cost little.
const UNCONFIGURED: [&str; 8] = ["conf", "dirs", "gtmk", "isro", "mntr", "ruok", "stat", "wchs"];
/// Additional words for clients on the same machine: they show clients and their sessions.
const UNCONFIGURED_LOCAL: [&str; 4] = ["cons", "dump", "envi", "hash"];

impl FourLetterWords {
    /// Returns only `srvr`, the default.
    pub fn least() -> Self {
        let mut words = Self { allowed: 0, is_unconfigured: false };
        words.allow("srvr");
        words
    }

    /// Returns all words.
    pub fn all() -> Self {
        Self { allowed: (1 << WORDS.len()) - 1, is_unconfigured: false }
    }

    /// Returns the words of a server without a configuration that serves its own machine: every
    /// word that neither changes anything nor costs much (`wchc` and `wchp` do).
    pub fn unconfigured() -> Self {
        let mut words = Self::unconfigured_for_all();
        for word in UNCONFIGURED_LOCAL {
            words.allow(word);
        }
        words
    }

    /// Returns the words of a server without a configuration that serves other machines.
    pub fn unconfigured_for_all() -> Self {
        let mut words = Self::least();
        for word in UNCONFIGURED {
            words.allow(word);
        }
        words.is_unconfigured = true;
        words
    }

    /// Returns whether these words are a default and not a setting.
    pub(crate) fn is_unconfigured(self) -> bool {
        self.is_unconfigured
    }

    /// Adds a word. Returns false if there is no such word.
    pub fn allow(&mut self, word: &str) -> bool {
        let index = WORDS.binary_search(&word);
        if let Ok(index) = index {
            self.allowed |= 1 << index;
        }
        index.is_ok()
    }

    /// Returns whether the word is enabled.
    pub fn allows(self, word: &str) -> bool {
        WORDS.binary_search(&word).is_ok_and(|index| self.allowed & (1 << index) != 0)
    }

    /// Returns whether ZooKeeper has the word, enabled or not.
    pub fn is_known(word: &str) -> bool {
        WORDS.binary_search(&word).is_ok()
    }

    /// Returns the enabled words in alphabetical order.
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
        let local = FourLetterWords::unconfigured();
        assert_eq!(local.iter().count(), 1 + UNCONFIGURED.len() + UNCONFIGURED_LOCAL.len());
        assert!(!local.allows("srst") && !local.allows("wchp"));
        assert!(FourLetterWords::is_known("wchp") && !FourLetterWords::is_known("SRVR"));
    }
}
