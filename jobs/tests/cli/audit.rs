//! The audit log: one line for each command that changes something.

use std::fs::File;

use super::*;

const LARGE: &str = "CREATE PARAMETER least = 5;\n\
    CREATE ALERT large WITH (topic = 'large') AS\n\
    SELECT customer_id, events_365d FROM orders_by_customer WHERE events_365d > param('least');\n";

/// The actions, objects and outcomes in a log.
fn changes_in(log: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let (_, fields) = line.split_once(" audit: principal=\"")?;
        fields.split_once("\" action=").map(|(_, change)| change.to_owned())
    };
    log.lines().filter_map(of_line).collect()
}

/// Runs a command that is to write a log.
fn run_logged(project: &Project, args: &str) -> Output {
    project.run(&args.split(' ').chain(["--log-level", "warn"]).collect::<Vec<_>>())
}

fn line(action: &str, object: &str) -> String {
    format!("{action:?} object={object:?} outcome=\"done\"")
}

/// Runs commands until 60 events and a dead letter are committed; returns the log of `up`.
fn fill(project: &Project) -> String {
    assert_success(&project.run(&["ingest", "orders", "../orders.csv"]));
    let bad = r#"{"order_id":"bad","customer_id":"c1","ordered_at":"1997-01-10T08:00:00Z","revenue":"much"}"#.to_owned() + "\n";
    std::fs::write(project.path().join("bad.jsonl"), bad).unwrap();
    assert_success(&project.run(&["ingest", "orders", "bad.jsonl", "--produce-invalid"]));
    let log = project.path().join("up.log");
    let mut child = command(&project.path(), &["up"]).stdout(Stdio::piped()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let up = Up { child, url: String::new(), _stdout: Some(stdout) };
    project.wait_until_committed(60);
    assert_eq!(up.stop(), Some(0));
    std::fs::read_to_string(log).unwrap()
}

#[test]
fn each_command_that_changes_something_writes_one_line_and_no_other_does() {
    let project = Project::with_orders();
    let run = |args: &str| -> Vec<String> {
        let output = run_logged(&project, args);
        assert_success(&output);
        changes_in(&text(&output.stderr))
    };
    let changes = |args: &str, action: &str, object: &str| assert_eq!(run(args), [line(action, object)], "{args}");
    let says_nothing = |args: &str| assert_eq!(run(args), Vec::<String>::new(), "{args}");
    let definitions = "the project's definitions";
    std::fs::create_dir(project.path().join("alerts")).unwrap();
    std::fs::write(project.path().join("alerts/large.sql"), LARGE).unwrap();

    says_nothing("plan");
    changes("apply", "apply", definitions);
    assert_eq!(changes_in(&fill(&project)), [line("apply", definitions)], "up");

    changes("token create ann --role reader", "create", "the token \"ann\"");
    changes("token revoke ann", "revoke", "the token \"ann\"");
    changes("set least 7", "set", "the parameter \"least\"");
    changes("pause large", "pause", "the sink or alert \"large\"");
    changes("resume large", "resume", "the sink or alert \"large\"");
    project.replace("alerts/large.sql", "> param", ">= param");
    changes("apply", "apply", definitions);
    changes("rollback large", "roll back", "the sink or alert \"large\"");

    says_nothing("batch run orders_by_customer --dry-run");
    changes("batch run orders_by_customer", "run", "the view \"orders_by_customer\"");
    changes("replay orders_by_customer", "replay", "the view \"orders_by_customer\"");
    project.replace("views/orders_by_customer.sql", "count(*) AS events", "count(*) + 1 AS events");
    changes("apply", "apply", definitions);
    changes("view switch orders_by_customer", "switch", "the view \"orders_by_customer\"");
    changes("view rollback orders_by_customer", "roll back", "the view \"orders_by_customer\"");
    changes("view drop orders_by_customer@2", "drop", "the view \"orders_by_customer@2\"");

    says_nothing("dead-letters export orders --to dead.jsonl");
    project.replace("dead.jsonl", r#"\"much\""#, "2.5");
    says_nothing("dead-letters replay orders --file dead.jsonl --dry-run");
    changes("dead-letters replay orders --file dead.jsonl", "replay dead letters of", "the stream \"orders\"");
    says_nothing("backfill orders --dry-run");
    changes("backfill orders", "backfill", "the stream \"orders\"");
    says_nothing("repair --dry-run");
    changes("repair", "repair", "the installation");
    changes("repair orders", "repair", "the stream \"orders\"");

    let read = ["check", "status", "storage", "token list", "parameters", "view list", "batch history", "dead-letters list orders"];
    read.into_iter().for_each(says_nothing);
}

#[test]
fn each_command_that_fails_to_change_something_writes_one_line_with_the_kind_of_its_error() {
    let project = Project::with_orders();
    std::fs::create_dir(project.path().join("alerts")).unwrap();
    std::fs::write(project.path().join("alerts/large.sql"), LARGE).unwrap();
    assert_success(&project.run(&["apply"]));
    assert_success(&project.run(&["token", "create", "ann", "--role", "reader"]));
    let failed = |args: &str, action: &str, object: &str, kind: &str| {
        let output = run_logged(&project, args);
        assert_fails(&output, 1, "error: ");
        let log = text(&output.stderr);
        let expected = format!("{action:?} object={object:?} outcome=\"failed\" kind={kind:?}");
        assert_eq!(changes_in(&log), [expected], "{args}");
    };
    failed("view drop missing", "drop", "the view \"missing\"", "not_found");
    failed("token create ann --role reader", "create", "the token \"ann\"", "conflict");
    failed("pause missing", "pause", "the sink or alert \"missing\"", "not_found");
    failed("storage forget-group missing", "forget", "the consumer group \"missing\"", "not_found");
    // What was sent is not in the line.
    failed("set least hunter2", "set", "the parameter \"least\"", "input");
    project.replace("alerts/large.sql", "FROM orders_by_customer", "FROM missing");
    failed("apply", "apply", "the project's definitions", "input");
    for read in ["lookup missing a=1", "batch history missing", "view drop missing --help"] {
        let log = text(&run_logged(&project, read).stderr);
        assert_eq!(changes_in(&log), Vec::<String>::new(), "{read}");
    }
}

#[test]
fn a_command_writes_its_line_where_its_log_is_kept() {
    let project = Project::with_orders();
    let kept = project.run(&["apply"]);
    assert_eq!(changes_in(&text(&kept.stderr)), [line("apply", "the project's definitions")]);
    let asked = command(&project.path(), &["apply"]).env("RUST_LOG", "error").output().unwrap();
    assert_eq!(changes_in(&text(&asked.stderr)), [line("apply", "the project's definitions")]);
    let json = text(&project.run(&["apply", "--log-format", "json"]).stderr);
    let lines = json.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let changes: Vec<Value> = lines.filter(|line| line["target"] == "audit").map(|line| line["fields"]["action"].clone()).collect();
    assert_eq!(changes, ["apply"], "{json}");
}
