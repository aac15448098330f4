use std::time::Duration;

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::{Field, Schema};
use storage::write_archive;
use types::columns::EVENT_TIME;
use types::sql_types::timestamp_type;

use super::*;

fn known(next_offset: i64, log_identity: &str) -> PartitionRecord {
    PartitionRecord {
        id: PartitionId::new("s", 3),
        next_offset: Offset(next_offset),
        log_identity: log_identity.into(),
        clock: Some(70),
        max_event_time: Some(60),
        complete_to: Some(80),
    }
}

fn start(known: &PartitionRecord, identity: &str, (begin, end): (i64, i64), accept_gap: bool) -> Result<Start> {
    let bounds = PartitionBounds { partition: 3, begin: Offset(begin), end: Offset(end) };
    start_of(Some(known), &known.id, identity, &bounds, accept_gap)
}

#[test]
fn an_expired_log_is_refused_with_partition_and_range_and_gone_on_with_when_the_gap_is_accepted() {
    let known = known(10, "log");
    assert_eq!(start(&known, "log", (10, 20), false).unwrap(), Start::At(Offset(10)));
    let error = start(&known, "log", (15, 20), false).unwrap_err().to_string();
    assert!(error.contains("s/3") && error.contains("15..20") && error.contains("offsets 10..15 of s/3 as lost"), "{error}");
    let accepted = start(&known, "log", (15, 20), true).unwrap();
    let Start::AfterGap { start, end, reason } = accepted else { panic!("{accepted:?}") };
    let gap = GapRecord { partition: known.id.clone(), start, end, reason, accepted_at: 5 };
    let commit = gap_commit(Uuid::nil(), Some(&known), gap, "log");
    assert_eq!((commit.advance[0].start, commit.advance[0].end, commit.advance[0].clock), (Offset(10), Offset(15), Some(70)));
    assert!(matches!(&commit.add[0], Add::Gap(gap) if gap.start == Offset(10) && gap.end == Offset(15) && gap.accepted_at == 5));
}

#[test]
fn another_log_whose_offsets_are_archived_already_is_refused_whatever_is_accepted() {
    let known = known(10, "log");
    for accept_gap in [false, true] {
        for bounds in [(0, 5), (0, 50), (9, 50)] {
            let error = start(&known, "another", bounds, accept_gap).unwrap_err().to_string();
            assert!(error.contains("s/3") && error.contains("new name"), "{error}");
        }
        let shorter = start(&known, "log", (0, 9), accept_gap).unwrap_err().to_string();
        assert!(shorter.contains("shorter") && shorter.contains("0..9") && shorter.contains("new name"), "{shorter}");
    }
    assert!(start(&known, "another", (10, 50), false).is_err());
    assert!(matches!(start(&known, "another", (10, 50), true).unwrap(), Start::AfterGap { start: Offset(10), end: Offset(10), .. }));
    assert!(matches!(start(&known, "another", (12, 50), true).unwrap(), Start::AfterGap { start: Offset(10), end: Offset(12), .. }));
}

#[test]
fn a_partition_read_for_the_first_time_begins_where_its_log_does() {
    let id = PartitionId::new("s", 0);
    let bounds = |begin| PartitionBounds { partition: 0, begin: Offset(begin), end: Offset(9) };
    assert_eq!(start_of(None, &id, "log", &bounds(0), false).unwrap(), Start::At(Offset(0)));
    assert!(matches!(start_of(None, &id, "log", &bounds(4), false).unwrap(), Start::AfterGap { start: Offset(0), end: Offset(4), .. }));
}

/// What is remembered waits for no file, and a file that is remembered slowly takes little memory.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_file_is_decoded_a_few_batches_ahead() {
    const ROWS: usize = 50_000;
    let storage = ObjectStorage::open("memory://").unwrap();
    let field = Field::new(EVENT_TIME, timestamp_type(), false);
    let times = TimestampMicrosecondArray::from_iter_values(0..ROWS as i64).with_timezone("UTC");
    let rows = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(times)]).unwrap();
    let file = write_archive(&storage, &"s".into(), Uuid::nil(), 1, vec![rows]).await.unwrap();
    let mut ahead = ReadAhead::begin(&storage, vec![file], &[EVENT_TIME.to_owned()], Micros::MIN);
    let decoded = async {
        while ahead.parts.len() < PARTS_AHEAD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), decoded).await.expect("timed out: nothing is decoded ahead");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(ahead.parts.len(), PARTS_AHEAD, "no more is decoded until some is taken");
    assert!(!ahead.reading.is_finished());
    let mut read = 0;
    while let Some(part) = ahead.next().await.unwrap() {
        read += part.iter().map(|(_, batch)| batch.num_rows()).sum::<usize>();
    }
    assert_eq!(read, ROWS);
}

#[tokio::test]
async fn small_archive_files_are_read_together_and_a_large_one_alone() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let field = Field::new(EVENT_TIME, timestamp_type(), false);
    let times = TimestampMicrosecondArray::from_iter_values(0..3).with_timezone("UTC");
    let rows = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(times)]).unwrap();
    let file = write_archive(&storage, &"s".into(), Uuid::nil(), 1, vec![rows]).await.unwrap();

    let sized = |rows: i64, bytes: i64| FileRecord { rows, bytes, ..file.clone() };
    let groups = |files: Vec<FileRecord>| in_groups(files.iter().collect()).iter().map(Vec::len).collect::<Vec<usize>>();
    assert_eq!(groups(vec![sized(16, 4_000); 70]), [32, 32, 6]);
    assert_eq!(groups(vec![sized(10_000, 4_000); 3]), [1, 1, 1]);
    assert_eq!(groups(vec![sized(16, 400_000), sized(16, 400_000), sized(16, 400_000), sized(16, 2 << 20), sized(1, 1)]), [2, 1, 1, 1]);

    let gone = FileRecord { path: "archive/s/gone".into(), ..file.clone() };
    let begin = |files: Vec<FileRecord>| ReadAhead::begin(&storage, files, &[EVENT_TIME.to_owned()], Micros::MIN);
    let mut ahead = begin(vec![file.clone(), file.clone()]);
    let part = ahead.next().await.unwrap().unwrap();
    assert_eq!(part.len(), 2);
    assert!(part.iter().all(|(path, batch)| **path == *file.path && batch.num_rows() == 3));
    assert!(ahead.next().await.unwrap().is_none());
    let error = begin(vec![file.clone(), gone]).next().await.unwrap_err();
    assert!(error.to_string().contains("archive/s/gone"), "{error}");
}
