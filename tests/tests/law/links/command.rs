//! Runs `basestream verify` on a linked view as users do: in this process, against a running node, and with the log.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::time::{Duration, Instant};

use basestream_tests::process::{Project, free_port};
use engine::events::format_timestamp;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use types::tiles::Micros;

const DAY: Micros = 86_400_000_000;
const NOW: Micros = 1_772_366_400_000_000;
const ACCOUNTS: usize = 200;
const LOGINS: usize = 900;

const CREATE_ACCOUNT: &str = "CREATE STREAM create_account (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'user_id');";
const LOGIN: &str = "CREATE STREAM login (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT, score DOUBLE, amount DECIMAL(18,2)) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'user_id');";
const DEVICE_LINKS: &str = "CREATE VIEW device_links WITH (windows = '7d, 30d', every = '3h', max_degree = 10000) AS \
    SELECT c.device_id, \
           count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id) AS linked_devices, \
           count(DISTINCT c.user_id) AS users, \
           count(DISTINCT l.device_id) FILTER (WHERE within(c.ts, '365d') AND within(l.ts, '30d')) AS linked_to_old_accounts \
    FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id;";
const DEVICE_LOGINS: &str = "CREATE VIEW device_logins WITH (windows = '1d, 90d', every = '3h') AS \
    SELECT c.device_id, count(*) AS logins, sum(l.amount) AS amount, avg(l.score) AS score, max(l.ts) AS latest, \
           array_agg(DISTINCT l.device_id ORDER BY l.device_id) AS devices, sum(l.amount) / count(*) AS mean, \
           count(*) FILTER (WHERE within(l.ts, '31d', '1d')) AS before \
    FROM create_account c, login l WHERE c.user_id = l.user_id AND l.score > 0.1 GROUP BY c.device_id;";
const DEVICE_CROWD: &str = "CREATE VIEW device_crowd WITH (windows = '30d', every = '3h', max_degree = 400) AS \
    SELECT c.device_id, count(*) AS logins, sum(l.amount) AS amount, count(DISTINCT l.device_id) AS devices, count(DISTINCT c.user_id) AS users \
    FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id;";
/// The logarithm of a negative score is NaN.
const SCORE_USERS: &str = "CREATE VIEW score_users WITH (windows = '30d', every = '3h') AS \
    SELECT ln(l.score) AS log_score, count(DISTINCT c.user_id) AS users \
    FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY ln(l.score);";
/// Of such a SELECT, DataFusion makes two GROUP BYs.
const DEVICE_TOTALS: &str = "CREATE VIEW device_totals WITH (every = '3h') AS \
    SELECT c.device_id, sum(l.amount) AS amount, count(DISTINCT l.device_id) AS devices \
    FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id;";
/// The views, each with the number of rows that may be estimates.
const VIEWS: [(&str, u64); 5] = [("device_links", 0), ("device_logins", 0), ("device_crowd", 1), ("score_users", 0), ("device_totals", 0)];
const HUB_USERS: usize = 2_000;

fn project() -> Project {
    let http = format!("127.0.0.1:{}", free_port().unwrap());
    let project = Project::from_files(
        &[
            ("streams/create_account.sql", CREATE_ACCOUNT.to_owned()),
            ("streams/login.sql", LOGIN.to_owned()),
            ("views/device_links.sql", DEVICE_LINKS.to_owned()),
            ("views/device_logins.sql", DEVICE_LOGINS.to_owned()),
            ("views/device_crowd.sql", DEVICE_CROWD.to_owned()),
            ("views/score_users.sql", SCORE_USERS.to_owned()),
            ("views/device_totals.sql", DEVICE_TOTALS.to_owned()),
        ],
        http.clone(),
    );
    let project = project.unwrap();
    let at = |name: &str| project.folder.path().join(name).display().to_string();
    let config = format!(
        "[storage]\nurl = \"file://{}\"\n[catalog]\nurl = \"sqlite://{}\"\n[log]\nurl = \"file://{}\"\npartitions = 3\n\
         [speed]\ncheckpoint_interval = \"500ms\"\n[serving]\nhttp = \"{http}\"\nclock = \"event\"\n",
        at("storage"),
        at("catalog.db"),
        at("log")
    );
    std::fs::write(project.folder.path().join("basestream.toml"), config).unwrap();
    project
}

/// Random events, as JSON lines: some users and devices are NULL, some events late, some ids repeated.
fn lines(of_logins: bool, count: usize, seed: u64) -> String {
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut lines = String::new();
    for id in 0..count {
        let id = if id % 50 == 49 { id - 1 } else { id };
        let mut name = |prefix: &str, of: u32| match random.random_range(0..20) {
            0 => "null".to_owned(),
            _ => format!("\"{prefix}{}\"", random.random_range(0..of)),
        };
        let (user, device) = (name("u", 80), name("d", 40));
        let ts = format_timestamp(NOW - random.random_range(0..100 * DAY));
        let _ = write!(lines, r#"{{"id":"{seed}-{id}","ts":"{ts}","user_id":{user},"device_id":{device}"#);
        if of_logins {
            let cents = random.random_range(-99_999i64..99_999);
            let _ = write!(lines, r#","score":{:.6},"amount":{}.{:02}"#, random.random_range(-0.5..1.0), cents / 100, cents.abs() % 100);
        }
        lines.push_str("}\n");
    }
    lines
}

/// Many users who registered on one device; each logs in from a different device.
fn hub(of_logins: bool, part: u64) -> String {
    let mut lines = String::new();
    for user in (0..HUB_USERS).filter(|user| *user as u64 % 2 == part % 2) {
        let ts = format_timestamp(NOW - user as Micros * 1_000_000);
        let device = if of_logins { format!("own{user}") } else { "hub".to_owned() };
        let _ = write!(lines, r#"{{"id":"hub{user}","ts":"{ts}","user_id":"hub{user}","device_id":"{device}""#);
        lines.push_str(if of_logins { ",\"score\":0.5,\"amount\":1.25}\n" } else { "}\n" });
    }
    lines
}

fn ingest(project: &Project, seed: u64) {
    for (stream, of_logins, count) in [("create_account", false, ACCOUNTS), ("login", true, LOGINS)] {
        let file = project.folder.path().join(format!("{stream}{seed}.jsonl"));
        std::fs::write(&file, lines(of_logins, count, seed) + &hub(of_logins, seed)).unwrap();
        project.ok(&["ingest", stream, &file.display().to_string()]).unwrap();
    }
}

fn settle(project: &Project) {
    let began = Instant::now();
    loop {
        let status = project.ok(&["status", "--json"]);
        let status: Option<Value> = status.ok().and_then(|text| serde_json::from_str(&text).ok());
        let partitions = status.as_ref().and_then(|status| status["partitions"].as_array());
        if partitions.is_some_and(|all| all.len() == 6 && all.iter().all(|partition| partition["lag"] == 0)) {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(90),
            "timed out: the log is not read to its end: {status:?}\n{}",
            project.log_of("up")
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn verify(project: &Project, when: &str) {
    for (view, crowded) in VIEWS {
        for how in [&[][..], &["--log"], &["--url", &format!("http://{}", project.http)]] {
            let args = [&["verify", view, "--json"], how].concat();
            let report = project.ok(&args).unwrap_or_else(|error| panic!("{when}: {error}\n{}", project.log_of("up")));
            let report: Value = serde_json::from_str(&report).unwrap();
            let rows = report["view"]["rows"].as_u64().unwrap();
            assert!(report["equal"] == true && rows > 20, "{when}: {report}");
            assert_eq!(report["view"]["crowded"], crowded, "{when}: {report}");
        }
    }
}

/// Verifies the rows that the last runs joined, whatever was appended after them.
fn verify_joined(project: &Project, when: &str) {
    for (view, crowded) in VIEWS {
        let report = project.ok(&["verify", view, "--batch", "--json"]).unwrap_or_else(|error| panic!("{when}: {error}"));
        let report: Value = serde_json::from_str(&report).unwrap();
        assert!(report["equal"] == true && report["view"]["rows"].as_u64().unwrap() > 20, "{when}: {report}");
        assert_eq!(report["view"]["crowded"], crowded, "{when}: {report}");
    }
}

fn is_ready(http: &str) -> bool {
    let mut answer = String::new();
    let asked = std::net::TcpStream::connect(http).and_then(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    asked.is_ok() && answer.split_whitespace().nth(1) == Some("200")
}

#[test]
fn the_command_verifies_linked_views_fresh_and_after_runs() {
    let project = project();
    project.ok(&["check"]).unwrap();
    let up = project.start("up").unwrap();
    let began = Instant::now();
    // The address is taken before definitions are applied: a listening port is not enough.
    while !is_ready(&project.http) {
        assert!(began.elapsed() < Duration::from_secs(60), "timed out: {}", project.log_of("up"));
        std::thread::sleep(Duration::from_millis(100));
    }
    ingest(&project, 1);
    settle(&project);
    let unjoined = project.ok(&["verify", "device_links", "--batch"]);
    assert!(
        unjoined.is_ok() || unjoined.unwrap_err().to_string().contains("no batch run"),
        "a join that is not there is no join of no rows"
    );
    verify(&project, "from fresh layers and segments");
    for (view, _) in VIEWS {
        // The scheduler may be running the batch itself.
        let began = Instant::now();
        while let Err(error) = project.ok(&["batch", "run", view]) {
            assert!(error.to_string().contains("is being run"), "{error}");
            assert!(began.elapsed() < Duration::from_secs(60), "timed out: {error}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    verify_joined(&project, "just joined");
    ingest(&project, 2);
    settle(&project);
    verify_joined(&project, "with events after it");
    verify(&project, "from snapshots and what came after");
    assert_eq!(up.terminate().unwrap(), Some(0));
}
