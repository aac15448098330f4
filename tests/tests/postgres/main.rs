//! The PostgreSQL protocol, by a client that was written for PostgreSQL: over a node whose layers a test drives step by
//! step.

#![allow(clippy::unwrap_used)]

mod answers;
mod encrypted;
mod frames;
mod limits;
mod metadata;
mod protocol;
mod rights;
mod server;
mod settings;
mod tools;
mod zones;
