use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn file(path: u8, checkpoint: Option<u8>, bytes: i64) -> FileRecord {
    FileRecord {
        path: format!("archive/{path:03}"),
        kind: FileKind::Archive,
        checkpoint: checkpoint.map(id),
        run: None,
        subject: None,
        bytes,
        rows: 0,
        checksum: 0,
        min_event_time: None,
        max_event_time: None,
        marked_for_deletion: false,
    }
}

fn checkpoint(number: u8, revision: i64) -> CheckpointRecord {
    CheckpointRecord { id: id(number), worker: "w".into(), committed_at: 0, revision, ranges: vec![] }
}

fn id(number: u8) -> Uuid {
    Uuid::from_u128(number.into())
}

proptest! {
    /// However files are added and replaced, the list is what a plain map of paths would be.
    #[test]
    fn files_are_a_map_by_path_and_by_checkpoint(
        commits in prop::collection::vec(prop::collection::vec((0..200u8, prop::option::of(0..6u8)), 0..9), 0..60),
    ) {
        let (mut files, mut plain) = (Files::default(), BTreeMap::new());
        for (step, commit) in commits.iter().enumerate() {
            let added: Vec<FileRecord> = commit.iter().map(|(path, checkpoint)| file(*path, *checkpoint, step as i64)).collect();
            plain.extend(added.iter().map(|file| (file.path.clone(), file.clone())));
            files.extend(added);
        }
        prop_assert!(files.iter().eq(plain.values()));
        prop_assert_eq!(files.len(), plain.len());
        for path in 0..200u8 {
            let path = format!("archive/{path:03}");
            prop_assert_eq!(files.get(&path), plain.get(&path));
        }
        for number in 0..6u8 {
            let expected = plain.values().filter(|file| file.checkpoint == Some(id(number)));
            prop_assert!(files.of_checkpoint(id(number)).eq(expected));
        }
    }
}

proptest! {
    /// However files come, change and go, the count is what adding all of them up would be.
    #[test]
    fn dead_letters_are_counted_as_their_files_come_and_go(
        steps in prop::collection::vec((0..9u8, 0..3u8, 0..4i64, any::<bool>(), any::<bool>(), any::<bool>()), 0..60),
    ) {
        let mut files = Files::default();
        for (path, stream, rows, is_dead, marked_for_deletion, is_removed) in steps {
            let kind = if is_dead { FileKind::DeadLetters } else { FileKind::Archive };
            let subject = Some(format!("s{stream}").into());
            let changed = FileRecord { kind, subject, rows, marked_for_deletion, ..file(path, None, 1) };
            match is_removed {
                true => files.remove([&*changed.path]),
                false => files.extend([changed]),
            }
            let mut expected: BTreeMap<Arc<str>, i64> = BTreeMap::new();
            let counted = files.iter().filter(|file| file.kind == FileKind::DeadLetters && !file.marked_for_deletion);
            for file in counted.filter(|file| file.rows > 0) {
                *expected.entry(file.subject.clone().unwrap()).or_default() += file.rows;
            }
            prop_assert_eq!(files.dead_letters(), &expected);
        }
    }
}

#[test]
fn checkpoints_keep_the_order_of_their_commits() {
    let mut checkpoints = Checkpoints::default();
    assert_eq!((checkpoints.first(), checkpoints.last()), (None, None));
    for number in (0..200).rev() {
        checkpoints.extend([checkpoint(number, 200 - i64::from(number))]);
    }
    assert!(checkpoints.iter().map(|checkpoint| checkpoint.revision).eq(1..=200));
    assert_eq!(checkpoints.get(id(7)).map(|checkpoint| checkpoint.revision), Some(193));
    assert_eq!(checkpoints.first().zip(checkpoints.last()).map(|(first, last)| (first.revision, last.revision)), Some((1, 200)));
    assert_eq!(checkpoints.get(Uuid::from_u128(1_000)), None);
}

/// A later state holds the very records of the earlier one, and the earlier one stays as it was.
#[test]
fn what_did_not_change_is_shared() {
    let before: Files = (0..200).map(|path| file(path, None, 1)).collect();
    let mut after = before.clone();
    after.extend([file(7, None, 2)]);
    let bytes = |files: &Files, path: &str| files.get(path).map(|file| file.bytes);
    assert_eq!((bytes(&before, "archive/007"), bytes(&after, "archive/007")), (Some(1), Some(2)));
    let shared = before.iter().zip(after.iter()).filter(|(before, after)| std::ptr::eq(*before, *after)).count();
    assert_eq!(shared, 199);
}
