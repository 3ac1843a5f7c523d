//! What must never go wrong, apart from the load and the faults.

pub mod agreement;
pub mod leadership;

pub use agreement::Agreement;
pub use leadership::Leadership;
