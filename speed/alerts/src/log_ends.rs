//! Finds the time up to which everything that the log received is counted, over all partitions of a view's streams.
//!
//! The catalog knows a partition from its first commit on. Before that the partition may have a backlog that no worker
//! has read yet, and its keys would seem silent. A partition without records never has a commit. So the log is asked
//! which partitions there are, and where each ends. What the log received before it was asked is counted once the
//! partition is read up to that end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use committed::registry::LiveView;
use serving::ReadView;
use tracing::debug;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

use crate::Alerts;

/// How often the log is asked for new partitions.
const LOOKS_FOR_MORE: Duration = Duration::from_secs(60);

/// The last answer of the log.
#[derive(Debug, Default)]
pub(crate) struct LogEnds {
    /// When it was asked, successfully or not.
    asked: Option<Instant>,
    /// Whether the time depends on a partition of which only the log knows.
    is_needed: bool,
    ends: Option<PartitionEnds>,
}

/// The end of each partition of the view's streams at a time: what the log received before that time is before the end.
#[derive(Debug)]
struct PartitionEnds {
    at: Micros,
    by_partition: BTreeMap<PartitionId, Offset>,
}

impl LogEnds {
    /// The time before which everything that the log received is counted in a read view; `None` if it is not known yet.
    pub(crate) async fn complete_to(&mut self, alerts: &Alerts, read_view: &ReadView, view: &LiveView) -> Option<Micros> {
        let patience = alerts.lease / 3;
        // Without a first answer nothing can be evaluated.
        let again = if self.is_needed || self.ends.is_none() { patience } else { LOOKS_FOR_MORE };
        if self.asked.is_none_or(|asked| asked.elapsed() >= again) {
            match tokio::time::timeout(patience, ends(alerts, read_view, view)).await {
                Ok(Ok(ends)) => self.ends = Some(ends),
                Ok(Err(error)) => debug!(view = %view.name, %error, "the log does not say where its partitions end; asking again"),
                Err(_) => debug!(view = %view.name, "the log does not say in time where its partitions end; asking again"),
            }
            self.asked = Some(Instant::now());
        }
        let ends = self.ends.as_ref()?;
        let known = read_view.complete_to_by_partition(view);
        self.is_needed = ends.by_partition.keys().any(|partition| !matches!(known.get(partition), Some(Some(_))));
        complete_to(known, ends, &read_view.vector)
    }
}

async fn ends(alerts: &Alerts, read_view: &ReadView, view: &LiveView) -> Result<PartitionEnds> {
    let (at, mut by_partition) = ((alerts.clock)(), BTreeMap::new());
    for name in view.streams() {
        let stream = read_view.loaded.registry.streams.get(&name);
        let stream = stream.ok_or_else(|| Error::not_found(format!("there is no stream {name}")))?;
        for bounds in alerts.log.bounds(&stream.definition.topic).await? {
            // If all records were deleted before anybody read them, nothing is left to be read.
            let end = if bounds.begin < bounds.end { bounds.end } else { Offset(0) };
            by_partition.insert(PartitionId::new(name.clone(), bounds.partition), end);
        }
    }
    Ok(PartitionEnds { at, by_partition })
}

/// The least time over all partitions. For each partition, it is the time up to which it is known to be counted, or
/// else the time of the log's answer, once the partition is read up to the end that the log gave.
fn complete_to(known: BTreeMap<PartitionId, Option<Micros>>, ends: &PartitionEnds, read: &Vector) -> Option<Micros> {
    let mut of_each = known;
    for (partition, end) in &ends.by_partition {
        let of_log = (read.get(partition) >= *end).then_some(ends.at);
        let known = of_each.entry(partition.clone()).or_default();
        *known = known.or(of_log);
    }
    of_each.into_values().min().flatten()
}

#[cfg(test)]
mod tests;
