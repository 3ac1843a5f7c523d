//! Memory that large requests and replies took goes back to the operating system.
//!
//! An allocator keeps what a thread has freed until that thread allocates again, which may be
//! never. So an I/O thread asks it to release such memory, a moment after a connection with large
//! buffers has ended. How to ask depends on the allocator, which the program chooses: see
//! [`release_with`].

use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::Notify;

/// Connections often end together, so the thread asks once for all that end within this time.
const PAUSE: Duration = Duration::from_secs(1);

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets how a thread releases memory that it does not use. The first call counts.
pub fn release_with(release: fn()) {
    let _ = RELEASE.set(release);
}

/// Releases the calling I/O thread's unused memory some time after each notification.
pub(crate) async fn release_when(freed: &Notify) {
    let Some(release) = RELEASE.get() else { return };
    loop {
        freed.notified().await;
        tokio::time::sleep(PAUSE).await;
        release();
    }
}
