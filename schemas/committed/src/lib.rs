//! Interprets a catalog state: plans the views and streams it defines ([`registry`]), reads the states of each of its
//! checkpoints from the states object or from the archive ([`segment`]), and reports damaged files ([`damage`]).

pub mod damage;
pub mod registry;
pub mod segment;
