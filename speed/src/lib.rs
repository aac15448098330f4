//! The speed layer: reads the log and writes checkpoints.
//!
//! A worker decides each record once ([`Decider`]), turns micro-batches of accepted events into fresh layers of states,
//! and commits archive, dead letters and states of its partitions as one epoch, the checkpoint. It needs no old states
//! to continue, because states merge.
//!
//! ```text
//! log --decide--> accepted events --Partial--> fresh layers --checkpoint--> archive, dead letters, states object
//!                        +------------sinks--> records in the log
//! ```
//!
//! Where to begin: `worker` handles the consumer's events; `Assigned`, `Revoked` and `Lost` among them hand partitions
//! over. `decide` decides a record, `checkpoint` commits, and `recover` says where a new owner starts.

mod checkpoint;
mod damaged;
mod dead_letters;
mod decide;
mod epoch;
#[cfg(test)]
mod harness;
mod layer;
mod partition_state;
mod pin;
mod progress;
mod rebuild;
mod recover;
mod registration;
mod released;
mod replay;
mod sinks;
mod stalls;
mod subscriptions;
mod views;
mod worker;
mod writers;

pub use damaged::ARCHIVE_DAMAGED;
pub use decide::{Decider, Decision, DedupCost, DedupSettings, IdSpace, too_far_ahead};
pub use layer::{Speed, WorkerSettings};
pub use partition_state::{PartitionState, checkpoint_record};
pub use progress::{Activity, WorkerProgress};
pub use rebuild::{Redecide, Redecided, TakeRedecided};
pub use recover::{Start, files_since, start_of};
pub use registration::Registration;
pub use released::ProcessIds;
pub use replay::Replay;
pub use sinks::{Accepted, EventSinks, WorkerSinks};
pub use stalls::{SINK_STALLED, Stall};
pub use writers::CheckpointWriters;
