//! Checks, before events are appended, whether the log is the one that the speed layer reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use catalog::CatalogState;
use committed::log_check::check_topic;
use definitions::StreamDefinition;
use event_log::Log;
use types::Result;
use types::vector::Offset;

/// How long a topic that was found to be the right one is not checked again.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// When each topic was last found to be the right one.
#[derive(Debug, Default)]
pub(super) struct LogChecks(Mutex<HashMap<Arc<str>, Instant>>);

impl LogChecks {
    /// Refuses a topic that has other records than the committed ones, or fewer.
    ///
    /// Errors: those of [`check_topic`], and `Unavailable` while the log does not answer.
    pub(super) async fn check(&self, log: &dyn Log, state: &CatalogState, stream: &StreamDefinition) -> Result<()> {
        if self.lock().get(&stream.topic).is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        let ends: Vec<(i32, Offset)> = log.bounds(&stream.topic).await?.iter().map(|bounds| (bounds.partition, bounds.end)).collect();
        let identity = match ends.is_empty() {
            // The speed layer has not created it yet, unless something of it is committed.
            true => String::new(),
            false => log.identity(&stream.topic).await?,
        };
        check_topic(state, &stream.name, &identity, &ends)?;
        if !ends.is_empty() {
            self.note(stream.topic.clone(), Instant::now());
        }
        Ok(())
    }

    /// Forgets the topics that have to be checked again, so that those of streams that are gone do not stay.
    fn note(&self, topic: Arc<str>, now: Instant) {
        let mut checked = self.lock();
        checked.retain(|_, at| now.duration_since(*at) < LOOK_EVERY);
        checked.insert(topic, now);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_remembered_until_it_has_to_be_checked_again() {
        let (checks, began) = (LogChecks::default(), Instant::now());
        for (topic, at) in [("old", began), ("recent", began + LOOK_EVERY / 2), ("new", began + LOOK_EVERY)] {
            checks.note(topic.into(), at);
        }
        let mut remembered: Vec<String> = checks.lock().keys().map(ToString::to_string).collect();
        remembered.sort();
        assert_eq!(remembered, ["new", "recent"]);
    }
}
