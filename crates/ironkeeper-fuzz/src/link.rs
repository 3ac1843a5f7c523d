//! The bytes of a link between servers, as the driver receives them: openings, votes, packets, and
//! the snapshot that a leader sends.

use ironkeeper_node::{Expect, Intake};
use ironkeeper_proto::quorum_packet::Sender;
use ironkeeper_store::{Dirs, Store, StoreOptions};
use ironkeeper_zab::LinkId;

use crate::memory_disk::MemoryDisk;

/// The maximal length of a field, small so that the limit is reached by small inputs.
const FIELD_MAX: usize = 4096;

/// The first byte selects the port and the side, the second the length of the pieces.
pub(crate) fn link(bytes: &[u8]) {
    let [kind, piece, stream @ ..] = bytes else { return };
    let disk = MemoryDisk([].into());
    let store = Store::open(disk, Dirs::single("/data"), StoreOptions::default());
    let store = store.expect("every operation of the disk succeeds");
    let at_once = decode(*kind, &store, [stream].into_iter());
    let in_pieces = decode(*kind, &store, stream.chunks(usize::from(*piece) + 1));
    assert_eq!(at_once, in_pieces, "the inputs do not depend on how the bytes are divided");
}

/// Returns the inputs as text, and the error that closes the link.
fn decode<'a>(
    kind: u8,
    store: &Store<MemoryDisk>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (String, Option<String>) {
    let expect = match kind % 3 {
        0 => Expect::Opening,
        1 => Expect::Packets(Sender::Leader),
        _ => Expect::Packets(Sender::Learner),
    };
    let mut intake = Intake::new(expect, FIELD_MAX);
    let mut inputs = Vec::new();
    for piece in pieces {
        intake.unread.extend_from_slice(piece);
        loop {
            if let Err(error) = intake.decode(LinkId(1), &mut inputs) {
                return (format!("{inputs:?}"), Some(error.to_string()));
            }
            if intake.wants_bytes() {
                break;
            }
            intake.receive_tree(store).expect("every operation of the disk succeeds");
        }
    }
    (format!("{inputs:?}"), None)
}
