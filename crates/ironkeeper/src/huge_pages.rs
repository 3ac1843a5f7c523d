//! Prevents the kernel from backing the memory of this process with huge pages.
//!
//! The allocator requests them. A tree of small nodes gains nothing: with huge pages an empty
//! server is 13 MB larger, a node costs 8 % more memory, and a create takes 40 % more time, mostly
//! in the kernel, which clears pages that are then hardly used.

/// Disables huge pages. Must be called before the first large allocation.
#[cfg(target_os = "linux")]
pub fn forbid() {
    // An old kernel without this call returns an error, which is harmless.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(not(target_os = "linux"))]
pub fn forbid() {}
