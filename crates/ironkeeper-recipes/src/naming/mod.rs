//! Names and numbers: who is called what, and ids that nobody else gets.
//!
//! | ids | unique | order | requests per id |
//! | --- | --- | --- | --- |
//! | [`SequentialIds`] | among all on the path | the order of asking, for everybody | two |
//! | [`SegmentIds`] | among all on the path | growing for each handle | one per block, made ahead |
//! | [`Snowflake`] | among all on the path | growing for each handle; by time, as far as clocks agree, for all | one in three seconds |
//! | [`Snowflake::next_uuid`] | everywhere; on the path for certain | as above | as above |
//! | [`Uuid::random`] | everywhere, but for chance | none | none |

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
