//! Models, schemas and migrations, against a real server, with and without faults.

mod migration;
mod modeled;
mod schema;
