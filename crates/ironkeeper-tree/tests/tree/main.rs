//! The tree from outside: rules one by one, and random histories against a naive model.

mod apache;
mod fuzzy;
mod loading;
mod model;
mod oldest;
mod quotas;
mod random;
mod rules;
mod snapshots;
mod world;
