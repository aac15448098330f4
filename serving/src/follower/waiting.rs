//! Waiting for a position: who appended something asks for an answer that counts it.

use std::sync::Arc;
use std::time::Duration;

use event_log::Log;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

use super::Follower;
use crate::read_view::ReadView;

/// An answer waits at most this long for its position.
pub const MOST_WAITED: Duration = Duration::from_secs(20);
/// How often it is looked whether the position is reached: a layer closes every 50 ms.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// For this long a broker may not know of a partition that was just added.
const ADDED_WITHIN: Duration = Duration::from_secs(1);

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
    /// Waits until the position that a query begun now stands on covers `position`. It is never behind afterwards,
    /// because no query reads an older vector. But the archive may have to answer it: then the committed vector counts.
    ///
    /// Errors: `Unavailable` after [`MOST_WAITED`].
    pub(crate) async fn wait_for(&self, position: &Vector, counted: CountedEvents) -> Result<()> {
        let waiting = async {
            loop {
                let read_view = self.read_view()?;
                if counted.vector(&read_view).covers(position) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        match tokio::time::timeout(MOST_WAITED, waiting).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.not_reached(position, counted)),
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
}

/// Returns the error for the first of these partitions, each with its topic, that the log says twice it does not have.
/// `None` also where the log does not say.
pub(crate) async fn missing_partition(log: &dyn Log, partitions: &[(PartitionId, Arc<str>)]) -> Option<Error> {
    for (id, topic) in partitions {
        if count_without(log, topic, id.partition).await.is_none() {
            continue;
        }
        tokio::time::sleep(ADDED_WITHIN).await;
        if let Some(count) = count_without(log, topic, id.partition).await {
            let (stream, partition, s) = (&id.stream, id.partition, if count == 1 { "" } else { "s" });
            return Some(Error::not_found(format!(
                "the position names the partition {partition} of the stream \"{stream}\", whose topic has {count} partition{s}"
            )));
        }
    }
    None
}

/// Returns how many partitions a topic has, if this is not one of them.
async fn count_without(log: &dyn Log, topic: &str, partition: i32) -> Option<usize> {
    let bounds = log.bounds(topic).await.ok()?;
    let is_missing = !bounds.is_empty() && bounds.iter().all(|known| known.partition != partition);
    is_missing.then_some(bounds.len())
}
