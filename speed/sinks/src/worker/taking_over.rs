//! Takes outputs over from the worker before: claims them in the catalog, takes them over in the log, then reads the
//! last switches.

use catalog::SinkClaim;
use committed::registry::Registry;
use event_log::TakenOutput;
use speed::Accepted;
use types::{Error, Result};
use uuid::Uuid;

use super::{PartitionEvents, SinkWorker};
use crate::switches::{OutputState, check_position, claim_commit};

impl SinkWorker {
    /// Creates the topics of the outputs that this worker does not have yet. A paused sink needs none.
    pub(super) async fn prepare(&mut self, part: &PartitionEvents<'_>) -> Result<()> {
        for sink in &part.sinks {
            if sink.paused_since.is_none() {
                sink.planned()?;
            }
            let Accepted { partition, identity, .. } = part.accepted;
            let key = part.key(sink);
            if self.taken.contains_key(&key) || self.unclaimed.contains_key(&key) {
                continue;
            }
            if sink.paused_since.is_none() {
                let (topic, partitions) = (&sink.definition.topic, self.sinks.settings.partitions);
                let created = self.retry_with_log(|| self.sinks.log.create_topic(topic, partitions)).await;
                created.map_err(|error| error.with("sink", &sink.name))?;
            }
            let (partition, identity) = (partition.clone(), identity.clone());
            self.unclaimed.insert(key, OutputState::unclaimed(partition, identity, Uuid::new_v4()));
        }
        Ok(())
    }

    /// Claims the outputs. From here on no earlier worker commits a switch or a checkpoint.
    pub(super) async fn claim(&mut self) -> Result<()> {
        let claims = self.unclaimed.iter().map(|((sink, _), taken)| taken.claimed(sink));
        let commit = claim_commit(Uuid::now_v7(), claims);
        self.sinks.catalog.commit_with_retry(commit).await.map(drop)
    }

    /// Takes the outputs over in the log. From here on no earlier worker puts out a record.
    pub(super) async fn take_over_outputs(&mut self, part: &PartitionEvents<'_>) -> Result<()> {
        for sink in &part.sinks {
            let key = part.key(sink);
            if self.unclaimed.contains_key(&key) {
                let output = part.output(&self.sinks, sink);
                let taken = self.retry_with_log(|| self.sinks.log.take_over_output(&output)).await;
                let TakenOutput { appender, next } = taken.map_err(|error| error.with("sink", &sink.name))?;
                if let Some(taken) = self.unclaimed.get_mut(&key) {
                    taken.next = next;
                }
                self.appenders.insert(key, appender);
            }
        }
        Ok(())
    }

    /// Reads the last switches. They are final if the claims are still this worker's: only then has no worker that
    /// claimed later put out anything before this one took its outputs over.
    ///
    /// The committed position is final too, and is checked: if the worker before has committed more since this one read
    /// where to begin, it has decided events that this one would decide again, by other switches. So are the
    /// definitions and the values of parameters: up to here the worker before may have put out records by newer ones
    /// than this worker has.
    pub(super) async fn read_switches(&mut self, registry: &Registry, parts: &[PartitionEvents<'_>]) -> Result<()> {
        let claims: Vec<SinkClaim> = self.unclaimed.iter().map(|((sink, _), taken)| taken.claimed(sink)).collect();
        let switches = self.sinks.catalog.newest_sink_switches(&claims).await?;
        let state = self.sinks.catalog.state().await?;
        if registry.is_stale(&state) {
            return Err(Error::conflict("definitions or parameters were changed before the output of a sink was taken over"));
        }
        let committed = state.vector();
        for PartitionEvents { accepted, .. } in parts {
            check_position(&accepted.partition, committed.get(&accepted.partition), accepted.start)?;
        }
        for last in switches {
            let mut taken = self.unclaimed.iter_mut().filter(|((sink, _), taken)| *sink == last.sink && taken.partition == last.partition);
            if let Some((_, taken)) = taken.next() {
                taken.note(last);
            }
        }
        self.taken.append(&mut self.unclaimed);
        Ok(())
    }
}
