//! States: computed from events ([`Partial`]), kept as sorted rows ([`StateRows`]), merged by key and tile
//! ([`sort_and_merge`]) and over the ranges of a query ([`answer()`]).
//!
//! The layer of a micro-batch, a segment, a snapshot's bucket and the memory of a serving node all have the same form:
//! state rows, merged to different degrees. A reader never assumes one row per key and tile; it merges.

mod added;
mod answer;
pub(crate) mod buckets;
mod busy;
mod first_rows;
pub(crate) mod gather;
mod kept_key;
mod keys;
pub(crate) mod merge;
pub(crate) mod nodes;
mod order;
pub(crate) mod partial;
pub(crate) mod per_event;
mod per_event_exec;
mod pieces;
pub(crate) mod ranges;
pub(crate) mod rows;
mod same;
mod seen;
mod seen_by;
pub(crate) mod sorted;
#[cfg(test)]
mod testing;
mod tuples;
pub(crate) mod values;

pub use added::{AddedStates, PerEventStates};
pub use answer::{Answered, KeyPieces, answer, answer_kept, answer_key, cost_of_key, spans_of};
pub use buckets::{bucket_of, buckets_of_part};
pub use busy::{BusyKeys, busy_keys};
pub use first_rows::Probe;
pub use gather::{Gather, compact_by_eight, compact_pairwise};
pub use kept_key::KeptKey;
pub use keys::KeyCodec;
pub use merge::{at_kept_levels, keep_from, kept_tiles, merge_rolled_up, merge_sets, merge_sorted, rollup, sort_and_merge};
pub use nodes::NodeCodec;
pub use partial::{EventSource, Partial, kept_rows_of, partial_exec, prepared_plan, state_rows_of};
pub use per_event::PerEvent;
pub use per_event_exec::FailureSink;
pub use pieces::Pieces;
pub use rows::{RowOrder, StateRows, conform, is_constant, levels, tiles};
pub use same::{Differing, differing};
pub use seen_by::{AddLayers, SeenBy, rows_seen};
pub use sorted::{SortedFileWriter, SortedRun, map_file};
pub use values::{FailedRows, FailedValue};
