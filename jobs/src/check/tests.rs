use std::time::{Duration, Instant};

use super::*;

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount DECIMAL(18,2) NOT NULL) \
    WITH (topic = 'pay', format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'device');";
const VIEW: &str = "CREATE VIEW velocity WITH (windows = '1h, 7d', schedule = '30 2 * * *', timezone = 'UTC') AS\n\
    SELECT device, count(*) AS n, approx_distinct(id) AS ids FROM pay GROUP BY device;";
/// 2026-03-01T10:00:00Z.
const NOW: Micros = 1_772_359_200_000_000;

fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

async fn check(files: &[(&str, &str)]) -> Checked {
    let folder = project(files);
    check_project(folder.path(), &Functions::standard(), NOW).await.unwrap()
}

#[tokio::test]
async fn a_sound_project_shows_columns_hops_states_and_the_next_runs() {
    let begun = Instant::now();
    let checked = check(&[("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW)]).await;
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(checked.diagnostics.is_empty(), "{}", checked.diagnostics);
    let view = &checked.views[0];
    let names: Vec<&str> = view.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["device", "n_1h", "n_7d", "ids_1h", "ids_7d"]);
    assert_eq!(view.approximate, ["ids_1h", "ids_7d"]);
    assert_eq!(view.next_runs, ["2026-03-02T02:30:00Z", "2026-03-03T02:30:00Z", "2026-03-04T02:30:00Z"]);
    let hops: Vec<(&str, &str)> = view.windows.iter().map(|window| (window.range.as_str(), window.hop.as_str())).collect();
    assert_eq!(hops, [("1h", "1min"), ("7d", "1h")]);
    assert_eq!(checked.streams[0].dedup_memory_bytes_at_1k_per_s, Some(36 * 1_000 * 600));
    let text = checked.text();
    assert!(text.contains("about 21MiB of memory at 1,000 events/s") && text.ends_with("1 stream and 1 view: no errors"), "{text}");
}

#[tokio::test]
async fn a_long_window_is_told_with_its_disk_and_a_warning_past_the_setting() {
    let checked = check(&[("streams/pay.sql", &STREAM.replace("10m", "1d"))]).await.with_dedup_memory(64 << 20);
    let text = checked.text();
    assert!(text.contains("within 1d: about 64MiB of memory and 2472MiB of local disk at 1,000 events/s"), "{text}");
    assert!(text.contains("warning: at that rate [speed] dedup_memory = \"181MiB\" is needed"), "{text}");
    let text = checked.with_dedup_memory(256 << 20).text();
    assert!(!text.contains("warning"), "{text}");
}

#[tokio::test]
async fn every_mistake_of_every_file_is_listed_with_its_place() {
    let files = [
        ("streams/pay.sql", STREAM.replace("amount DECIMAL(18,2)", "amount DECIMALS")),
        ("streams/ok.sql", STREAM.replace("pay", "ok")),
        (
            "views/a.sql",
            "CREATE VIEW a WITH (windows = '1h') AS\nSELECT device, count(*) AS n FROM ok GROUP BY device HAVING count(*) > 1".to_owned(),
        ),
        ("views/b.sql", "CREATE VIEW b AS\nSELECT nothing, count(*) AS n\nFROM ok GROUP BY nothing".to_owned()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let checked = check(&files).await;
    let places: Vec<String> = checked.diagnostics.iter().map(|d| format!("{}:{}", d.file.as_ref().unwrap().display(), d.line)).collect();
    assert_eq!(places, ["streams/pay.sql:1", "views/a.sql:2", "views/b.sql:2"], "{}", checked.diagnostics);
    assert!(checked.text().ends_with("3 errors"));
}

#[tokio::test]
async fn a_view_is_not_blamed_for_a_stream_that_is_wrong() {
    let stream = STREAM.replace("amount DECIMAL(18,2)", "amount DECIMALS");
    let checked = check(&[("streams/pay.sql", &stream), ("views/velocity.sql", VIEW)]).await;
    assert_eq!(checked.diagnostics.len(), 1, "{}", checked.diagnostics);
}

#[tokio::test]
async fn a_mistake_of_a_staging_view_is_told_once() {
    let staging = "CREATE VIEW big AS SELECT device, nothing FROM pay;";
    let views = "CREATE VIEW a AS SELECT device, count(*) AS n FROM big GROUP BY device;\n\
        CREATE VIEW b AS SELECT device, count(*) AS n FROM big GROUP BY device;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/big.sql", staging), ("views/v.sql", views)]).await;
    assert_eq!(checked.diagnostics.len(), 1, "{}", checked.diagnostics);
}
