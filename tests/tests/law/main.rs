//! The law: for any view, any events, any cut and any layers, what is served equals the plain SELECT over all accepted
//! events on which the view does not fail, and the others are listed.
//!
//! The layers' own code builds states, merges them and answers from them. The expected side is the SELECT rewritten as
//! text and run over the events by DataFusion alone. `states` checks the law for the functions, `layers` for the log,
//! the workers, the runs and the nodes. `decisions` holds what sinks and alerts put out against the same SELECT.

#![allow(clippy::unwrap_used)]

mod compare;
mod decisions;
mod grammar;
mod graphs;
mod layers;
mod links;
mod regressions;
mod states;
