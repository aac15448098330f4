//! No secret is printed, logged, returned or stored: every command and error path that could do so is run with secrets
//! that are easy to find.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use basestream_tests::process::{binary, free_port};
use basestream_tests::services::engines;
use sqlx::Row;

const CATALOG: &str = "hushcatalog7f3a";
const STORAGE: &str = "hushstorage9c2b";
const TOKEN: &str = "hushtoken4d1e";
const LOG: &str = "hushlog8e6d";
const FILE: &str = "hushfile2b5c";

const STREAM: &str =
    "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (topic = '{topic}', format = 'json', event_time = 'ts');";
const VIEW: &str = "CREATE VIEW sums AS SELECT id, count(*) AS n FROM pay GROUP BY id;";
/// An address without a listener.
const NOWHERE: &str = "127.0.0.1:1";

/// A project whose secrets come from the environment, from files and from the settings themselves.
struct Project {
    folder: tempfile::TempDir,
    env: Vec<(&'static str, String)>,
    secrets: Vec<String>,
    http: u16,
}

impl Project {
    fn new(settings: &str, topic: &str) -> Project {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("streams/pay.sql", STREAM.replace("{topic}", topic)), ("views/sums.sql", VIEW.to_owned())] {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join("secret"), format!("{FILE}\n")).unwrap();
        std::fs::write(folder.path().join("events.jsonl"), "{\"id\":\"a\",\"ts\":\"2026-01-01T00:00:00Z\"}\n{\"id\":1}\n").unwrap();
        let http = free_port().unwrap();
        let settings = format!("{settings}\n[serving]\nhttp = \"127.0.0.1:{http}\"\n[speed]\ncheckpoint_interval = \"300ms\"\n");
        std::fs::write(folder.path().join("basestream.toml"), settings).unwrap();
        let secrets = [CATALOG, STORAGE, TOKEN, LOG, FILE].map(str::to_owned).to_vec();
        let env = vec![("PG_PASSWORD", CATALOG.to_owned()), ("KAFKA_PASSWORD", LOG.to_owned()), ("RUST_LOG", "debug".to_owned())];
        Project { folder, env, secrets, http }
    }

    /// Adds an S3 storage that does not exist, with keys.
    fn with_s3(mut self, endpoint: &str, secret: &str) -> Project {
        self.secrets.push(secret.to_owned());
        let env = [
            ("AWS_ENDPOINT", endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "basestream"),
            ("AWS_SECRET_ACCESS_KEY", secret),
        ];
        self.env.extend(env.map(|(name, value)| (name, value.to_owned())));
        self
    }

    fn with(mut self, name: &'static str, value: &str) -> Project {
        self.env.push((name, value.to_owned()));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str], output: &Path) -> Command {
        let out = std::fs::File::create(output).unwrap();
        let mut command = Command::new(binary().unwrap());
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        for name in ["AWS_SESSION_TOKEN", "AWS_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (*name, value.as_str())));
        command
    }

    /// Runs a command for at most this long. Returns its exit code, if it ended, and its output, after checking that it
    /// contains no secret.
    fn run(&self, args: &[&str], at_most: Duration) -> (Option<i32>, String) {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let output = self.path(&format!("output{}", RUNS.fetch_add(1, Ordering::Relaxed)));
        let mut child = self.command(args, &output).spawn().unwrap();
        let began = Instant::now();
        let mut code = None;
        while began.elapsed() < at_most {
            if let Some(status) = child.try_wait().unwrap() {
                code = status.code();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
        let text = String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned();
        self.assert_clean(&args.join(" "), &text);
        (code, text)
    }

    /// Runs every command, each for at most as long as `patience` says, and returns all that they said. Most of them
    /// only wait. Once the first are done, servers, which have one port, run one after another, and three others beside
    /// them.
    fn run_all(&self, patience: impl Fn(&[&str]) -> Duration + Sync) -> String {
        let (first, others) = COMMANDS.split_at(4);
        let (servers, others): (Vec<&[&str]>, Vec<&[&str]>) = others.iter().copied().partition(|command| SERVERS.contains(&command[0]));
        let run = |commands: &[&[&str]]| commands.iter().map(|command| self.run(command, patience(command)).1).collect::<String>();
        let run = &run;
        let said = run(first);
        let lanes = std::iter::once(&servers[..]).chain(others.chunks(others.len().div_ceil(3)));
        said + &std::thread::scope(|scope| {
            let lanes: Vec<_> = lanes.map(|lane| scope.spawn(move || run(lane))).collect();
            lanes.into_iter().map(|lane| lane.join().unwrap()).collect::<String>()
        })
    }

    fn assert_clean(&self, what: &str, text: &str) {
        for secret in &self.secrets {
            if let Some(at) = text.find(secret.as_str()) {
                let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
                let line = text[from..].lines().next().unwrap_or_default();
                panic!("`{what}` shows the secret {secret}: {line}");
            }
        }
    }
}

/// Those that go on until they are stopped.
const SERVERS: &[&str] = &["up", "speed", "serve", "scheduler"];

/// Every command; some fail early.
const COMMANDS: &[&[&str]] = &[
    &["check"],
    &["explain", "sums"],
    &["plan"],
    &["apply"],
    &["ingest", "pay", "events.jsonl", "--produce-invalid"],
    &["up"],
    &["speed"],
    &["serve"],
    &["scheduler"],
    &["batch", "run", "sums"],
    &["batch", "history"],
    &["lookup", "sums", "id=a"],
    &["query", "SELECT * FROM sums"],
    &["query", "SELECT * FROM system.runs"],
    &["verify", "sums", "--log"],
    &["verify", "sums", "--url", "http://user:hushcatalog7f3a@127.0.0.1:1"],
    &["verify", "sums", "--url", "ftp://user:hushcatalog7f3a@127.0.0.1:1"],
    &["dead-letters", "list"],
    &["dead-letters", "export", "pay", "--to", "dead.jsonl"],
    &["dead-letters", "replay", "pay"],
    &["status"],
    &["status", "--json"],
    &["status", "--log-level", "trace"],
    &["plan", "--json"],
    &["status", "--config", "missing.toml"],
];

const KAFKA: &str = "[log]\nurl = \"kafka://{brokers}\"\n[log.properties]\nsecurity.protocol = \"SASL_PLAINTEXT\"\nsasl.mechanism = \"SCRAM-SHA-512\"\n\
    sasl.username = \"u\"\nsasl.password = \"${KAFKA_PASSWORD}\"\nssl.key.password = \"${file:secret}\"\n";

#[test]
fn no_command_shows_a_secret_when_no_service_answers() {
    let catalog = format!("[catalog]\nurl = \"postgres://u:${{PG_PASSWORD}}@{NOWHERE}/db?password=${{file:secret}}\"\n");
    let settings = format!("{catalog}[storage]\nurl = \"s3://bucket/prefix\"\n{}", KAFKA.replace("{brokers}", NOWHERE));
    let project = Project::new(&settings, "pay").with_s3(&format!("http://{NOWHERE}"), STORAGE).with("AWS_SESSION_TOKEN", TOKEN);
    // The catalog is given up after five seconds.
    let said = project.run_all(|_| Duration::from_secs(10));
    assert!(said.contains("the catalog's PostgreSQL server did not answer"), "the commands got as far as the catalog: {said}");
}

#[test]
fn no_command_shows_or_stores_a_secret_when_storage_and_log_do_not_answer() {
    let settings = format!("[storage]\nurl = \"s3://bucket/prefix\"\n{}", KAFKA.replace("{brokers}", NOWHERE));
    let project = Project::new(&settings, "pay").with_s3(&format!("http://{NOWHERE}"), STORAGE).with("AWS_SESSION_TOKEN", TOKEN);
    let said = project.run_all(|command| Duration::from_secs(if command[0] == "status" { 60 } else { 6 }));
    assert!(said.contains("the object storage does not answer"), "{said}");
    let stored = files_in(&project.path("data"));
    assert!(!stored.is_empty(), "nothing was stored");
    for path in stored {
        let bytes = std::fs::read(&path).unwrap();
        project.assert_clean(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
    }
}

/// The files of a folder and of those in it.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

/// Invalid settings, each with a secret in it.
const WRONG: &[&str] = &[
    "[catalog]\nurl = \"mysql://u:${PG_PASSWORD}@h/db\"",
    "[catalog]\nurl = \"postgres:u:${PG_PASSWORD}@h/db\"",
    "[catalog]\nurl = \"postgres://u:12/${PG_PASSWORD}@127.0.0.1:1/db\"",
    "[catalog]\nurl = \"postgres://u:${PG_PASSWORD}@127.0.0.1:port/db\"",
    "[catalog]\nurl = \"sqlite:///c.db?password=${PG_PASSWORD}\"",
    "catalog = \"postgres://u:${PG_PASSWORD}@h/db\"",
    "catalog = \"postgres://u:hushcatalog7f3a@h/db\"",
    "[log]\nurl = \"kafka://u:${KAFKA_PASSWORD}@h:9092\"",
    "[log]\nurl = \"http://u:${KAFKA_PASSWORD}@h:9092\"",
    "[log]\npartitions = \"${KAFKA_PASSWORD}\"",
    "[log]\nurl = \"kafka://127.0.0.1:1\"\n[log.properties]\nsasl.passwort = \"${KAFKA_PASSWORD}\"",
    "[log]\nurl = \"kafka://127.0.0.1:1\"\n[log.properties]\nsecurity.protocol = \"${KAFKA_PASSWORD}\"",
    "[log]\nurl = \"kafka://127.0.0.1:1\"\n[log.properties]\nacks = \"${KAFKA_PASSWORD}\"",
    "[log]\nurl = \"kafka://127.0.0.1:1\"\n[log.properties]\nsession.timeout.ms = \"${KAFKA_PASSWORD}\"",
    "[log]\nurl = \"kafka://127.0.0.1:1\"\n[log.properties]\nssl.key.pem = \"${KAFKA_PASSWORD}\"\nsecurity.protocol = \"SSL\"",
    "[log.properties]\nsasl.password = \"${KAFKA_PASSWORD}\"",
    "[storage]\nurl = \"ftp://u:${PG_PASSWORD}@h/b\"",
    "[storage]\nurl = \"s3://u:12/${PG_PASSWORD}@bucket:port/b\"",
    "[serving]\nhttp = \"${PG_PASSWORD}\"",
    "[serving]\nclock = \"${file:secret}\"",
    "[speed]\ncheckpoint_interval = \"${file:secret}\"",
    "[speed]\ngroup = [\"${file:secret}\"]",
    "[batch]\nmemory_limit = \"1${file:secret}\"",
];

#[test]
fn no_refusal_of_settings_shows_a_secret() {
    for settings in WRONG {
        let project = Project::new("", "pay");
        let text = settings.replace("[serving]\n", "[serving]\npostgres = ''\n");
        std::fs::write(project.path("basestream.toml"), text).unwrap();
        for command in [&["status"][..], &["plan", "--json"]] {
            project.run(command, Duration::from_secs(10));
        }
        let (code, said) = project.run(&["serve"], Duration::from_secs(5));
        // A bucket is not accessed before it is needed.
        let is_taken = code == Some(0) || said.contains("basestream is up");
        assert!(!is_taken || settings.contains("s3://"), "{settings} was taken: {said}");
    }
    let endpoint = format!("http://key:{STORAGE}@{NOWHERE}");
    let project = Project::new("[storage]\nurl = \"s3://bucket/prefix\"", "pay").with_s3(&endpoint, TOKEN);
    let (_, said) = project.run(&["status", "--log-level", "trace"], Duration::from_secs(60));
    assert!(said.contains("an endpoint holds credentials"), "{said}");
    for (name, value) in [
        ("BASESTREAM__CATALOG", "postgres://u:hushcatalog7f3a@h/db"),
        ("BASESTREAM__CATALOG__URL", "mysql://u:hushcatalog7f3a@h/db"),
        ("BASESTREAM__LOG__URL", "kafka://u:hushlog8e6d@h:9092"),
        ("BASESTREAM__LOG__PROPERTIES__SASL_PASSWORT", LOG),
        ("BASESTREAM__LOG__PROPERTIE__SASL_PASSWORD", LOG),
    ] {
        let (code, said) = Project::new("", "pay").with(name, value).run(&["plan"], Duration::from_secs(60));
        assert_eq!(code, Some(1), "{name}: {said}");
    }
}

/// Creates a login on the test's PostgreSQL, with a password that is easy to find.
async fn login(urls: &basestream_tests::process::Urls) -> (String, sqlx::PgPool) {
    let role = format!("secrets_{}", uuid::Uuid::now_v7().simple());
    let pool = sqlx::PgPool::connect(&urls.catalog).await.unwrap();
    let sql = format!("CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{CATALOG}'");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pool).await.unwrap();
    let behind = urls.catalog.rsplit_once('@').unwrap().1;
    (format!("postgres://{role}:${{PG_PASSWORD}}@{behind}"), pool)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn no_secret_is_shown_or_stored_on_real_services_nor_when_they_refuse_the_login() {
    let urls = engines("secrets").await;
    let (catalog, pool) = login(&urls).await;
    let topic = format!("secrets_{}", uuid::Uuid::now_v7().simple());
    let log = format!(
        "[log]\nurl = \"{}\"\n[log.properties]\nsasl.password = \"${{KAFKA_PASSWORD}}\"\nssl.key.password = \"${{file:secret}}\"\n",
        urls.log
    );
    let settings = |catalog: &str| format!("[catalog]\nurl = \"{catalog}\"\n[storage]\nurl = \"{}\"\n{log}", urls.storage);
    let endpoint = std::env::var("AWS_ENDPOINT").unwrap();
    let secret = std::env::var("AWS_SECRET_ACCESS_KEY").unwrap();
    let project = Project::new(&settings(&catalog), &topic).with_s3(&endpoint, &secret);

    let output = project.path("up.log");
    let mut up = project.command(&["up", "--log-level", "debug"], &output).spawn().unwrap();
    let url = format!("http://127.0.0.1:{}", project.http);
    wait_until_ready(&url).await;
    for command in COMMANDS.iter().filter(|command| !SERVERS.contains(&command[0])) {
        project.run(command, Duration::from_secs(60));
    }
    for answer in ask_everything(&url).await {
        project.assert_clean("an answer over HTTP", &answer);
    }
    let _ = up.kill();
    let _ = up.wait();
    project.assert_clean("up", &std::fs::read_to_string(&output).unwrap());
    assert!(std::fs::read_to_string(&output).unwrap().contains("DEBUG"), "the logs were as detailed as they get");
    let stored = everything_stored(&pool).await;
    assert!(stored.contains("CREATE VIEW sums"), "the tables were read: {stored}");
    project.assert_clean("the catalog's tables", &stored);

    let refused_login = Project::new(&settings(&catalog.replace("${PG_PASSWORD}", "x${PG_PASSWORD}")), &topic).with_s3(&endpoint, &secret);
    let (_, said) = refused_login.run(&["status"], Duration::from_secs(30));
    assert!(said.contains("authentication failed"), "{said}");
    let refused_keys = Project::new(&settings(&catalog), &topic).with_s3(&endpoint, STORAGE);
    let (_, said) = refused_keys.run(&["status", "--json"], Duration::from_secs(60));
    assert!(said.contains("storage_unreachable"), "{said}");
    for command in [&["query", "SELECT * FROM pay"][..], &["batch", "run", "sums"], &["speed"], &["scheduler"]] {
        refused_keys.run(command, Duration::from_secs(8));
    }
    project.assert_clean("the catalog's tables after refusals", &everything_stored(&pool).await);
}

async fn wait_until_ready(url: &str) {
    for _ in 0..2_400 {
        if reqwest::get(format!("{url}/readyz")).await.is_ok_and(|reply| reply.status().is_success()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("timed out: {url} was not ready in two minutes");
}

/// Responses and errors of every path.
async fn ask_everything(url: &str) -> Vec<String> {
    let client = reqwest::Client::new();
    let mut answers = Vec::new();
    let paths = [
        "/",
        "/metrics",
        "/healthz",
        "/readyz",
        "/v1/status",
        "/v1/views/sums",
        "/v1/views/none",
        "/v1/views/sums/row?id=a",
        "/v1/views/sums/row",
        "/v2",
    ];
    for path in paths {
        answers.push(client.get(format!("{url}{path}")).send().await.unwrap().text().await.unwrap());
    }
    let queries = [
        "SELECT * FROM nothing",
        "SELEC",
        "SELECT * FROM system.partitions",
        "SELECT * FROM system.runs",
        "SELECT * FROM system.checkpoints",
    ];
    for query in queries {
        let body = serde_json::json!({ "query": query });
        answers.push(client.post(format!("{url}/v1/sql")).json(&body).send().await.unwrap().text().await.unwrap());
    }
    for (path, body) in
        [("/v1/streams/none/events", "[]"), ("/v1/streams/pay/events", "{"), ("/v1/views/sums/rows", "{}"), ("/v1/views/none/runs", "")]
    {
        answers.push(client.post(format!("{url}{path}")).body(body).send().await.unwrap().text().await.unwrap());
    }
    answers
}

/// Every row of every table, as text.
async fn everything_stored(pool: &sqlx::PgPool) -> String {
    let tables =
        sqlx::query("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'").fetch_all(pool).await.unwrap();
    let mut text = Vec::new();
    for table in tables {
        let name: String = table.get(0);
        let sql = format!("SELECT t::text FROM \"{name}\" t");
        for row in sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(pool).await.unwrap() {
            writeln!(text, "{name}: {}", row.get::<String, _>(0)).unwrap();
        }
    }
    String::from_utf8(text).unwrap()
}
