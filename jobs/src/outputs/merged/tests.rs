use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use event_log::{Consumer, Fetched, NewRecord, PartitionBounds, Subscription};
use proptest::collection::vec;
use proptest::prelude::*;
use types::Error;

use super::super::OutputReader;
use super::*;

/// The records of each partition. Their offsets have gaps, and one read returns few of them.
#[derive(Debug)]
struct Partitions(Vec<Vec<Record>>);

const READ: usize = 3;

#[async_trait]
impl Log for Partitions {
    async fn create_topic(&self, _: &str, _: u32) -> Result<u32> {
        Err(Error::internal("not created in these tests"))
    }

    async fn bounds(&self, _: &str) -> Result<Vec<PartitionBounds>> {
        let end = |records: &Vec<Record>| records.last().map_or(Offset::ZERO, |record| record.offset.next());
        let bounds = (0..).zip(&self.0).map(|(partition, records)| PartitionBounds { partition, begin: Offset::ZERO, end: end(records) });
        Ok(bounds.collect())
    }

    async fn identity(&self, _: &str) -> Result<String> {
        Err(Error::internal("not asked in these tests"))
    }

    async fn append(&self, _: &str, _: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        Err(Error::internal("not appended to in these tests"))
    }

    async fn read(&self, source: &TopicPartition, from: Offset, _: usize) -> Result<Fetched> {
        let all = &self.0[source.partition as usize];
        let records: Vec<Record> = all.iter().filter(|record| record.offset >= from).take(READ).cloned().collect();
        let position = records.last().map_or(from, |record| record.offset.next());
        Ok(Fetched { source: source.clone(), at_end: false, position, records, fetched_at: 0 })
    }

    async fn subscribe(&self, _: Subscription) -> Result<Consumer> {
        Err(Error::internal("not consumed in these tests"))
    }
}

/// Records with headers are of the output.
fn output_of(headers: &[(String, Bytes)]) -> Option<(&str, u32)> {
    headers.first().map(|(name, _)| (name.as_str(), 1))
}

/// By the steps from record to record in offset and time, and whether each is of the output.
fn partition_of(number: usize, steps: &[(i64, Micros, bool)]) -> Vec<Record> {
    let (mut offset, mut timestamp) = (0_i64, 0_i64);
    let record = |(gap, later, is_of_it): &(i64, Micros, bool)| {
        offset += *gap;
        timestamp += *later;
        let headers = if *is_of_it { vec![("output".to_owned(), Bytes::new())] } else { Vec::new() };
        Record { offset: Offset(offset), timestamp, key: None, value: Some(Bytes::from(format!("{number}/{offset}"))), headers }
    };
    steps.iter().map(record).collect()
}

proptest! {
    /// In whatever pieces they are read, and wherever a reader ends and goes on.
    #[test]
    fn records_of_all_partitions_are_in_the_order_of_their_times_and_each_is_passed_on_once(
        steps in vec(vec((1..3i64, 0..4i64, any::<bool>()), 0..20), 0..5), stop_after in 1..60usize
    ) {
        let log = Partitions(steps.iter().enumerate().map(|(number, steps)| partition_of(number, steps)).collect());
        let mut expected: Vec<(Micros, usize, &Record)> = Vec::new();
        for (number, records) in log.0.iter().enumerate() {
            let of_output = records.iter().filter(|record| !record.headers.is_empty());
            expected.extend(of_output.map(|record| (record.timestamp, number, record)));
        }
        // Stable: those of one partition stay in their order.
        expected.sort_by_key(|(time, number, _)| (*time, *number));
        let expected: Vec<Record> = expected.into_iter().map(|(_, _, record)| record.clone()).collect();
        let mut reader = OutputReader { log: &log, name: "output", topic: "t".into(), output_of, next: BTreeMap::new() };
        let mut found = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let wants_more = runtime.block_on(reader.read(&mut |record| {
            found.push(record.clone());
            Ok(found.len() < stop_after)
        })).unwrap();
        prop_assert_eq!(&found[..], &expected[..expected.len().min(stop_after)]);
        prop_assert_eq!(wants_more, expected.len() < stop_after);
        for _ in 0..2 {
            runtime.block_on(reader.read(&mut |record| {
                found.push(record.clone());
                Ok(true)
            })).unwrap();
        }
        prop_assert_eq!(found, expected);
    }
}
