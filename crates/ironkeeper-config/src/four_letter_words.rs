//! The four-letter words that a server accepts.

use ironkeeper_proto::four_letter::FourLetterWord::{self, *};

/// The whitelist of four-letter words. It always contains `srvr`, which Apache's own scripts need.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FourLetterWords {
    /// Bit `word as u32` allows a word.
    allowed: u32,
    /// Whether these are the words of a server without a configuration.
    is_unconfigured: bool,
}

const _: () = assert!(FourLetterWord::ALL.len() <= 32);

/// The words of a server without a configuration: they change nothing and cost little.
const UNCONFIGURED: [FourLetterWord; 8] = [Conf, Dirs, Gtmk, Isro, Mntr, Ruok, Stat, Wchs];
/// Additional words for clients on the same machine: they show clients and their sessions.
const UNCONFIGURED_LOCAL: [FourLetterWord; 4] = [Cons, Dump, Envi, Hash];

impl FourLetterWords {
    /// Returns only `srvr`, the default.
    pub fn least() -> Self {
        Self::of([])
    }

    /// Returns all words.
    pub fn all() -> Self {
        Self::of(FourLetterWord::ALL)
    }

    /// Returns `srvr` and the given words.
    pub fn of(words: impl IntoIterator<Item = FourLetterWord>) -> Self {
        let mut set = Self { allowed: bit(Srvr), is_unconfigured: false };
        words.into_iter().for_each(|word| set.allow(word));
        set
    }

    /// Returns the words of a server without a configuration that serves its own machine: every
    /// word that neither changes anything nor costs much (`wchc` and `wchp` do).
    pub fn unconfigured() -> Self {
        let words = Self::of(UNCONFIGURED.into_iter().chain(UNCONFIGURED_LOCAL));
        Self { is_unconfigured: true, ..words }
    }

    /// Returns the words of a server without a configuration that serves other machines.
    pub fn unconfigured_for_all() -> Self {
        Self { is_unconfigured: true, ..Self::of(UNCONFIGURED) }
    }

    /// Returns whether these words are a default and not a setting.
    pub(crate) fn is_unconfigured(self) -> bool {
        self.is_unconfigured
    }

    /// Adds a word.
    pub fn allow(&mut self, word: FourLetterWord) {
        self.allowed |= bit(word);
    }

    /// Returns whether the word is enabled.
    pub fn allows(self, word: FourLetterWord) -> bool {
        self.allowed & bit(word) != 0
    }

    /// Returns the enabled words in alphabetical order.
    pub fn iter(self) -> impl Iterator<Item = FourLetterWord> {
        FourLetterWord::ALL.into_iter().filter(move |word| self.allows(*word))
    }
}

fn bit(word: FourLetterWord) -> u32 {
    1 << word as u32
}

impl Default for FourLetterWords {
    fn default() -> Self {
        Self::least()
    }
}

impl std::fmt::Debug for FourLetterWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(FourLetterWord::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srvr_is_always_allowed_and_others_when_added() {
        let mut words = FourLetterWords::default();
        assert_eq!(words.iter().collect::<Vec<_>>(), [Srvr]);
        words.allow(Mntr);
        assert_eq!(words.iter().collect::<Vec<_>>(), [Mntr, Srvr]);
        assert!(words.allows(Mntr) && !words.allows(Ruok));
        assert_eq!(words, FourLetterWords::of([Mntr]));
    }

    #[test]
    fn all_allows_every_word() {
        assert!(FourLetterWords::all().iter().eq(FourLetterWord::ALL));
        assert_eq!(FourLetterWords::all().iter().count(), 18);
    }

    #[test]
    fn words_of_a_server_without_a_configuration_change_nothing_and_cost_little() {
        let local = FourLetterWords::unconfigured();
        assert_eq!(local.iter().count(), 1 + UNCONFIGURED.len() + UNCONFIGURED_LOCAL.len());
        assert!(!local.allows(Srst) && !local.allows(Wchp));
        assert!(
            local.is_unconfigured() && FourLetterWords::unconfigured_for_all().is_unconfigured()
        );
        assert!(!FourLetterWords::unconfigured_for_all().allows(Cons));
    }
}
