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
