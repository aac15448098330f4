//! The purchases example on both sets of engines, with `speed`, `scheduler` and `serve` as separate processes, each
//! killed once by SIGKILL.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basestream_tests::patience::in_time;
use basestream_tests::process::{Project, Urls};
use basestream_tests::services::engines;
use reqwest::StatusCode;
use serde_json::{Value, json};
use types::{Error, ErrorKind, Result, timed_out};

const HALF: usize = 34_829;

fn example() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/purchases")
}

fn unzipped(name: &str) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(example().join(name)).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Splits the purchases' file in two: orders before and after the middle.
fn halves(folder: &Path) -> [String; 2] {
    let text = unzipped("purchases.csv.gz");
    let (header, rows) = text.split_once('\n').unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    [&rows[..HALF], &rows[HALF..]].map(|part| {
        let path = folder.join(format!("part{}.csv", part.len()));
        let mut file = std::fs::File::create(&path).unwrap();
        writeln!(file, "{header}\n{}", part.join("\n")).unwrap();
        path.display().to_string()
    })
}

type Table = BTreeMap<String, BTreeMap<String, String>>;

fn expected(name: &str) -> Table {
    let text = unzipped(name);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let row = |row: csv::StringRecord| (row[0].to_owned(), names.iter().cloned().zip(row.iter().map(str::to_owned)).collect());
    reader.records().map(|record| row(record.unwrap())).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

async fn served(project: &Project) -> Result<Table> {
    let unanswered = |error: reqwest::Error| Error::unavailable(error.to_string());
    let url = format!("http://{}/v1/sql", project.http);
    let body = json!({"query": "SELECT * FROM customers", "params": []});
    let reply = reqwest::Client::new().post(url).json(&body).send().await.map_err(unanswered)?;
    let status = reply.status();
    if !status.is_success() {
        let kind = if status == StatusCode::SERVICE_UNAVAILABLE { ErrorKind::Unavailable } else { ErrorKind::Internal };
        return Err(Error::new(kind, format!("{status}: {}", reply.text().await.unwrap_or_default())));
    }
    let reply: Value = reply.json().await.map_err(unanswered)?;
    let rows = reply["rows"].as_array().ok_or_else(|| Error::internal("no rows"))?;
    let row = |row: &Value| row.as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect::<BTreeMap<_, _>>();
    Ok(rows.iter().map(row).map(|row| (row["customer_id"].clone(), row)).collect())
}

/// Waits until the served rows equal the independent engine's.
async fn settles(project: &Project, expected: &Table, what: &str) {
    let began = Instant::now();
    loop {
        let last = served(project).await;
        if last.as_ref().is_ok_and(|served| served == expected) {
            return;
        }
        if began.elapsed() > Duration::from_secs(120) {
            let logs: Vec<String> = ["speed", "scheduler", "serve"].map(|name| format!("--- {name}\n{}", project.log_of(name))).to_vec();
            match last {
                Err(error) if error.kind() == ErrorKind::Unavailable => timed_out::fail(format!("{what}: {error}\n{}", logs.join("\n"))),
                Err(error) => panic!("{what}: {error}\n{}", logs.join("\n")),
                Ok(served) => {
                    let other = expected.iter().find(|(customer, row)| served.get(*customer) != Some(row));
                    let found = other.map(|(customer, _)| served.get(customer));
                    panic!(
                        "{what}: {} customers served, {} expected; {other:?} is served as {found:?}\n{}",
                        served.len(),
                        expected.len(),
                        logs.join("\n")
                    );
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The scheduler may be running the batch itself, or the lease of the killed one may not have expired yet.
async fn run_customers(project: &Project) {
    let began = Instant::now();
    while let Err(error) = project.ok(&["batch", "run", "customers"]) {
        let is_held = error.to_string().contains("is being run already");
        assert!(is_held, "{error}");
        if began.elapsed() >= Duration::from_secs(90) {
            timed_out::fail(error);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn purchases(urls: Urls, topic: &str) {
    let project = Project::from_example(&example(), &urls, topic, "1s").unwrap();
    let [first, second] = halves(project.folder.path());
    project.ok(&["check"]).unwrap();
    project.ok(&["apply"]).unwrap();
    let speed = project.start("speed").unwrap();
    let scheduler = project.start("scheduler").unwrap();
    let serve = project.start("serve").unwrap();

    project.ok(&["ingest", "purchases", &first]).unwrap();
    speed.kill().unwrap();
    let speed = project.start("speed").unwrap();
    settles(&project, &expected("expected_half.csv.gz"), "half of the orders, speed killed").await;

    let asked = reqwest::Client::new().post(format!("http://{}/v1/views/customers/runs", project.http)).send().await.unwrap();
    assert_eq!(asked.status().as_u16(), 202, "{}", asked.text().await.unwrap());
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    scheduler.kill().unwrap();
    let scheduler = project.start("scheduler").unwrap();
    project.ok(&["ingest", "purchases", &second]).unwrap();
    serve.kill().unwrap();
    let serve = project.start("serve").unwrap();
    let all = expected("expected.csv.gz");
    settles(&project, &all, "all orders, each process killed once").await;

    project.ok(&["ingest", "purchases", &second]).unwrap();
    run_customers(&project).await;
    settles(&project, &all, "after a repeated ingest and a run").await;
    project.ok(&["verify", "customers"]).unwrap();
    project.ok(&["verify", "customers", "--log"]).unwrap();
    project.ok(&["verify", "customers", "--url", &format!("http://{}", project.http)]).unwrap();
    let found = project.ok(&["lookup", "customers", "customer_id=03049", "--json"]).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(text(&found["row"]["revenue_365d"]), "2654.61", "{found}");
    for running in [speed, scheduler, serve] {
        assert_eq!(in_time(running.terminate()), Some(0), "SIGTERM drains and exits 0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purchases_on_the_embedded_defaults_survive_a_kill_of_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{}/{name}", folder.path().display());
    let urls = Urls {
        storage: format!("file://{}", at("storage")),
        catalog: format!("sqlite://{}", at("catalog.db")),
        log: format!("file://{}", at("log")),
    };
    purchases(urls, "purchases").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn purchases_on_kafka_postgres_and_s3_survive_a_kill_of_each_process() {
    let urls = engines("purchases").await;
    let topic = format!("purchases_{}", uuid::Uuid::now_v7().simple());
    purchases(urls, &topic).await;
}
