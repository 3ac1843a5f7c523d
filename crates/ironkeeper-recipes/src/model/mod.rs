//! Models: typed values on paths of a form, schemas that restrict the nodes of a path, and
//! migrations from one version of a layout to the next.

pub mod cached;
mod codec;
mod form;
pub mod migration;
pub mod modeled;
pub mod schema;
mod schema_client;
mod schema_file;

#[doc(inline)]
pub use cached::{CachedModel, ModelChanges, Models};
pub use codec::{Codec, Json, Text};
pub use form::PathForm;
#[doc(inline)]
pub use migration::{Migration, MigrationSet, Migrator};
#[doc(inline)]
pub use modeled::{Model, Modeled};
#[doc(inline)]
pub use schema::{Allowance, Schema, SchemaSet};
pub use schema_client::{SchemaClient, SchemaTransaction};
