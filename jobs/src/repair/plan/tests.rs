use catalog::{CheckpointRange, PartitionRecord};
use engine::functions::Functions;
use types::files::{ObjectName, StoredObject};

use super::*;

fn checkpoint(revision: i64, ranges: &[(i32, i64, i64)]) -> CheckpointRecord {
    let range = |(partition, start, end): &(i32, i64, i64)| CheckpointRange::of_events(PartitionId::new("s", *partition), *start, *end);
    CheckpointRecord { id: Uuid::now_v7(), worker: "w".into(), committed_at: 0, revision, ranges: ranges.iter().map(range).collect() }
}

fn damaged(name: ObjectName) -> Damaged {
    Damaged { file: name.record(StoredObject { bytes: 1, checksum: 1 }, 1, None), error: "damaged".into() }
}

fn log(identity: &str, bounds: &[(i32, i64, i64)]) -> BTreeMap<Arc<str>, LogFacts> {
    let bounds = bounds.iter().map(|(partition, begin, end)| (*partition, (Offset(*begin), Offset(*end)))).collect();
    BTreeMap::from([("s".into(), LogFacts::Known { identity: identity.into(), bounds })])
}

struct Fixture {
    state: CatalogState,
    registry: Registry,
    damaged: Vec<Damaged>,
}

/// Two checkpoints: archive files of both, states and dead letters of the second, unordered.
async fn fixture() -> Fixture {
    let (first, second) = (checkpoint(1, &[(0, 0, 10)]), checkpoint(2, &[(0, 10, 20), (1, 0, 5)]));
    let damaged = vec![
        damaged(ObjectName::States { checkpoint: second.id }),
        damaged(ObjectName::DeadLetters { stream: "s".into(), checkpoint: second.id }),
        damaged(ObjectName::Archive { stream: "s".into(), checkpoint: second.id }),
        damaged(ObjectName::Archive { stream: "s".into(), checkpoint: first.id }),
    ];
    let partition = |number: i32| PartitionRecord {
        id: PartitionId::new("s", number),
        next_offset: Offset(20),
        log_identity: "log".into(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    let state = CatalogState {
        checkpoints: [first, second].into_iter().collect(),
        files: damaged.iter().map(|damaged| damaged.file.clone()).collect(),
        partitions: [0, 1].map(|number| (PartitionId::new("s", number), partition(number))).into(),
        ..CatalogState::default()
    };
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    Fixture { state, registry, damaged }
}

fn actions(fixture: &Fixture, log: &BTreeMap<Arc<str>, LogFacts>, accept_gap: bool) -> Vec<RepairAction> {
    let steps = plan(&fixture.state, &fixture.registry, &fixture.damaged, log, accept_gap);
    steps.into_iter().map(|step| step.action).collect()
}

#[tokio::test]
async fn the_archive_comes_first_and_the_oldest_of_it() {
    let fixture = fixture().await;
    let steps = plan(&fixture.state, &fixture.registry, &fixture.damaged, &log("log", &[(0, 0, 30), (1, 0, 5)]), false);
    let order: Vec<&str> = steps.iter().map(|step| step.path.as_str()).collect();
    let expected: Vec<&str> = [3, 2, 1, 0].map(|at: usize| fixture.damaged[at].file.path.as_str()).to_vec();
    assert_eq!(order, expected);
    assert!(steps[..3].iter().all(|step| matches!(step.action, RepairAction::ReadAgain { .. })));
    assert_eq!(steps[3].action, RepairAction::RebuildStates);
}

#[tokio::test]
async fn what_the_log_no_longer_has_is_refused_with_its_range_and_given_up_when_that_is_accepted() {
    let fixture = fixture().await;
    let expired = log("log", &[(0, 11, 30), (1, 0, 5)]);
    let refused = actions(&fixture, &expired, false);
    let RepairAction::Refuse { why, help } = &refused[1] else { panic!("{refused:?}") };
    assert!(why.contains("s/0") && why.contains("11..30") && why.contains("10..20") && help.contains("--accept-gap"), "{why} {help}");
    let given_up = actions(&fixture, &expired, true);
    let RepairAction::GiveUp { lost, .. } = &given_up[1] else { panic!("{given_up:?}") };
    let range = |partition, start, end| OffsetRange { partition, start: Offset(start), end: Offset(end) };
    assert_eq!(*lost, [range(0, 10, 20), range(1, 0, 5)], "a file is lost whole");
    assert!(matches!(&actions(&fixture, &log("log", &[(0, 0, 15), (1, 0, 5)]), true)[1], RepairAction::GiveUp { .. }), "a shorter log");
}

#[tokio::test]
async fn a_log_of_another_identity_or_that_does_not_answer_gives_nothing_back() {
    let fixture = fixture().await;
    let another = actions(&fixture, &log("another", &[(0, 0, 30), (1, 0, 5)]), false);
    assert!(
        matches!(&another[0], RepairAction::Refuse { why, .. } if why.contains("another") && why.contains("expected log")),
        "{another:?}"
    );
    let silent = BTreeMap::from([("s".into(), LogFacts::Unknown("the log is away".into()))]);
    for accept_gap in [false, true] {
        let actions = actions(&fixture, &silent, accept_gap);
        assert!(
            matches!(&actions[0], RepairAction::Refuse { why, .. } if why == "the log is away"),
            "never given up for a log that is away: {actions:?}"
        );
    }
}

#[tokio::test]
async fn a_file_that_was_replaced_meanwhile_and_a_snapshot_that_nobody_reads_are_left() {
    let mut fixture = fixture().await;
    fixture.state.files.rewrite(|files| files.iter_mut().for_each(|file| file.marked_for_deletion = true));
    let bucket = damaged(ObjectName::Bucket { view: "v".into(), version: 1, run: Uuid::now_v7(), bucket: 0 });
    fixture.state.files.extend([bucket.file.clone()]);
    fixture.damaged.push(bucket);
    assert_eq!(actions(&fixture, &BTreeMap::new(), true), [RepairAction::Leave]);
}
