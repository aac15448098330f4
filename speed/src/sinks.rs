//! The interface between the speed layer and sinks: accepted events are passed to the sinks, which make a record of
//! each of them.
//!
//! The records of a micro-batch are made before its states can be read, because an event sees what came before it and
//! not what comes after. The log appends them while the worker continues with the next micro-batch. They are durable
//! before the checkpoint that holds their events is committed, so a worker that continues from that checkpoint makes
//! none of them again. A worker that has to continue from an earlier one finds out from the log which records were
//! appended already, and appends only the others.

use arrow::array::RecordBatch;
use catalog::SinkClaim;
use committed::registry::Registry;
use event_log::TopicPartition;
use futures::future::BoxFuture;
use types::Result;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};

use crate::stalls::Stall;

/// The sinks of a process, which make records of accepted events.
pub trait EventSinks: Send + Sync {
    /// Creates the sinks for the worker of one subscription. With `is_trial` they use short timeouts, because one of
    /// them failed before.
    fn for_worker(&self, is_trial: bool) -> Box<dyn WorkerSinks>;
}

/// The sinks of one worker, which calls them in this order:
///
/// ```text
/// partitions_assigned
///   per micro-batch:             make_records, then begin_append
///   before each checkpoint:      appended, then output_claims
///   when definitions change:     a checkpoint of all that was read, then switch_definitions
/// partitions_revoked             after the last checkpoint of these partitions
/// ```
///
/// After an error of any of them the worker ends: it asks for `take_stalls` and calls nothing else. The next
/// subscription begins with sinks of its own, which find out which records the outputs have already.
pub trait WorkerSinks: Send + Sync {
    /// The worker owns these partitions too from now on.
    fn partitions_assigned(&mut self, partitions: &[TopicPartition]);

    /// Makes the records of a micro-batch's accepted events from the views as they are before its states can be read.
    /// Appends nothing.
    fn make_records<'a>(&'a mut self, registry: &'a Registry, accepted: Vec<Accepted>) -> BoxFuture<'a, Result<()>>;

    /// Begins to append the records that were made last, once those before them are durable. Clients that wait for the
    /// outcome of an event get it once it is durable, even if the event has no record.
    fn begin_append(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Whether an append was begun whose outcome is not known yet.
    fn is_appending(&self) -> bool;

    /// Waits until everything that was begun is durable. Dropping the future does not stop the append.
    fn appended(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Returns the claims under which the events of the worker's partitions were decided: a checkpoint of them is
    /// committed only while these hold.
    fn output_claims(&self) -> Vec<SinkClaim>;

    /// The definitions are these from now on. `positions` are those of the worker's partitions: the records of
    /// everything before them were made by the definitions before, and are appended.
    fn switch_definitions<'a>(&'a mut self, registry: &'a Registry, positions: &'a [(TopicPartition, Offset)])
    -> BoxFuture<'a, Result<()>>;

    /// Forgets its knowledge of partitions that another worker owns now.
    fn partitions_revoked(&mut self, partitions: &[TopicPartition]);

    /// After an error: which sinks failed, and will again unless something changes. The streams that they read are left
    /// out of the worker's next subscriptions.
    fn take_stalls(&mut self) -> Vec<Stall>;
}

/// The decisions in one partition's micro-batch, and its accepted events.
#[derive(Debug, Clone)]
pub struct Accepted {
    pub partition: PartitionId,
    pub source: TopicPartition,
    /// The identity of the log that its offsets belong to.
    pub identity: String,
    /// The offset at which the micro-batch begins.
    pub start: Offset,
    /// The offset after the last one that was decided.
    pub end: Offset,
    /// The offsets that became dead letters.
    pub dead_letters: Vec<Offset>,
    /// The greatest event time of the events accepted before the micro-batch.
    pub newest_before: Option<Micros>,
    /// The greatest record timestamp of the events accepted before it, which is when the log received them.
    pub received_before: Option<Micros>,
    /// Since when the ids of accepted records were held at its end: a duplicate in it of a record with this timestamp
    /// or a later one repeats exactly that record. `None` if ids are not compared.
    pub ids_since: Option<Micros>,
    /// In log order, with the columns of the stream's event schema.
    pub events: RecordBatch,
}
