//! One heap block per node: its name and its data, immutable and reference counted.
//!
//! ```text
//! | references u32 | data length u32 (MAX = null) | name length u32 | name | data |
//! ```
//! A node holds one thin pointer to such a block. A snapshot keeps the block of a node that is
//! about to change, and a reply with large data keeps it until it is sent; both hold one more
//! reference. Only the reference count of a block changes after it is created.
//!
//! This is the only module of the crate with unsafe code.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The data length that stands for null data, which differs from empty data.
const NULL_DATA: u32 = u32::MAX;
/// The limit above which references must have leaked. Far below the wrap-around, so that the check
/// need not be exact under concurrency.
const REFERENCES_MAX: u32 = i32::MAX as u32;

#[repr(C)]
struct Head {
    references: AtomicU32,
    data_len: u32,
    name_len: u32,
}

/// A counted reference to one allocation with a name and data.
pub(crate) struct Block {
    /// Points to a live allocation of `layout(name_len, data_len)` that starts with a `Head`. The
    /// pointer is valid for the whole allocation.
    head: NonNull<Head>,
}

// SAFETY: a block is immutable apart from its count, which is atomic. The thread that drops the
// last reference frees the block; the allocator allows that on any thread.
unsafe impl Send for Block {}
// SAFETY: as above: shared access only reads immutable bytes and changes the atomic count.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn new(name: &str, data: Option<&[u8]>) -> Block {
        let name_len = u32::try_from(name.len()).expect("names come in i32-framed records");
        let data_len = match data {
            None => NULL_DATA,
            Some(data) => {
                i32::try_from(data.len()).expect("data comes in i32-framed records") as u32
            }
        };
        let layout = layout(name_len, data_len);
        // SAFETY: the layout is never empty, it includes the head.
        let raw = unsafe { alloc(layout) };
        let Some(head) = NonNull::new(raw.cast::<Head>()) else { handle_alloc_error(layout) };
        // SAFETY: the allocation is fresh, aligned for the head and large enough for the head, the
        // name and the data one after the other. The sources cannot overlap with it.
        unsafe {
            head.write(Head { references: AtomicU32::new(1), data_len, name_len });
            let mut to = raw.add(size_of::<Head>());
            to.copy_from_nonoverlapping(name.as_ptr(), name.len());
            if let Some(data) = data {
                to = to.add(name.len());
                to.copy_from_nonoverlapping(data.as_ptr(), data.len());
            }
        }
        Block { head }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: the block holds a reference, so the allocation is live, and `new` wrote its head.
        // Only the atomic in it changes.
        unsafe { self.head.as_ref() }
    }

    #[inline]
    fn bytes(&self, from: usize, len: usize) -> &[u8] {
        // SAFETY: both callers stay within the name and the data, which `new` initialised and which
        // are never written again. `self.head` is valid for the whole allocation, and the result
        // borrows `self`, which keeps the allocation live.
        unsafe {
            let start = self.head.cast::<u8>().add(size_of::<Head>() + from);
            std::slice::from_raw_parts(start.as_ptr(), len)
        }
    }

    #[inline]
    pub(crate) fn name(&self) -> &str {
        let name = self.bytes(0, self.head().name_len as usize);
        // SAFETY: these bytes were copied from a `&str` of this length.
        unsafe { std::str::from_utf8_unchecked(name) }
    }

    #[inline]
    pub(crate) fn data(&self) -> Option<&[u8]> {
        let head = self.head();
        if head.data_len == NULL_DATA {
            return None;
        }
        Some(self.bytes(head.name_len as usize, head.data_len as usize))
    }

    /// Returns the length of the data, zero for null data.
    #[inline]
    pub(crate) fn data_len(&self) -> usize {
        match self.head().data_len {
            NULL_DATA => 0,
            len => len as usize,
        }
    }
}

fn layout(name_len: u32, data_len: u32) -> Layout {
    let data_len = if data_len == NULL_DATA { 0 } else { data_len as usize };
    size_of::<Head>()
        .checked_add(name_len as usize)
        .and_then(|size| size.checked_add(data_len))
        .and_then(|size| Layout::from_size_align(size, align_of::<Head>()).ok())
        .expect("a name and data that are in memory fit in memory")
}

impl Clone for Block {
    #[inline]
    fn clone(&self) -> Block {
        // A new reference is made from an existing one, so no ordering is required.
        let before = self.head().references.fetch_add(1, Ordering::Relaxed);
        assert!(before <= REFERENCES_MAX, "references to a block leak");
        Block { head: self.head }
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let head = self.head();
        let layout = layout(head.name_len, head.data_len);
        // Reads through this reference must end before another thread frees the block: release here
        // pairs with acquire in the thread that frees it.
        if head.references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: this was the last reference, so no other thread can reach the allocation, and
        // `layout` is the layout it was allocated with.
        unsafe { dealloc(self.head.as_ptr().cast::<u8>(), layout) };
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("name", &self.name())
            .field("data_len", &self.data().map(<[u8]>::len))
            .finish()
    }
}

/// A node's data at the time this handle was created, without a copy.
///
/// It does not borrow from the tree: a reply can hold it while the node is changed or deleted.
#[derive(Clone, Debug)]
pub struct SharedBytes {
    block: Block,
}

impl SharedBytes {
    /// Returns `None` if the block's data is null.
    pub(crate) fn of(block: &Block) -> Option<SharedBytes> {
        block.data().is_some().then(|| SharedBytes { block: block.clone() })
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self.block.data().unwrap_or_default()
    }
}

impl std::ops::Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests share blocks between threads")]
mod tests {
    use super::*;

    /// Clones per thread. Miri interprets the tests and is a thousand times slower.
    const SHARES: usize = if cfg!(miri) { 5 } else { 50 };

    #[test]
    fn a_block_gives_back_what_it_was_made_of() {
        for name in ["", "n", "n0000000001", "\u{e4}\u{4e2d}"] {
            for data in [None, Some(&b""[..]), Some(&b"x"[..]), Some(&[7; 1000][..])] {
                let block = Block::new(name, data);
                assert_eq!((block.name(), block.data()), (name, data));
                assert_eq!(block.data_len(), data.map_or(0, <[u8]>::len));
                let clone = block.clone();
                drop(block);
                assert_eq!((clone.name(), clone.data()), (name, data));
            }
        }
    }

    #[test]
    fn null_data_cannot_be_shared_and_empty_data_can() {
        assert!(SharedBytes::of(&Block::new("n", None)).is_none());
        assert_eq!(&*SharedBytes::of(&Block::new("n", Some(b""))).unwrap(), b"");
    }

    #[test]
    fn shared_bytes_outlive_the_block_they_came_from_on_other_threads() {
        let block = Block::new("name", Some(b"payload"));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = SharedBytes::of(&block).unwrap();
                std::thread::spawn(move || {
                    for _ in 0..SHARES {
                        assert_eq!(&*shared.clone(), b"payload");
                    }
                })
            })
            .collect();
        drop(block);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_missing_block_costs_no_space() {
        assert_eq!(size_of::<Option<Block>>(), size_of::<usize>());
    }
}
