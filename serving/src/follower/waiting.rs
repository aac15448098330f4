//! Waits for a position: a client that appended something can request an answer that counts it.

use std::sync::Arc;
use std::time::Duration;

use event_log::Log;
use tokio::time::Instant;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

use super::Follower;
use crate::read_view::ReadView;

/// An answer waits at most this long for its position.
pub const MOST_WAITED: Duration = Duration::from_secs(20);
/// How often it is looked at first whether the position is reached: a layer closes every 50 ms.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often at the least. A client may wait for a position that does not come, and thousands may wait.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(50);
/// It is seen this part of the waiting time late at the most.
const LATE_BY: u32 = 8;

/// For this long a broker may not know of a partition that was just added.
const ADDED_WITHIN: Duration = Duration::from_secs(1);

/// A position that an answer has to count, and until when it waits for it.
#[derive(Clone, Copy)]
pub(crate) struct AwaitedPosition<'a> {
    pub(crate) position: &'a Vector,
    until: Instant,
    /// Where it is known: it lists the partitions that there are.
    log: Option<&'a Arc<dyn Log>>,
}

impl<'a> AwaitedPosition<'a> {
    /// Waits at most [`MOST_WAITED`] from now on, whatever the answer waits for.
    pub(crate) fn new(position: &'a Vector, log: Option<&'a Arc<dyn Log>>) -> Self {
        Self { position, until: Instant::now() + MOST_WAITED, log }
    }
}

/// Which events have to be counted: a query that names streams, and an answer from the archive, reads only committed
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedEvents {
    WithFresh,
    Committed,
}

impl CountedEvents {
    fn vector(self, read_view: &ReadView) -> &Vector {
        match self {
            CountedEvents::WithFresh => &read_view.vector,
            CountedEvents::Committed => &read_view.loaded.vector,
        }
    }
}

impl Follower {
    /// Waits until a query that begins now counts everything before the position. No later query is behind it.
    ///
    /// Errors: `NotFound` for a partition that the log does not have; `Unavailable` when the time is over.
    pub(crate) async fn wait_for(&self, awaited: AwaitedPosition<'_>, counted: CountedEvents) -> Result<()> {
        let begun = Instant::now();
        let waiting = async {
            loop {
                if counted.vector(&self.read_view()?).covers(awaited.position) {
                    return Ok(());
                }
                tokio::time::sleep(pause_after(begun.elapsed())).await;
            }
        };
        tokio::select! {
            biased;
            outcome = waiting => outcome,
            () = tokio::time::sleep_until(awaited.until) => Err(self.not_reached(awaited.position, counted)),
            missing = self.missing_partition(awaited) => Err(missing),
        }
    }

    fn not_reached(&self, position: &Vector, counted: CountedEvents) -> Error {
        let seconds = MOST_WAITED.as_secs();
        let error = Error::unavailable(format!("answers do not count everything before that position after {seconds} s: try again"));
        match self.read_view().ok().and_then(|read_view| counted.vector(&read_view).behind(position)) {
            Some(behind) => {
                let is_unread = behind.found == Offset::ZERO;
                let error = error.with("partition", behind.partition).with("found", behind.found).with("expected", behind.expected);
                if is_unread { error.with("help", "nothing of this partition was read yet: does the topic have it?") } else { error }
            }
            None => error,
        }
    }

    /// Ends with the error for a partition that the log says twice it does not have, and otherwise not at all. Only
    /// partitions of which nothing was read are looked for: the log has the others.
    async fn missing_partition(&self, awaited: AwaitedPosition<'_>) -> Error {
        if let Some(log) = awaited.log {
            for (id, topic) in self.unread_partitions(awaited.position) {
                if count_without(&**log, &topic, id.partition).await.is_none() {
                    continue;
                }
                tokio::time::sleep(ADDED_WITHIN).await;
                if let Some(count) = count_without(&**log, &topic, id.partition).await {
                    let (stream, partition, s) = (&id.stream, id.partition, if count == 1 { "" } else { "s" });
                    return Error::not_found(format!(
                        "the position names the partition {partition} of the stream \"{stream}\", whose topic has {count} partition{s}"
                    ));
                }
            }
        }
        std::future::pending().await
    }

    /// The partitions of a position of which nothing was read yet, each with its topic.
    fn unread_partitions(&self, position: &Vector) -> Vec<(PartitionId, Arc<str>)> {
        let Ok(read_view) = self.read_view() else { return Vec::new() };
        let streams = &read_view.loaded.registry.streams;
        let is_unread = |id: &PartitionId, next: Offset| next > Offset::ZERO && read_view.vector.get(id) == Offset::ZERO;
        let unread = position.iter().filter(|(id, next)| is_unread(id, *next));
        unread.filter_map(|(id, _)| Some((id.clone(), streams.get(&id.stream)?.definition.topic.clone()))).collect()
    }
}

/// Returns when to look again after waiting for this time.
fn pause_after(waited: Duration) -> Duration {
    (waited / LATE_BY).clamp(LOOK_EVERY, LOOK_AT_LEAST_EVERY)
}

/// Returns how many partitions a topic has, if this is not one of them.
async fn count_without(log: &dyn Log, topic: &str, partition: i32) -> Option<u32> {
    let count = log.partition_count(topic).await.ok()??;
    let is_there = u32::try_from(partition).is_ok_and(|partition| partition < count);
    (!is_there).then_some(count)
}

#[cfg(test)]
mod tests;
