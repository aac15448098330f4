//! A stream's archive that is decoded again while its process is killed.

use std::time::{Duration, Instant};

use basestream_tests::process::{Project, free_port};
use serde_json::Value;

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount BIGINT OPTIONS (path = '$.amount'))
    WITH (topic = 'pay', format = 'json', event_time = 'ts', id = 'id', dedup_within = '1d', key = 'device')";
const SUMS: &str = "CREATE VIEW sums AS SELECT device, sum(amount) AS amount FROM pay GROUP BY device";
const RECORDS: i64 = 200;

fn project() -> Project {
    let http = format!("127.0.0.1:{}", free_port().unwrap());
    let settings = format!("[log]\npartitions = 2\n[speed]\ncheckpoint_interval = \"50ms\"\n[serving]\nhttp = \"{http}\"\n");
    let record = |n: i64| {
        let total = n * 1_000;
        format!("{{\"id\":\"e{n}\",\"ts\":\"2026-03-01T10:00:00Z\",\"device\":\"d{}\",\"amount\":{n},\"total\":{total}}}\n", n % 2)
    };
    let files = [
        ("basestream.toml", settings),
        ("streams/pay.sql", STREAM.to_owned()),
        ("views/sums.sql", SUMS.to_owned()),
        ("first.jsonl", (0..RECORDS / 2).map(record).collect()),
        ("second.jsonl", (RECORDS / 2..RECORDS).map(record).collect()),
    ];
    Project::of_files(&files, http).unwrap()
}

/// The sums of both devices.
fn amounts(project: &Project) -> Vec<String> {
    let answer = project.ok(&["query", "SELECT amount FROM sums ORDER BY device", "--json"]).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["rows"].as_array().unwrap().iter().map(|row| row["amount"].to_string().replace('"', "")).collect()
}

/// Until a worker has committed every record of the log.
fn wait_until_read(project: &Project) {
    let began = Instant::now();
    loop {
        let status: Value = serde_json::from_str(&project.ok(&["status", "--json"]).unwrap()).unwrap();
        let partitions = status["partitions"].as_array().unwrap();
        let read: i64 = partitions.iter().map(|partition| partition["next_offset"].as_i64().unwrap()).sum();
        if read > 0 && partitions.iter().all(|partition| partition["lag"] == 0) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_archive_that_is_decoded_again_is_switched_to_whole_or_not_at_all_however_the_process_dies() {
    let project = project();
    project.ok(&["apply"]).unwrap();
    for file in ["first.jsonl", "second.jsonl"] {
        let path = project.folder.path().join(file);
        project.ok(&["ingest", "pay", path.to_str().unwrap()]).unwrap();
        let worker = project.start("speed").unwrap();
        wait_until_read(&project);
        assert_eq!(worker.terminate().unwrap(), Some(0));
    }
    project.ok(&["batch", "run", "sums"]).unwrap();
    let sum = |rest: i64, times: i64| ((0..RECORDS).filter(|n| n % 2 == rest).sum::<i64>() * times).to_string();
    let answers = |times: i64| vec![sum(0, times), sum(1, times)];
    assert_eq!(amounts(&project), answers(1));
    let paths = [("$.amount", 1), ("$.total", 1_000)];
    for (step, fault) in ["backfill.file_decoded", "backfill.before_switch", "backfill.after_switch"].iter().enumerate() {
        let ((_, before), (path, after)) = (paths[step % 2], paths[(step + 1) % 2]);
        std::fs::write(project.folder.path().join("streams/pay.sql"), STREAM.replace("$.amount", path)).unwrap();
        let killed = project.command(&["apply"]).unwrap().env("FAILPOINTS", format!("{fault}=return(kill)")).output().unwrap();
        assert_eq!(killed.status.code(), None, "{fault}: {}", String::from_utf8_lossy(&killed.stderr));
        let switched = *fault == "backfill.after_switch";
        assert_eq!(amounts(&project), answers(if switched { after } else { before }), "{fault}");
        project.ok(&["verify", "sums"]).unwrap();
        project.ok(&["apply"]).unwrap();
        assert_eq!(amounts(&project), answers(after), "{fault}");
        project.ok(&["verify", "sums", "--log"]).unwrap();
    }
    project.ok(&["batch", "run", "sums"]).unwrap();
    project.ok(&["verify", "sums"]).unwrap();
}
