//! Generates payments as a producer sends them, from a topic's first one on.

use event_log::NewRecord;

use super::Topic;
use crate::feed::Source;

pub struct Arriving {
    pub topic: Topic,
    pub next: u64,
}

impl Source for Arriving {
    fn take(&mut self, count: u64) -> Vec<(String, Vec<NewRecord>)> {
        let payments = self.topic.payments;
        let until = (self.next + count).min(payments.records);
        let records = (self.next..until).map(|record| payments.record(record)).collect();
        self.next = until;
        vec![(self.topic.name.clone(), records)]
    }
}
