//! Damaged files: reported once, replaced once; and the log's mark.

use super::*;
use types::files::FileRecord;
use types::record::MarkRecord;
use types::vector::Offset;

on_every_engine!(
    damage_is_reported_of_named_files_alone_and_gone_with_them,
    of_two_rebuilt_files_one_takes_the_damaged_ones_place,
    files_given_up_are_marked_for_deletion_and_their_offsets_recorded,
    another_log_is_adopted_with_an_accepted_gap_alone,
    a_mark_is_replaced_by_the_next,
);

fn damage(path: &str, error: &str) -> DamageRecord {
    DamageRecord { path: path.into(), error: error.into(), found_by: "node".into(), found_at: 3 }
}

async fn damage_is_reported_of_named_files_alone_and_gone_with_them(test: &TestCatalog) {
    let marked_for_deletion = FileRecord { marked_for_deletion: true, ..file("d") };
    test.catalog.commit(adds(vec![Add::File(file("a")), Add::File(file("b")), Add::File(marked_for_deletion)])).await.unwrap();
    let reported = ["b", "a", "c", "d"].map(|path| Add::Damage(damage(path, "first"))).to_vec();
    test.catalog.commit(adds(reported)).await.unwrap();
    test.catalog.commit(adds(vec![Add::Damage(damage("a", "second"))])).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().damages, [damage("a", "first"), damage("b", "first")]);
    test.catalog.commit(Commit { remove: vec![Remove::MarkForDeletion("a".into())], ..Commit::default() }).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().damages, [damage("b", "first")]);
    test.catalog.commit(Commit { remove: vec![Remove::Damage("b".into())], ..Commit::default() }).await.unwrap();
    let state = test.another().await.state().await.unwrap();
    assert!(state.damages.is_empty() && state.files.iter().any(|file| file.path == "b" && !file.marked_for_deletion));
}

async fn of_two_rebuilt_files_one_takes_the_damaged_ones_place(test: &TestCatalog) {
    let commit = checkpoint_of(0, 10);
    test.catalog.commit(commit).await.unwrap();
    let damaged = test.catalog.state().await.unwrap().files.iter().next().unwrap().clone();
    test.catalog.commit(adds(vec![Add::Damage(damage(&damaged.path, "x"))])).await.unwrap();
    let rebuilt = |path: &str| FileRecord { path: path.into(), ..damaged.clone() };
    test.catalog.commit(replace_commit(Uuid::new_v4(), &damaged, rebuilt("one"))).await.unwrap();
    let text = conflict(test.another().await.commit(replace_commit(Uuid::new_v4(), &damaged, rebuilt("two"))).await);
    assert!(text.contains(&damaged.path), "{text}");
    let state = test.another().await.state().await.unwrap();
    let named: Vec<&str> = state.files.iter().filter(|file| !file.marked_for_deletion).map(|file| file.path.as_str()).collect();
    assert_eq!(named, ["one"]);
    assert!(state.damages.is_empty());
    // A checkpoint that was forgotten meanwhile takes no file.
    let one = state.files.iter().find(|file| file.path == "one").unwrap();
    let gone = FileRecord { checkpoint: Some(Uuid::new_v4()), ..rebuilt("three") };
    assert!(conflict(test.catalog.commit(replace_commit(Uuid::new_v4(), one, gone)).await).contains("checkpoint"));
}

async fn files_given_up_are_marked_for_deletion_and_their_offsets_recorded(test: &TestCatalog) {
    test.catalog.commit(adds(vec![Add::File(file("a")), Add::File(file("b"))])).await.unwrap();
    let gap = GapRecord { partition: partition(0), start: Offset(3), end: Offset(9), reason: "damaged".into(), accepted_at: 1 };
    test.catalog.commit(give_up_commit(Uuid::new_v4(), &[&file("a")], vec![gap.clone()])).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!(state.gaps, std::slice::from_ref(&gap));
    assert_eq!(state.files.iter().map(|file| file.marked_for_deletion).collect::<Vec<_>>(), [true, false]);
    conflict(test.catalog.commit(give_up_commit(Uuid::new_v4(), &[&file("a")], vec![gap])).await);
}

async fn another_log_is_adopted_with_an_accepted_gap_alone(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    let advance = Advance {
        partition: partition(0),
        start: Offset(10),
        end: Offset(15),
        log_identity: "log-2".into(),
        clock: Some(10),
        max_event_time: None,
        complete_to: None,
    };
    let gap = |start, end| {
        Add::Gap(GapRecord { partition: partition(0), start: Offset(start), end: Offset(end), reason: "made anew".into(), accepted_at: 1 })
    };
    let commit = |add: Vec<Add>, advance: &Advance| Commit { add, advance: vec![advance.clone()], ..Commit::default() };
    conflict(test.catalog.commit(commit(vec![], &advance)).await);
    conflict(test.catalog.commit(commit(vec![gap(10, 14)], &advance)).await);
    conflict(test.catalog.commit(commit(vec![gap(9, 15)], &Advance { start: Offset(9), ..advance.clone() })).await);
    test.catalog.commit(commit(vec![gap(10, 15)], &advance)).await.unwrap();
    let found = test.catalog.state().await.unwrap().partitions[&partition(0)].clone();
    assert_eq!((found.next_offset, found.log_identity.as_str(), found.clock), (Offset(15), "log-2", Some(10)));
}

async fn a_mark_is_replaced_by_the_next(test: &TestCatalog) {
    let mark = |number, offset| MarkRecord { partition: partition(number), offset: Offset(offset), timestamp: -4, checksum: u32::MAX };
    test.catalog.commit(adds(vec![Add::Mark(mark(0, 3)), Add::Mark(mark(1, 4))])).await.unwrap();
    test.catalog.commit(adds(vec![Add::Mark(mark(0, 7))])).await.unwrap();
    let marks = test.another().await.state().await.unwrap().marks.clone();
    assert_eq!(marks, BTreeMap::from([(partition(0), mark(0, 7)), (partition(1), mark(1, 4))]));
}
