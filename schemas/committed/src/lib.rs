//! What a catalog state means: the views and streams it defines, planned ([`registry`]); the states of each of its checkpoints, from the
//! states object or from the archive ([`segment`]); and how a damaged file is reported ([`damage`]).

pub mod damage;
pub mod registry;
pub mod segment;
