//! Memory of large requests and replies is returned to the operating system.
//!
//! An allocator keeps the memory that a thread has freed until that thread allocates again, which
//! may be never. So an I/O thread requests the release of such memory some time after a connection
//! with large buffers has ended. The call depends on the allocator, which the program chooses: see
//! [`release_with`].

use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::Notify;

/// Connections often end together, so the thread requests it once for all that end within this
/// time.
const PAUSE: Duration = Duration::from_secs(1);

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets the function that releases the unused memory of a thread. The first call counts.
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
