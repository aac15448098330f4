//! Where the accepted events go beside the states: to what makes records of each of them.
//!
//! The records of a micro-batch are made before its states can be read, because an event sees what came before it and not
//! what comes after. They are durable before the checkpoint that holds their events is committed: a worker that goes on from
//! there makes none of them again, and one that has to begin before it finds what is out already.

use arrow::array::RecordBatch;
use async_trait::async_trait;
use committed::registry::Registry;
use event_log::TopicPartition;
use types::Result;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};

use crate::stalls::Stall;

/// What a process makes of accepted events.
pub trait EventSinks: Send + Sync {
    /// For the worker of one subscription. `is_trial`: a sink failed before, so it had better not wait long.
    fn for_worker(&self, is_trial: bool) -> Box<dyn WorkerSinks>;
}

/// The sinks as one worker has them.
#[async_trait]
pub trait WorkerSinks: Send + Sync {
    /// The worker has these partitions from now on.
    fn take_over(&mut self, partitions: &[TopicPartition]);

    /// Makes the records of some accepted events. Nothing is put out yet.
    async fn make(&mut self, registry: &Registry, accepted: Vec<Accepted>) -> Result<()>;

    /// Puts out what was made. It is durable when this returns.
    async fn put_out(&mut self) -> Result<()>;

    /// After an error: which sinks failed, and will again unless something changes. The streams that they read are left out
    /// of the worker's next subscriptions.
    fn take_stalls(&mut self) -> Vec<Stall>;

    /// Forgets what it knows of partitions that another worker has now.
    fn let_go(&mut self, partitions: &[TopicPartition]);
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
    /// In log order, with the columns of the stream's event schema.
    pub events: RecordBatch,
}
