use std::path::Path;
use std::time::{Duration, Instant};

use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use types::{ErrorKind, Result};

use super::*;
use crate::demo::definitions;
use crate::installation::clock;

const PATIENCE: Duration = Duration::from_secs(120);

async fn installation(folder: &Path, http: &str) -> Installation {
    let text = format!("[serving]\nhttp = \"{http}\"\n");
    let settings = Settings::parse(&text, &folder.join("basestream.toml"), &Variables::default()).unwrap();
    Installation::open(&settings, Functions::standard()).await.unwrap()
}

fn start(installation: Installation, stop: &CancellationToken) -> (tokio::task::JoinHandle<Result<()>>, oneshot::Receiver<Ready>) {
    let (sender, ready) = oneshot::channel();
    let options = UpOptions { definitions: Some(definitions().unwrap()), ready: Some(sender), quiet: true };
    (tokio::spawn(up(installation, options, stop.clone())), ready)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_layers_come_up_and_go_down_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let installation = installation(folder.path(), "127.0.0.1:0").await;
    let stop = CancellationToken::new();
    let (task, ready) = start(installation.clone(), &stop);
    let ready = ready.await.unwrap();
    let answer = reqwest::get(format!("{}/v1/views/device_velocity", ready.url())).await.unwrap();
    assert!(answer.status().is_success());
    let age = "basestream_serving_answer_age_seconds{view=\"device_velocity\"} ";
    until(&format!("{}/metrics", ready.url()), |_, text| text.contains(age)).await;
    let lock_files = || std::fs::read_dir(folder.path().join("data/cache/processes")).unwrap().count();
    assert_eq!(lock_files(), 1);
    stop.cancel();
    let outcome = tokio::time::timeout(PATIENCE, task).await.expect("timed out: it does not stop by itself");
    outcome.unwrap().unwrap();
    assert!(reqwest::get(ready.url()).await.is_err(), "nobody answers any more");
    assert_eq!(lock_files(), 0);
}

#[tokio::test]
async fn a_process_is_alive_to_others_of_its_machine_until_it_dies() {
    let folder = tempfile::tempdir().unwrap();
    let one = installation(folder.path(), "127.0.0.1:0").await;
    let other = installation(folder.path(), "127.0.0.1:0").await;
    one.show_alive().await;
    one.show_alive().await;
    let worker = one.worker.clone();
    assert!(!other.catalog.is_dead(&worker) && !one.catalog.is_dead(&worker));
    assert!(!other.catalog.is_dead(&other.worker), "it did not show that it is alive");
    // The system closes its files.
    drop(one);
    assert!(other.catalog.is_dead(&worker));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_said_before_anything_works() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let installation = installation(folder.path(), &taken.local_addr().unwrap().to_string()).await;
    let (task, _ready) = start(installation.clone(), &CancellationToken::new());
    let error = task.await.unwrap().unwrap_err();
    assert!(installation.catalog.state().await.unwrap().definitions.is_empty(), "definitions were applied");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&taken.local_addr().unwrap().to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_to_which_runs_cannot_spill_is_said_before_anything_works() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let text = "[serving]\nhttp = \"127.0.0.1:0\"\n[batch]\ntemp_dir = \"file/spilled\"\n";
    let settings = Settings::parse(text, &folder.path().join("basestream.toml"), &Variables::default()).unwrap();
    let installation = Installation::open(&settings, Functions::standard()).await.unwrap();
    let (task, _ready) = start(installation.clone(), &CancellationToken::new());
    let of_scheduler = scheduler(installation.clone(), UpOptions::default(), CancellationToken::new());
    for error in [task.await.unwrap().unwrap_err(), of_scheduler.await.unwrap_err()] {
        assert_eq!((error.kind(), error.fact("setting")), (ErrorKind::Input, Some("batch.temp_dir")), "{error}");
        assert!(error.fact("found").unwrap().ends_with("file/spilled"), "{error}");
    }
    assert!(installation.catalog.state().await.unwrap().definitions.is_empty(), "definitions were applied");
}

/// The broker is away, as one is whose disk is full: nobody appends, and no event is read.
#[tokio::test(flavor = "multi_thread")]
async fn all_layers_are_not_ready_while_the_log_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    // Port 9 needs the rights of the system: no other test listens there.
    let text = "[serving]\nhttp = \"127.0.0.1:0\"\n[log]\nurl = \"kafka://127.0.0.1:9\"\n";
    let settings = Settings::parse(text, &folder.path().join("basestream.toml"), &Variables::default()).unwrap();
    let installation = Installation::open(&settings, Functions::standard()).await.unwrap();
    let (stop, (sender, ready)) = (CancellationToken::new(), oneshot::channel());
    let options = UpOptions { ready: Some(sender), quiet: true, ..UpOptions::default() };
    let task = tokio::spawn(up(installation, options, stop.clone()));
    let url = format!("{}/readyz", ready.await.unwrap().url());
    until(&url, |status, text| status == 503 && text.contains("the log does not answer")).await;
    stop.cancel();
    tokio::time::timeout(PATIENCE, task).await.expect("timed out: it does not stop").unwrap().unwrap();
}

/// An installation whose layers run separately, each with HTTP for its health.
async fn separate(folder: &Path) -> Installation {
    let text = "[speed]\nhttp = \"127.0.0.1:0\"\n[scheduler]\nhttp = \"127.0.0.1:0\"\n";
    let settings = Settings::parse(text, &folder.join("basestream.toml"), &Variables::default()).unwrap();
    Installation::open(&settings, Functions::standard()).await.unwrap()
}

/// Asks until the answer is as expected.
async fn until(url: &str, is_expected: impl Fn(u16, &str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let answer = reqwest::get(url).await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        if is_expected(status, &text) {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "timed out: {url} answers {status}: {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_speed_layer_alone_is_ready_once_it_reads_all_partitions_and_shows_their_lag() {
    let folder = tempfile::tempdir().unwrap();
    let installation = separate(folder.path()).await;
    let definitions = definitions().unwrap();
    let topics = definitions.streams.len();
    assert!(topics > 0);
    let (sender, ready) = oneshot::channel();
    let options = UpOptions { definitions: Some(definitions), ready: Some(sender), quiet: true };
    let stop = CancellationToken::new();
    let task = tokio::spawn(speed(installation.clone(), options, stop.clone()));
    let url = ready.await.unwrap().url();
    assert_eq!(reqwest::get(format!("{url}/healthz")).await.unwrap().text().await.unwrap(), r#"{"status":"ok"}"#);
    // Ready with some partitions, while another worker still waits for its own, is possible: all of them come.
    let all = format!("\"partitions\":{}", topics * installation.settings.log.partitions as usize);
    let ready = until(&format!("{url}/readyz"), |status, text| status == 200 && text.contains(&all)).await;
    assert!(ready.contains("\"status\":\"ready\""), "{ready}");
    let metrics = until(&format!("{url}/metrics"), |_, text| text.contains("basestream_partition_lag_records{")).await;
    let of_the_process = ["basestream_process_resident_memory_bytes ", "basestream_process_open_fds "];
    let of_all = ["basestream_build_info{", "basestream_outages "];
    for shown in of_all.into_iter().chain(of_the_process.into_iter().filter(|_| cfg!(target_os = "linux"))) {
        assert!(metrics.contains(shown), "{shown}\n{metrics}");
    }
    assert_eq!(reqwest::get(format!("{url}/v1/views")).await.unwrap().status().as_u16(), 404);
    stop.cancel();
    task.await.unwrap().unwrap();
    assert!(reqwest::get(url).await.is_err(), "nobody answers any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_alone_is_ready_once_it_knows_what_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let installation = separate(folder.path()).await;
    let (sender, ready) = oneshot::channel();
    let options = UpOptions { ready: Some(sender), quiet: true, ..UpOptions::default() };
    let stop = CancellationToken::new();
    let task = tokio::spawn(scheduler(installation, options, stop.clone()));
    let url = ready.await.unwrap().url();
    assert_eq!(reqwest::get(format!("{url}/healthz")).await.unwrap().text().await.unwrap(), r#"{"status":"ok"}"#);
    let ready = until(&format!("{url}/readyz"), |status, _| status == 200).await;
    assert!(ready.contains("\"status\":\"ready\""), "{ready}");
    let is_shown = |text: &str| text.contains("basestream_build_info{") && text.contains("basestream_outages ");
    until(&format!("{url}/metrics"), |status, text| status == 200 && is_shown(text)).await;
    stop.cancel();
    task.await.unwrap().unwrap();
}

/// As over a large catalog, which takes long to load.
#[tokio::test]
async fn a_process_that_is_still_starting_ends_when_it_is_asked_to() {
    let stop = CancellationToken::new();
    let starting = unless_stopped(&stop, std::future::pending::<Result<()>>());
    let (started, ()) = tokio::join!(starting, async { stop.cancel() });
    assert_eq!(started.unwrap(), None);
    assert_eq!(unless_stopped(&stop, async { Ok(()) }).await.unwrap(), None, "it was asked before");
    assert_eq!(unless_stopped(&CancellationToken::new(), async { Ok("started") }).await.unwrap(), Some("started"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_shown_while_it_is_under_way() {
    let metrics = recorder().unwrap();
    let shown = |runs: u32| metrics.render().contains(&format!("basestream_batch_runs_under_way{{view=\"watched\"}} {runs}\n"));
    let folder = tempfile::tempdir().unwrap();
    let installation = separate(folder.path()).await;
    installation.apply(&project("CREATE VIEW watched AS SELECT k, count(*) AS n FROM s GROUP BY k;"), false).await.unwrap();
    // The run is given up once it was looked at.
    let (see, seen) = oneshot::channel();
    let looked = async { see.send(shown(1)).unwrap() };
    let request = batch::RunRequest::new("watched", installation.run_time());
    let error = installation.batch().run_until(request, clock(), &|_| {}, looked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(seen.await.unwrap(), "it is under way");
    assert!(shown(0), "it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_the_speed_layer_that_is_taken_is_reported_with_its_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut installation = separate(folder.path()).await;
    installation.settings.speed.http = Some(taken.local_addr().unwrap().to_string());
    let error = speed(installation, UpOptions::default(), CancellationToken::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.fact("setting")), (ErrorKind::Unavailable, Some("speed.http")), "{error}");
    assert!(error.to_string().contains(&taken.local_addr().unwrap().to_string()), "{error}");
}

/// A stream, a view over it, and what else these definitions say.
fn project(more: &str) -> Definitions {
    let stream = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (topic = 'in', event_time = 'ts', id = 'id');
        CREATE VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k;";
    let (project, mistakes) = definitions::parse::parse_definitions(&[(None, format!("{stream} {more}"))]);
    mistakes.into_result().unwrap();
    project
}

/// Workers that were started before there was a sink put out the records of one that is applied later, and go on after
/// the last one is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn the_speed_layer_alone_takes_up_sinks_that_come_later() {
    let folder = tempfile::tempdir().unwrap();
    let installation = separate(folder.path()).await;
    let stop = CancellationToken::new();
    let (sender, ready) = oneshot::channel();
    let options = UpOptions { definitions: Some(project("")), ready: Some(sender), quiet: true };
    let task = tokio::spawn(speed(installation.clone(), options, stop.clone()));
    let url = ready.await.unwrap().url();
    until(&format!("{url}/readyz"), |status, _| status == 200).await;
    let event = |number: i64| event_log::NewRecord {
        value: Some(serde_json::json!({ "id": number.to_string(), "ts": "2026-03-01T00:00:00Z", "k": "a" }).to_string().into()),
        ..Default::default()
    };
    let sink = "CREATE SINK scored WITH (topic = 'out') AS SELECT e.id, v.n FROM s e LEFT JOIN v ON v.k = e.k;";
    installation.log.append("in", vec![event(0)]).await.unwrap();
    installation.apply(&project(sink), false).await.unwrap();
    // It begins with an event after it was taken up.
    let (mut number, began) = (1, Instant::now());
    while installation.log.bounds("out").await.unwrap().iter().all(|bounds| bounds.end.0 == 0) {
        installation.log.append("in", vec![event(number)]).await.unwrap();
        number += 1;
        assert!(began.elapsed() < PATIENCE, "timed out: the sink puts nothing out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    installation.apply(&project(""), true).await.unwrap();
    installation.log.append("in", vec![event(number)]).await.unwrap();
    let read = |state: &catalog::CatalogState| state.partitions.values().map(|partition| partition.next_offset.0).sum::<i64>();
    let began = Instant::now();
    while read(&installation.catalog.state().await.unwrap()) <= number {
        assert!(began.elapsed() < PATIENCE, "timed out: the log is not read to its end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    task.await.unwrap().unwrap();
}

/// A view that fails on an event is a problem; what it says has the event's text in it.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_over_http_has_the_problems_of_the_command_in_its_words_and_the_sinks_and_alerts() {
    let folder = tempfile::tempdir().unwrap();
    let mut installation = installation(folder.path(), "127.0.0.1:0").await;
    let more = "CREATE VIEW numbers AS SELECT id, sum(cast(k AS BIGINT)) AS total FROM s GROUP BY id;
        CREATE SINK scored WITH (topic = 'out') AS SELECT e.id, v.n FROM s e LEFT JOIN v ON v.k = e.k;
        CREATE ALERT seen WITH (topic = 'alerts') AS SELECT k, n FROM v WHERE n >= 1;";
    let (sender, ready) = oneshot::channel();
    let options = UpOptions { definitions: Some(project(more)), ready: Some(sender), quiet: true };
    let stop = CancellationToken::new();
    let task = tokio::spawn(up(installation.clone(), options, stop.clone()));
    let ready = ready.await.unwrap();
    let value = serde_json::json!({ "id": "1", "ts": "2026-03-01T00:00:00Z", "k": "<b>x</b>" }).to_string();
    installation.log.append("in", vec![event_log::NewRecord { value: Some(value.into()), ..Default::default() }]).await.unwrap();

    // Once the event is committed, nothing else is wrong.
    let is_there = |report: &serde_json::Value| {
        let alert = &report["alerts"][0];
        report["problems"].as_array().is_some_and(|problems| problems.len() == 1)
            && report["problems"][0]["fault"] == "view_errors"
            && alert["open"] == 1
            && alert["run_by"].is_string()
            && alert["last"]["kind"] == "began"
            && report["totals"]["lag"] == 0
    };
    let url = format!("{}/v1/status", ready.url());
    let text =
        until(&url, |status, text| status == 200 && serde_json::from_str::<serde_json::Value>(text).is_ok_and(|report| is_there(&report)))
            .await;
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["problems"][0]["cause"].as_str().unwrap().contains("<b>x</b>"), "{report}");
    assert_eq!(
        (&report["alerts"][0]["alert"], &report["alerts"][0]["last"]["key"]),
        (&serde_json::json!("seen"), &serde_json::json!(r#"{"k":"<b>x</b>"}"#))
    );
    assert_eq!(
        (&report["sinks"][0]["sink"], &report["sinks"][0]["waiting"]),
        (&serde_json::json!("scored"), &serde_json::json!(0)),
        "{report}"
    );
    assert_eq!(report["sinks"][0]["stalled"], serde_json::Value::Null);
    assert_eq!(
        (&report["streams"][0]["archived"], &report["streams"][0]["waiting"]),
        (&serde_json::json!(1), &serde_json::json!(0)),
        "{report}"
    );
    assert!(report["streams"][0]["complete_to"].is_string() && report["views"][0]["complete_to"].is_string(), "{report}");
    assert_eq!(report["counts"]["views"], 2);
    let document: serde_json::Value = reqwest::get(format!("{}/v1/openapi.json", ready.url())).await.unwrap().json().await.unwrap();
    let names = |object: &serde_json::Value| object.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(names(&document["components"]["schemas"]["Status"]["properties"]), names(&report));

    // The command asks the node at this address.
    installation.settings.serving.http = ready.http.to_string();
    let by_command = crate::status::status(&installation).await;
    assert_eq!(report["problems"], serde_json::to_value(&by_command.problems).unwrap());
    stop.cancel();
    tokio::time::timeout(PATIENCE, task).await.expect("timed out: it does not stop").unwrap().unwrap();
}
