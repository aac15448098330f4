use catalog::{Add, Commit, Remove};
use types::files::FileRecord;
use uuid::Uuid;

use super::*;
use crate::harness::speed_layer;

fn file(path: &str, kind: FileKind) -> FileRecord {
    FileRecord {
        path: path.into(),
        kind,
        checkpoint: None,
        run: None,
        subject: Some("s".into()),
        bytes: 1,
        rows: 1,
        checksum: 0,
        min_event_time: None,
        max_event_time: None,
        marked_for_deletion: false,
    }
}

/// A worker that is stopped by damage stays stopped; one whose files were compacted goes on with the present ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_while_a_takeover_read_it_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let speed = speed_layer(folder.path()).await;
    let files = [("needed", FileKind::Archive), ("replaced", FileKind::Superseded), ("marked", FileKind::Archive)];
    let add = files.map(|(path, kind)| Add::File(file(path, kind))).to_vec();
    speed.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    let remove = vec![Remove::MarkForDeletion("marked".into())];
    speed.catalog.commit(Commit { id: Uuid::now_v7(), remove, ..Commit::default() }).await.unwrap();

    let damaged = |path: &str| Error::corrupt("a stored file is missing").with("file", path);
    assert_eq!(speed.conflict_if_replaced(damaged("needed")).await.kind(), ErrorKind::Corrupt);
    for path in ["replaced", "marked", "deleted"] {
        let error = speed.conflict_if_replaced(damaged(path)).await;
        assert_eq!((error.kind(), error.fact("file")), (ErrorKind::Conflict, Some(path)));
    }
    let elsewhere = speed.conflict_if_replaced(Error::corrupt("a file of nobody")).await;
    assert_eq!(elsewhere.kind(), ErrorKind::Corrupt, "no file is named");
    let refused = speed.conflict_if_replaced(Error::input("another log").with("file", "replaced")).await;
    assert_eq!(refused.kind(), ErrorKind::Input);
}
