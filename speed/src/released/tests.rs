use definitions::parse::parse_stream;

use super::*;

const WITHIN: Duration = Duration::from_secs(600);

fn stream(dedup_within: &str) -> Arc<StreamDefinition> {
    let sql = format!(
        "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL)
         WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '{dedup_within}', key = 'id')"
    );
    Arc::new(parse_stream(&sql).unwrap())
}

fn committed() -> Committed {
    Committed { identity: "log".into(), next_offset: Offset(10), definition: stream("10m"), definition_version: 1 }
}

fn known() -> PartitionRecord {
    PartitionRecord {
        id: PartitionId::new("s", 3),
        next_offset: Offset(10),
        log_identity: "log".into(),
        clock: Some(70),
        max_event_time: Some(60),
        complete_to: Some(80),
    }
}

fn ids(folder: &tempfile::TempDir) -> ProcessIds {
    ProcessIds::new(DedupSettings { memory_bytes: 1 << 20, folder: folder.path().join("dedup") }, 2)
}

/// Releases partition 3, at the position of [`committed`], with one id.
fn release(ids: &ProcessIds) {
    ids.keep(with_one_id(ids));
}

fn with_one_id(ids: &ProcessIds) -> BTreeMap<PartitionId, ReleasedPartition> {
    let mut decider = Decider::new(Some(70), Some(60), WITHIN, Some(WITHIN), ids.space());
    decider.remember("a", 50).unwrap();
    BTreeMap::from([(PartitionId::new("s", 3), ReleasedPartition { at: committed(), decider })])
}

#[tokio::test]
async fn a_partition_continues_with_its_ids_only_where_it_was_released() {
    let folder = tempfile::tempdir().unwrap();
    let ids = ids(&folder);
    let id = PartitionId::new("s", 3);
    let taken = |at: &Committed, known: Option<PartitionRecord>| {
        release(&ids);
        ids.take_back(&id, at, known.as_ref()).map(|decider| decider.id_count())
    };
    assert_eq!(taken(&committed(), Some(known())), Some(1));
    let elsewhere = [
        Committed { identity: "another".into(), ..committed() },
        Committed { next_offset: Offset(11), ..committed() },
        Committed { definition: stream("20m"), ..committed() },
        Committed { definition_version: 2, ..committed() },
    ];
    for at in elsewhere {
        assert_eq!(taken(&at, Some(known())), None, "{at:?}");
    }
    let of_others = [
        PartitionRecord { next_offset: Offset(12), ..known() },
        PartitionRecord { clock: Some(71), ..known() },
        PartitionRecord { max_event_time: Some(61), ..known() },
    ];
    for known in of_others {
        assert_eq!(taken(&committed(), Some(known.clone())), None, "{known:?}");
    }
    assert_eq!(taken(&committed(), None), None);
    release(&ids);
    assert!(ids.take_back(&PartitionId::new("s", 4), &committed(), Some(&known())).is_none());
    assert!(ids.take_back(&id, &committed(), Some(&known())).is_some());
    assert!(ids.take_back(&id, &committed(), Some(&known())).is_none(), "one worker has it");
}

#[tokio::test]
async fn ids_that_nobody_takes_back_are_dropped_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let ids = ids(&folder);
    ids.keep_for(Duration::from_millis(20), with_one_id(&ids));
    assert_eq!(ids.0.lock().len(), 1);
    let gone = async {
        while !ids.0.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("timed out: the ids stay");
    // What is released meanwhile stays as long again.
    ids.keep_for(Duration::from_millis(20), with_one_id(&ids));
    release(&ids);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(ids.0.lock().len(), 1);
}
