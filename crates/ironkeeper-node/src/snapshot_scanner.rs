//! Finds the end of a snapshot in a stream without a length.
//!
//! It is determined by the records: the sessions and ACLs with their counts, nodes up to the path
//! "/", then the signature. The scanner stores none of them.

use ironkeeper_engine::snapshot::LEARNER_SIGNATURE;
use ironkeeper_proto::AclVec;
use ironkeeper_proto::jute::{DecodeError, Reader};
use ironkeeper_proto::snapshot_record::{END_PATH, SnapshotNode};

#[derive(Debug)]
pub(super) struct TreeScanner {
    stage: Stage,
    field_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    SessionCount,
    Sessions(i32),
    AclCount,
    Acls(i32),
    Nodes,
    Signature,
    Over,
}

/// The result of scanning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The number of bytes that belong to the snapshot; the "/" after the last node is the last of
    /// them.
    pub tree_len: usize,
    /// The number of bytes consumed in total: the signature is not part of the snapshot.
    pub taken_len: usize,
    /// Whether the signature was read.
    pub is_over: bool,
}

impl TreeScanner {
    /// Creates a scanner that rejects strings and buffers longer than `field_max`.
    pub(super) fn new(field_max: usize) -> TreeScanner {
        TreeScanner { stage: Stage::SessionCount, field_max }
    }

    /// Scans the complete records at the front of `bytes`. The caller passes the rest again, with
    /// more bytes after it.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Scanned, DecodeError> {
        let mut reader = Reader::with_limit(bytes, self.field_max);
        let mut scanned = Scanned { tree_len: 0, taken_len: 0, is_over: false };
        while self.stage != Stage::Over {
            match next_stage(self.stage, &mut reader) {
                Ok(stage) => {
                    scanned.taken_len = bytes.len() - reader.rest().len();
                    if self.stage != Stage::Signature {
                        scanned.tree_len = scanned.taken_len;
                    }
                    self.stage = stage;
                }
                Err(DecodeError::Truncated) => {
                    let unfinished = bytes.len() - scanned.taken_len;
                    if unfinished > record_max(self.field_max) {
                        return Err(DecodeError::BadLength(i32::MAX));
                    }
                    return Ok(scanned);
                }
                Err(error) => return Err(error),
            }
        }
        scanned.is_over = true;
        Ok(scanned)
    }
}

/// Returns the maximum length of a record: path, data and the fixed parts; also applied to ACL
/// lists.
fn record_max(field_max: usize) -> usize {
    field_max.saturating_mul(2).saturating_add(4096)
}

/// Reads one record and returns the next stage.
fn next_stage(stage: Stage, reader: &mut Reader<'_>) -> Result<Stage, DecodeError> {
    Ok(match stage {
        // Java treats a negative count as zero.
        Stage::SessionCount => Stage::Sessions(reader.i32()?),
        Stage::Sessions(..=0) => Stage::AclCount,
        Stage::Sessions(left) => {
            reader.i64()?;
            reader.i32()?;
            Stage::Sessions(left - 1)
        }
        Stage::AclCount => Stage::Acls(reader.i32()?),
        Stage::Acls(..=0) => Stage::Nodes,
        Stage::Acls(left) => {
            reader.i64()?;
            AclVec::decode(reader)?;
            Stage::Acls(left - 1)
        }
        Stage::Nodes => {
            let path = reader.str()?;
            if path == END_PATH {
                return Ok(Stage::Signature);
            }
            SnapshotNode::decode_body(path, reader)?;
            Stage::Nodes
        }
        Stage::Signature => match reader.str()? == LEARNER_SIGNATURE {
            true => Stage::Over,
            false => return Err(DecodeError::BadValue(0, "the signature behind a tree")),
        },
        Stage::Over => Stage::Over,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::jute::Put;

    /// Returns what Apache 3.9.5 sends for a tree of one session, two ACLs, the root and `/a1`.
    fn apaches_tree() -> Vec<u8> {
        let hex = "00000001 0100000e4e060000 00002710
            00000002 0000000000000001 00000001 00000001 00000005776f726c64 00000006616e796f6e65
            0000000000000002 00000001 0000001f 00000005776f726c64 00000006616e796f6e65
            00000000 00000000 ffffffffffffffff 0000000000000000 0000000000000000 0000000000000000
            0000000000000000 00000000 00000003 00000000 0000000000000000 0000000100000004
            000000032f6131 000000056461746131 0000000000000002 0000000100000003 0000000100000003
            000001a1e057d529 000001a1e057d529 00000000 00000000 00000000 0000000000000000
            0000000100000003 000000012f";
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    fn stream() -> (Vec<u8>, usize) {
        let mut bytes = apaches_tree();
        let tree_len = bytes.len();
        bytes.put_str(LEARNER_SIGNATURE);
        (bytes, tree_len)
    }

    #[test]
    fn the_end_is_found_in_apaches_bytes_and_what_follows_is_left() {
        let (mut bytes, tree_len) = stream();
        let taken_len = bytes.len();
        bytes.extend_from_slice(b"NEWLEADER");
        let scanned = TreeScanner::new(1024).scan(&bytes).unwrap();
        assert_eq!(scanned, Scanned { tree_len, taken_len, is_over: true });
    }

    #[test]
    fn pieces_of_any_size_lead_to_the_same_end() {
        let (bytes, tree_len) = stream();
        for step in 1..bytes.len() {
            let mut scanner = TreeScanner::new(1024);
            let (mut unread, mut tree, mut over) = (Vec::new(), 0, false);
            for piece in bytes.chunks(step) {
                assert!(!over, "it ended before its end");
                unread.extend_from_slice(piece);
                let scanned = scanner.scan(&unread).unwrap();
                unread.drain(..scanned.taken_len);
                tree += scanned.tree_len;
                over = scanned.is_over;
            }
            assert!(over && unread.is_empty(), "in steps of {step}");
            assert_eq!(tree, tree_len, "in steps of {step}");
        }
    }

    #[test]
    fn garbage_is_refused_before_it_is_kept() {
        let head = [0; 8];
        let long_path = [&head[..], &[0x7f, 0xff, 0xff, 0xff]].concat();
        assert!(TreeScanner::new(1024).scan(&long_path).is_err());
        let endless_acl = [&[0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 8], &[0x7f; 8192]].concat();
        assert!(TreeScanner::new(1024).scan(&endless_acl).is_err());
        let mut unsigned = apaches_tree();
        unsigned.put_str("BenWasNotHere");
        assert!(TreeScanner::new(1024).scan(&unsigned).is_err());
    }
}
