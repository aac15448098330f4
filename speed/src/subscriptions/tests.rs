use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, GapRecord, Remove};
use types::files::FileRecord;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use super::*;
use crate::harness::speed_layer;
use crate::recover::gap_commit;

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

/// A stream that is left out for damage stays left out; one whose files were compacted goes on with the present ones.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_a_damaged_file_is_left_out_until_the_catalog_knows_it_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let speed = speed_layer(folder.path()).await;
    let stream = DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: "s".into(),
        version: 1,
        sql: "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (topic = 's', event_time = 'ts')".into(),
        status: DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let add = vec![Add::Definition(stream), Add::File(file("missing", FileKind::Archive))];
    speed.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();

    let damaged = |path: &str| Error::corrupt("a stored file is missing").with("file", path);
    let of_the_moment = speed.without_damaged(damaged("unknown")).await;
    assert_eq!((of_the_moment.kind(), speed.progress.left_out().len()), (ErrorKind::Unavailable, 0));
    let elsewhere = speed.without_damaged(Error::corrupt("a file of nobody")).await;
    assert_eq!(elsewhere.kind(), ErrorKind::Corrupt, "no file is named");

    let left_out = speed.without_damaged(damaged("missing")).await;
    assert_eq!((left_out.kind(), left_out.fact("stream")), (ErrorKind::Conflict, Some("s")));
    let state = speed.catalog.state().await.unwrap();
    assert_eq!(state.damages.iter().map(|damage| damage.path.as_str()).collect::<Vec<_>>(), ["missing"]);
    speed.progress.follow_repairs(&state);
    assert_eq!(speed.progress.left_out().iter().map(|stream| &**stream).collect::<Vec<_>>(), ["s"]);
    let said = speed.progress.damaged().unwrap().error;
    assert!(said.contains("the stream \"s\"") && said.contains("file: missing") && said.contains("`basestream repair`"), "{said}");

    let remove = vec![Remove::Damage("missing".into())];
    speed.catalog.commit(Commit { id: Uuid::now_v7(), remove, ..Commit::default() }).await.unwrap();
    let state = speed.catalog.state().await.unwrap();
    speed.progress.follow_repairs(&state);
    assert!(speed.progress.left_out().is_empty() && speed.progress.damaged().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_read_and_is_gone_is_not_created_anew() {
    const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (topic = 'events', event_time = 'ts')";
    let folder = tempfile::tempdir().unwrap();
    let speed = speed_layer(folder.path()).await;
    let stream = DefinitionRecord::first(DefinitionKind::Stream, "s", STREAM);
    speed.catalog.commit(Commit { id: Uuid::now_v7(), add: vec![Add::Definition(stream)], ..Commit::default() }).await.unwrap();
    let (partition, reason) = (PartitionId::new("s", 0), "it was read".to_owned());
    let read = GapRecord { partition, start: Offset(0), end: Offset(5), reason, accepted_at: 0 };
    speed.catalog.commit(gap_commit(Uuid::now_v7(), None, read, "log")).await.unwrap();

    let session = planning_session(&speed.functions).unwrap();
    let refused = speed.join(&session, &CancellationToken::new()).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Input, "{refused}");
    assert!(refused.to_string().contains("the topic is gone") && refused.to_string().contains("topic: events"), "{refused}");
    assert!(speed.log.bounds("events").await.unwrap().is_empty(), "it was created");
}
