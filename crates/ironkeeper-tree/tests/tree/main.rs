//! Tests of the public interface of the tree: single rules, and random histories against a naive
//! model.

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
