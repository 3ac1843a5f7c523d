//! System calls that the standard library does not offer. The only unsafe code of the store.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Returns the number of bytes that an unprivileged process may still write to the file system of
/// `file`.
pub(super) fn free_bytes(file: &File) -> io::Result<u64> {
    let mut stats = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open for the length of the call, and `stats` points to writable
    // memory of the type the call fills.
    let result = unsafe { libc::fstatvfs(file.as_raw_fd(), stats.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the structure.
    let stats = unsafe { stats.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "the types differ between platforms")]
    Ok((stats.f_bavail as u64).saturating_mul(stats.f_frsize as u64))
}

/// Writes a range to the medium, waits for the write, and drops the range from the cache.
#[cfg(target_os = "linux")]
pub(super) fn write_back(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = libc::off64_t::try_from(offset).map_err(invalid)?;
    let len = libc::off64_t::try_from(len).map_err(invalid)?;
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: plain numbers and a descriptor that is open for the length of the call.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    if result != 0 {
        let error = io::Error::last_os_error();
        // Some file systems do not support the call; then the kernel decides when it writes.
        return match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE) => Ok(()),
            _ => Err(error),
        };
    }
    // SAFETY: as above. The call is advisory, so its result is ignored.
    unsafe { libc::posix_fadvise64(file.as_raw_fd(), offset, len, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn write_back(file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    file.sync_data()
}

/// Sets the scheduling policy of the calling thread to SCHED_BATCH: a thread that becomes runnable
/// waits for a free processor and does not preempt a running thread. A failure has no effect and is
/// ignored.
#[cfg(target_os = "linux")]
pub fn let_others_finish() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: names the calling thread, and `param` outlives the call.
    unsafe {
        libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_BATCH, &raw const param);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn let_others_finish() {}
