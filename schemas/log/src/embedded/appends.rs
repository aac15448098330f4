//! Counts this process's appends, so that a consumer looks for records at once when there may be some. It does not look
//! at once for those of topics that it does not read: beside each append of events there is one of the records that
//! sinks make of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// How often was appended to each topic.
#[derive(Debug, Default)]
pub(super) struct Appends {
    by_topic: BTreeMap<String, u64>,
}

impl Appends {
    pub(super) fn note(&mut self, topic: &str) {
        if let Some(count) = self.by_topic.get_mut(topic) {
            *count += 1;
        } else {
            self.by_topic.insert(topic.to_owned(), 1);
        }
    }

    fn count(&self, topics: &[Arc<str>]) -> u64 {
        topics.iter().filter_map(|topic| self.by_topic.get(&**topic)).sum()
    }
}

/// What a consumer has seen of the appends to its topics.
#[derive(Debug)]
pub(super) struct SeenAppends {
    appends: watch::Receiver<Appends>,
    topics: Vec<Arc<str>>,
    seen: u64,
}

impl SeenAppends {
    pub(super) fn new(appends: watch::Receiver<Appends>, topics: Vec<Arc<str>>) -> SeenAppends {
        SeenAppends { appends, topics, seen: 0 }
    }

    /// Takes note of all appends until now: the consumer is about to read their records.
    pub(super) fn look(&mut self) {
        self.seen = self.appends.borrow().count(&self.topics);
    }

    /// Waits for an append after the last look. Returns false if this process appends no more.
    pub(super) async fn wait(&mut self) -> bool {
        let SeenAppends { appends, topics, seen } = self;
        appends.wait_for(|appends| appends.count(topics) != *seen).await.is_ok()
    }
}

#[cfg(test)]
mod tests;
