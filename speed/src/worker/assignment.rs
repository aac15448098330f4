//! Partitions that the log's consumer assigns to a worker, and revokes from it.

use event_log::TopicPartition;
use tokio::sync::oneshot;
use tracing::info;
use types::vector::{Offset, PartitionId};
use types::{Error, Result, failpoint};

use super::{Next, Worker};
use crate::epoch::AssignedPartition;
use crate::progress::Activity;

impl Worker<'_> {
    /// Takes partitions over, and replies with the offsets at which they are to start.
    pub(super) async fn assigned(
        &mut self,
        partitions: &[TopicPartition],
        start: oneshot::Sender<Result<Vec<(TopicPartition, Offset)>>>,
    ) -> Result<Next> {
        self.speed.progress.begin(Activity::TakingOver { partitions: partitions.len() });
        let stop = self.stop.clone();
        // Rereading the ids of a long `dedup_within` takes minutes.
        let offsets = tokio::select! {
            offsets = self.take_over(partitions) => offsets,
            () = stop.cancelled() => return Ok(Next::Stop),
        };
        let failed = offsets.as_ref().err().map(Error::copied);
        let _ = start.send(offsets);
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(sinks) = &mut self.sinks {
            sinks.partitions_assigned(partitions);
        }
        self.speed.progress.begin(Activity::Reading { partitions: self.epoch.assigned.len() });
        Ok(Next::Continue)
    }

    /// Commits the records that were read of them, and releases them.
    pub(super) async fn revoked(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        failpoint::hit("speed.revoke")?;
        self.checkpoint().await?;
        let assigned: Vec<AssignedPartition> = partitions.iter().filter_map(|partition| self.epoch.assigned.remove(partition)).collect();
        if let Some(fresh) = &self.speed.fresh {
            let ids: Vec<PartitionId> = assigned.iter().map(|partition| partition.state.id.clone()).collect();
            fresh.give_up(&ids);
        }
        let released = assigned.into_iter().filter_map(AssignedPartition::release).collect();
        // Once the process stops, no worker of it takes them over.
        if !self.stop.is_cancelled() {
            self.speed.ids.keep(released);
        }
        if let Some(sinks) = &mut self.sinks {
            sinks.partitions_revoked(partitions);
        }
        self.speed.progress.begin(Activity::Reading { partitions: self.epoch.assigned.len() });
        info!(worker = %self.speed.settings.worker, partitions = partitions.len(), "partitions released");
        Ok(())
    }
}
