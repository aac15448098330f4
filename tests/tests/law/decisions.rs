//! The law for decisions in the stream, over the log, the workers and the runs: what sinks and alerts put out is what
//! the plain SELECT says, and once, with late, repeated and broken records, and whatever is restarted or dies.
//!
//! `sinks` compares the record of each event, `alerts` the records of each key.

use std::collections::BTreeSet;

use basestream_tests::Harness;
use bytes::Bytes;
use event_log::NewRecord;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::layers::{Row, TEXTS, json, row, text};

mod alerts;
mod process;
mod sinks;

/// A record that is appended.
#[derive(Debug, Clone)]
enum Appended {
    Event(Row),
    /// A copy of an earlier one, if there is one.
    Again(Index),
    /// One that cannot become an event.
    Broken(&'static str),
}

const BROKEN: [&str; 4] = ["", "{\"id\":\"broken\"", "{\"id\":\"broken\"}", "{\"id\":\"broken\",\"ts\":\"yesterday\"}"];

fn appended() -> impl Strategy<Value = Appended> {
    prop_oneof![8 => row().prop_map(Appended::Event), 1 => again(), 1 => broken()]
}

fn again() -> impl Strategy<Value = Appended> {
    any::<Index>().prop_map(Appended::Again)
}

fn broken() -> impl Strategy<Value = Appended> {
    prop::sample::select(BROKEN.to_vec()).prop_map(Appended::Broken)
}

/// Partition, offset and values.
type AcceptedEvent = (i32, i64, Row);

/// What a case has appended to the log.
#[derive(Debug, Default)]
struct Journal {
    rows: Vec<Row>,
    known: BTreeSet<(i32, u16)>,
    /// In the order of their partitions.
    accepted: Vec<AcceptedEvent>,
}

impl Journal {
    /// Appends all of them at once.
    async fn append(&mut self, harness: &Harness, appended: &[Appended]) {
        let mut records = Vec::new();
        for one in appended {
            match one {
                Appended::Event(row) => {
                    self.rows.push(row.clone());
                    records.push((record_of(row), Some(row.clone())));
                }
                Appended::Again(earlier) if !self.rows.is_empty() => {
                    let row = earlier.get(&self.rows);
                    records.push((record_of(row), Some(row.clone())));
                }
                Appended::Again(_) => {}
                Appended::Broken(value) => {
                    let (key, value) = (Some(Bytes::from(TEXTS[1])), Some(Bytes::from(*value)));
                    records.push((NewRecord { key, value, ..NewRecord::default() }, None));
                }
            }
        }
        let (records, rows): (Vec<NewRecord>, Vec<Option<Row>>) = records.into_iter().unzip();
        let places = harness.log.append("s", records).await.unwrap();
        for ((partition, offset), row) in places.into_iter().zip(rows) {
            if let Some(row) = row.filter(|row| self.known.insert((partition, row.id))) {
                self.accepted.push((partition, offset.0, row));
            }
        }
    }
}

/// All events of a key are in one partition. Those without a key are partitioned by their ids.
fn record_of(row: &Row) -> NewRecord {
    let id = Bytes::from(row.id.to_string());
    NewRecord { key: text(row.k).map(Bytes::from), value: Some(Bytes::from(json(row))), headers: Vec::new(), partition_by: Some(id) }
}
