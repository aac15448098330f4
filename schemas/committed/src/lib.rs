//! Interprets a catalog state: plans the views and streams it defines ([`registry`]), reads the states of each of its
//! checkpoints from the states object or from the archive ([`segment`]), decides which checkpoints lack a view's states
//! ([`lacking`]), says how far a view is built ([`building`]), sets [`parameters`], reports damaged files ([`damage`])
//! and names without a definition ([`names`]), says whether a log is the one that was read, and a topic the one that is
//! read ([`log_check`]), and how long an archive is kept ([`retention`]).

pub mod building;
pub mod damage;
pub mod lacking;
pub mod log_check;
pub mod names;
pub mod parameters;
pub mod registry;
pub mod retention;
pub mod segment;
