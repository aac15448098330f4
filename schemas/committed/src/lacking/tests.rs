use catalog::{CheckpointRange, DefinitionRecord, DefinitionStatus, SnapshotRecord};
use engine::functions::Functions;
use types::files::StoredObject;
use types::vector::PartitionId;

use super::*;
use crate::registry::Registry;

const MINUTE: Micros = 60_000_000;
const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts')";
const VIEW: &str = "CREATE VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k";
const STORED: StoredObject = StoredObject { bytes: 1, checksum: 1 };

/// A view defined at minute 100, and checkpoints at these minutes, of this many events each.
async fn world(checkpoints: &[(i64, i64)]) -> (CatalogState, LiveView) {
    let definition = |kind, name: &str, sql: &str| DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql: sql.into(),
        status: DefinitionStatus::Active,
        created_at: 100 * MINUTE,
        since: 100 * MINUTE,
        kept_until: None,
        rolled_back: false,
    };
    let mut state = CatalogState {
        definitions: [definition(DefinitionKind::Stream, "s", STREAM), definition(DefinitionKind::View, "v", VIEW)].into_iter().collect(),
        ..CatalogState::default()
    };
    let mut next = 0;
    for (minute, events) in checkpoints {
        let id = Uuid::from_u128(*minute as u128 + 1);
        let range = CheckpointRange::of_events(PartitionId::new("s", 0), next, next + events);
        next += events;
        let record = CheckpointRecord::new(id, "w", minute * MINUTE, vec![range]);
        state.checkpoints.extend([record]);
        let archive = ObjectName::Archive { stream: "s".into(), checkpoint: id };
        state.files.extend([archive.record(STORED, *events, None), ObjectName::States { checkpoint: id }.record(STORED, 1, None)]);
    }
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let view = registry.view("v", 1).unwrap().clone();
    (state, view)
}

fn lacking(state: &CatalogState, view: &LiveView, known: &MissingStates) -> Vec<i64> {
    let SplitCheckpoints { stored, lacking } = split_lacking(state, view, known, state.checkpoints.iter().collect());
    assert_eq!(stored.len() + lacking.len(), state.checkpoints.iter().count());
    lacking.iter().map(|checkpoint| checkpoint.committed_at / MINUTE).collect()
}

#[tokio::test]
async fn checkpoints_from_before_a_view_lack_its_states_and_nothing_is_read_to_know_it() {
    let (mut state, view) = world(&[(10, 1), (89, 1), (91, 1), (101, 1)]).await;
    assert_eq!(lacking(&state, &view, &MissingStates::default()), [10, 89], "within ten minutes of it clocks may differ");
    let rebuilt = ObjectName::RebuiltStates { checkpoint: Uuid::from_u128(11), rebuild: Uuid::now_v7() };
    state.files.rewrite(|files| files.retain(|file| file.path != ObjectName::States { checkpoint: Uuid::from_u128(11) }.to_string()));
    state.files.extend([rebuilt.record(STORED, 1, None)]);
    assert_eq!(lacking(&state, &view, &MissingStates::default()), [89], "what is rebuilt later has the states of every view");
}

#[tokio::test]
async fn what_was_looked_for_in_vain_is_looked_for_again_in_another_object() {
    let (mut state, view) = world(&[(101, 1), (102, 1)]).await;
    let checkpoint = state.checkpoints.iter().next().unwrap().clone();
    let mut known = MissingStates::default();
    known.note(&state, &checkpoint);
    assert_eq!(lacking(&state, &view, &known), [101]);
    let rebuilt = ObjectName::RebuiltStates { checkpoint: checkpoint.id, rebuild: Uuid::now_v7() };
    state.files.extend([rebuilt.record(STORED, 1, None)]);
    assert_eq!(lacking(&state, &view, &known), Vec::<i64>::new());
}

#[tokio::test]
async fn a_view_over_many_events_waits_for_a_run_and_one_over_few_does_not() {
    let (few, view) = world(&[(10, MAX_REBUILT_EVENTS), (101, MAX_REBUILT_EVENTS)]).await;
    assert!(!waits_for_run(&few, &view).unwrap(), "those from after its definition are in states objects");
    let (mut many, view) = world(&[(10, MAX_REBUILT_EVENTS), (11, 1)]).await;
    assert!(waits_for_run(&many, &view).unwrap());
    let cut = "s/0:500001".parse().unwrap();
    let snapshot = SnapshotRecord { view: "v".into(), version: 1, run: Uuid::nil(), cut, manifest: String::new(), published_at: 0 };
    many.snapshots.push(snapshot);
    assert!(!waits_for_run(&many, &view).unwrap(), "it is built");
}

#[tokio::test]
async fn a_view_has_a_history_if_events_were_archived_before_it() {
    let (state, view) = world(&[(99, 1), (101, 1)]).await;
    assert!(has_history(&state, &view));
    let (state, view) = world(&[(99, 0), (100, 1), (101, 1)]).await;
    assert!(!has_history(&state, &view));
}
