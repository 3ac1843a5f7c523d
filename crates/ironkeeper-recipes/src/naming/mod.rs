//! Names with values, and generators of unique ids.
//!
//! | ids | unique | order | requests per id |
//! | --- | --- | --- | --- |
//! | [`SequentialIds`] | on the path | real-time order of the calls, for all clients | two |
//! | [`SegmentIds`] | on the path | growing for each handle | one per block, made ahead |
//! | [`Snowflake`] | on the path | growing for each handle; by clock for all | one in three seconds
//! |
//! | [`Snowflake::next_uuid`] | on the path; elsewhere with high probability | as above | as above
//! |
//! | [`Uuid::random`] | everywhere, with high probability | none | none |

pub mod names;
pub mod segment;
pub mod sequential;
pub mod snowflake;
pub mod uuid;

#[doc(inline)]
pub use names::{NameService, Registration};
#[doc(inline)]
pub use segment::SegmentIds;
#[doc(inline)]
pub use sequential::SequentialIds;
#[doc(inline)]
pub use snowflake::{Snowflake, SnowflakeBuilder, SnowflakeLayout, SnowflakeParts};
#[doc(inline)]
pub use uuid::{NoUuid, Uuid};
