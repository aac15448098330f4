//! The binary as its users have it: commands, exit codes, what goes to standard output and what to standard error.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

mod audit;
mod examples;
mod large_catalog;

/// Longer than a process takes to end, also on a machine that is slow.
const LONGEST_STOP: Duration = Duration::from_secs(120);

/// A project in a temporary folder.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    /// Made by `init --from` a file of 60 purchases, 10 of each of 6 customers.
    fn with_orders() -> Project {
        let project = Project { folder: tempfile::tempdir().unwrap() };
        let mut csv = String::from("order_id,customer_id,ordered_at,revenue\n");
        for i in 0..60 {
            csv.push_str(&format!("o{i},c{},1997-0{}-10T08:{:02}:00Z,{}.25\n", i % 6, 1 + i / 10, i % 60, i));
        }
        std::fs::write(project.folder.path().join("orders.csv"), csv).unwrap();
        let made = run(project.folder.path(), &["init", "shop", "--from", "orders.csv"]);
        assert_success(&made);
        // At the full hour it would run by itself, before a test asks for a run.
        project.replace("views/orders_by_customer.sql", ", every = '1h'", "");
        project
    }

    /// The same, after `up` has committed all of them and was stopped.
    fn with_committed_orders() -> Project {
        let project = Project::with_orders();
        assert_success(&project.run(&["apply"]));
        assert_success(&project.run(&["ingest", "orders", "../orders.csv"]));
        let up = project.up();
        project.wait_until_committed(60);
        assert_eq!(up.stop(), Some(0));
        project
    }

    /// A copy of `examples/NAME`.
    fn from_example(name: &str) -> Project {
        let project = Project { folder: tempfile::tempdir().unwrap() };
        let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
        let copied = Command::new("cp").arg("-r").args([example, project.path()]).status().unwrap();
        assert!(copied.success());
        project
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shop")
    }

    fn run(&self, args: &[&str]) -> Output {
        run(&self.path(), args)
    }

    /// The result of a command that works, as JSON.
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert_success(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn replace(&self, file: &str, from: &str, to: &str) {
        let path = self.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }

    fn up(&self) -> Up {
        self.start("up", "basestream is up: ")
    }

    /// Starts a command that runs until it is stopped, and waits until it announces itself.
    fn start(&self, layer: &str, announced: &str) -> Up {
        let mut child = command(&self.path(), &[layer]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix(announced).unwrap_or_default().to_owned();
        assert!(url.starts_with("http://"), "found {line:?}");
        Up { child, url, _stdout: Some(stdout) }
    }

    /// Waits until everything that is in the log is committed.
    fn wait_until_committed(&self, archived: i64) {
        let begun = Instant::now();
        loop {
            let status = self.json(&["status"]);
            let partitions = status["partitions"].as_array().unwrap();
            let sum = |field: &str| partitions.iter().map(|partition| partition[field].as_i64().unwrap_or(1)).sum::<i64>();
            if sum("lag") == 0 && sum("archived") == archived {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "timed out: not committed: {status:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A running `up` or `serve`; killed if a test fails before it is stopped.
struct Up {
    child: Child,
    url: String,
    _stdout: Option<BufReader<ChildStdout>>,
}

impl Up {
    /// Asks it to stop, as a supervisor does; answers its exit code.
    fn stop(mut self) -> Option<i32> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < LONGEST_STOP, "timed out: it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_basestream"));
    command.args(args).current_dir(folder).env_remove("RUST_LOG");
    command.env("BASESTREAM__SPEED__CHECKPOINT_INTERVAL", "200ms").env("BASESTREAM__SERVING__HTTP", "127.0.0.1:0");
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).stdin(Stdio::null()).output().unwrap()
}

fn assert_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_fails(output: &Output, code: i32, stderr: &str) {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stderr).contains(stderr), "{}", text(&output.stderr));
}

#[cfg(unix)]
#[test]
fn a_write_past_the_limit_of_a_files_size_is_an_error_and_ends_no_process_by_a_signal() {
    let project = Project::with_orders();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 4; exec \"$0\" apply", env!("CARGO_BIN_EXE_basestream")]).current_dir(project.path());
    assert_fails(&limited.stdin(Stdio::null()).output().unwrap(), 1, "catalog.url");
    assert_success(&project.run(&["apply"]));
}

#[test]
fn before_anything_reads_answers_and_status_say_so() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    assert_success(&project.run(&["ingest", "orders", "../orders.csv"]));
    let looked_up = text(&project.run(&["lookup", "orders_by_customer", "customer_id=c1"]).stdout);
    assert!(looked_up.contains("(no key is known yet; ") && !looked_up.contains("no such key"), "{looked_up}");
    assert!(looked_up.contains("nothing of orders is committed yet (`basestream up` or `basestream speed` commits it, "), "{looked_up}");
    let status = text(&project.run(&["status"]).stdout);
    let reported = "warning: orders: 60 records are in the log, and no worker has committed any record of this stream yet\n";
    assert!(status.contains(reported) && !status.contains("no problems"), "{status}");

    let verified = project.run(&["verify", "orders_by_customer"]);
    assert_success(&verified);
    let said = text(&verified.stdout);
    assert!(said.contains(": nothing of orders is committed yet, so there was nothing to compare") && !said.contains("equal"), "{said}");
    let verified = project.json(&["verify", "orders_by_customer"]);
    assert_eq!((&verified["equal"], &verified["view"]["nothing_committed"]), (&true.into(), &true.into()), "{verified}");
    assert_eq!(verified["view"]["unread"], serde_json::json!(["orders"]));

    let serve = project.start("serve", "basestream serve is up: ");
    assert_eq!(serve.stop(), Some(0));
    let up = project.up();
    project.wait_until_committed(60);
    let looked_up = project.json(&["lookup", "orders_by_customer", "customer_id=c1"]);
    assert_eq!((&looked_up["found"], &looked_up["meta"]["unread"]), (&true.into(), &serde_json::json!([])));
    assert_eq!((up.stop(), &looked_up["not_counted"]), (Some(0), &Value::Null));

    // Events that are on their way.
    let unknown = ["lookup", "orders_by_customer", "customer_id=new"];
    assert_eq!(project.json(&unknown)["not_counted"], serde_json::json!({}));
    assert!(text(&project.run(&unknown).stdout).contains("(there is no such key; as of "));
    let more = "order_id,customer_id,ordered_at,revenue\nn1,new,1997-07-10T08:00:00Z,1.25\nn2,new,1997-07-10T09:00:00Z,2.25\n";
    std::fs::write(project.folder.path().join("more.csv"), more).unwrap();
    assert_success(&project.run(&["ingest", "orders", "../more.csv"]));
    assert_eq!(project.json(&unknown)["not_counted"], serde_json::json!({ "orders": 2 }));
    let looked_up = text(&project.run(&unknown).stdout);
    let reported = "(there is no such key yet: records in the log that no checkpoint has counted: 2 of orders; as of ";
    assert!(looked_up.contains(reported), "{looked_up}");
}

#[test]
fn what_is_only_in_the_files_is_answered_with_apply() {
    let project = Project::with_orders();
    let select = "SELECT * FROM orders_by_customer__batch";
    let commands = [
        vec!["lookup", "orders_by_customer", "customer_id=c1"],
        vec!["query", select],
        vec!["verify", "orders_by_customer"],
        vec!["batch", "run", "orders_by_customer"],
        vec!["view", "versions", "orders_by_customer"],
    ];
    for command in commands {
        assert_fails(&project.run(&command), 1, "\n  help: `basestream apply` puts the files' definitions into the catalog\n");
    }
    assert_success(&project.run(&["apply"]));
    let more = "CREATE VIEW by_day AS SELECT order_id, count(*) AS n FROM orders GROUP BY order_id;\n\
        CREATE VIEW kept AS SELECT order_id, ordered_at FROM orders;\n";
    std::fs::write(project.path().join("views/more.sql"), more).unwrap();
    let help = "help: the project's files define \"by_day\", and `basestream apply` puts it into the catalog\n";
    assert_fails(&project.run(&["lookup", "by_day", "order_id=o1"]), 1, help);
    assert_fails(&project.run(&["query", "SELECT n FROM by_day"]), 1, help);
    for unknown in [vec!["lookup", "by_dy", "order_id=o1"], vec!["query", "SELECT order_id FROM kept"]] {
        let output = project.run(&unknown);
        assert!(output.status.code() == Some(1) && !text(&output.stderr).contains("apply"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_storage_that_takes_connections_and_is_silent_is_warned_of_at_the_start() {
    let project = Project::with_orders();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut up = command(&project.path(), &["up"]);
    up.env("BASESTREAM__STORAGE__URL", "s3://bucket/shop").env("AWS_ENDPOINT", format!("http://{}", silent.local_addr().unwrap()));
    up.env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", "nobody").env("AWS_SECRET_ACCESS_KEY", "none");
    let mut child = up.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let _up = Up { child, url: String::new(), _stdout: Some(BufReader::new(stdout)) };
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    let warned = "the object storage does not answer: GET has no answer after 1.5s; trying again";
    let mut log: Vec<String> = Vec::new();
    loop {
        let line = lines.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("no warning: {log:#?}"));
        if line.contains(" WARN ") && line.contains(warned) {
            break;
        }
        log.push(line);
    }
}

/// As after a wrong `catalog.url`: the archive of the right one would be deleted as orphans.
#[test]
fn no_layer_that_writes_starts_over_the_files_of_another_catalog() {
    let project = Project::with_committed_orders();
    for layer in ["up", "speed", "scheduler"] {
        let output = command(&project.path(), &[layer]).env("BASESTREAM__CATALOG__URL", "sqlite:./data/other.db").output().unwrap();
        assert_fails(&output, 1, "the files of the object storage are those of another catalog");
        assert_fails(&output, 1, "help: point catalog.url at that catalog, or storage.url at an empty folder or prefix");
    }
    let foreign = "the object storage is not the one of this catalog";
    let status = command(&project.path(), &["status"]).env("BASESTREAM__CATALOG__URL", "sqlite:./data/other.db").output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).contains(foreign), "{status:?}");
    let status = project.run(&["status"]);
    assert!(!String::from_utf8_lossy(&status.stdout).contains(foreign), "{status:?}");
    let up = project.up();
    project.wait_until_committed(60);
    assert_eq!(up.stop(), Some(0));
}

/// As on a full disk, or where the program that reads the log has ended.
#[cfg(target_os = "linux")]
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let project = Project::with_orders();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let applied = command(&project.path(), &["apply"]).stderr(full()).output().unwrap();
    assert_success(&applied);
    let child = command(&project.path(), &["up"]).stdout(full()).stderr(Stdio::piped()).spawn().unwrap();
    let mut up = Up { child, url: String::new(), _stdout: None };
    let log = BufReader::new(up.child.stderr.take().unwrap());
    assert!(log.lines().any(|line| line.unwrap().contains("basestream is up")));
    // The pipe is closed: all that it logs from here on fails.
    assert_eq!(up.stop(), Some(0));
}

/// As with a wrong `storage.url`, where nothing is or where nothing was.
#[test]
fn no_layer_starts_over_a_storage_without_the_files_of_its_catalog() {
    let project = Project::with_committed_orders();
    for layer in ["up", "speed", "scheduler", "serve"] {
        let output = command(&project.path(), &[layer]).env("BASESTREAM__STORAGE__URL", "./data/elsewhere").output().unwrap();
        assert_fails(&output, 1, "the object storage has none of the files that the catalog names");
        assert_fails(&output, 1, "help: correct storage.url");
    }
    assert!(!project.path().join("data/elsewhere/catalog-identity").exists(), "it belongs to nobody");
    let status = project.run(&["status"]);
    assert!(!String::from_utf8_lossy(&status.stdout).contains("damaged or missing"), "{status:?}");

    // A storage of an earlier release does not say whose it is.
    std::fs::remove_file(project.path().join("data/storage/catalog-identity")).unwrap();
    let up = project.up();
    assert!(project.path().join("data/storage/catalog-identity").exists());
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn an_address_for_postgresql_that_other_machines_reach_is_refused() {
    let project = Project::with_orders();
    for command_name in ["up", "serve"] {
        let output = command(&project.path(), &[command_name]).env("BASESTREAM__SERVING__POSTGRES", "0.0.0.0:5433").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("serving.postgres = \"0.0.0.0:5433\" is reached from other machines"), "{said}");
    }
}

#[test]
fn a_token_is_printed_once_opens_a_node_and_is_revoked() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    let output =
        project.run(&["token", "create", "grafana", "--role", "reader", "--views", "orders_by_customer", "--expires", "90d", "--json"]);
    assert_success(&output);
    let audited = text(&output.stderr);
    assert!(audited.contains("audit: ") && audited.contains("action=\"create\""), "{audited}");
    let created: Value = serde_json::from_slice(&output.stdout).unwrap();
    let token = created["token"].as_str().unwrap();
    assert!(token.starts_with("bst_") && !audited.contains(token), "{audited}");
    assert_eq!((&created["role"], &created["views"]), (&"reader".into(), &serde_json::json!(["orders_by_customer"])));
    let listed = project.json(&["token", "list"]);
    assert_eq!((&listed["tokens"][0]["name"], &listed["tokens"][0]["state"]), (&"grafana".into(), &"valid".into()));
    assert!(!listed.to_string().contains(token));

    std::fs::write(project.path().join("basestream.toml"), "[serving.auth]\nrequired = true\n").unwrap();
    let up = project.up();
    let verify = |token: Option<&str>| {
        let mut verify = command(&project.path(), &["verify", "orders_by_customer", "--url", &up.url]);
        verify.envs(token.map(|token| ("BASESTREAM_TOKEN", token))).output().unwrap()
    };
    assert_fails(&verify(None), 1, "BASESTREAM_TOKEN");
    assert_success(&verify(Some(token)));
    assert_success(&project.run(&["token", "revoke", "grafana"]));
    let begun = Instant::now();
    while verify(Some(token)).status.success() {
        assert!(begun.elapsed() < Duration::from_secs(60), "timed out: a revoked token is still accepted");
    }
    assert_eq!(up.stop(), Some(0));

    assert_fails(&project.run(&["token", "create", "a", "--role", "chief"]), 2, "reader, writer, operator, admin");
    assert_fails(&project.run(&["token", "create", "a", "--role", "reader", "--views", "orders"]), 1, "there is no view \"orders\"");
    assert_fails(&project.run(&["token", "create", "a b", "--role", "reader"]), 1, "is not a valid name of a token");
    assert_fails(&project.run(&["token", "create", "a", "--role", "reader", "--expires", "soon"]), 1, "--expires");
    assert_fails(&project.run(&["token", "revoke", "grafana"]), 1, "revoked already");
    assert_fails(&project.run(&["token", "revoke", "nobody"]), 1, "there is no token of this name");
}

#[test]
fn settings_without_effect_are_warned_of() {
    let project = Project::with_orders();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut up = command(&project.path(), &["up"]);
    up.env("BASESTREAM__SPEED__HTTP", "127.0.0.1:0").env("BASESTREAM__SERVING__HTTP", taken.local_addr().unwrap().to_string());
    up.env("BASESTREAM__SPEED__FLIGHT_ADVERTISE", "worker-1");
    let ended = up.stdin(Stdio::null()).output().unwrap();
    assert_fails(&ended, 1, "setting: serving.http");
    assert_fails(&ended, 1, "speed.http = \"127.0.0.1:0\" has no effect in `up`");
    assert_fails(&ended, 1, "speed.flight_advertise has no effect without speed.flight");
}

#[test]
fn a_retention_that_is_too_short_for_a_view_is_refused_before_anything_is_written() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    project.replace("streams/orders.sql", "event_time = ", "retention = '1d', event_time = ");
    for arguments in [&["plan"][..], &["apply"], &["up"]] {
        assert_fails(&project.run(arguments), 1, "the stream \"orders\" keeps events for 1d, and the view counts them ");
    }
    let checked = project.run(&["check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stdout).starts_with("views/orders_by_customer.sql:"), "{}", text(&checked.stdout));
    let report = project.json(&["status"]);
    let defined = report["definitions"].as_array().unwrap();
    assert!(!defined.is_empty() && defined.iter().all(|definition| definition["version"] == 1), "{report:#}");
}

#[test]
fn a_new_user_gets_from_a_file_to_a_verified_answer() {
    let project = Project::with_orders();
    let check = project.run(&["check"]);
    assert_success(&check);
    assert!(text(&check.stdout).ends_with("1 stream and 1 view: no errors\n"), "{}", text(&check.stdout));
    assert_eq!(project.json(&["apply"])["changes"][0]["change"], "added");
    assert!(text(&project.run(&["apply"]).stdout).ends_with("nothing to change\n"));

    let ingested = project.json(&["ingest", "orders", "../orders.csv"]);
    assert_eq!((&ingested["files"][0]["records"], &ingested["files"][0]["skipped"]), (&60.into(), &0.into()));
    let again = project.json(&["ingest", "orders", "../orders.csv"]);
    assert_eq!((&again["files"][0]["records"], &again["files"][0]["skipped"]), (&0.into(), &60.into()), "a repeat does not double");

    let up = project.up();
    project.wait_until_committed(60);
    let beside = project.json(&["lookup", "orders_by_customer", "customer_id=c3"]);
    assert_eq!((&beside["found"], &beside["row"]["events_365d"]), (&true.into(), &10.into()), "answered beside a running up");
    assert_success(&project.run(&["verify", "orders_by_customer", "--url", &up.url]));
    let planned = project.json(&["batch", "run", "orders_by_customer", "--dry-run"]);
    assert_eq!((&planned["strategy"], &planned["events"], &planned["written_bytes"]), (&"full".into(), &60.into(), &Value::Null));
    let run = project.json(&["batch", "run", "orders_by_customer"]);
    assert_eq!((&run["status"], &run["events_read"]), (&"succeeded".into(), &60.into()));
    assert_eq!(up.stop(), Some(0));

    let alone = project.json(&["lookup", "orders_by_customer", "customer_id=c3"]);
    assert_eq!(alone["row"], beside["row"], "the snapshot answers as the checkpoints did");
    assert_eq!(alone["row"]["revenue_365d"], "302.5000", "3.25 + 9.25 + .. + 57.25, as a decimal");
    let unknown = project.json(&["lookup", "orders_by_customer", "customer_id=nobody"]);
    assert_eq!(
        (&unknown["found"], &unknown["row"]["events_365d"], &unknown["row"]["revenue_365d"]),
        (&false.into(), &0.into(), &Value::Null)
    );

    let rows = project.json(&["query", "SELECT customer_id, events_365d FROM orders_by_customer ORDER BY customer_id"]);
    assert_eq!(rows["rows"].as_array().unwrap().len(), 6);
    let table = text(&project.run(&["query", "SELECT count(*) AS orders FROM orders"]).stdout);
    let plans = text(&project.run(&["query", "EXPLAIN SELECT count(*) AS orders FROM orders"]).stdout);
    assert!(plans.contains("TableScan: orders") && !plans.contains(" ..\n"), "plans are whole: {plans}");
    assert!(table.starts_with("orders\n60\n(1 row; "), "{table}");

    let verified = project.json(&["verify", "orders_by_customer", "--log"]);
    assert_eq!((&verified["equal"], &verified["view"]["rows"]), (&true.into(), &6.into()));
    assert_eq!((&verified["view"]["nothing_committed"], &verified["view"]["unread"]), (&false.into(), &serde_json::json!([])));
    assert_eq!(verified["log"].as_array().unwrap().iter().map(|p| p["archived"].as_i64().unwrap()).sum::<i64>(), 60);
    let status = project.json(&["status"]);
    assert_eq!((&status["views"][0]["view"], &status["views"][0]["after_cut"]), (&"orders_by_customer".into(), &0.into()));
    assert_eq!(status["views"][0]["last_run"]["status"], "succeeded");
    assert_eq!(project.json(&["batch", "history"])[0]["rows_written"], run["rows_written"]);
    let planned = text(&project.run(&["batch", "run", "orders_by_customer", "--full", "--dry-run"]).stdout);
    assert!(
        planned.starts_with("a run of orders_by_customer (version 1) would be full: it was asked for\n  events          60\n"),
        "{planned}"
    );
    assert!(planned.contains("\n  files compared  "), "{planned}");
    let uncompared = project.json(&["batch", "run", "orders_by_customer", "--full", "--no-compare", "--dry-run"]);
    assert_eq!(uncompared["compared"]["files"], 0);
    assert_eq!(project.json(&["batch", "run", "orders_by_customer", "--dry-run"])["skipped"], true);
    let full = project.json(&["batch", "run", "orders_by_customer", "--full"]);
    assert_eq!((&full["comparison"]["differences"], &full["comparison"]["error"]), (&0.into(), &Value::Null), "{full}");
    assert!(full["comparison"]["rows"].as_i64().is_some_and(|rows| rows > 0) && full["bytes_read"].as_i64() > Some(0), "{full}");
    assert_eq!((&full["tiers"], &project.json(&["batch", "history"])[0]["comparison"]), (&1.into(), &full["comparison"]));
    let shown = text(&project.run(&["batch", "run", "orders_by_customer", "--full"]).stdout);
    assert!(shown.contains("equal to the states that incremental runs had kept: "), "{shown}");
    assert_eq!(project.json(&["batch", "run", "orders_by_customer", "--full", "--no-compare"])["comparison"], Value::Null);
    let counted = "SELECT count(differences) AS compared, sum(differences) AS differences FROM system.runs";
    assert_eq!(project.json(&["query", counted])["rows"], serde_json::json!([{ "compared": 2, "differences": 0 }]));
    let replayed = project.json(&["replay", "orders_by_customer"]);
    assert_eq!((&replayed["strategy"], &replayed["comparison"]["differences"]), (&"replay".into(), &0.into()), "{replayed}");
    assert_eq!(project.json(&["replay", "orders_by_customer", "--no-compare"])["comparison"], Value::Null);
    let refused = project.run(&["batch", "run", "orders_by_customer", "--no-compare"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--full"), "{}", text(&refused.stderr));
    let unknown = project.run(&["batch", "history", "orders_by_custmer"]);
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("orders_by_customer"), "{}", text(&unknown.stderr));
    let shown = [
        (&["status"][..], "orders_by_customer"),
        (&["batch", "history"], "succeeded"),
        (&["lookup", "orders_by_customer", "customer_id=c1"], "282.5000"),
        (&["explain", "orders_by_customer"], "sum_merge("),
    ];
    for (args, expected) in shown {
        let output = project.run(args);
        assert_success(&output);
        assert!(text(&output.stdout).contains(expected), "{}", text(&output.stdout));
    }
}

#[test]
fn a_changed_view_is_switched_to_by_its_first_run_and_a_breaking_change_is_refused() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    project.replace("views/orders_by_customer.sql", " WITH (windows = '7d, 30d, 365d')", "");
    let planned = project.run(&["plan"]);
    assert_success(&planned);
    assert!(text(&planned.stdout).contains("version 1 -> 2, built next to"), "{}", text(&planned.stdout));
    assert_success(&project.run(&["apply"]));
    let versions = |project: &Project| -> Vec<(i64, String)> {
        let views = project.json(&["status"])["views"].as_array().unwrap().clone();
        views.iter().map(|v| (v["version"].as_i64().unwrap(), v["status"].as_str().unwrap().to_owned())).collect()
    };
    assert_eq!(versions(&project), [(1, "active".to_owned()), (2, "building".to_owned())]);
    assert_success(&project.run(&["batch", "run", "orders_by_customer"]));
    let (kept, active) = ("kept".to_owned(), "active".to_owned());
    assert_eq!(versions(&project), [(1, kept.clone()), (2, active.clone())]);
    assert_eq!(project.json(&["view", "rollback", "orders_by_customer"])["version"], 1);
    assert_eq!(versions(&project), [(1, active.clone()), (2, kept.clone())]);
    let planned = text(&project.run(&["plan"]).stdout);
    assert!(planned.contains("`basestream view switch orders_by_customer@2` serves it again"), "{planned}");
    assert_success(&project.run(&["apply"]));
    assert_eq!(versions(&project), [(1, active.clone()), (2, kept.clone())], "the rollback stands");
    assert_eq!(project.json(&["view", "switch", "orders_by_customer@2"])["from"], 1);
    assert_eq!(versions(&project), [(1, kept), (2, active)]);

    let up = project.up();
    assert_success(&project.run(&["ingest", "orders", "../orders.csv"]));
    project.wait_until_committed(60);
    assert_eq!(up.stop(), Some(0));
    project.replace("streams/orders.sql", "order_id     TEXT", "order_id     UUID");
    let refused = project.run(&["apply"]);
    assert_fails(&refused, 1, "\"order_id\" is the id, and its type, path or unit would change");
    assert_eq!(project.run(&["plan"]).status.code(), Some(1));
    project.replace("streams/orders.sql", "order_id     UUID", "order_id     TEXT");
    project.replace("streams/orders.sql", "DECIMAL(18,4)", "DOUBLE");
    let planned = text(&project.run(&["plan"]).stdout);
    let reported =
        "* archive of orders would be decoded again by version 2 before anything switches: revenue (type DECIMAL(18,4) -> DOUBLE)";
    assert!(planned.contains(reported), "{planned}");
    let reported = "~ view orders_by_customer (version 2 -> 3, which answers from the switch on: it reads orders.revenue)";
    assert!(planned.contains(reported), "{planned}");
    assert_success(&project.run(&["apply"]));
    assert_eq!(versions(&project), [(3, "active".to_owned())]);

    std::fs::remove_file(project.path().join("views/orders_by_customer.sql")).unwrap();
    assert!(text(&project.run(&["apply"]).stdout).contains("kept; `apply --prune` retires it"));
    assert_eq!(versions(&project).len(), 1);
    assert_success(&project.run(&["apply", "--prune"]));
    assert!(versions(&project).is_empty());
}

#[test]
fn a_stream_that_takes_over_a_topic_does_not_get_its_files_twice() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    assert_success(&project.run(&["ingest", "orders", "../orders.csv"]));
    let (stream, view) = (project.path().join("streams/orders.sql"), project.path().join("views/orders_by_customer.sql"));
    let sql = std::fs::read_to_string(&stream).unwrap();
    [&stream, &view].into_iter().for_each(|file| std::fs::remove_file(file).unwrap());
    assert_success(&project.run(&["apply", "--prune"]));
    std::fs::write(stream.with_file_name("sales.sql"), sql.replace("STREAM orders", "STREAM sales")).unwrap();
    assert_success(&project.run(&["apply"]));
    assert_fails(&project.run(&["ingest", "sales", "../orders.csv"]), 1, "the topic has 60 records of this file already");
    assert_success(&project.run(&["ingest", "sales", "../orders.csv", "--again"]));
}

#[test]
fn versions_of_a_view_are_listed_compared_switched_and_dropped() {
    let project = Project::with_committed_orders();
    let view = |args: &[&str]| project.run(&[&["view"], args].concat());
    let listed = text(&view(&["list"]).stdout);
    let row: Vec<&str> = listed.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row, ["orders_by_customer", "1", "served", "incremental", "on", "request", "orders"], "{listed}");
    let listed = project.json(&["view", "list"]);
    assert_eq!((&listed[0]["view"], &listed[0]["schedule"]), (&"orders_by_customer".into(), &Value::Null), "{listed:#}");
    assert_fails(&view(&["rollback", "orders_by_customer"]), 1, "no version of the view \"orders_by_customer\" is kept");
    project.replace("views/orders_by_customer.sql", "count(*) AS events", "count(*) + 1 AS events");
    assert_success(&project.run(&["apply"]));
    let building = project.json(&["view", "versions", "orders_by_customer"]);
    assert_eq!((&building["served"], &building["versions"][1]["status"]), (&1.into(), &"building".into()));
    assert_success(&view(&["switch", "orders_by_customer"]));

    let different = view(&["diff", "orders_by_customer@1", "orders_by_customer"]);
    assert_eq!(different.status.code(), Some(1));
    assert!(text(&different.stdout).contains("differs in"), "{}", text(&different.stdout));
    assert_success(&view(&["diff", "orders_by_customer@1", "orders_by_customer@1"]));
    assert_eq!(view(&["diff", "orders_by_customer@1", "orders_by_customer@2", "--definitions"]).status.code(), Some(1));

    assert_fails(&view(&["drop", "orders_by_customer"]), 1, "is served: dropping it ends its answers");
    assert_success(&view(&["drop", "orders_by_customer@1"]));
    assert_fails(&view(&["switch", "orders_by_customer@1"]), 1, "version 1 of the view \"orders_by_customer\" is gone");
    assert_fails(&view(&["diff", "orders_by_customer@1", "orders_by_customer"]), 1, "was dropped and has no values any more");
    assert_fails(&view(&["versions", "order_by_customer"]), 1, "did you mean \"orders_by_customer\"?");
    assert_eq!(view(&["switch", "orders_by_customer@two"]).status.code(), Some(2));
    assert_success(&view(&["drop", "orders_by_customer", "--yes"]));
    assert_fails(&view(&["rollback", "orders_by_customer"]), 1, "the view \"orders_by_customer\" was dropped");
}

#[test]
fn a_difference_of_times_is_an_interval_and_a_repeat_is_written_as_it_is_defined() {
    let project = Project::with_orders();
    let silent = "CREATE VIEW seen AS SELECT customer_id, max(ordered_at) AS last, as_of() - max(ordered_at) AS idle\n\
        FROM orders GROUP BY customer_id;\n\
        CREATE ALERT silent WITH (topic = 'silent', repeat = '10d') AS\n\
        SELECT customer_id, last FROM seen WHERE as_of() - last > INTERVAL '1 day';\n";
    std::fs::write(project.path().join("views/seen.sql"), silent).unwrap();
    let checked = project.json(&["check", "seen"]);
    assert_eq!(checked["views"][0]["columns"][2]["type"], "INTERVAL", "{checked}");
    assert_success(&project.run(&["apply"]));
    let alerts = text(&project.run(&["alert", "list"]).stdout);
    assert!(alerts.contains("  10d  "), "{alerts}");
    let silent = alerts.lines().nth(1).unwrap();
    assert!(silent.ends_with("  false    -"), "no cell is empty, so the columns can be told apart: {alerts}");
}

#[test]
fn every_mistake_is_reported_with_its_place_and_exit_code_1() {
    let project = Project::with_orders();
    project.replace("streams/orders.sql", "event_time", "event_tim");
    project.replace("views/orders_by_customer.sql", "GROUP BY customer_id", "GROUP BY customer_id LIMIT 3");
    let check = project.run(&["check"]);
    assert_eq!(check.status.code(), Some(1));
    let stdout = text(&check.stdout);
    assert!(stdout.contains("streams/orders.sql:7:") && stdout.contains("views/orders_by_customer.sql:"), "{stdout}");
    let json: Value = serde_json::from_slice(&project.run(&["check", "--json"]).stdout).unwrap();
    assert_eq!((&json["ok"], &json["diagnostics"][0]["severity"]), (&false.into(), &"error".into()));
    for command in ["plan", "apply"] {
        let refused = project.run(&[command]);
        assert_eq!(refused.status.code(), Some(1));
        let stderr = text(&refused.stderr);
        assert!(stderr.lines().any(|line| line.starts_with("streams/orders.sql:7:")), "{stderr}");
    }
    assert!(!project.path().join("data").exists(), "nothing was opened for definitions with mistakes");
}

#[test]
fn wrong_usage_is_2_and_a_failure_is_1_with_its_facts_on_standard_error() {
    let project = Project::with_orders();
    assert_fails(&project.run(&["nonsense"]), 2, "unrecognized subcommand");
    assert_fails(&project.run(&["lookup", "v", "no-equals-sign"]), 2, "expected column=value");
    assert_fails(&project.run(&["lookup", "v", "a=1", "--as-of", "yesterday"]), 2, "RFC 3339");
    assert_fails(&project.run(&["check", "--config", "missing.toml"]), 1, "error: there is no settings file at missing.toml");
    assert_fails(&project.run(&["check", "nothing"]), 1, "\n  in: the project's files\n");
    let unreadable = "error: the file cannot be read: No such file or directory (os error 2)\n  file: none.script\n";
    assert_fails(&project.run(&["features", "none.script"]), 1, unreadable);
    // What is wrong whatever the catalog has is said though no catalog is reached.
    let backtest = ["backtest", "s", "--from", "2026-02-01", "--to", "2026-01-01", "--out", "none/x.csv", "--config", "missing.toml"];
    let refused = text(&project.run(&backtest).stderr);
    for mistake in ["error: 2 mistakes:\n", "- the range is empty: expected --from before --to\n", "- there is no folder none: "] {
        assert!(refused.contains(mistake), "{mistake}\n{refused}");
    }
    let training = ["training", "spine.xlsx", "v", "--out", "x.txt", "--config", "missing.toml"];
    let refused = text(&project.run(&training).stderr);
    for file in ["spine.xlsx", "x.txt"] {
        assert!(refused.contains(&format!("- the extension of {file} names no format")), "{file}\n{refused}");
    }
    let json = project.run(&["lookup", "nothing", "a=1", "--json"]);
    assert_fails(&json, 1, "");
    assert!(json.stdout.is_empty());
    let error: Value = serde_json::from_slice(&json.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "not_found");
    assert_fails(&project.run(&["ingest", "nothing", "../orders.csv"]), 1, "there is no stream \"nothing\"");
    assert_fails(&project.run(&["query", "DELETE FROM orders"]), 1, "error: ");
}

#[test]
fn wrong_usage_is_json_where_json_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (args, message, fact) in [
        (["--json", "nonsense"].as_slice(), "unrecognized subcommand 'nonsense'", "usage"),
        (&["check", "--jsn", "--json"], "unexpected argument '--jsn' found", "help"),
        (&["lookup", "v", "no-equals-sign", "--json"], "expected column=value", ""),
        (&["training", "--json", "a.csv", "v"], "arguments were not provided: --out <FILE>", "usage"),
        (&["--json", "dead-letters"], "an argument or a command is missing", "usage"),
    ] {
        let output = run(folder.path(), args);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{args:?}");
        let error: Value = serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{args:?}: {}", text(&output.stderr)));
        let (error, context) = (&error["error"], &error["error"]["context"]);
        assert_eq!(error["kind"], "input", "{error}");
        let found = error["message"].as_str().unwrap();
        assert!(found.contains(message) && !found.starts_with("error: "), "{error}");
        assert!(fact.is_empty() || context[fact].is_string(), "{error}");
    }
    assert_fails(&run(folder.path(), &["query", "--", "--json", "more"]), 2, "error: unexpected argument 'more' found\n");
    assert!(text(&run(folder.path(), &["check", "--json", "--help"]).stdout).contains("Usage: basestream check"));
}

#[test]
fn a_backtest_takes_each_parameter_that_its_sink_uses_once() {
    let project = Project::with_orders();
    let sink = "CREATE PARAMETER least = 5;\nCREATE PARAMETER other = 1;\n\
        CREATE SINK judged WITH (topic = 'judged') AS SELECT order_id, revenue > param('least') AS is_large FROM orders;\n\
        CREATE SINK judged_otherwise WITH (topic = 'otherwise') AS SELECT order_id, revenue > param('other') AS is_large FROM orders;\n";
    std::fs::create_dir_all(project.path().join("sinks")).unwrap();
    std::fs::write(project.path().join("sinks/judged.sql"), sink).unwrap();
    let edited = "CREATE SINK judged WITH (topic = 'judged') AS SELECT order_id, revenue > param('other') AS is_large FROM orders;\n";
    std::fs::write(project.path().join("edited.sql"), edited).unwrap();
    assert_success(&project.run(&["apply"]));
    let range = ["backtest", "judged", "--from", "1997-01-01", "--to", "1998-01-01", "--out", "judged.csv"];
    let backtest = |more: &[&str]| project.run(&[&range, more].concat());
    for (more, why) in [
        (["--set", "leest=3"].as_slice(), "there is no parameter \"leest\": did you mean \"least\"? expected one of least, other"),
        (&["--set", "other=3"], "the sink \"judged\" does not use the parameter \"other\": expected one of least"),
        (&["--set", "least=3", "--set", "least=4"], "error: --set names the parameter \"least\" more than once: expected one value"),
    ] {
        assert_fails(&backtest(more), 1, why);
    }
    assert!(!project.path().join("judged.csv").exists());
    assert_success(&backtest(&["--set", "least=3"]));
    let changed = ["--force", "--as-changed", "edited.sql", "--verdict", "is_large", "--set", "least=3", "--set", "other=9"];
    assert_success(&backtest(&changed));
    // The edited definition takes a value of its file, unless another one is given.
    std::fs::write(project.path().join("edited.sql"), format!("CREATE PARAMETER other = 2;\n{edited}")).unwrap();
    let without_set = ["--force", "--as-changed", "edited.sql", "--verdict", "is_large"];
    for (more, other) in [(&without_set[..], "2"), (&changed, "9")] {
        let report = project.json(&[&range[..], more].concat());
        assert_eq!(report["unapplied"], serde_json::json!({ "views": [], "parameters": { "other": other } }), "{report:#}");
    }
    // The names of its file are known too.
    std::fs::write(project.path().join("edited.sql"), format!("CREATE PARAMETER limit_of_file = 2;\n{edited}")).unwrap();
    let misspelt = [&without_set[..], &["--set", "limit_of_fil=3"]].concat();
    let why = "there is no parameter \"limit_of_fil\": did you mean \"limit_of_file\"? expected one of least, limit_of_file, other";
    assert_fails(&backtest(&misspelt), 1, why);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let project = Project::with_orders();
    let mut child = command(&project.path(), &["check"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn records_that_are_no_events_are_reported_by_line() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    let file = project.folder.path().join("bad.jsonl");
    std::fs::write(&file, "{\"order_id\":\"x\"}\nnot json\n").unwrap();
    let output = project.run(&["ingest", "orders", "../bad.jsonl"]);
    assert_eq!(output.status.code(), Some(1), "nothing of the file fits the stream");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("../bad.jsonl:1: ") && stdout.contains("../bad.jsonl:2: "), "{stdout}");
    assert!(stdout.contains("\n2 records of this file are not in the log: not valid for the stream; run again with --produce-invalid"));
    let again = project.run(&["ingest", "orders", "../bad.jsonl"]);
    assert_eq!(again.status.code(), Some(1), "nothing of it is in the log still");
    assert!(!text(&again.stdout).contains("in the log already"), "{}", text(&again.stdout));
    std::fs::write(project.folder.path().join("many.jsonl"), "{}\n".repeat(23)).unwrap();
    let many = text(&project.run(&["ingest", "orders", "../many.jsonl"]).stdout);
    assert!(many.contains("../many.jsonl:20: ") && many.contains("\n  and 3 more\n") && !many.contains("jsonl:21: "), "{many}");
    assert!(many.contains("\nby reason:\n  23 records: column "), "{many}");
    let many = text(&project.run(&["ingest", "orders", "../many.jsonl", "--produce-invalid"]).stdout);
    assert!(many.contains("\nthey were sent, and become dead letters: `basestream dead-letters list orders`, once"), "{many}");
    let sent = project.json(&["ingest", "orders", "../bad.jsonl", "--produce-invalid"]);
    assert_eq!((&sent["files"][0]["records"], &sent["files"][0]["left_out"]), (&2.into(), &0.into()));
    let (reasons, others) = (sent["files"][0]["reasons"].as_array().unwrap(), &sent["files"][0]["other_reasons"]);
    assert_eq!((reasons.len(), others), (2, &0.into()), "{sent}");
    let of_json = reasons.iter().find(|reason| reason["reason"] == "record: found .., expected one JSON object");
    assert_eq!(of_json.map(|reason| &reason["count"]), Some(&1.into()), "{sent}");
}

#[test]
fn a_file_of_which_some_records_are_left_out_is_a_failure_until_they_are_sent() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    let good = "{\"order_id\":\"g\",\"customer_id\":\"c1\",\"ordered_at\":\"1997-01-10T08:00:00Z\",\"revenue\":1.5}\n";
    std::fs::write(project.path().join("some.jsonl"), good.to_owned() + "{\"order_id\":\"x\"}\n").unwrap();
    let output = project.run(&["ingest", "orders", "some.jsonl"]);
    assert_eq!(output.status.code(), Some(1), "one record is written nowhere");
    assert!(
        text(&output.stdout).contains("some.jsonl: 1 record in")
            && text(&output.stdout).contains("1 record of this file is not in the log")
    );
    assert_eq!(project.run(&["ingest", "orders", "some.jsonl"]).status.code(), Some(1), "and so it is after a repeat");
    let sent = project.run(&["ingest", "orders", "some.jsonl", "--produce-invalid"]);
    assert_success(&sent);
    assert!(text(&sent.stdout).contains(", 1 was in the log already"), "{}", text(&sent.stdout));
    assert_success(&project.run(&["ingest", "orders", "some.jsonl"]));

    // A last line without a line end may still be being written: it is no dead letter yet.
    std::fs::write(project.path().join("more.jsonl"), good.replace("\"g\"", "\"h\"") + "{\"order_id\":\"x\"}").unwrap();
    let output = project.run(&["ingest", "orders", "more.jsonl", "--produce-invalid"]);
    assert_eq!(output.status.code(), Some(1), "the last line is not in the log");
    let said = text(&output.stdout);
    assert!(said.contains("line 2, the last one, was not sent: it has no line end") && !said.contains("dead letter"), "{said}");
}

#[test]
fn a_csv_file_with_a_stray_quote_is_a_failure_that_names_its_line_and_what_went_in() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    let row = |i: u32, id: &str| format!("{id}{i},c{i},1997-01-10T08:00:00Z,1.25\n");
    let mut csv = "order_id,customer_id,ordered_at,revenue\n".to_owned() + &(0..49).map(|i| row(i, "o")).collect::<String>();
    csv.push_str(&row(49, "\"o"));
    csv.extend((50..99).map(|i| row(i, "o")));
    std::fs::write(project.path().join("stray.csv"), &csv).unwrap();
    let output = project.run(&["ingest", "orders", "stray.csv"]);
    assert_fails(&output, 1, "error: the quote opened on line 51 is never closed");
    let reported = text(&output.stderr);
    assert!(reported.contains("in the log: 49 records before it; a repeat continues after them and sends nothing twice"), "{reported}");
    std::fs::write(project.path().join("stray.csv"), csv.replace('"', "")).unwrap();
    let mended = project.json(&["ingest", "orders", "stray.csv"]);
    assert_eq!((&mended["files"][0]["skipped"], &mended["files"][0]["records"]), (&49.into(), &50.into()));
}

#[test]
fn a_record_that_is_no_event_is_listed_corrected_and_sent_again_once() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    let order = |id: &str, revenue: &str| {
        format!("{{\"order_id\":\"{id}\",\"customer_id\":\"c1\",\"ordered_at\":\"1997-01-10T08:00:00Z\",\"revenue\":{revenue}}}\n")
    };
    std::fs::write(project.path().join("some.jsonl"), order("good", "1.5") + &order("bad", "\"much\"")).unwrap();
    assert_success(&project.run(&["ingest", "orders", "some.jsonl", "--produce-invalid"]));
    let up = project.up();
    project.wait_until_committed(1);
    let listed = project.json(&["dead-letters", "list", "orders"]);
    assert_eq!((&listed["count"], listed["dead_letters"][0]["replayed"].as_bool()), (&1.into(), Some(false)));
    let reason = listed["reasons"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("column revenue ($.revenue): found .., expected DECIMAL(18,4)"), "{reason}");
    assert_success(&project.run(&["dead-letters", "export", "orders", "--to", "dead.jsonl"]));
    let lines = text(&project.run(&["dead-letters", "export", "orders", "--to", "-"]).stdout);
    assert_eq!(lines, std::fs::read_to_string(project.path().join("dead.jsonl")).unwrap(), "standard output is the lines alone");

    let before = text(&project.run(&["status"]).stdout);
    assert!(before.contains("orders: 1 of the 2 records of the last 60 min became dead letters (50.00 %)"), "{before}");
    let reason = "reason of the newest dead letter: column revenue ($.revenue): found \"much\", expected DECIMAL(18,4)";
    assert!(before.contains(reason), "{before}");
    assert!(before.contains("\n  next:   `basestream dead-letters list orders`"), "{before}");

    let refused = project.run(&["dead-letters", "replay", "orders"]);
    assert_eq!(refused.status.code(), Some(1), "as it stands it would die again");
    assert!(text(&refused.stdout).contains("1 is refused: it would become a dead letter again"), "{}", text(&refused.stdout));
    project.replace("dead.jsonl", r#"\"much\""#, "2.5");
    for (sent, already) in [(1, 0), (0, 1)] {
        let summary = project.json(&["dead-letters", "replay", "orders", "--file", "dead.jsonl"])["summary"].clone();
        assert_eq!((&summary["replayed"], &summary["already"]), (&sent.into(), &already.into()), "{summary}");
    }
    project.wait_until_committed(2);
    let found = project.json(&["lookup", "orders_by_customer", "customer_id=c1"]);
    assert_eq!(found["row"]["revenue_365d"], "4.0000");
    assert_success(&project.run(&["verify", "orders_by_customer", "--url", &up.url]));
    let after = project.json(&["status"])["problems"].clone();
    assert_eq!(after, serde_json::json!([]), "what was replayed is no problem any more");
    assert_eq!(up.stop(), Some(0));
    assert_fails(&project.run(&["dead-letters", "replay", "orders", "--offset", "1"]), 2, "--partition");
    assert_fails(&project.run(&["dead-letters", "list", "nothing"]), 1, "there is no stream \"nothing\"");
}

#[test]
fn without_dead_letters_there_is_nothing_to_export_or_replay() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    let export = ["dead-letters", "export", "orders", "--to"];
    let of_view = ["dead-letters", "export", "--view", "orders_by_customer", "--to"];
    for (args, said) in [(export.as_slice(), "the stream \"orders\" has no dead letters"), (&of_view, "fails on no event")] {
        let to_file = [args, &["none.jsonl"]].concat();
        let printed = project.run(&to_file);
        assert_success(&printed);
        assert!(text(&printed.stdout).contains(&format!("{said}: none.jsonl is not written\n")), "{}", text(&printed.stdout));
        let summary = project.json(&to_file);
        assert_eq!((&summary["exported"], &summary["file"]), (&0.into(), &Value::Null), "{summary}");
        let lines = project.run(&[args, &["-"]].concat());
        assert_success(&lines);
        assert!(lines.stdout.is_empty() && text(&lines.stderr).contains(said), "{}", text(&lines.stderr));
    }
    assert!(!project.path().join("none.jsonl").exists());
    let replay = ["dead-letters", "replay", "orders"];
    let printed = project.run(&replay);
    assert_success(&printed);
    assert_eq!(text(&printed.stdout), "orders: no dead letters to replay\n");
    assert_eq!(project.json(&replay)["summary"]["replayed"], 0);
}

#[test]
fn an_event_on_which_a_view_fails_is_reported_listed_and_exported() {
    let project = Project::with_orders();
    let view = "CREATE VIEW shares AS SELECT customer_id, sum(10 / (revenue - 1.25)) AS share FROM orders GROUP BY customer_id;\n";
    std::fs::write(project.path().join("views/shares.sql"), view).unwrap();
    assert_success(&project.run(&["apply"]));
    assert_success(&project.run(&["ingest", "orders", "../orders.csv"]));
    let up = project.up();
    project.wait_until_committed(60);
    // No run has read the event: only the node knows that the view fails on it.
    let http = up.url.trim_start_matches("http://");
    let output = command(&project.path(), &["status", "--json"]).env("BASESTREAM__SERVING__HTTP", http).output().unwrap();
    assert_success(&output);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems = status["problems"].as_array().unwrap();
    let reported = problems.iter().find(|problem| problem["fault"] == "view_errors").unwrap_or_else(|| panic!("{status:#}"));
    assert_eq!(reported["what"], "the view shares (version 1) fails on 1 event");

    let listed = project.json(&["dead-letters", "list", "--view", "shares"]);
    assert_eq!((&listed["count"], &listed["events"][0]["stream"]), (&1.into(), &"orders".into()));
    let exported = project.run(&["dead-letters", "export", "--view", "shares", "--to", "-"]);
    assert_success(&exported);
    let line: Value = serde_json::from_slice(&exported.stdout).unwrap();
    assert_eq!((&line["event"]["order_id"], &line["offset"]), (&"o1".into(), &listed["events"][0]["offset"]), "{line}");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn status_says_what_it_can_when_a_service_does_not_answer() {
    let project = Project::with_orders();
    let status = |name: &str, url: &str| {
        let output = command(&project.path(), &["status", "--json"]).env(name, url).stdin(Stdio::null()).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        (output.status.code(), status)
    };
    let (code, without_catalog) = status("BASESTREAM__CATALOG__URL", "postgres://u:p@127.0.0.1:1/db");
    assert_eq!((code, &without_catalog["problems"][0]["fault"]), (Some(1), &"catalog_unreachable".into()));
    assert_success(&project.run(&["apply"]));
    let (code, without_log) = status("BASESTREAM__LOG__URL", "kafka://127.0.0.1:1");
    assert_eq!((code, &without_log["problems"][0]["fault"]), (Some(0), &"log_unreachable".into()));
    assert_eq!(without_log["views"][0]["view"], "orders_by_customer");
    let asked = |more: &[&str]| {
        let args = [&["status", "--exit-code"], more].concat();
        command(&project.path(), &args).env("BASESTREAM__LOG__URL", "kafka://127.0.0.1:1").output().unwrap()
    };
    let (shown, json) = (asked(&[]), asked(&["--json"]));
    assert_eq!((shown.status.code(), json.status.code()), (Some(1), Some(1)));
    assert!(text(&shown.stdout).contains("PROBLEM: "), "{}", text(&shown.stdout));
    assert_eq!(serde_json::from_slice::<Value>(&json.stdout).unwrap()["problems"][0]["fault"], "log_unreachable");
    assert_success(&project.run(&["status", "--exit-code"]));
    let text = text(&project.run(&["status"]).stdout);
    assert!(text.ends_with("no problems found\n"), "{text}");
}

#[test]
fn a_damaged_file_is_named_by_repair_and_made_again_from_the_log() {
    let project = Project::with_committed_orders();
    let whole = project.json(&["repair"]);
    assert_eq!((&whole["steps"], whole["files"].as_u64().unwrap() > 1), (&serde_json::json!([]), true));

    let query = ["query", "SELECT sum(revenue) AS revenue FROM orders"];
    let before = project.json(&query)["rows"].clone();
    let archive = first_file_in(&project.path().join("data"), "archive");
    std::fs::remove_file(&archive).unwrap();
    let name = archive.file_name().unwrap().to_string_lossy().into_owned();
    assert_fails(&project.run(&query), 1, &name);
    for asked in [&query[..], &["verify", "orders_by_customer"]] {
        assert_fails(&project.run(asked), 1, "\n  help: `basestream repair` rebuilds what is damaged");
    }

    let planned = project.run(&["repair", "--dry-run"]);
    assert_success(&planned);
    let shown = text(&planned.stdout);
    assert!(
        shown.contains(&name) && shown.contains("a stored file is missing") && shown.contains("would be read again from the log"),
        "{shown}"
    );
    let other = project.run(&["repair", "nothing"]);
    assert_fails(&other, 1, "no stream \"nothing\"");

    let repaired = project.json(&["repair", "orders"]);
    assert_eq!((&repaired["steps"][0]["action"], &repaired["steps"][0]["failed"]), (&"read_again".into(), &Value::Null));
    assert_eq!(project.json(&query)["rows"], before);
    assert_success(&project.run(&["verify", "orders_by_customer", "--log"]));
}

/// A file of the folder of this name, wherever that is below `folder`.
fn first_file_in(folder: &Path, name: &str) -> PathBuf {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.components().any(|part| part.as_os_str() == name) => return path,
                false => {}
            }
        }
    }
    panic!("no file in a folder {name}");
}
