//! Linked views over generated graphs, through the installed binary, compared with DuckDB's plain join of the same
//! files at several times.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use basestream_tests::process::{Project, Running, free_port};
use basestream_tests::until;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

const DAY: i64 = 86_400;
/// 2026-03-01T00:00:00Z.
const END: i64 = 1_772_323_200;
const ACCOUNTS: usize = 600;
const LOGINS: usize = 3_000;

const CREATED: &str = "CREATE STREAM create_account (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT) \
    WITH (topic = 'created', format = 'json', event_time = 'ts', id = 'id', dedup_within = '1s', key = 'user_id')";
const LOGIN: &str = "CREATE STREAM login (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT, amount BIGINT) \
    WITH (topic = 'login', format = 'json', event_time = 'ts', id = 'id', dedup_within = '1s', key = 'user_id')";
const LIVENESS: &str = "CREATE VIEW device_links WITH (windows = '7d, 30d') AS SELECT c.device_id, \
    count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id) AS linked, count(DISTINCT c.user_id) AS users, \
    count(DISTINCT l.device_id) FILTER (WHERE within(c.ts, '365d') AND within(l.ts, '30d')) AS to_old_accounts \
    FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id";
const FULL: &str = "CREATE VIEW device_logins WITH (windows = '7d, 30d') AS SELECT c.device_id, count(*) AS logins, \
    sum(l.amount) FILTER (WHERE l.device_id <> c.device_id) AS elsewhere, max(l.amount) AS most, avg(l.amount) AS mean \
    FROM create_account c JOIN login l ON c.user_id = l.user_id WHERE l.amount > 10 GROUP BY c.device_id";

/// Chooses the user and the device of the next event.
type Choose = fn(&mut StdRng) -> (usize, usize);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the oracle: just test-oracle"]
async fn links_over_a_uniform_graph_are_what_duckdb_joins() {
    compare("uniform", |random| (random.random_range(0..400), random.random_range(0..200))).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the oracle: just test-oracle"]
async fn links_over_a_power_law_graph_are_what_duckdb_joins() {
    // The inverse of a Pareto distribution's tail: a few users and devices have most of the events.
    fn skewed(random: &mut StdRng, most: usize) -> usize {
        let u: f64 = random.random_range(0.001..1.0);
        ((1.0 / u).powf(0.8) as usize).min(most - 1)
    }
    compare("power law", |random| (skewed(random, 400), skewed(random, 200))).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the oracle: just test-oracle"]
async fn links_over_a_star_are_what_duckdb_joins() {
    compare("star", |random| (random.random_range(0..400), if random.random_bool(0.7) { 0 } else { random.random_range(1..400) })).await;
}

async fn compare(name: &str, choose: Choose) {
    let python = basestream_tests::oracle::needed();
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let project = project("300ms");
    let files = [("create_account", events(&mut random, ACCOUNTS, choose)), ("login", events(&mut random, LOGINS, choose))];
    for (stream, lines) in &files {
        std::fs::write(project.folder.path().join(format!("{stream}.ndjson")), lines).unwrap();
    }
    project.ok(&["apply"]).unwrap();
    let up = served(&project, &files);
    // States answer as of the last event and later; the archive answers as of earlier times.
    for (as_of, label) in
        [(END, "now"), (END + 3 * DAY, "in 3 days"), (END + 20 * DAY + 1_801, "in 20 days"), (END - 9 * DAY, "9 days ago")]
    {
        let truth = ask_duckdb(&python, project.folder.path(), &[liveness_sql(as_of), full_sql(as_of)]);
        assert_eq!(truth.len(), 2, "an answer for each view");
        for (view, expected) in ["device_links", "device_logins"].into_iter().zip(truth) {
            let sql = format!("SET as_of = '{}'; SELECT * FROM {view}", rfc3339(as_of));
            let served: Value = serde_json::from_str(&project.ok(&["query", &sql, "--json"]).unwrap()).unwrap();
            assert_alike(&by_device(&served["rows"]), &by_device(&expected), &format!("{name}, seed {seed}, {view} {label}"));
        }
    }
    assert_eq!(up.terminate().unwrap(), Some(0));
}

/// A new link does not wait for a checkpoint, of which there is none within the hour. (`bench links-lookup` measures
/// how soon it counts.)
#[tokio::test(flavor = "multi_thread")]
async fn a_new_link_counts_within_a_second_in_up() {
    let project = project("1h");
    project.ok(&["apply"]).unwrap();
    let up = project.start("up").unwrap();
    let client = reqwest::Client::new();
    let url = |path: &str| format!("http://{}{path}", project.http);
    let is_ready = async || client.get(url("/readyz")).send().await.is_ok_and(|reply| reply.status().is_success());
    until("`up` to be ready", is_ready).await;
    let post = async |stream: &str, event: Value| {
        let reply = client.post(url(&format!("/v1/streams/{stream}/events"))).json(&json!([event])).send().await.unwrap();
        assert_eq!(reply.status(), 202);
    };
    let event = |id: String, device: String| {
        let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        json!({ "id": id, "ts": now, "user_id": "u1", "device_id": device, "amount": 50 })
    };
    post("create_account", event("c".into(), "hub".into())).await;
    let mut taken = Vec::new();
    for at in 0..20 {
        post("login", event(format!("l{at}"), format!("d{at}"))).await;
        let began = Instant::now();
        loop {
            let row: Value = client.get(url("/v1/views/device_links/row?device_id=hub")).send().await.unwrap().json().await.unwrap();
            if row["row"]["linked_7d"] == json!(at + 1) {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "timed out: the link is not counted: {row}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        taken.push(began.elapsed());
    }
    taken.sort();
    // It takes milliseconds. Half of the attempts must be within the limit, even on a busy machine.
    assert!(taken[taken.len() / 2] < Duration::from_secs(1), "{taken:?}");
    assert_eq!(up.terminate().unwrap(), Some(0));
}

fn project(checkpoint_interval: &str) -> Project {
    let http = format!("127.0.0.1:{}", free_port().unwrap());
    let files = [
        ("streams/create_account.sql", CREATED.to_owned()),
        ("streams/login.sql", LOGIN.to_owned()),
        ("views/device_links.sql", LIVENESS.to_owned()),
        ("views/device_logins.sql", FULL.to_owned()),
    ];
    let mut project = Project::from_files(&files, http.clone()).unwrap();
    let root = project.folder.path().display();
    let config = format!(
        "[storage]\nurl = \"file://{root}/data\"\n[catalog]\nurl = \"sqlite://{root}/catalog.db\"\n[log]\nurl = \"file://{root}/log\"\npartitions = 3\n\
         [speed]\ncheckpoint_interval = \"{checkpoint_interval}\"\n[serving]\nhttp = \"{http}\"\nclock = \"event\"\n"
    );
    std::fs::write(project.folder.path().join("basestream.toml"), config).unwrap();
    project.http = http;
    project
}

/// Appends half of the events, runs batch for each view, then appends the rest: answers use snapshots and later
/// checkpoints.
fn served(project: &Project, files: &[(&str, String)]) -> Running {
    let up = project.start("up").unwrap();
    for half in 0..2 {
        for (stream, lines) in files {
            let lines: Vec<&str> = lines.lines().collect();
            let (from, to) = if half == 0 { (0, lines.len() / 2) } else { (lines.len() / 2, lines.len()) };
            let path = project.folder.path().join(format!("{stream}.{half}.ndjson"));
            std::fs::write(&path, lines[from..to].join("\n") + "\n").unwrap();
            project.ok(&["ingest", stream, path.to_str().unwrap()]).unwrap();
        }
        until_read(project);
        if half == 0 {
            for view in ["device_links", "device_logins"] {
                project.ok(&["batch", "run", view]).unwrap();
            }
        }
    }
    up
}

fn until_read(project: &Project) {
    let began = Instant::now();
    loop {
        let status: Value = serde_json::from_str(&project.ok(&["status", "--json"]).unwrap()).unwrap();
        let partitions = status["partitions"].as_array().unwrap();
        if !partitions.is_empty() && partitions.iter().all(|partition| partition["lag"] == 0) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "timed out: lag stays: {status}\n{}", project.log_of("up"));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Events of the last 60 days, some of them late, some without user or device.
fn events(random: &mut StdRng, count: usize, choose: Choose) -> String {
    let mut lines = String::new();
    for id in 0..count {
        let (user, device) = choose(random);
        let (user, device) = (json!(format!("u{user}")), json!(format!("d{device}")));
        let none = |value: Value, random: &mut StdRng| if random.random_bool(0.02) { Value::Null } else { value };
        let (user, device) = (none(user, random), none(device, random));
        // The last one is at the end of time, so that all answers of a run have the same newest event.
        let ts = if id == 0 { END } else { END - random.random_range(0..60 * DAY) };
        let event = json!({ "id": format!("e{id}"), "ts": rfc3339(ts), "user_id": user, "device_id": device, "amount": random.random_range(0..100) });
        let _ = writeln!(lines, "{event}");
    }
    lines
}

fn rfc3339(seconds: i64) -> String {
    chrono::DateTime::from_timestamp(seconds, 0).unwrap().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// The left edge of a window with this hop, as DuckDB writes a time.
fn edge(as_of: i64, days: i64, hop: i64) -> String {
    format!("TIMESTAMPTZ '{}'", rfc3339((as_of - days * DAY).div_euclid(hop) * hop))
}

fn liveness_sql(as_of: i64) -> String {
    let (week, month, year) = (edge(as_of, 7, 3_600), edge(as_of, 30, 3_600), edge(as_of, 365, DAY));
    let t = format!("TIMESTAMPTZ '{}'", rfc3339(as_of));
    let both = |edge: &str| format!("c.ts >= {edge} AND l.ts >= {edge}");
    format!(
        "SELECT c.device_id, \
         count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id AND {week}) AS linked_7d, \
         count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id AND {month}) AS linked_30d, \
         count(DISTINCT c.user_id) FILTER (WHERE {week}) AS users_7d, count(DISTINCT c.user_id) FILTER (WHERE {month}) AS users_30d, \
         count(DISTINCT l.device_id) FILTER (WHERE c.ts >= {year} AND l.ts >= {only_month}) AS to_old_accounts \
         FROM create_account c JOIN login l ON c.user_id = l.user_id WHERE c.ts <= {t} AND l.ts <= {t} \
         GROUP BY c.device_id HAVING count(*) FILTER (WHERE c.ts >= {year} AND l.ts >= {only_month}) > 0",
        week = both(&week),
        month = both(&month),
        only_month = month,
    )
}

fn full_sql(as_of: i64) -> String {
    let (week, month) = (edge(as_of, 7, 3_600), edge(as_of, 30, 3_600));
    let t = format!("TIMESTAMPTZ '{}'", rfc3339(as_of));
    let columns = |name: &str, edge: &str| {
        let both = format!("c.ts >= {edge} AND l.ts >= {edge}");
        format!(
            "count(*) FILTER (WHERE {both}) AS logins_{name}, \
             CAST(sum(l.amount) FILTER (WHERE l.device_id <> c.device_id AND {both}) AS BIGINT) AS elsewhere_{name}, \
             max(l.amount) FILTER (WHERE {both}) AS most_{name}, avg(l.amount) FILTER (WHERE {both}) AS mean_{name}"
        )
    };
    format!(
        "SELECT c.device_id, {}, {} FROM create_account c JOIN login l ON c.user_id = l.user_id \
         WHERE l.amount > 10 AND c.ts <= {t} AND l.ts <= {t} \
         GROUP BY c.device_id HAVING count(*) FILTER (WHERE c.ts >= {month} AND l.ts >= {month}) > 0",
        columns("7d", &week),
        columns("30d", &month)
    )
}

fn ask_duckdb(python: &Path, folder: &Path, sql: &[String]) -> Vec<Value> {
    let file = |stream: &str| folder.join(format!("{stream}.ndjson"));
    let task = json!({ "streams": { "create_account": file("create_account"), "login": file("login") }, "sql": sql });
    let path = folder.join("task.json");
    std::fs::write(&path, task.to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle/graphs.py");
    let output = Command::new(python).arg(script).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn by_device(rows: &Value) -> BTreeMap<String, Value> {
    rows.as_array().unwrap().iter().map(|row| (row["device_id"].to_string(), row.clone())).collect()
}

fn assert_alike(served: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>, what: &str) {
    assert!(!expected.is_empty(), "{what}: no rows to compare");
    assert_eq!(served.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}: other devices");
    for (device, expected) in expected {
        for (column, value) in expected.as_object().unwrap() {
            let found = &served[device][column];
            let alike = match (found.as_f64(), value.as_f64()) {
                (Some(found), Some(value)) => (found - value).abs() <= 1e-9 * value.abs().max(1.0),
                _ => found == value,
            };
            assert!(alike, "{what}: {device} {column}: served {found}, DuckDB {value}");
        }
    }
}
