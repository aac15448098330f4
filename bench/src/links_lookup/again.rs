//! Events that repeat edges of a graph, so that its degrees stay what they are. Nine of ten are logins.

use bytes::Bytes;
use schemas::events::format_timestamp;
use schemas::log::NewRecord;

use crate::events::END;
use crate::feed::Source;
use crate::graph::{Graph, Stream, device_text, user_text};

pub(super) struct Again {
    pub(super) graph: Graph,
    /// Of different numbers are different events.
    pub(super) number: u64,
    pub(super) next: u64,
}

impl Source for Again {
    fn take(&mut self, count: u64) -> Vec<(String, Vec<NewRecord>)> {
        let (mut accounts, mut logins) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (stream, into) = match self.next % 10 {
                0 => (Stream::Account, &mut accounts),
                _ => (Stream::Login, &mut logins),
            };
            into.push(self.record(stream));
            self.next += 1;
        }
        vec![(Stream::Account.name().to_owned(), accounts), (Stream::Login.name().to_owned(), logins)]
    }
}

impl Again {
    /// An edge of the graph, seen again after its end.
    fn record(&self, stream: Stream) -> NewRecord {
        let event = self.graph.event(stream, self.graph.pick(self.next, self.graph.count(stream)));
        let ts = format_timestamp(END + self.next as i64);
        let user = user_text(event.user);
        let value = format!(
            r#"{{"event_id":"f{}-{}","ts":"{ts}","user_id":"{user}","device_id":"{}"}}"#,
            self.number,
            self.next,
            device_text(event.device)
        );
        NewRecord { key: Some(Bytes::from(user)), value: Some(Bytes::from(value)), headers: Vec::new(), partition_by: None }
    }
}
