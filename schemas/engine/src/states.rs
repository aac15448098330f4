//! States: made from events ([`partial`]), kept as sorted rows ([`rows`]), merged by key and tile ([`merge`]) and over the
//! ranges of a question ([`mod@answer`]).
//!
//! A micro-batch's layer, a segment, a snapshot bucket and a serving node's memory are the same thing: state rows, more or less
//! merged. A reader never assumes one row per key and tile; it merges.

pub mod answer;
pub mod buckets;
pub mod gather;
pub mod merge;
pub mod nodes;
mod order;
pub mod partial;
mod pieces;
pub(crate) mod ranges;
pub mod rows;
pub mod sorted;
#[cfg(test)]
mod testing;
pub(crate) mod values;

pub use answer::answer;
pub use buckets::bucket_of;
pub use merge::{climb, merge_rows, merge_sorted};
pub use partial::{Partial, prepared_plan};
pub use pieces::Pieces;
pub use rows::{KeyCodec, StateRows};
