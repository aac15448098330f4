//! The embedded log, while the process that trims it is killed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use basestream_tests::records_of;
use event_log::{Log, NewRecord, TopicPartition};
use types::failpoint::TRIM;
use types::tiles::Micros;
use types::vector::Offset;

const TEST: &str = "trimming::a_log_whose_trimming_is_killed_reads_as_before_and_is_trimmed_on";
/// Set in the process that is killed: the folder of the log.
const FOLDER: &str = "BASESTREAM_TEST_TRIMMED";
const TOPIC: &str = "events";
/// More than two transactions delete.
const BATCHES: usize = 150;
const BATCH: usize = 10;

async fn open(folder: &Path) -> Arc<dyn Log> {
    event_log::open(&format!("file://{}", folder.display()), &Default::default()).await.unwrap()
}

/// Trims all records, and returns how many went.
async fn trim(folder: &Path) -> u64 {
    let source = TopicPartition { topic: TOPIC.into(), partition: 0 };
    open(folder).await.trim(&source, "g", Offset((BATCHES * BATCH) as i64), Micros::MAX).await.unwrap()
}

/// Trims in another process, which is killed at the step after it has passed it so often.
fn trim_and_die(folder: &Path, passes: usize) {
    let fault = format!("{}={passes}*off->1*return(kill)", TRIM[0]);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let killed = command.args(["--exact", TEST, "--nocapture"]).env(FOLDER, folder).env("FAILPOINTS", fault).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&killed.stdout), String::from_utf8_lossy(&killed.stderr));
    assert_eq!(killed.status.code(), None, "the process was not killed: {out}\n{err}");
}

#[test]
fn a_log_whose_trimming_is_killed_reads_as_before_and_is_trimmed_on() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Some(folder) = std::env::var_os(FOLDER) {
        runtime.block_on(trim(Path::new(&folder)));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let all = runtime.block_on(async {
        let log = open(folder.path()).await;
        log.create_topic(TOPIC, 1).await.unwrap();
        for batch in 0..BATCHES {
            let record = |number: usize| NewRecord { value: Some(format!("{batch} {number}").into()), ..NewRecord::default() };
            log.append(TOPIC, (0..BATCH).map(record).collect()).await.unwrap();
        }
        records_of(&*log, TOPIC).await.unwrap()
    });
    assert_eq!(all.len(), BATCHES * BATCH);

    let mut begin = 0;
    for passes in [0, 1, 1] {
        trim_and_die(folder.path(), passes);
        let (now, left) = runtime.block_on(async {
            let log = open(folder.path()).await;
            (log.bounds(TOPIC).await.unwrap()[0].begin.0 as usize, records_of(&*log, TOPIC).await.unwrap())
        });
        assert!(now.is_multiple_of(BATCH) && now < all.len(), "whole batches went: the log begins at {now}");
        assert_eq!(now > begin, passes > 0, "what was not committed is still there: the log began at {begin}, and begins at {now}");
        assert_eq!(left, all[now..]);
        begin = now;
    }
    assert_eq!(runtime.block_on(trim(folder.path())), (all.len() - begin) as u64);
    let left = runtime.block_on(async { records_of(&*open(folder.path()).await, TOPIC).await.unwrap() });
    assert!(left.is_empty(), "{} records are left", left.len());
}
