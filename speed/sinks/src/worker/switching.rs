//! Records from which event on another version of a sink makes the records, or none because the sink is paused.

use std::sync::Arc;

use catalog::{SinkClaim, SinkSwitch};
use committed::registry::{LiveSink, Registry};
use tracing::info;
use types::{Result, failpoint};
use uuid::Uuid;

use super::{OutputKey, PartitionEvents, SinkWorker};
use crate::features::joined_views;
use crate::switches::{OutputState, switch_commit};

impl SinkWorker {
    /// Records the switches of sinks that have changed since the events before.
    pub(super) async fn switch_all(&mut self, registry: &Registry, parts: &[PartitionEvents<'_>]) -> Result<()> {
        let mut switches = Vec::new();
        for part in parts {
            for sink in &part.sinks {
                let Some(taken) = self.taken.get(&part.key(sink)) else { continue };
                let Some(switch) = taken.switch(sink, part.accepted.start) else { continue };
                if !self.is_waiting(registry, sink, taken).await? {
                    switches.push((part.key(sink), switch));
                }
            }
        }
        self.record_switches(registry, switches).await
    }

    /// Whether a sink has not begun and still waits for its views. It begins once they can be answered; a run builds
    /// them, which may take long.
    async fn is_waiting(&self, registry: &Registry, sink: &LiveSink, taken: &OutputState) -> Result<bool> {
        if sink.paused_since.is_some() || taken.has_begun() {
            return Ok(false);
        }
        let Ok(plan) = &sink.plan else { return Ok(true) };
        let node = self.node().await?;
        Ok(joined_views(registry, [&**plan])?.iter().any(|view| node.is_building(view)))
    }

    /// Commits switches under the claims of their outputs, and keeps them as the last ones.
    ///
    /// Errors: `Conflict` if another worker has claimed one of the outputs since, or if a stream of them begins anew.
    pub(super) async fn record_switches(&mut self, registry: &Registry, switches: Vec<(OutputKey, SinkSwitch)>) -> Result<()> {
        if switches.is_empty() {
            return Ok(());
        }
        let claims = switches.iter().filter_map(|(key, switch)| Some(self.taken.get(key)?.claimed(&switch.sink)));
        let claims: Vec<SinkClaim> = claims.collect();
        let version_of = |stream: &Arc<str>| registry.streams.get(stream).map(|stream| stream.version);
        let commit = switch_commit(Uuid::now_v7(), claims, switches.iter().map(|(_, switch)| switch.clone()).collect(), version_of);
        failpoint::hit("sinks.before_switch")?;
        self.sinks.catalog.commit_with_retry(commit).await?;
        failpoint::hit("sinks.after_switch")?;
        for (key, switch) in switches {
            let SinkSwitch { sink, partition, from, version, paused, .. } = &switch;
            info!(%sink, %partition, %from, version, paused, "a sink has switched: from this offset on this version makes the records, or none while it is paused");
            if let Some(taken) = self.taken.get_mut(&key) {
                taken.last = Some(switch);
            }
        }
        Ok(())
    }
}
