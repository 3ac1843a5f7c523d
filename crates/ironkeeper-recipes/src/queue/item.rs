//! The data of an item's node: one or more items, in Curator's format.
//!
//! ```text
//! 00 01 00 01               version
//! 01  <length, 4 bytes>  <bytes>      for each item
//! 02                        the end
//! ```

use bytes::{BufMut, Bytes, BytesMut};

const VERSION: i32 = 0x0001_0001;
const ITEM: u8 = 1;
const END: u8 = 2;

pub(super) fn encode(items: &[Bytes]) -> Bytes {
    let length: usize = items.iter().map(|item| item.len() + 5).sum();
    let mut bytes = BytesMut::with_capacity(length + 5);
    bytes.put_i32(VERSION);
    for item in items {
        bytes.put_u8(ITEM);
        // No overflow: the client rejects requests that are too long before the length exceeds
        // `u32`.
        bytes.put_u32(u32::try_from(item.len()).unwrap_or(u32::MAX));
        bytes.put_slice(item);
    }
    bytes.put_u8(END);
    bytes.freeze()
}

/// Returns `None` if the data has another format.
pub(super) fn decode(bytes: &Bytes) -> Option<Vec<Bytes>> {
    let (version, _) = bytes.split_first_chunk::<4>()?;
    if i32::from_be_bytes(*version) != VERSION {
        return None;
    }
    let mut items = Vec::new();
    let mut rest = bytes.slice(4..);
    loop {
        match *rest.first()? {
            END => return Some(items),
            ITEM => {
                let length = rest.get(1..5)?.try_into().ok()?;
                let length = usize::try_from(i32::from_be_bytes(length)).ok()?;
                // The length causes no allocation: the item is a slice of the data.
                let end = length.checked_add(5).filter(|end| *end <= rest.len())?;
                items.push(rest.slice(5..end));
                rest = rest.slice(end..);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_format_is_curators() {
        let bytes = encode(&[Bytes::from("hi"), Bytes::new()]);
        assert_eq!(&bytes[..], b"\x00\x01\x00\x01\x01\x00\x00\x00\x02hi\x01\x00\x00\x00\x00\x02");
        assert_eq!(decode(&bytes).unwrap(), ["hi", ""]);
    }

    proptest! {
        #[test]
        fn any_items_come_back(items: Vec<Vec<u8>>) {
            let items: Vec<Bytes> = items.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(decode(&encode(&items)), Some(items));
        }

        #[test]
        fn any_bytes_are_told_from_items(bytes: Vec<u8>, items: Vec<Vec<u8>>, cut: usize) {
            let _ = decode(&Bytes::from(bytes));
            let whole = encode(&items.into_iter().map(Bytes::from).collect::<Vec<_>>());
            prop_assert_eq!(decode(&whole.slice(..cut % whole.len())), None);
        }
    }
}
