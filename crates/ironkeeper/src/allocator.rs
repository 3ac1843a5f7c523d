//! The global allocator (mimalloc), and a function that releases its unused memory.
#![allow(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    /// Part of the library that the `mimalloc` crate links.
    fn mi_collect(force: bool);
}

/// Returns the unused memory of the calling thread to the operating system.
pub fn release_unused() {
    // SAFETY: `mi_collect` may be called at any time on any thread, and touches no memory in use.
    unsafe { mi_collect(true) };
}
