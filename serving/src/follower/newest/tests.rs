use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{DefinitionKind, DefinitionRecord, DefinitionStatus, PartitionRecord};
use engine::functions::Functions;
use proptest::collection::vec;
use proptest::prelude::*;
use types::vector::Offset;

use super::*;
use crate::read_view::{Loaded, ServingClock};

fn vector(offsets: &[i64]) -> Vector {
    (0..).zip(offsets).map(|(number, offset)| (PartitionId::new("pay", number), Offset(*offset))).collect()
}

#[test]
fn what_was_read_stays_until_every_partition_has_come_as_far() {
    let is_kept = |now: &[i64], before: &[i64]| is_kept(&vector(now), &vector(before));
    assert!(!is_kept(&[5, 5], &[5, 5]));
    assert!(is_kept(&[], &[5]), "all of it was withdrawn");
    assert!(is_kept(&[9, 4], &[5, 5]), "one partition is ahead, another behind");
    assert!(!is_kept(&[5, 5, 1], &[5, 5]), "a partition was added");
}

/// Of a catalog state that has this revision, and nothing in it.
fn read_view(revision: i64, offsets: &[i64]) -> ReadView {
    let (views, building, failed) = Default::default();
    let state = Arc::new(CatalogState { revision, ..CatalogState::default() });
    let loaded = Loaded { state, registry: Arc::default(), vector: Vector::new(), views, building, failed };
    ReadView {
        loaded: Arc::new(loaded),
        versions: BTreeMap::new(),
        fresh: Vec::new(),
        vector: vector(offsets),
        now: 0,
        clock: ServingClock::Wall,
        complete_to: Arc::default(),
        is_kept: false,
    }
}

/// Both took what there was to read, and the one that took it first asks last what was read before.
#[test]
fn a_query_that_another_one_overtakes_does_not_report_that_work_was_withdrawn() {
    let newest = Newest::default();
    let read = |taken: ReadView, then: ReadView| {
        let (view, _) = newest.newer_of(taken, || Ok(then)).unwrap();
        (view.vector, view.is_kept, view.loaded.state.revision)
    };
    assert_eq!(read(read_view(1, &[5]), read_view(1, &[9])), (vector(&[5]), false, 1), "it is not taken twice");
    assert_eq!(read(read_view(1, &[4]), read_view(1, &[6])), (vector(&[6]), false, 1), "a layer came in between");
    assert_eq!(read(read_view(2, &[6]), read_view(2, &[6])), (vector(&[6]), false, 2));
    assert_eq!(read(read_view(1, &[6]), read_view(2, &[6])), (vector(&[6]), false, 2), "a catalog state came in between");
    assert_eq!(read(read_view(2, &[4]), read_view(2, &[4])), (vector(&[6]), true, 2), "work was withdrawn");
    assert_eq!(read(read_view(2, &[7]), read_view(2, &[7])), (vector(&[7]), false, 2));
}

#[test]
fn read_views_that_differ_in_the_time_alone_have_one_identity() {
    let newest = Newest::default();
    let id = |taken: ReadView| newest.newer_of(taken, || unreachable!("nothing overtakes it")).unwrap().1;
    let before = read_view(1, &[5]);
    let first = id(before.clone());
    assert_eq!(id(ReadView { now: 7, ..before.clone() }), first);
    let others = [
        ReadView { vector: vector(&[6]), ..before.clone() },
        ReadView { vector: vector(&[6]), complete_to: Arc::new([(PartitionId::new("pay", 0), 7)].into()), ..before.clone() },
        ReadView { vector: vector(&[6]), versions: [("velocity".into(), 1)].into(), ..before.clone() },
        read_view(2, &[6]),
    ];
    let mut known = vec![first];
    for other in others {
        let other = id(other);
        assert!(!known.contains(&other));
        known.push(other);
    }
}

/// What was withdrawn of the topic before is never read again; all else is.
#[tokio::test]
async fn records_of_a_stream_that_begins_anew_are_not_waited_for() {
    let record = |version, status, topic| DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: "pay".into(),
        version,
        sql: format!("CREATE STREAM pay (ts TIMESTAMPTZ NOT NULL) WITH (topic = '{topic}', format = 'json', event_time = 'ts')"),
        status,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let (nothing, read) = (CatalogState::default(), vector(&[5]));
    let now = registry([record(1, DefinitionStatus::Active, "paymnets")]).await;
    assert_eq!(read_again(&read, &nothing, &now), read);
    let before = record(1, DefinitionStatus::Redecoded, "payments");
    let now = registry([before, record(2, DefinitionStatus::Active, "payments")]).await;
    assert_eq!(read_again(&read, &nothing, &now), read, "a column was added: the records are in the same topic");
    let before = record(1, DefinitionStatus::Redecoded, "paymnets");
    let now = registry([before, record(2, DefinitionStatus::Active, "payments")]).await;
    assert!(read_again(&read, &nothing, &now).is_empty());
    let id = PartitionId::new("pay", 0);
    let partition = PartitionRecord {
        id: id.clone(),
        next_offset: Offset(1),
        log_identity: String::new(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    let mut before = CatalogState::default();
    before.partitions.insert(id, partition);
    assert_eq!(read_again(&read, &before, &now), read, "it was read after the stream began anew");
    assert_eq!(read_again(&vector(&[5, 100]), &before, &now), read, "the other partition may be one of the topic before alone");
}

async fn registry(definitions: impl IntoIterator<Item = DefinitionRecord>) -> Registry {
    let mut state = CatalogState::default();
    state.definitions.extend(definitions);
    Registry::load(&state, &Functions::standard()).await.unwrap()
}

proptest! {
    /// However vectors come and go, what is read goes back in no partition.
    #[test]
    fn what_is_read_never_goes_back(vectors in vec(vec(0..4i64, 3), 1..30)) {
        let mut read = Vector::new();
        for now in vectors.iter().map(|offsets| vector(offsets)) {
            let next = if is_kept(&now, &read) { read.clone() } else { now.clone() };
            prop_assert!(next.covers(&read));
            prop_assert!(next == now || !now.covers(&next), "what is newer is read");
            read = next;
        }
    }
}
