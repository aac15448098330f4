//! Visits of shops: one shop has as many visitors as events, all others a few each.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use bytes::Bytes;
use engine::events::format_timestamp;
use event_log::NewRecord;
use types::tiles::Micros;

use crate::events::{END, Events, mix, times};
use crate::feed::Source;

pub(super) const VIEW: &str = "shop_visitors";
pub(super) const HOT: &str = "hot";
pub(super) const STREAM: &str = "visits";

#[derive(Debug, Clone)]
pub(super) struct Visits {
    pub(super) hot: u64,
    pub(super) others: u64,
    pub(super) keys: u64,
}

/// The name of a shop that is not hot.
pub(super) fn other(number: u64) -> String {
    format!("s{number:07}")
}

/// The path of a lookup of one shop over HTTP.
pub(super) fn row_of(key: &str) -> String {
    format!("/v1/views/{VIEW}/row?shop_id={key}")
}

fn visitor(number: u64) -> String {
    format!("visitor-{:016x}", mix(21, number))
}

impl Visits {
    fn is_hot(&self, number: u64) -> bool {
        // Evenly among the others.
        let total = self.hot + self.others;
        (number + 1) * self.hot / total > number * self.hot / total
    }

    fn shop(&self, number: u64) -> String {
        if self.is_hot(number) { HOT.to_owned() } else { other(mix(22, number) % self.keys.max(1)) }
    }
}

impl Visits {
    /// These visits as records of the log.
    pub(super) fn records(&self, numbers: std::ops::Range<u64>) -> Vec<NewRecord> {
        numbers.map(|number| record("v", number, &self.shop(number), self.time(STREAM, number))).collect()
    }
}

impl Events for Visits {
    fn files(&self) -> Vec<(String, String)> {
        let stream = format!(
            "CREATE STREAM {STREAM} (visit_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, shop_id TEXT NOT NULL, visitor_id TEXT NOT NULL)\n\
             WITH (topic = '{STREAM}', format = 'json', event_time = 'ts', id = 'visit_id', dedup_within = '10m', key = 'shop_id',\n\
             keep_raw = false);\n"
        );
        let view = format!(
            "CREATE VIEW {VIEW} WITH (max_state_bytes = '4GiB') AS\n\
             SELECT shop_id, count(*) AS visits, count(DISTINCT visitor_id) AS visitors, max(ts) AS last_visit\n\
             FROM {STREAM} GROUP BY shop_id;\n"
        );
        vec![(format!("streams/{STREAM}.sql"), stream), (format!("views/{VIEW}.sql"), view)]
    }

    fn streams(&self) -> Vec<(&'static str, u64)> {
        vec![(STREAM, self.hot + self.others)]
    }

    fn time(&self, _: &str, number: u64) -> Micros {
        END - (self.hot + self.others - number) as Micros * 1_000
    }

    fn column(&self, stream: &str, name: &str, numbers: &[u64]) -> Option<ArrayRef> {
        let texts = |text: &dyn Fn(u64) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| text(*number))))
        };
        Some(match name {
            "visit_id" => texts(&|number| format!("v{number:09}")),
            "ts" => times(numbers.iter().map(|number| self.time(stream, *number))),
            "shop_id" => texts(&|number| self.shop(number)),
            "visitor_id" => texts(&visitor),
            _ => return None,
        })
    }
}

/// New visitors after all others, every second one of the hot shop.
#[derive(Debug, Clone)]
pub(super) struct Arriving {
    pub(super) next: u64,
    /// How many other shops there are.
    pub(super) keys: u64,
}

impl Source for Arriving {
    fn take(&mut self, count: u64) -> Vec<(String, Vec<NewRecord>)> {
        let shop = |nth: u64| if nth.is_multiple_of(2) { HOT.to_owned() } else { other(mix(24, nth) % self.keys.max(1)) };
        let records = (self.next..self.next + count).map(|nth| record("a", nth, &shop(nth), END + nth as Micros)).collect();
        self.next += count;
        vec![(STREAM.to_owned(), records)]
    }
}

fn record(prefix: &str, nth: u64, shop: &str, time: Micros) -> NewRecord {
    let ts = format_timestamp(time);
    let value = format!(r#"{{"visit_id":"{prefix}{nth}","ts":"{ts}","shop_id":"{shop}","visitor_id":"new-{nth}"}}"#);
    NewRecord { key: Some(Bytes::from(shop.to_owned())), value: Some(Bytes::from(value)), headers: Vec::new(), partition_by: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_shop_has_its_share_and_each_of_its_visitors_is_another() {
        let visits = Visits { hot: 300, others: 700, keys: 20 };
        let hot: Vec<u64> = (0..1_000).filter(|number| visits.is_hot(*number)).collect();
        assert_eq!(hot.len(), 300);
        let visitors: std::collections::BTreeSet<String> = hot.into_iter().map(visitor).collect();
        assert_eq!(visitors.len(), 300);
    }
}
