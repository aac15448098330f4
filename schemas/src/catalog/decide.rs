//! Decisions over a catalog state: pure functions from what was read to the commit or plan to carry out. No clock, no I/O.

mod checkpoint;
mod collect;
mod publish;

pub use checkpoint::{checkpoint_commit, ledger_difference};
pub use collect::{CollectionPlan, collectable};
pub use publish::{publish_commit, publishable};

#[cfg(test)]
mod tests;
