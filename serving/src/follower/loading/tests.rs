use types::files::{FileKind, FileRecord};

use super::*;
use crate::harness::Harness;

/// A skipped run moves the cut in the catalog, and not in the manifest. What is between them may be compacted with what
/// is before.
#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_snapshot_ends_where_it_did_when_it_was_loaded_as_the_published_one() {
    let harness = Harness::filled().await;
    let loaded = harness.node.loaded().unwrap();
    let published = loaded.views.values().find(|view| view.snapshot.is_some()).unwrap();
    let copy = published.snapshot.as_ref().unwrap();
    let later: Vector = published.cut.iter().map(|(partition, at)| (partition.clone(), at.next())).collect();
    let advanced = LoadedView { cut: later.clone(), ..published.clone() };
    assert_eq!(cut_of_earlier(copy, KnownVersion::Served(&advanced)), later);
    assert_eq!(cut_of_earlier(copy, KnownVersion::Nothing), copy.manifest.cut);
    let of_another = LoadedView { snapshot: None, ..advanced };
    assert_eq!(cut_of_earlier(copy, KnownVersion::Served(&of_another)), copy.manifest.cut, "it was not of this snapshot");
}

#[test]
fn only_a_view_that_is_served_and_may_come_yet_keeps_the_state_before() {
    assert_eq!(OnFailure::decide(ErrorKind::Unavailable, true), OnFailure::KeepStateBefore);
    assert_eq!(OnFailure::decide(ErrorKind::Unavailable, false), OnFailure::ServeOthersAndFail);
    for kind in [ErrorKind::Corrupt, ErrorKind::NotFound, ErrorKind::Limit, ErrorKind::Internal] {
        for is_served in [true, false] {
            assert_eq!(OnFailure::decide(kind, is_served), OnFailure::ServeOthers, "{kind:?}");
        }
    }
}

#[test]
fn a_stream_that_is_gone_keeps_no_dead_letters() {
    let dead_letters = |stream: &str, rows| FileRecord {
        path: format!("dead_letters/{stream}"),
        kind: FileKind::DeadLetters,
        checkpoint: None,
        run: None,
        subject: Some(stream.into()),
        bytes: 1,
        rows,
        checksum: 0,
        min_event_time: None,
        max_event_time: None,
        marked_for_deletion: false,
    };
    let state = |files: Vec<FileRecord>| CatalogState { files: files.into_iter().collect(), ..CatalogState::default() };
    let (before, after) = (state(vec![dead_letters("gone", 3), dead_letters("stays", 1)]), state(vec![dead_letters("stays", 2)]));
    let shown = |before, state| -> Vec<(String, i64)> {
        kept_dead_letters(before, state).into_iter().map(|(stream, rows)| (stream.to_string(), rows)).collect()
    };
    assert_eq!(shown(None, &before), [("gone".to_owned(), 3), ("stays".to_owned(), 1)]);
    assert_eq!(shown(Some(&before), &after), [("gone".to_owned(), 0), ("stays".to_owned(), 2)]);
}
