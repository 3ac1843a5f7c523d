//! Four-letter words: administrative answers as text, requested with `echo mntr | nc`.
//!
//! `ironkeeper_admin::text` renders them; this file checks which words are enabled and collects the
//! data with [`admin`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_admin::{Service, text};
use ironkeeper_engine::Conn;
use ironkeeper_engine::planted::Place;
use ironkeeper_proto::four_letter::FourLetterWord;

use crate::admin;
use crate::shared::Shared;

/// Apache sends a reply in pieces of this size and counts each as a packet.
const PACKET_BYTES: usize = 8192;

/// Returns whether the word is enabled.
pub fn is_allowed(shared: &Shared, word: FourLetterWord) -> bool {
    shared.config.four_letter_words.allows(word)
}

/// Returns the complete reply to a word that `conn` has sent.
///
/// Work that may take long (files, all connections, all watches) is done on another thread, so that
/// it does not delay the clients of the same I/O thread.
pub async fn answer(
    shared: &Arc<Shared>,
    conn: &Conn,
    word: FourLetterWord,
    argument: i64,
) -> String {
    use FourLetterWord::{Gtmk, Isro, Ruok, Srst, Srvr, Stmk};
    let db = &shared.core.db;
    conn.note_word(db);
    let text = if !is_allowed(shared, word) {
        format!("{} is not executed because it is not in the whitelist.\n", word.name())
    } else if matches!(word, Gtmk | Isro | Ruok | Srst | Srvr | Stmk) {
        render(shared, word, argument)
    } else {
        let shared = Arc::clone(shared);
        let rendered = tokio::task::spawn_blocking(move || render(&shared, word, argument)).await;
        rendered.unwrap_or_else(|error| {
            tracing::error!(word = word.name(), %error, "four-letter word failed");
            String::new()
        })
    };
    db.stats.packets_sent.fetch_add(text.len().div_ceil(PACKET_BYTES) as u64, Relaxed);
    text
}

fn render(shared: &Shared, word: FourLetterWord, argument: i64) -> String {
    shared.core.db.planted_panic.strike(Place::Word);
    let service = admin::service(shared);
    match word {
        FourLetterWord::Ruok => text::RUOK.to_owned(),
        FourLetterWord::Envi => text::envi(&admin::environment()),
        FourLetterWord::Gtmk => shared.trace_mask.load(Relaxed).to_string(),
        FourLetterWord::Stmk => {
            shared.trace_mask.store(argument, Relaxed);
            argument.to_string()
        }
        FourLetterWord::Isro => text::isro(service).to_owned(),
        _ if service == Service::Nothing => text::not_serving(word),
        FourLetterWord::Conf => text::conf(&admin::configuration(shared)),
        FourLetterWord::Cons => text::cons(&admin::connections(shared)),
        FourLetterWord::Crst => {
            admin::reset_connection_stats(shared);
            text::CRST.to_owned()
        }
        FourLetterWord::Dirs => text::dirs(admin::dir_sizes(shared)),
        FourLetterWord::Dump => text::dump(&admin::dump(shared)),
        FourLetterWord::Hash => text::hash(&admin::digests(shared)),
        FourLetterWord::Mntr => text::mntr(&admin::monitor(shared)),
        FourLetterWord::Srst => {
            admin::reset_server_stats(shared);
            text::SRST.to_owned()
        }
        FourLetterWord::Srvr => text::srvr(&admin::server_state(shared)),
        FourLetterWord::Stat => {
            let connections = admin::connections(shared);
            text::stat(&admin::server_state(shared), &connections)
        }
        FourLetterWord::Wchs => text::wchs(&admin::watches(shared)),
        FourLetterWord::Wchc => text::wchc(&admin::watches(shared)),
        FourLetterWord::Wchp => text::wchp(&admin::watches(shared)),
    }
}
