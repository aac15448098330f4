use catalog::{DefinitionStatus, PartitionRecord};
use types::vector::{Offset, PartitionId};

use super::*;

const DAY: Micros = 86_400_000_000;
const NOW: Micros = 20_000 * DAY;

/// A stream that is kept for ten days, with a newest event in each partition, and one that is kept for ever.
fn state(newest: [Option<Micros>; 2]) -> CatalogState {
    let stream = |name: &str, options: &str| DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: name.into(),
        version: 1,
        sql: format!("CREATE STREAM {name} (ts TIMESTAMPTZ NOT NULL) WITH (event_time = 'ts'{options})"),
        status: DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let partition = |number: usize| {
        let id = PartitionId::new("pay", number as i32);
        let record = PartitionRecord {
            id: id.clone(),
            next_offset: Offset(1),
            log_identity: "log".into(),
            clock: None,
            max_event_time: newest[number],
            complete_to: None,
        };
        (id, record)
    };
    CatalogState {
        definitions: vec![stream("pay", ", retention = '10d'"), stream("kept", "")],
        partitions: [partition(0), partition(1)].into(),
        ..CatalogState::default()
    }
}

#[test]
fn the_archive_ages_by_the_clock_that_answers_follow() {
    let days = |event_clock, newest| {
        let found = retentions(&state(newest), event_clock, NOW).unwrap();
        assert_eq!(found.len(), 1, "a stream without retention is kept for ever: {found:?}");
        found["pay"].as_micros() as Micros / DAY
    };
    let silent = [Some(NOW - 9 * DAY), Some(NOW - 7 * DAY)];
    assert_eq!((days(false, silent), days(true, silent)), (10, 17), "windows stand still since the newest event of a week ago");
    assert_eq!(days(true, [Some(NOW + DAY), None]), 10, "an event that is dated ahead makes nothing older");
    assert_eq!(days(true, [None, None]), 10);
}
