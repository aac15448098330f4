use std::time::{Duration, Instant};

use chrono::DateTime;

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
    // Far less than a second on a machine that is not busy.
    assert!(begun.elapsed() < Duration::from_secs(20));
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
    assert!(text.contains("about 20.60 MiB of memory at 1,000 events/s") && text.ends_with("1 stream and 1 view: no errors"), "{text}");
}

#[tokio::test]
async fn one_view_is_reported_alone() {
    let other = VIEW.replace("velocity", "others");
    let checked = check(&[("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("views/others.sql", &other)]).await;
    let text = checked.clone().only_view("velocity").unwrap().text();
    assert!(text.starts_with("view velocity") && text.ends_with("1 stream and 2 views: no errors"), "{text}");
    assert!(!text.contains("others") && !text.contains("stream pay"), "{text}");
    assert!(checked.only_view("nothing").is_none());
}

#[tokio::test]
async fn a_long_window_is_reported_with_its_disk_and_a_warning_past_the_setting() {
    let checked = check(&[("streams/pay.sql", &STREAM.replace("10m", "1d"))]).await.with_dedup_memory(64 << 20);
    let text = checked.text();
    assert!(text.contains("within 1d: about 64.00 MiB of memory and 2.41 GiB of local disk at 1,000 events/s"), "{text}");
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
    let text = checked.text();
    assert!(text.starts_with("streams/pay.sql:1") && text.ends_with("\n\n3 errors"), "{text}");
    assert!(!text.contains("stream ok") && !text.contains("duplicates"), "what is well does not bury what is wrong: {text}");
}

#[tokio::test]
async fn a_name_that_nothing_has_is_reported_beside_other_mistakes() {
    let option = STREAM.replace("pay", "other").replace("dedup_within", "dedup_witin");
    let views = "CREATE VIEW a AS SELECT device, count(*) AS n FROM payy GROUP BY device;\n\
        CREATE VIEW b AS SELECT device, count(*) AS n FROM other GROUP BY device;\n\
        CREATE VIEW c AS SELECT device, ts FROM pay;";
    let checked = check(&[("streams/pay.sql", STREAM), ("streams/other.sql", &option), ("views/v.sql", views)]).await;
    let reported: Vec<&str> = checked.diagnostics.iter().map(|d| d.message.as_str()).collect();
    let unknown = "view \"a\": there is no stream or view \"payy\": did you mean \"pay\"? expected one of pay, c";
    assert_eq!(reported.len(), 2, "{}", checked.diagnostics);
    assert!(reported.contains(&unknown) && reported.contains(&"unknown option 'dedup_witin'"), "{}", checked.diagnostics);
}

#[tokio::test]
async fn a_text_that_is_added_up_is_reported_at_its_place_with_what_would_do() {
    let view = "CREATE VIEW a WITH (windows = '1h') AS\nSELECT device, sum(amount) AS ok,\n  coalesce(sum(id), 0) AS total\n\
        FROM pay GROUP BY device;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/a.sql", view)]).await;
    assert_eq!(
        checked.diagnostics.to_string(),
        "views/a.sql:3:16: error: view \"a\": found sum(TEXT), expected a number, e.g. CAST(id AS DECIMAL(18,2))"
    );
}

#[tokio::test]
async fn a_constant_of_a_wrong_type_is_reported_at_its_expression() {
    let view = "CREATE VIEW a AS\nSELECT device,\n  count(*) AS n,\n  'a' + 1 AS x\nFROM pay GROUP BY device;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/a.sql", view)]).await;
    assert_eq!(
        checked.diagnostics.to_string(),
        "views/a.sql:4:3: error: view \"a\": cannot coerce arithmetic expression TEXT + BIGINT to valid types"
    );
}

#[tokio::test]
async fn what_is_suggested_is_what_was_probably_meant() {
    let views = "CREATE VIEW a AS SELECT device, cuont(*) AS n FROM pay GROUP BY device;\n\
        CREATE VIEW b AS SELECT device, count(*) FILTER (WHERE within(ordered, '1h')) AS n FROM orders GROUP BY device;";
    let orders = STREAM.replace("pay", "orders").replace("id TEXT NOT NULL, ts ", "order_id TEXT NOT NULL, ordered_at ");
    let orders = orders.replace("'ts'", "'ordered_at'").replace("id = 'id'", "id = 'order_id'");
    let checked = check(&[("streams/orders.sql", &orders), ("streams/pay.sql", STREAM), ("views/v.sql", views)]).await;
    let reported = checked.diagnostics.to_string();
    assert!(reported.contains("there is no function \"cuont\": did you mean \"count\"?"), "{reported}");
    assert!(reported.contains("there is no column \"ordered\": did you mean \"ordered_at\"?"), "{reported}");
}

#[tokio::test]
async fn every_name_that_nothing_has_is_reported_at_its_place() {
    let view = "CREATE VIEW a WITH (windows = '1h') AS\n\
        SELECT divice, cuont(*) AS n, smu(amuont) AS total, max(abs(amuont)) AS largest\n\
        FROM pay WHERE stauts = 'ok' GROUP BY divice;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/a.sql", view)]).await;
    assert_eq!(
        unknown_names(&checked),
        [(2, 8, "divice"), (2, 16, "cuont"), (2, 31, "smu"), (2, 35, "amuont"), (3, 16, "stauts")],
        "{}",
        checked.diagnostics
    );
    // What GROUP BY names by its alias is there.
    let view = "CREATE VIEW a AS SELECT date_trunc('day', t) AS day, count(*) AS n FROM pay GROUP BY day;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/a.sql", view)]).await;
    assert_eq!(checked.diagnostics.len(), 1, "{}", checked.diagnostics);
}

#[tokio::test]
async fn every_name_that_nothing_has_is_reported_in_sinks_and_alerts() {
    let sink = "CREATE SINK scored WITH (topic = 'scored') AS\n\
        SELECT p.divice, v.m_1h, smu(p.amount) AS total\n\
        FROM pay p LEFT JOIN velocity v ON v.devise = p.device\n\
        WHERE p.stauts = 'ok' AND p.divice <> 'none';";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("sinks/scored.sql", sink)]).await;
    assert_eq!(
        unknown_names(&checked),
        [(2, 8, "divice"), (2, 18, "m_1h"), (2, 26, "smu"), (3, 36, "devise"), (4, 7, "stauts")],
        "{}",
        checked.diagnostics
    );
    let alert = "CREATE ALERT busy WITH (topic = 'alerts') AS\n\
        SELECT divice, uper(device) AS name\n\
        FROM velocity WHERE m_1h >= 10;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("alerts/busy.sql", alert)]).await;
    assert_eq!(unknown_names(&checked), [(2, 8, "divice"), (2, 16, "uper"), (3, 21, "m_1h")], "{}", checked.diagnostics);
}

/// The names that nothing has, each with its place.
fn unknown_names(checked: &Checked) -> Vec<(usize, usize, &str)> {
    let mistakes = checked.diagnostics.iter();
    mistakes.map(|mistake| (mistake.line, mistake.column, mistake.message.split('"').nth(3).unwrap_or_default())).collect()
}

#[tokio::test]
async fn a_warning_stands_below_what_it_could_be_buried_by() {
    let checked = check(&[("views/pay.sql", STREAM)]).await;
    let text = checked.text();
    let (warning, topic) = (text.find("outside streams/").unwrap(), text.find("topic").unwrap());
    assert!(topic < warning && text.ends_with("\n\n1 stream and 0 views: no errors"), "{text}");
}

#[tokio::test]
async fn a_precision_without_a_window_is_told_to_have_no_effect() {
    let view = |options: &str| format!("CREATE VIEW a WITH ({options}) AS SELECT device, count(*) AS n FROM pay GROUP BY device");
    let reported = |options: &str| {
        let view = view(options);
        async move { check(&[("streams/pay.sql", STREAM), ("views/a.sql", &view)]).await.diagnostics.to_string() }
    };
    assert!(reported("precision = '1h'").await.starts_with("views/a.sql:1:1: warning: view \"a\": precision = '1h' has no effect"));
    assert_eq!(reported("precision = '1h', windows = '7d'").await, "");
}

#[tokio::test]
async fn an_alert_that_never_begins_is_warned_of() {
    let reported = async |condition: &str| {
        let alert = format!("CREATE ALERT a WITH (topic = 'a') AS SELECT device FROM velocity WHERE {condition};");
        let alert = format!("CREATE PARAMETER least = 0;\n{alert}");
        let checked = check(&[("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("alerts/a.sql", &alert)]).await;
        assert_eq!(checked.alerts.len(), 1, "{}", checked.diagnostics);
        checked.diagnostics.to_string()
    };
    let never = reported("n_7d = 0").await;
    let expected = "warning: alert \"a\": it never begins: a key has a row only while n_7d, which counts all events of the longest window, \
        is at least 1\n  help: a column of all time in the view, ";
    assert!(never.contains(&format!("alerts/a.sql:2:38: {expected}")), "{never}");
    for begins in ["n_1h = 0", "n_7d > 0", "n_7d = param('least')"] {
        let found = reported(begins).await;
        assert!(!found.contains("never begins"), "{begins}: {found}");
    }
}

#[tokio::test]
async fn a_view_is_not_blamed_for_a_stream_that_is_wrong() {
    let stream = STREAM.replace("amount DECIMAL(18,2)", "amount DECIMALS");
    let checked = check(&[("streams/pay.sql", &stream), ("views/velocity.sql", VIEW)]).await;
    assert_eq!(checked.diagnostics.len(), 1, "{}", checked.diagnostics);
}

#[tokio::test]
async fn a_sink_and_an_alert_are_not_blamed_for_a_view_that_is_wrong() {
    let view = VIEW.replace("count(*)", "count(nothing)");
    let sink = "CREATE SINK s WITH (topic = 's') AS SELECT p.device, v.n_1h FROM pay p LEFT JOIN velocity v ON v.device = p.device;";
    let alert = "CREATE ALERT a WITH (topic = 'a') AS SELECT device FROM velocity WHERE n_1h > 3;";
    let files = [("streams/pay.sql", STREAM), ("views/velocity.sql", &view), ("sinks/s.sql", sink), ("alerts/a.sql", alert)];
    let checked = check(&files).await;
    let reported: Vec<&str> = checked.diagnostics.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(reported.len(), 1, "{}", checked.diagnostics);
    assert!(reported[0].starts_with("view \"velocity\": there is no column \"nothing\""), "{reported:?}");
}

#[tokio::test]
async fn what_reads_something_wrong_is_listed_in_one_line() {
    let stream = STREAM.replace("amount DECIMAL(18,2)", "amount DECIMALS");
    let sink = "CREATE SINK s WITH (topic = 's') AS SELECT p.device, v.n_1h FROM pay p LEFT JOIN velocity v ON v.device = p.device;";
    let alert = "CREATE ALERT a WITH (topic = 'a') AS SELECT device FROM velocity WHERE n_1h > 3;";
    let files = [("streams/pay.sql", &*stream), ("views/velocity.sql", VIEW), ("sinks/s.sql", sink), ("alerts/a.sql", alert)];
    let checked = check(&files).await;
    assert_eq!(checked.diagnostics.len(), 1, "{}", checked.diagnostics);
    let text = checked.text();
    assert!(text.ends_with("\n\nnot checked because of these errors: 1 view (velocity), 1 sink (s), 1 alert (a)\n\n1 error"), "{text}");

    let staging = "CREATE VIEW big AS SELECT device, nothing FROM pay;\n\
        CREATE VIEW small AS SELECT device, count(*) AS n FROM big GROUP BY device;\n\
        CREATE VIEW own AS SELECT device, count(other) AS n FROM pay GROUP BY device;";
    let text = check(&[("streams/pay.sql", STREAM), ("views/v.sql", staging)]).await.text();
    assert!(text.ends_with("\n\nnot checked because of these errors: 1 view (small)\n\n2 errors"), "{text}");

    let rules = "CREATE PARAMETER most TEXT = 20;\n\
        CREATE SINK s WITH (topic = 's') AS SELECT p.device, p.amount > param('most') AS is_much FROM pay p;";
    let checked = check(&[("streams/pay.sql", STREAM), ("sinks/s.sql", rules)]).await;
    assert_eq!(checked.diagnostics.len(), 1, "{}", checked.diagnostics);
    assert_eq!(checked.unchecked(), [UncheckedDefinition { kind: "sink", name: "s".into() }]);
    assert!(checked.diagnostics.to_string().starts_with("sinks/s.sql:1:30: error: the value is BIGINT: expected TEXT"));
}

#[tokio::test]
async fn a_view_without_an_aggregate_has_no_rows_for_a_sink_or_an_alert() {
    let big = "CREATE VIEW big AS SELECT device, ts, amount FROM pay WHERE amount > 100;";
    let sink = "CREATE SINK s WITH (topic = 's') AS SELECT device FROM big;";
    let alert = "CREATE ALERT a WITH (topic = 'a') AS SELECT device FROM big WHERE amount > 3;";
    let files = [("streams/pay.sql", STREAM), ("views/big.sql", big), ("sinks/s.sql", sink), ("alerts/a.sql", alert)];
    let reported = check(&files).await.diagnostics.to_string();
    for expected in [
        "sink \"s\": \"big\" is a view without an aggregate, which has no rows of its own",
        "help: its SELECT in the sink: WITH big AS (SELECT ..) SELECT .. FROM big",
        "alert \"a\": an alert reads the rows of a view, and \"big\" is a view without an aggregate",
    ] {
        assert!(reported.contains(expected), "{reported}");
    }
}

#[tokio::test]
async fn an_aggregate_that_is_not_at_the_top_of_a_view_is_refused_wherever_it_is() {
    for select in [
        "SELECT device, n FROM (SELECT device, count(*) AS n FROM pay GROUP BY device)",
        "WITH c AS (SELECT device, count(*) AS n FROM pay GROUP BY device) SELECT device, n FROM c",
        "SELECT device, count(*) AS n FROM pay GROUP BY device UNION ALL SELECT device, count(*) AS n FROM pay GROUP BY device",
    ] {
        let view = format!("CREATE VIEW a AS {select};");
        let reported = check(&[("streams/pay.sql", STREAM), ("views/a.sql", &view)]).await.diagnostics.to_string();
        assert!(
            reported.contains("an aggregate in a subquery, WITH or UNION ALL is not kept: a view aggregates once"),
            "{select}: {reported}"
        );
    }
}

#[tokio::test]
async fn a_mistake_of_a_staging_view_is_reported_once() {
    let staging = "CREATE VIEW big AS SELECT device, nothing FROM pay;";
    let views = "CREATE VIEW a AS SELECT device, count(*) AS n FROM big GROUP BY device;\n\
        CREATE VIEW b AS SELECT device, count(*) AS n FROM big GROUP BY device;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/big.sql", staging), ("views/v.sql", views)]).await;
    assert_eq!(checked.diagnostics.len(), 1, "{}", checked.diagnostics);
}

#[tokio::test]
async fn jitter_limits_and_runs_after_other_views_are_shown() {
    let views = "CREATE VIEW a WITH (every = '1h', jitter = '10m', memory_limit = '1GiB', timeout = '2h') AS\n\
        SELECT device, count(*) AS n FROM pay GROUP BY device;\n\
        CREATE VIEW b WITH (after = 'a') AS SELECT device, count(*) AS n FROM pay GROUP BY device;";
    let checked = check(&[("streams/pay.sql", STREAM), ("views/v.sql", views)]).await;
    let text = checked.text();
    assert!(text.contains("  runs         every 1h, up to 10m later; next 2026-03-01T1"), "{text}");
    assert!(text.contains("  limits       1GiB of memory and 2h a run"), "{text}");
    assert!(text.contains("  runs         after a: whenever a run of it has succeeded"), "{text}");
    let after = DateTime::from_timestamp_micros(NOW).unwrap();
    let hours: Vec<i64> = checked.definitions.views[0].upcoming(after, 3).iter().map(|at| at.timestamp_micros() / 3_600_000_000).collect();
    assert_eq!(checked.views[0].next_runs.len(), 3);
    assert!(hours.windows(2).all(|pair| pair[1] == pair[0] + 1), "{hours:?}");
}

#[tokio::test]
async fn a_sink_does_not_write_to_the_topic_of_positions() {
    let sink = "CREATE SINK scored WITH (topic = 'fraud-outputs') AS SELECT p.device FROM pay p;";
    let checked = check(&[("streams/pay.sql", STREAM), ("sinks/scored.sql", sink)]).await;
    assert!(checked.diagnostics.is_empty() && checked.clone().with_group("other").diagnostics.is_empty(), "{}", checked.diagnostics);
    assert_eq!(
        checked.with_group("fraud").diagnostics.to_string(),
        "sinks/scored.sql:1:1: error: sink \"scored\": the topic 'fraud-outputs' holds the positions of the outputs of group 'fraud'\n  \
         help: choose another topic"
    );
}

#[tokio::test]
async fn more_memory_than_a_run_may_have_is_refused() {
    let view = VIEW.replace("timezone = 'UTC'", "memory_limit = '2GiB'");
    let checked = check(&[("streams/pay.sql", STREAM), ("views/velocity.sql", &view)]).await;
    assert!(checked.clone().with_batch_memory(2 << 30).diagnostics.is_empty());
    assert_eq!(
        checked.with_batch_memory(1 << 30).diagnostics.to_string(),
        "views/velocity.sql:1:1: error: view \"velocity\": memory_limit = '2GiB' is more than a run may have, which is 1GiB\n  \
         help: at most '1GiB', or a greater `memory_limit` in [batch]"
    );
}

#[tokio::test]
async fn an_alert_is_reported_with_what_it_watches() {
    let alert = "CREATE ALERT busy WITH (topic = 'alerts', repeat = '1h', resolve = true) AS\n\
        SELECT device, n_1h FROM velocity WHERE n_1h >= 10;";
    let files = [("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("alerts/busy.sql", alert)];
    let checked = check(&files).await;
    assert!(checked.diagnostics.is_empty(), "{}", checked.diagnostics);
    let text = checked.text();
    let expected = "alert busy\n  watches      velocity\n  topic        alerts\n  \
        records      when it begins, and every 1h while it holds, and when it ceases\n  columns      device TEXT, n_1h BIGINT\n\n\
        1 stream, 1 view and 1 alert: no errors";
    assert!(text.ends_with(expected), "{text}");
}

#[tokio::test]
async fn an_alert_that_a_sink_leads_back_to_its_view_is_refused_and_a_chain_is_not() {
    let noticed = "CREATE STREAM noticed (at TIMESTAMPTZ NOT NULL OPTIONS (path = '$._at'), device TEXT)\n        WITH (topic = 'alerts', event_time = 'at', key = 'device');";
    let alert = "CREATE ALERT busy WITH (topic = 'alerts') AS SELECT device FROM velocity WHERE n_1h >= 10;";
    let found = async |topic: &str| {
        let sink = format!("CREATE SINK again WITH (topic = '{topic}') AS SELECT n.device FROM noticed n;");
        let files = [("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("streams/noticed.sql", noticed)];
        check(&[&files[..], &[("alerts/busy.sql", alert), ("sinks/again.sql", &sink)]].concat()).await.diagnostics.to_string()
    };
    assert_eq!(found("elsewhere").await, "");
    let found = found("pay").await;
    assert!(found.contains("alert \"busy\": its records would lead back to the stream \"pay\""), "{found}");
    assert!(found.contains("sink \"again\": its records would lead back to the stream \"noticed\""), "{found}");
}

#[tokio::test]
async fn a_parameter_is_reported_with_what_uses_it() {
    let sink = "CREATE PARAMETER most = 20 WITH (description = 'payments an hour');\n\
        CREATE SINK scored WITH (topic = 'scored') AS SELECT p.device, v.n_1h > param('most') AS is_much\n\
        FROM pay p LEFT JOIN velocity v ON v.device = p.device;";
    let files = [
        ("streams/pay.sql", STREAM),
        ("views/velocity.sql", VIEW),
        ("sinks/scored.sql", sink),
        ("parameters/p.sql", "CREATE PARAMETER idle = true;"),
    ];
    let checked = check(&files).await;
    assert!(checked.diagnostics.is_empty(), "{}", checked.diagnostics);
    let text = checked.text();
    assert!(text.contains("  key          that of the event's record\n  parameters   most\n  columns      device TEXT"), "{text}");
    let expected = "parameter most\n  means        payments an hour\n  begins with  BIGINT 20\n  used by      scored\n\n\
        parameter idle\n  begins with  BOOLEAN true\n  used by      nothing\n\n1 stream, 1 view, 1 sink and 2 parameters: no errors";
    assert!(text.ends_with(expected), "{text}");
    let of_sink = checked.only_output("scored").unwrap().text();
    assert!(of_sink.starts_with("sink scored\n") && of_sink.contains("\nparameter most\n") && !of_sink.contains("idle"), "{of_sink}");
    assert!(checked.only_output("velocity").is_none());
    let mistyped = sink.replace("param('most')", "param('moost')");
    let found =
        check(&[("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("sinks/scored.sql", &mistyped)]).await.diagnostics.to_string();
    assert!(
        found.starts_with("sinks/scored.sql:2:73: error: sink \"scored\": there is no parameter \"moost\": did you mean \"most\"?"),
        "{found}"
    );
}

#[tokio::test]
async fn what_an_alert_cannot_be_is_refused_at_its_place() {
    let found = async |alert: &str| {
        let files = [("streams/pay.sql", STREAM), ("views/velocity.sql", VIEW), ("alerts/busy.sql", alert)];
        check(&files).await.with_group("fraud").diagnostics.to_string()
    };
    let busy = "CREATE ALERT busy WITH (topic = 'alerts') AS SELECT device FROM velocity WHERE n_1h >= 10;";
    assert_eq!(found(busy).await, "");
    for (wrong, expected) in [
        (busy.replace("n_1h >= 10", "m_1h >= 10"), "m_1h"),
        (busy.replace("'alerts'", "'pay'"), "its records would lead back to the stream \"pay\", from which they are made"),
        (busy.replace("'alerts'", "'fraud-outputs'"), "the topic 'fraud-outputs' holds the positions of the outputs"),
        (busy.replace("ALERT busy", "ALERT velocity"), "velocity"),
        (busy.replace("ALERT busy", "ALERT pay"), "pay"),
        (busy.replace("velocity", "pay"), "an alert reads the rows of a view, and \"pay\" is a stream\n  help: CREATE VIEW .. AS SELECT"),
        (busy.replace("velocity", "velocty"), "there is no stream or view \"velocty\": did you mean \"velocity\"?"),
    ] {
        let found = found(&wrong).await;
        assert!(found.starts_with("alerts/busy.sql:1:") && found.contains(expected), "{wrong}: {found}");
    }
}
