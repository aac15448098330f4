//! The ledger proves that every record is counted exactly once. It reads the files and never uses the counters of the
//! code that wrote them.
//!
//! - Per partition and checkpoint ([`partitions`]): `end - start = archived + duplicate + dead-lettered + absent`.
//!   Archived and dead-lettered records are counted from the files' rows. Duplicates and absent offsets leave no row;
//!   their counts come from the checkpoint's record.
//! - Per view ([`view`]): `archived = filtered + expired + failed + sum(__events)`. Plain SQL over the archive counts
//!   the first three, and each event is evaluated alone for the fourth; the events are counted from the state rows of
//!   snapshot and segments.

mod partitions;
mod view;

pub use partitions::{PartitionLine, partitions};
pub use view::{ViewLine, view};
