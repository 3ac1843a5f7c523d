//! The allocator, and how to make it release what is not used.
#![allow(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    /// Part of the library that the `mimalloc` crate links.
    fn mi_collect(force: bool);
}

/// Gives the calling thread's unused memory back to the operating system.
pub fn release_unused() {
    // SAFETY: it may be called at any time on any thread, and touches no memory that is in use.
    unsafe { mi_collect(true) };
}
