use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::NewRecord;
use crate::embedded::appends::Appends;
use crate::embedded::writer::Writer;
use crate::testing::source;

/// The values of a partition's records that are read together with those of others, in rounds.
async fn read_all(store: &Store, topic_id: i64, max_records: usize) -> Vec<Vec<i64>> {
    let bounds = store.bounds(topic_id).await.unwrap();
    let sources: Vec<TopicPartition> = bounds.iter().map(|bounds| source("events", bounds.partition)).collect();
    let mut positions: Vec<Offset> = bounds.iter().map(|bounds| bounds.begin).collect();
    let mut values = vec![Vec::new(); bounds.len()];
    loop {
        let reads: Vec<PartitionRead<'_>> = bounds
            .iter()
            .zip(&sources)
            .zip(&positions)
            .filter(|((bounds, _), from)| **from < bounds.end)
            .map(|((bounds, source), from)| PartitionRead { topic_id, source, bounds, from: *from })
            .collect();
        if reads.is_empty() {
            return values;
        }
        let found = store.read_together(&reads, max_records, 7).await.unwrap();
        assert!((1..=reads.len()).contains(&found.len()));
        let found: Vec<(usize, Fetched)> = found.into_iter().map(|fetched| (fetched.source.partition as usize, fetched)).collect();
        for (partition, fetched) in found {
            assert!(!fetched.records.is_empty() && fetched.records.len() <= max_records);
            assert_eq!(fetched.at_end, fetched.position == bounds[partition].end);
            assert_eq!(fetched.records.first().map(|record| record.offset), Some(positions[partition]));
            assert_eq!(fetched.records.last().map(|record| record.offset.next()), Some(fetched.position));
            positions[partition] = fetched.position;
            values[partition].extend(fetched.records.iter().map(|record| number_of(record.value.as_deref())));
        }
    }
}

fn number_of(value: Option<&[u8]>) -> i64 {
    std::str::from_utf8(value.unwrap()).unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// More partitions than one message reads, and sometimes more records than are few.
    #[test]
    fn partitions_that_are_read_together_have_each_record_once_and_in_order(
        appends in vec(1..900_usize, 1..12),
        partitions in 1..40_u32,
        max_records in 1..700_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = TempDir::new().unwrap();
            let store = Arc::new(Store::open(folder.path()).await.unwrap());
            let writer = Writer::start(store.clone(), Arc::new(|| 2_000), watch::channel(Appends::default()).0);
            store.create_topic("events", partitions, "one", 1_000).await.unwrap();
            let mut expected = vec![Vec::new(); partitions as usize];
            let mut number = 0_i64;
            for count in appends {
                let records: Vec<NewRecord> = (0..count as i64)
                    .map(|nth| NewRecord { value: Some((number + nth).to_string().into()), ..NewRecord::default() })
                    .collect();
                let places = writer.append("events", records, number as u64).await.unwrap();
                for (partition, _) in places {
                    expected[partition as usize].push(number);
                    number += 1;
                }
            }
            let topic_id = store.expect_topic("events").await.unwrap().id;
            assert_eq!(read_all(&store, topic_id, max_records).await, expected);
        });
    }
}
