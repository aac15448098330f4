use std::ops::Range;

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::embedded::reading::PartitionRead;
use crate::testing::{made_of, numbered, output_of, source, values_of};
use types::ErrorKind;

fn request(topic: &str, records: Vec<NewRecord>, output: Option<OfOutput>) -> Request {
    Request { topic: topic.to_owned(), records, random: 7, output, reply: oneshot::channel().0 }
}

/// The records of these events, appended by an owner of the output.
fn of_output(owner: Uuid, events: Range<i64>) -> Request {
    let next = Offset(events.end);
    let (offsets, records): (Vec<Offset>, Vec<NewRecord>) = made_of(events).into_iter().unzip();
    request("out", records, Some(OfOutput { output: output_of("in", "g"), owner, offsets, next }))
}

async fn values_in(store: &Store, topic: &str) -> Vec<Bytes> {
    let topic_id = store.expect_topic(topic).await.unwrap().id;
    let mut values = Vec::new();
    for bounds in store.bounds(topic_id).await.unwrap() {
        let source = source(topic, bounds.partition);
        let read = PartitionRead { topic_id, source: &source, bounds: &bounds, from: bounds.begin };
        let fetched = store.read(read, 1_000, 0).await.unwrap();
        values.extend(fetched.records.into_iter().filter_map(|record| record.value));
    }
    values.sort();
    values
}

fn kind_of(outcome: &Result<RecordPositions>) -> Option<ErrorKind> {
    outcome.as_ref().err().map(Error::kind)
}

/// More partitions and batches than one statement writes, and an output that is appended to three times.
#[tokio::test]
async fn the_appends_of_a_group_are_placed_as_if_one_came_after_the_other() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(Store::open(folder.path()).await.unwrap());
    let clock: Clock = Arc::new(|| 2_000);
    let mut copier = WalCopier::start(store.clone());
    store.create_topic("events", 40, "one", 1_000).await.unwrap();
    store.create_topic("out", 2, "another", 1_000).await.unwrap();
    let owner = Uuid::new_v4();
    let mut write = store.write().await.unwrap();
    output::set_owner(&mut *write, &output_of("in", "g"), owner).await.unwrap();
    write.commit().await.unwrap();
    let group = [
        request("events", numbered(0, 200), None),
        of_output(owner, 0..10),
        request("nothing", numbered(0, 1), None),
        of_output(owner, 5..20),
        of_output(Uuid::new_v4(), 20..25),
        request("events", numbered(200, 400), None),
        of_output(owner, 15..30),
    ];
    let outcomes = append_group(&store, &clock, &group, &mut copier).await.unwrap();
    let (nothing, refused) = (Some(ErrorKind::NotFound), Some(ErrorKind::Conflict));
    assert_eq!(outcomes.iter().map(kind_of).collect::<Vec<_>>(), [None, None, nothing, None, refused, None, None]);
    let mut next = vec![0; 40];
    for (partition, offset) in outcomes[0].iter().chain(&outcomes[5]).flatten() {
        assert_eq!(offset.0, next[*partition as usize]);
        next[*partition as usize] += 1;
    }
    // The next transaction goes on where this one ended.
    let group = [request("events", numbered(400, 600), None), of_output(owner, 25..35)];
    let outcomes = append_group(&store, &clock, &group, &mut copier).await.unwrap();
    for (partition, offset) in outcomes[0].iter().flatten() {
        assert_eq!(offset.0, next[*partition as usize]);
        next[*partition as usize] += 1;
    }
    assert_eq!(values_in(&store, "events").await, values_of(0, 600));
    let mut made: Vec<Bytes> = made_of(0..35).into_iter().filter_map(|(_, record)| record.value).collect();
    made.sort();
    assert_eq!(values_in(&store, "out").await, made);
    let ends = store.bounds(store.expect_topic("events").await.unwrap().id).await.unwrap();
    assert_eq!(ends.iter().map(|bounds| bounds.end.0).collect::<Vec<_>>(), next);
}

/// More outputs than one statement reads and writes, each at another offset.
#[tokio::test]
async fn each_output_of_a_group_advances_by_itself() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(Store::open(folder.path()).await.unwrap());
    let clock: Clock = Arc::new(|| 2_000);
    let mut copier = WalCopier::start(store.clone());
    store.create_topic("out", 2, "one", 1_000).await.unwrap();
    let owner = Uuid::new_v4();
    let output = |nth: i32| LogOutput { sink: format!("sink {}", nth % 2).into(), source: source("in", nth / 2), ..output_of("in", "g") };
    let outputs: Vec<LogOutput> = (0..40).map(output).collect();
    let mut write = store.write().await.unwrap();
    for output in &outputs {
        output::set_owner(&mut *write, output, owner).await.unwrap();
    }
    write.commit().await.unwrap();
    for more in [1, 3] {
        let request_of = |(nth, output): (usize, &LogOutput)| {
            let next = Offset(nth as i64 + more);
            let (offsets, records) = made_of(0..next.0).into_iter().unzip();
            request("out", records, Some(OfOutput { output: output.clone(), owner, offsets, next }))
        };
        let group: Vec<Request> = outputs.iter().enumerate().map(request_of).collect();
        let outcomes = append_group(&store, &clock, &group, &mut copier).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok));
        let mut write = store.write().await.unwrap();
        for (nth, output) in outputs.iter().enumerate() {
            assert_eq!(output::next_offset(&mut write, output).await.unwrap(), Some(Offset(nth as i64 + more)));
        }
    }
    let ends = store.bounds(store.expect_topic("out").await.unwrap().id).await.unwrap();
    assert_eq!(ends.iter().map(|bounds| bounds.end.0).sum::<i64>(), (0..40).map(|nth| nth + 3).sum::<i64>());
}

#[tokio::test]
async fn nothing_is_appended_to_a_topic_that_lacks_a_partition() {
    let folder = TempDir::new().unwrap();
    let store = Arc::new(Store::open(folder.path()).await.unwrap());
    let clock: Clock = Arc::new(|| 2_000);
    let mut copier = WalCopier::start(store.clone());
    store.create_topic("events", 3, "one", 1_000).await.unwrap();
    let mut write = store.write().await.unwrap();
    sqlx::query("DELETE FROM topic_partition WHERE number = 1").execute(&mut *write).await.unwrap();
    write.commit().await.unwrap();
    let error = append_group(&store, &clock, &[request("events", numbered(0, 10), None)], &mut copier).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("events"), "{error}");
}
