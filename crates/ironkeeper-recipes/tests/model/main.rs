//! Models, schemas and migrations, against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod migration;
mod modeled;
mod schema;
