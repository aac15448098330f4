//! The interface between the speed layer and sinks: accepted events are passed to what makes a record of each of them.
//!
//! The records of a micro-batch are made before its states can be read, because an event sees what came before it and
//! not what comes after. The log appends them while the worker goes on with the next micro-batch. They are durable
//! before the checkpoint that holds their events is committed: a worker that goes on from that checkpoint makes none of
//! them again. A worker that has to go on from an earlier one reads in the log which records were appended already, and
//! appends only the others.

use arrow::array::RecordBatch;
use catalog::SinkClaim;
use committed::registry::Registry;
use event_log::TopicPartition;
use futures::future::BoxFuture;
use types::Result;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};

use crate::stalls::Stall;

/// What a process makes of accepted events.
pub trait EventSinks: Send + Sync {
    /// For the worker of one subscription. `is_trial`: a sink failed before, so it uses short timeouts.
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
/// subscription begins with sinks of its own, which find out what is in the outputs already.
pub trait WorkerSinks: Send + Sync {
    /// The worker has these partitions too from now on.
    fn partitions_assigned(&mut self, partitions: &[TopicPartition]);

    /// Makes the records of a micro-batch's accepted events from the views as they are before its states can be read.
    /// Appends nothing.
    fn make_records<'a>(&'a mut self, registry: &'a Registry, accepted: Vec<Accepted>) -> BoxFuture<'a, Result<()>>;

    /// Begins to append the records that were made last, once those before them are durable. Clients that wait for what
    /// becomes of an event hear it once it is durable, also that there is no record.
    fn begin_append(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Whether an append was begun whose outcome is not known yet.
    fn is_appending(&self) -> bool;

    /// Waits until everything that was begun is durable. Dropping the future does not stop the append.
    fn appended(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Under which claims the events of the worker's partitions were decided: a checkpoint of them is committed only
    /// while these hold.
    fn output_claims(&self) -> Vec<SinkClaim>;

    /// The definitions are these from now on. `positions` are those of the worker's partitions: the records of
    /// everything before them were made by the definitions before, and are appended.
    fn switch_definitions<'a>(&'a mut self, registry: &'a Registry, positions: &'a [(TopicPartition, Offset)])
    -> BoxFuture<'a, Result<()>>;

    /// Forgets what it knows of partitions that another worker has now.
    fn partitions_revoked(&mut self, partitions: &[TopicPartition]);

    /// After an error: which sinks failed, and will again unless something changes. The streams that they read are left
    /// out of the worker's next subscriptions.
    fn take_stalls(&mut self) -> Vec<Stall>;
}

/// What was decided in one partition's micro-batch, and the accepted events of it.
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
    /// The greatest event time of what was accepted before it.
    pub newest_before: Option<Micros>,
    /// The greatest record timestamp of what was accepted before it: when the log received it.
    pub received_before: Option<Micros>,
    /// Since when the ids of accepted records were held at its end: a duplicate in it, of a record with this timestamp
    /// or a later one, repeats that record and none after it. `None` if ids are not compared.
    pub ids_since: Option<Micros>,
    /// In log order, with the columns of the stream's event schema.
    pub events: RecordBatch,
}
