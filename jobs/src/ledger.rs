//! The ledger: is every record counted, once? Proven by reading files, never the counters of the code that wrote them.
//!
//! - Per partition and checkpoint ([`partitions`]): `end - start = archived + duplicate + dead-lettered + absent`. What is
//!   archived and dead-lettered is counted from the files' rows; duplicates and absent offsets leave no row, they are the record's.
//! - Per view ([`view`]): `archived = filtered + expired + sum(__events)`. The left side and the first two are counted by plain
//!   SQL over the archive, the events from the state rows of snapshot and segments.

mod partitions;
mod view;

pub use partitions::{PartitionLine, partitions};
pub use view::{ViewLine, view};
