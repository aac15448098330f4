use types::files::{FileKind, FileRecord};
use uuid::Uuid;

use super::*;

const HOUR: Micros = 3_600_000_000;

/// An archive file of the stream `s` with events from one hour to another.
fn file(number: u128, from: Micros, to: Micros) -> FileRecord {
    FileRecord {
        path: format!("archive/s/{number:06}"),
        kind: FileKind::Archive,
        checkpoint: Some(Uuid::from_u128(number)),
        run: None,
        subject: Some("s".into()),
        bytes: 1,
        rows: 1,
        checksum: 0,
        min_event_time: Some(from * HOUR),
        max_event_time: Some(to * HOUR),
        marked_for_deletion: false,
    }
}

#[test]
fn a_view_is_named_if_most_events_were_received_too_late_for_its_windows() {
    let late = |view: &str, rows: u64| ReceivedLate { view: view.into(), rows };
    for (rows, late_rows, expected) in [(0, 0, false), (1, 0, false), (1, 1, true), (4, 2, false), (4, 3, true), (5, 3, true)] {
        assert_eq!(!most_late(rows, vec![late("v", late_rows)]).is_empty(), expected, "{late_rows} of {rows}");
    }
    assert_eq!(most_late(4, vec![late("v", 1), late("w", 4)]), [LateRows { view: "w".into(), rows: 4 }]);
}

#[test]
fn a_range_without_events_is_answered_with_the_event_times_of_the_archive() {
    let mut state = CatalogState::default();
    let other = FileRecord { subject: Some("other".into()), ..file(9, 0, 100) };
    state.files.extend([file(1, 10, 11), file(2, 14, 15), other]);
    let of = |from: Micros, to: Micros| no_rows(&state, &"s".into(), from * HOUR, to * HOUR);
    let (earliest, latest) = (Some("1970-01-01T10:00:00Z".to_owned()), Some("1970-01-01T15:00:00Z".to_owned()));
    for (from, to, may_have_events) in [(0, 10, false), (12, 14, false), (16, 20, false), (0, 11, true), (11, 12, true), (15, 20, true)] {
        let expected = NoRows { may_have_events, earliest: earliest.clone(), latest: latest.clone() };
        assert_eq!(of(from, to), expected, "{from} to {to}");
    }
    let empty = no_rows(&CatalogState::default(), &"s".into(), 0, HOUR);
    assert_eq!(empty, NoRows { may_have_events: false, earliest: None, latest: None });
}
