//! Generates events that repeat edges of a graph, so that its degrees stay the same. Nine of ten are logins.

use event_log::NewRecord;

use crate::events::END;
use crate::feed::Source;
use crate::graph::{Event, Graph, Stream};

pub(super) struct Again {
    pub(super) graph: Graph,
    /// Events with different numbers are different events.
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
    /// An edge of the graph, seen again after the graph's end.
    fn record(&self, stream: Stream) -> NewRecord {
        let event = self.graph.event(stream, self.graph.pick(self.next, self.graph.count(stream)));
        Event { ts: END + self.next as i64, ..event }.record(&format!("f{}-{}", self.number, self.next))
    }
}
