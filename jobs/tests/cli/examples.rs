//! The projects in `examples`, as their READMEs use them.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

#[test]
fn the_example_of_linked_devices_answers_as_its_readme_says() {
    let project = Project::from_example("device_links");
    let check = text(&project.run(&["check"]).stdout);
    assert!(check.ends_with("2 streams, 3 views and 1 alert: no errors\n"), "{check}");
    assert!(check.contains("links        liveness edges; max_degree 10000") && check.contains("  365d    1d   1\n"), "{check}");
    assert!(check.contains("links        full edges") && check.contains("  30d     1h   33\n"), "{check}");
    let explained = |view: &str| text(&project.run(&["explain", view]).stdout);
    let (liveness, full) = (explained("device_links"), explained("device_logins"));
    assert!(
        liveness.contains("edges (liveness): one row per edge and side") && liveness.contains("16 bytes of when it was last seen"),
        "{liveness}"
    );
    assert!(full.contains("edges (full): a row per edge, side and tile") && full.contains("about 40 bytes of states"), "{full}");

    let up = project.up();
    project.json(&["ingest", "create_account", "create_account.jsonl"]);
    project.json(&["ingest", "login", "login.jsonl"]);
    project.wait_until_committed(16);
    let linked = |as_of: &[&str]| {
        let answer = project.json(&[&["lookup", "device_links", "device_id=tablet-1", "--paths", "3"], as_of].concat());
        let columns = ["linked_devices_7d", "linked_devices_30d", "users_7d", "users_30d", "linked_to_old_accounts"];
        let row = columns.map(|column| answer["row"][column].as_i64());
        (row.map(Option::unwrap_or_default), answer["paths"].clone())
    };
    let (row, paths) = linked(&[]);
    assert_eq!(row, [3, 3, 3, 3, 4]);
    let users: Vec<&str> = paths.as_array().unwrap().iter().filter_map(|path| path["via_user_id"].as_str()).collect();
    assert_eq!(users, ["u3", "u2", "u2"], "newest first: {paths:#}");
    assert_eq!(
        paths[0],
        serde_json::json!({"device_id": "tablet-1", "via_user_id": "u3", "far_device_id": "phone-3",
            "near_at": "2026-05-02T09:00:00Z", "far_at": "2026-05-06T09:00:00Z",
            "counted_in": ["linked_devices_7d", "linked_devices_30d", "users_7d", "users_30d", "linked_to_old_accounts"]})
    );
    paths_tell_what_a_number_consists_of(&project);
    for (as_of, expected) in [
        ("2026-05-08T09:00:00Z", [1, 3, 1, 3, 4]),
        ("2026-05-13T12:00:00Z", [0, 3, 0, 3, 4]),
        ("2026-06-01T08:00:00Z", [0, 1, 0, 1, 4]),
        ("2026-06-05T12:00:00Z", [0, 0, 0, 0, 1]),
    ] {
        assert_eq!(linked(&["--as-of", as_of]).0, expected, "{as_of}");
    }
    let logins = project.json(&["lookup", "device_logins", "device_id=tablet-1"]);
    assert_eq!((&logins["row"]["pairs_30d"], &logins["row"]["attempts_30d"]), (&9.into(), &14.into()), "{logins:#}");
    let neighbours = project.json(&["lookup", "user_neighbours", "user_id=u2"]);
    assert_eq!(neighbours["row"]["neighbours_30d"], serde_json::json!(["u3"]));
    for view in ["device_links", "device_logins", "user_neighbours"] {
        assert_success(&project.run(&["verify", view]));
        assert_success(&project.run(&["batch", "run", view]));
        assert_success(&project.run(&["verify", view]));
    }
    assert_eq!(linked(&[]).0, row, "the answer stays when a snapshot takes over");
    a_ring_begins_with_its_links_and_ends_with_time(&project);
    assert_eq!(up.stop(), Some(0));
}

/// `expected.json` was computed from the file by `expected.py`, in plain loops.
fn a_ring_begins_with_its_links_and_ends_with_time(project: &Project) {
    let until_put_out = |states: &[&str]| {
        let begun = Instant::now();
        loop {
            let put_out = text(&project.run(&["alert", "read", "ring"]).stdout);
            let records: Vec<Value> = put_out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let found: Vec<&str> = records.iter().filter_map(|record| record["_state"].as_str()).collect();
            if found == states {
                assert!(records.iter().all(|record| record["device_id"] == "tablet-1"), "{put_out}");
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "timed out: {states:?} are expected, put out is {put_out:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until_put_out(&["began"]);
    // Time passes by an event of another device.
    let another = r#"{"event_id":"l11","ts":"2026-05-08T09:00:00Z","user_id":"u6","device_id":"laptop-8"}"#;
    std::fs::write(project.path().join("another.jsonl"), another).unwrap();
    project.json(&["ingest", "login", "another.jsonl"]);
    until_put_out(&["began", "resolved"]);
}

#[test]
fn the_example_of_the_warehouse_answers_as_its_readme_says() {
    let project = Project::from_example("warehouse");
    let check = text(&project.run(&["check"]).stdout);
    assert!(check.ends_with("2 streams, 3 views, 2 sinks and 1 alert: no errors\n"), "{check}");
    let read = |file: &str| std::fs::read_to_string(project.path().join(file)).unwrap();
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let plain = |value: &Value| value.to_string().trim_matches('"').to_owned();
    let answers_as_expected = || {
        let racks = project.json(&["query", "SELECT * FROM racks ORDER BY rack_id"]);
        let critical = project.json(&["query", &read("queries/critical.sql")]);
        assert_eq!(racks["rows"].as_array().unwrap().len(), 6, "{racks:#}");
        let mut count = 0;
        for row in racks["rows"].as_array().unwrap() {
            let rack = row["rack_id"].as_str().unwrap();
            let of_view = |column: &str| !["critical", "raised_alarms", "critical_alarms"].contains(&column);
            for (column, wanted) in expected[rack].as_object().unwrap().iter().filter(|(column, _)| of_view(column)) {
                assert_eq!(plain(&row[format!("{column}_1d")]), plain(wanted), "{column} of {rack}");
            }
            let alarms = critical["rows"].as_array().unwrap().iter().filter(|alarm| alarm["rack_id"] == rack);
            let wanted = expected[rack]["critical"].as_object().unwrap();
            let mut found = 0;
            for alarm in alarms {
                let wanted = &wanted[alarm["at"].as_str().unwrap()];
                let degrees = |value: &Value| plain(value).parse::<f64>().unwrap();
                assert_eq!(
                    (degrees(&alarm["before"]), degrees(&alarm["now"])),
                    (degrees(&wanted["before"]), degrees(&wanted["now"])),
                    "{alarm}"
                );
                found += 1;
            }
            assert_eq!(found, wanted.len(), "critical alarms of {rack}");
            count += found;
        }
        assert!(count > 10, "{critical:#}");
    };

    let up = project.up();
    project.json(&["ingest", "readings", "readings.jsonl"]);
    // The readings, and the alarms that one sink makes of them.
    project.wait_until_committed(1_060 + 23);
    answers_as_expected();
    alarms_are_put_out(&project, &expected);
    critical_racks_are_open_alerts(&project, &up.url);
    assert_success(&project.run(&["verify", "racks"]));
    assert_success(&project.run(&["batch", "run", "racks"]));
    answers_as_expected();
    assert_success(&project.run(&["verify", "racks"]));

    let late = [("late-1", "21:06:50", "101.5"), ("late-2", "21:07:05", "103.0")]
        .map(|(id, at, degrees)| format!(r#"{{"reading_id":"{id}","ts":"2026-05-07T{at}Z","rack_id":"rack-1","temperature":{degrees}}}"#));
    std::fs::write(project.path().join("late.jsonl"), late.join("\n")).unwrap();
    project.json(&["ingest", "readings", "late.jsonl"]);
    project.wait_until_committed(1_062 + 23);
    alarms_are_put_out(&project, &expected);
    let row = &project.json(&["lookup", "racks", "rack_id=rack-1"])["row"];
    assert_eq!([&row["alarms_1d"], &row["connections_1d"], &row["silence_1d"]].map(plain), ["1", "2", "PT36S"], "{row:#}");
    assert_success(&project.run(&["verify", "racks"]));
    assert_eq!(up.stop(), Some(0));
}

/// What the two sinks say of the racks, each alarm once.
fn alarms_are_put_out(project: &Project, expected: &Value) {
    let degrees = |value: &Value| value.to_string().trim_matches('"').parse::<f64>().unwrap();
    for (sink, columns, count) in [("raised_alarms", &["heat"][..], 23), ("critical_alarms", &["heat", "coolest_30s"], 15)] {
        let output = project.run(&["sink", "read", sink]);
        assert_success(&output);
        let mut alarms = std::collections::BTreeSet::new();
        for line in text(&output.stdout).lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let (rack, at) = (record["rack_id"].as_str().unwrap(), record["ts"].as_str().unwrap());
            for column in columns {
                assert_eq!(degrees(&record[column]), degrees(&expected[rack][sink][at][column]), "{column} of {record}");
            }
            assert!(alarms.insert((rack.to_owned(), at.to_owned())), "{sink}: {record} is there twice");
        }
        let wanted: usize = expected.as_object().unwrap().values().map(|rack| rack[sink].as_object().unwrap().len()).sum();
        assert_eq!((alarms.len(), wanted), (count, count), "{sink}");
    }
}

/// The body of an answer over HTTP.
fn get(url: &str, path: &str) -> Vec<u8> {
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    connection.write_all(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut all = Vec::new();
    connection.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    all.split_off(end + 4)
}

/// Wherever open alerts are seen.
fn critical_racks_are_open_alerts(project: &Project, url: &str) {
    let expected = ["rack-3", "rack-5"];
    let racks =
        |rows: &Value| rows.as_array().unwrap().iter().map(|row| row["key"]["rack_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let begun = Instant::now();
    while racks(&project.json(&["alert", "open"])) != expected {
        assert!(begun.elapsed() < Duration::from_secs(60), "timed out: open are {}", project.json(&["alert", "open"]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let over_http: Value = serde_json::from_slice(&get(url, "/v1/alerts?alert=rack_critical")).unwrap();
    assert_eq!(racks(&over_http["alerts"]), expected);
    let hottest: Vec<&Value> = over_http["alerts"].as_array().unwrap().iter().map(|open| &open["record"]["hottest_1d"]).collect();
    assert!(hottest.iter().all(|degrees| degrees.as_str().is_some_and(|degrees| degrees.parse::<f64>().unwrap() > 110.0)), "{over_http:#}");
    let by_sql = project.json(&["query", "SELECT key FROM system.alerts WHERE alert = 'rack_critical'"]);
    assert_eq!(by_sql["rows"].as_array().unwrap().len(), 2, "{by_sql:#}");
    let status = project.json(&["status"]);
    let alert = &status["alerts"][0];
    assert_eq!((&alert["alert"], &alert["open"]), (&Value::from("rack_critical"), &Value::from(2)), "{status:#}");
    assert!(alert["run_by"].is_string() && alert["transitions"].as_i64().is_some_and(|transitions| transitions >= 2), "{status:#}");
    // A begin is in the catalog before its record is in the topic.
    loop {
        let put_out = text(&project.run(&["alert", "read", "rack_critical"]).stdout);
        let last = |rack: &str| put_out.lines().rfind(|line| line.contains(rack)).map(|line| serde_json::from_str::<Value>(line).unwrap());
        if expected.iter().all(|rack| last(rack).is_some_and(|record| record["_state"] == "began")) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "timed out: put out are {put_out}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Each payment of the example comes out with what was known of its device, in the order of the payments of a device.
#[test]
fn the_example_of_payments_scores_each_payment_once() {
    let project = Project::from_example("payments");
    assert!(text(&project.run(&["check"]).stdout).ends_with("3 streams, 5 views and 1 sink: no errors\n"));
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let payment = |id: usize, device: &str, amount: &str, status: &str| {
        format!(
            r#"{{"event_id":"t{id}","ts":"{now}","user_id":"u{id}","device_id":"{device}","ip":"192.0.2.7","amount":{amount},"currency":"EUR","status":"{status}"}}"#
        )
    };
    let payments = [
        payment(1, "d1", "12.30", "ok"),
        payment(2, "d1", "1.00", "declined"),
        payment(1, "d1", "12.30", "ok"),
        payment(3, "d2", "20000", "ok"),
        payment(4, "d1", "2.00", "ok"),
    ];
    std::fs::write(project.path().join("payments.jsonl"), payments.join("\n")).unwrap();
    std::fs::write(project.path().join("sinks/velocity_scores.sql"), VELOCITY_SCORES).unwrap();
    let up = project.up();
    project.json(&["ingest", "transactions", "payments.jsonl"]);
    project.wait_until_committed(4);
    let listed = project.json(&["sink", "list"]);
    assert_eq!([&listed[0]["sink"], &listed[0]["topic"], &listed[0]["key"]], ["scored_transactions", "scored-transactions", "device_id"]);
    let output = project.run(&["--json", "sink", "read", "scored_transactions"]);
    assert_success(&output);
    let records: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_device = |device: &str| -> Vec<Value> {
        let of = records.iter().filter(|record| record["device_id"] == device);
        of.map(|record| {
            serde_json::json!([record["event_id"], record["txns_1h"], record["amount_7d"], record["linked_devices_7d"], record["decision"]])
        })
        .collect()
    };
    // The declined payment counts, and has no record; the repeated one does not count.
    let of_d1 = [serde_json::json!(["t1", 1, "12.30", 0, "allow"]), serde_json::json!(["t4", 3, "15.30", 0, "allow"])];
    assert_eq!((of_device("d1"), of_device("d2")), (of_d1.to_vec(), vec![serde_json::json!(["t3", 1, "20000.00", 0, "deny"])]));
    assert!(
        records.iter().all(|record| record["_sink"] == "scored_transactions@1" && record["_key"] == record["device_id"]),
        "{records:?}"
    );
    let limited = project.run(&["sink", "read", "scored_transactions", "--limit", "1"]);
    assert_eq!(text(&limited.stdout).lines().count(), 1);
    let unknown = project.run(&["sink", "read", "scored_transaction"]);
    assert!(text(&unknown.stderr).contains("did you mean \"scored_transactions\"?"), "{}", text(&unknown.stderr));
    the_archive_is_scored_like_the_stream(&project);
    an_edited_sink_is_compared_with_the_live_one(&project);
    rows_of_a_file_get_the_columns_of_views(&project, &now);
    assert_eq!(up.stop(), Some(0));
}

/// The records of the first sink are the events of a second stream. The process that reads both is killed in between.
#[test]
fn the_example_of_decisions_chains_two_sinks_as_its_readme_says() {
    let project = Project::from_example("decisions");
    let check = text(&project.run(&["check"]).stdout);
    assert!(check.ends_with("2 streams, 2 views and 2 sinks: no errors\n"), "{check}");
    let up = project.up();
    project.json(&["ingest", "payments", "payments.jsonl"]);
    drop(up);
    let up = project.up();
    project.wait_until_committed(22);
    let records = |sink: &str| -> Vec<Value> {
        let output = project.run(&["--json", "sink", "read", sink]);
        assert_success(&output);
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let of_first = records("scored_payments");
    let denials = of_first.iter().filter(|record| record["decision"] == "deny");
    let mut denied: Vec<&str> = denials.filter_map(|record| record["payment_id"].as_str()).collect();
    denied.sort_unstable();
    assert_eq!((of_first.len(), denied), (11, vec!["p11", "p5", "p6", "p7", "p8", "p9"]));
    let escalated = records("escalations");
    let columns = |record: &Value| serde_json::json!([record["payment_id"], record["ts"], record["denials_1h"], record["decisions_1h"]]);
    let expected = [serde_json::json!(["p8", "2026-05-07T08:07:00Z", 3, 6]), serde_json::json!(["p9", "2026-05-07T08:08:00Z", 4, 7])];
    assert_eq!(escalated.iter().map(columns).collect::<Vec<Value>>(), expected);
    for record in &escalated {
        let (topic_and_partition, offset) = record["_event"].as_str().unwrap().rsplit_once('/').unwrap();
        assert!(topic_and_partition.starts_with("scored-payments/"), "{record}");
        let of_payment = of_first.iter().find(|decision| decision["payment_id"] == record["payment_id"]).unwrap();
        assert_eq!(of_payment["_offset"].to_string(), offset, "{record}");
        assert!(of_payment["_event"].as_str().unwrap().starts_with("payments/"), "{of_payment}");
    }
    assert_success(&project.run(&["verify", "device_denials"]));
    a_backtest_by_the_wall_clock_warns_of_events_from_old_files(&project);
    assert_eq!(up.stop(), Some(0));
}

fn a_backtest_by_the_wall_clock_warns_of_events_from_old_files(project: &Project) {
    let settings = std::fs::read_to_string(project.path().join("basestream.toml")).unwrap();
    std::fs::write(project.path().join("wall.toml"), settings.replace("clock = \"event\"", "clock = \"wall\"")).unwrap();
    let backtest = |config: &'static str, known: &'static str| {
        let range = ["--from", "2026-05-07", "--to", "2026-05-08", "--out", "scored.csv", "--force"];
        [&["backtest", "scored_payments", "--config", config, "--known", known], &range[..]].concat()
    };
    let report = project.json(&backtest("wall.toml", "log"));
    assert_eq!(report["received_late"], serde_json::json!([{ "view": "device_velocity", "rows": 11 }]), "{report}");
    let printed = text(&project.run(&backtest("wall.toml", "log")).stdout);
    let warning = "\nwarning: 11 of 11 events were received so late that no window of device_velocity reaches back to their own time";
    assert!(printed.contains(warning) && printed.contains("--known event takes events by their own time"), "{printed}");
    for (config, known) in [("wall.toml", "event"), ("basestream.toml", "log")] {
        let report = project.json(&backtest(config, known));
        assert_eq!((&report["rows"], &report["received_late"]), (&11.into(), &Value::Null), "{report}");
    }
}

#[test]
fn the_check_of_a_script_names_the_files_that_would_block_the_write() {
    let project = Project::from_example("features-script");
    std::fs::create_dir(project.path().join("sinks")).unwrap();
    std::fs::write(project.path().join("sinks/transaction_features.sql"), "-- mine\n").unwrap();
    let checked = project.run(&["features", "payments.script", "--check"]);
    assert_success(&checked);
    let checked = text(&checked.stdout);
    assert!(checked.contains("sinks/transaction_features.sql exists with different content\nnothing would be written: "), "{checked}");
}

/// Every operator of the language, over a handful of events, against values computed by hand in plain Rust.
#[test]
fn a_script_of_features_runs_and_its_features_are_those_of_a_naive_computation() {
    let project = Project::from_example("features-script");
    assert_success(&project.run(&["features", "payments.script", "--check"]));
    assert!(!project.path().join("sinks").exists());
    assert_success(&project.run(&["features", "payments.script"]));
    assert!(text(&project.run(&["check"]).stdout).ends_with("3 streams, 3 views and 1 sink: no errors\n"));
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let link = |id: &str, device: &str| format!(r#"{{"event_id":"{id}","ts":"{now}","device":{{"id":"{device}"}},"userid":"u1"}}"#);
    std::fs::write(project.path().join("accounts.jsonl"), link("a1", "d1")).unwrap();
    std::fs::write(project.path().join("logins.jsonl"), [link("l1", "d1"), link("l2", "d8"), link("l3", "d9")].join("\n")).unwrap();
    let payments = [("u1", 10.0, "ok"), ("u2", 30.0, "declined"), ("u1", 2.0, "ok"), ("u2", 6.0, "declined")];
    let lines = payments.iter().enumerate().map(|(id, (user, amount, status))| {
        format!(r#"{{"event_id":"t{id}","ts":"{now}","device":{{"id":"d1"}},"userid":"{user}","payee":"u1","amount":{amount},"status":"{status}"}}"#)
    });
    std::fs::write(project.path().join("payments.jsonl"), lines.collect::<Vec<_>>().join("\n")).unwrap();
    let up = project.up();
    project.json(&["ingest", "create_account", "accounts.jsonl"]);
    project.json(&["ingest", "login", "logins.jsonl"]);
    project.wait_until_committed(4);
    project.json(&["ingest", "transaction", "payments.jsonl"]);
    project.wait_until_committed(8);
    let output = project.run(&["sink", "read", "transaction_features"]);
    assert_success(&output);
    let records: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), payments.len(), "{records:?}");
    for (index, record) in records.iter().enumerate() {
        let seen = &payments[..=index];
        let amounts: Vec<f64> = seen.iter().map(|payment| payment.1).collect();
        let (n, sum) = (amounts.len() as f64, amounts.iter().sum::<f64>());
        let declined = seen.iter().filter(|payment| payment.2 == "declined").count() as f64;
        let users: std::collections::BTreeSet<&str> = seen.iter().map(|payment| payment.0).collect();
        let of_payee: f64 = seen.iter().filter(|payment| payment.0 == "u1").map(|payment| 2.0 * payment.1).sum();
        let spread = amounts.iter().map(|amount| (amount - sum / n).powi(2)).sum::<f64>() / n;
        let numbers = [
            ("txns", n),
            ("declined", declined),
            ("total", sum),
            ("mean", sum / n),
            ("largest", amounts.iter().copied().fold(f64::MIN, f64::max)),
            ("smallest", amounts.iter().copied().fold(f64::MAX, f64::min)),
            ("spread", spread),
            ("users", users.len() as f64),
            ("paid_by_payee", of_payee),
            ("declined_share", declined / n),
            ("log_amount", (amounts[index] + 1.0).ln()),
            ("linked_devices", 3.0),
        ];
        for (feature, expected) in numbers {
            let found = record[feature].as_f64().unwrap_or(f64::NAN);
            assert!((found - expected).abs() < 1e-9, "{feature} of event {index}: expected {expected}, found {record}");
        }
        assert_eq!(record["user_set"], serde_json::json!(users), "{record}");
        assert_eq!(record["amounts"], serde_json::json!(amounts), "{record}");
    }
    assert_eq!(up.stop(), Some(0));
}

/// The same events in one topic. The user of a transaction is in another place than that of a login.
#[test]
fn a_script_over_one_topic_of_several_event_types_runs() {
    let project = Project::from_example("features-script");
    assert_success(&project.run(&["features", "one-topic.script"]));
    assert!(text(&project.run(&["check"]).stdout).ends_with("1 stream, 6 views and 1 sink: no errors\n"));
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let event = |kind: &str, id: &str, device: &str, more: &str| {
        format!(r#"{{"type":"{kind}","event_id":"{id}","ts":"{now}","device":{{"id":"{device}"}},{more}}}"#)
    };
    let links = [
        event("create_account", "a1", "d1", r#""userid":"u1""#),
        event("login", "l1", "d1", r#""userid":"u1""#),
        event("login", "l2", "d8", r#""userid":"u1""#),
        event("logout", "o1", "d1", r#""userid":"u1""#),
    ];
    let payment = |id: &str, user: &str, amount: f64, status: &str| {
        let more = format!(r#""payer":{{"userid":"{user}"}},"payee":"u1","amount":{amount},"status":"{status}""#);
        event("transaction", id, "d1", &more)
    };
    let payments = [payment("t1", "u1", 10.0, "ok"), payment("t2", "u2", 30.0, "declined"), payment("t3", "u1", 2.0, "ok")];
    std::fs::write(project.path().join("links.jsonl"), links.join("\n")).unwrap();
    std::fs::write(project.path().join("payments.jsonl"), payments.join("\n")).unwrap();
    let up = project.up();
    project.json(&["ingest", "risk_events", "links.jsonl"]);
    project.wait_until_committed(4);
    project.json(&["ingest", "risk_events", "payments.jsonl"]);
    project.wait_until_committed(7);
    let output = project.run(&["sink", "read", "transaction_features"]);
    assert_success(&output);
    let records: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let columns = ["event_id", "userid", "txns", "declined", "total", "users", "user_set", "paid_by_payee", "linked_devices"];
    let value = |value: &Value| value.as_f64().map_or_else(|| value.clone(), Value::from);
    let rows: Vec<Value> = records.iter().map(|record| columns.iter().map(|column| value(&record[*column])).collect()).collect();
    let expected = [
        serde_json::json!(["t1", "u1", 1.0, 0.0, 10.0, 1.0, ["u1"], 20.0, 2.0]),
        serde_json::json!(["t2", "u2", 2.0, 1.0, 40.0, 2.0, ["u1", "u2"], 20.0, 2.0]),
        serde_json::json!(["t3", "u1", 3.0, 1.0, 42.0, 2.0, ["u1", "u2"], 24.0, 2.0]),
    ];
    assert_eq!(rows, expected);
    assert_eq!(up.stop(), Some(0));
}

/// A player's sign-ins and purchases, as the script in the literature's spelling counts them.
#[test]
fn a_script_as_the_literature_writes_it_runs() {
    let project = Project::from_example("features-script");
    assert_success(&project.run(&["features", "console.script"]));
    assert!(text(&project.run(&["check"]).stdout).ends_with("1 stream, 4 views and 1 sink: no errors\n"));
    let now = chrono::Utc::now().timestamp_millis();
    let event = |kind: &str, player: &str, more: &str| format!(r#"{{"at":{now},"kind":"{kind}","player":{{"id":"{player}"}},{more}}}"#);
    let signin = |player: &str, machine: &str| event("signin", player, &format!(r#""machine":"{machine}""#));
    let purchase =
        |player: &str, price: f64, outcome: &str| event("purchase", player, &format!(r#""price":{price},"outcome":"{outcome}""#));
    let up = project.up();
    let mut committed = 0;
    // No key gives the events of a player an order in the topic.
    for events in [
        vec![signin("p1", "m1"), signin("p1", "m2"), signin("p2", "m1"), event("signout", "p1", r#""machine":"m1""#)],
        vec![purchase("p1", 5.0, "paid"), purchase("p2", 1.0, "paid")],
        vec![purchase("p1", 7.5, "refused")],
    ] {
        std::fs::write(project.path().join("events.jsonl"), events.join("\n")).unwrap();
        project.json(&["ingest", "arcade_events", "events.jsonl"]);
        committed += i64::try_from(events.len()).unwrap();
        project.wait_until_committed(committed);
    }
    let output = project.run(&["sink", "read", "purchase_features"]);
    assert_success(&output);
    let records: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counted = ["count_1d_purchase_player", "m_spent_player", "count_1d_purchase_outcome_refused_player", "count_1d_signin_player"];
    let row = |record: &Value| (record["player"].to_string(), counted.map(|column| record[column].as_f64().unwrap_or(f64::NAN)));
    let mut rows: Vec<(String, [f64; 4])> = records.iter().map(row).collect();
    rows.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let expected = [("\"p1\"", [1.0, 5.0, 0.0, 2.0]), ("\"p1\"", [2.0, 12.5, 1.0, 2.0]), ("\"p2\"", [1.0, 1.0, 0.0, 1.0])];
    assert_eq!(rows, expected.map(|(player, counts)| (player.to_owned(), counts)), "{records:?}");
    let kept = project.json(&["lookup", "signin_by_player", "player=p1"]);
    assert_eq!(kept["row"]["count_distinct_machine_7d"], serde_json::json!(2), "{kept}");
    assert_eq!(up.stop(), Some(0));
}

const VELOCITY_SCORES: &str = "CREATE SINK velocity_scores WITH (topic = 'velocity-scores') AS
    SELECT t.event_id, v.txns_1h, v.amount_7d FROM transactions t LEFT JOIN device_velocity v ON v.device_id = t.device_id;";

fn the_archive_is_scored_like_the_stream(project: &Project) {
    let backtest = |sink: &'static str, more: &[&'static str]| {
        project.run(&[&["backtest", sink, "--from", "2020-01-01", "--to", "2200-01-01T00:00:00Z", "--out", "scored.csv"], more].concat())
    };
    let done = backtest("velocity_scores", &[]);
    assert_success(&done);
    assert_eq!(text(&done.stdout), "4 rows of velocity_scores (version 1) in scored.csv\n");
    let without = project.run(&["backtest", "velocity_scores", "--from", "1999-01-01", "--to", "1999-02-01", "--out", "none.csv"]);
    let without = text(&without.stdout);
    assert!(without.contains("none.csv\nno event is in the range: the archive has events from "), "{without}");
    let scored = std::fs::read_to_string(project.path().join("scored.csv")).unwrap();
    let mut rows: Vec<String> = scored.lines().skip(1).map(|row| row.split(',').take(3).collect::<Vec<_>>().join(",")).collect();
    rows.sort();
    assert_eq!(rows, ["t1,1,12.30", "t2,2,13.30", "t3,1,20000.00", "t4,3,15.30"]);
    assert!(scored.starts_with("event_id,txns_1h,amount_7d,_partition,_offset,_event_time,_error\n"), "{scored}");
    // Also the sink that follows links.
    let range = ["--from", "2020-01-01", "--to", "2200-01-01T00:00:00Z", "--out", "linked.csv"];
    assert_success(&project.run(&[&["backtest", "scored_transactions"], &range[..]].concat()));
    let linked = std::fs::read_to_string(project.path().join("linked.csv")).unwrap();
    let column = |name: &str| linked.lines().next().unwrap().split(',').position(|column| column == name).unwrap();
    let wanted = ["event_id", "txns_1h", "amount_7d", "linked_devices_7d", "decision"].map(column);
    let row = |row: &str| wanted.map(|column| row.split(',').nth(column).unwrap().to_owned()).join(",");
    let mut rows: Vec<String> = linked.lines().skip(1).map(row).collect();
    rows.sort();
    assert_eq!(rows, ["t1,1,12.30,0,allow", "t3,1,20000.00,0,deny", "t4,3,15.30,0,allow"]);
    for (refused, why) in
        [(backtest("velocity_scores", &[]), "--force"), (backtest("velocity_score", &["--force"]), "did you mean \"velocity_scores\"?")]
    {
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    }
    assert_eq!(std::fs::read_to_string(project.path().join("scored.csv")).unwrap(), scored);
    // All mistakes at once.
    let range = ["--from", "2026-02-01", "--to", "2026-01-01", "--out", "none/scored.xlsx", "--set", "most=3", "--as-changed", "none.sql"];
    let refused = text(&project.run(&[&["backtest", "velocity_score"], &range[..]].concat()).stderr);
    for part in [
        "error: 6 mistakes:\n",
        "- the range is empty: expected --from before --to\n",
        "- there is no folder none: expected one that exists (file: none/scored.xlsx)\n",
        "- the extension of none/scored.xlsx names no format",
        "- there is no parameter \"most\"",
        "- there is no sink \"velocity_score\": did you mean \"velocity_scores\"?",
        "- the file cannot be read: No such file or directory (os error 2) (file: none.sql)",
    ] {
        assert!(refused.contains(part), "{part}\n{refused}");
    }
    let refused = text(&project.run(&["sink", "read", "device_velocity"]).stderr);
    assert!(refused.contains("\"device_velocity\" is a view, and this is about sinks: "), "{refused}");
}

fn an_edited_sink_is_compared_with_the_live_one(project: &Project) {
    let changed = VELOCITY_SCORES.replace("topic =", "features = 'exclusive', topic =").replace(';', " WHERE t.device_id = 'd1';");
    std::fs::write(project.path().join("changed.sql"), &changed).unwrap();
    std::fs::write(project.path().join("other.sql"), changed.replace("velocity_scores", "velocity")).unwrap();
    // Its file may have the view too, as it is applied or edited, a new one, and parameters.
    let view = std::fs::read_to_string(project.path().join("views/device_velocity.sql")).unwrap();
    let edited = view.replace("FROM transactions", "FROM transactions WHERE amount > 5");
    std::fs::write(project.path().join("view.sql"), format!("{view}\n{changed}")).unwrap();
    std::fs::write(project.path().join("edited_view.sql"), format!("{edited}\n{changed}")).unwrap();
    let (large, of_large) =
        ("CREATE VIEW large AS SELECT * FROM transactions WHERE amount > 5", view.replace("FROM transactions", "FROM large"));
    std::fs::write(project.path().join("new_view.sql"), format!("{large};\n{of_large}\n{changed}")).unwrap();
    let shifted = VELOCITY_SCORES.replace("v.txns_1h", "v.txns_1h + param('shift') AS txns_1h");
    std::fs::write(project.path().join("parameter.sql"), format!("CREATE PARAMETER shift = 10;\n{shifted}")).unwrap();
    let stream = std::fs::read_to_string(project.path().join("streams/transactions.sql")).unwrap();
    std::fs::write(project.path().join("stream.sql"), format!("{}\n{changed}", stream.replace("10m", "20m"))).unwrap();
    let range = ["--from", "2020-01-01", "--to", "2200-01-01", "--out", "both.ndjson", "--force"];
    let compare = |file: &'static str, more: &[&'static str]| {
        [&["backtest", "velocity_scores"], range.as_slice(), &["--as-changed", file], more].concat()
    };
    let report = project.json(&compare("changed.sql", &["--verdict", "txns_1h", "--amount", "amount_7d"]));
    let found = &report["difference"];
    let cell =
        |live: &str, changed: &str, amount: &str| serde_json::json!({ "live": live, "changed": changed, "events": 1, "amount": amount });
    let cells = [cell("1", "(none)", "20000.00"), cell("1", "0", "12.30"), cell("2", "1", "13.30"), cell("3", "2", "15.30")];
    assert_eq!((&found["cells"], &found["different"]), (&serde_json::json!(cells), &serde_json::json!(4)), "{report:#}");
    let ids: Vec<&Value> = found["examples"].as_array().unwrap().iter().map(|example| &example["id"]).collect();
    assert_eq!(ids, ["t3", "t1", "t2", "t4"]);
    let file = std::fs::read_to_string(project.path().join("both.ndjson")).unwrap();
    let rows: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: &str| rows.iter().find(|row| row["event_id"] == id).unwrap();
    let verdicts = |row: &Value| ["_verdict", "_verdict_changed", "txns_1h", "_changed_txns_1h"].map(|name| row[name].clone());
    assert_eq!(verdicts(of("t4")), [serde_json::json!("3"), serde_json::json!("2"), serde_json::json!(3), serde_json::json!(2)]);
    assert_eq!(verdicts(of("t3")), [serde_json::json!("1"), serde_json::json!("(none)"), serde_json::json!(1), Value::Null]);

    let cells_of = |file: &'static str, more: &[&'static str]| {
        let report = project.json(&compare(file, &[&["--verdict", "txns_1h"], more].concat()));
        let cells = report["difference"]["cells"].as_array().unwrap().clone();
        let cells = cells.iter().map(|cell| serde_json::json!([cell["live"], cell["changed"], cell["events"]]));
        (cells.collect::<Vec<_>>(), report["unapplied"].clone())
    };
    let unapplied = serde_json::json!({ "views": ["device_velocity"], "parameters": {} });
    let by_rule = |cells: [(&str, &str, u64); 4]| cells.map(|(live, changed, events)| serde_json::json!([live, changed, events])).to_vec();
    let as_applied = by_rule([("1", "(none)", 1), ("1", "0", 1), ("2", "1", 1), ("3", "2", 1)]);
    assert_eq!(cells_of("view.sql", &[]), (as_applied, Value::Null));
    // Of the payments of d1 the view counts the first one alone.
    let edited = by_rule([("1", "(none)", 1), ("1", "0", 1), ("2", "1", 1), ("3", "1", 1)]);
    assert_eq!(cells_of("edited_view.sql", &[]), (edited.clone(), unapplied.clone()));
    assert_eq!(cells_of("new_view.sql", &[]), (edited, unapplied));
    let values: [(&[&str], i64); 2] = [(&[], 10), (&["--set", "shift=20"], 20)];
    for (more, shift) in values {
        let cells = [(1, 2), (2, 1), (3, 1)].map(|(n, events)| serde_json::json!([n.to_string(), (n + shift).to_string(), events]));
        let unapplied = serde_json::json!({ "views": [], "parameters": { "shift": shift.to_string() } });
        assert_eq!(cells_of("parameter.sql", more), (cells.to_vec(), unapplied));
    }
    let printed = text(&project.run(&compare("edited_view.sql", &["--verdict", "txns_1h"])).stdout);
    assert!(printed.contains("both.ndjson\nthe changed sink reads what is not applied: device_velocity\n\n"), "{printed}");
    let printed = text(&project.run(&compare("changed.sql", &["--verdict", "txns_1h"])).stdout);
    for line in ["txns_1h: 4 of 4 events are decided differently", "   (none)  0  1  2\n1  1       1  0  0\n2  0       0  1  0"] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    for (arguments, why) in [
        (compare("changed.sql", &[]), "--verdict with one of event_id, txns_1h, amount_7d"),
        (compare("changed.sql", &["--verdict", "txns_1"]), "did you mean \"txns_1h\"?"),
        (compare("changed.sql", &["--verdict", "txns_1h", "--amount", "event_id"]), "the column \"event_id\" is TEXT"),
        (compare("changed.sql", &["--amount", "event_id"]), "error: 2 mistakes:\n- no column of both definitions is named decision"),
        (compare("stream.sql", &["--verdict", "txns_1h"]), "has the stream \"transactions\" otherwise than it is applied"),
        (compare("other.sql", &["--verdict", "txns_1h"]), "does not define the sink \"velocity_scores\""),
        (compare("none.sql", &["--verdict", "txns_1h"]), "none.sql"),
    ] {
        assert_fails(&project.run(&arguments), 1, why);
    }
}

fn rows_of_a_file_get_the_columns_of_views(project: &Project, now: &str) {
    let spine = format!("device_id,ts,label,txns_1h\nd1,{now},0,x\nd2,2020-01-01T00:00:00Z,1,y\nd2,{now},1,\nnobody,{now},0,z\n");
    let write = |name: &str, text: &str| std::fs::write(project.path().join(name), text).unwrap();
    write("spine.csv", &spine);
    let training = |spine: &'static str, more: &[&'static str]| {
        [&["training", spine, "device_velocity", "--out", "train.ndjson", "--force"], more].concat()
    };
    let trained = |more: &[&'static str]| -> Vec<Value> {
        let report = project.json(&training("spine.csv", more));
        assert_eq!((&report["rows"], &report["views"][0]["view"]), (&serde_json::json!(4), &serde_json::json!("device_velocity")));
        let file = std::fs::read_to_string(project.path().join("train.ndjson")).unwrap();
        file.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let columns = |rows: Vec<Value>| -> Vec<Value> {
        let names = ["device_id", "label", "txns_1h", "device_velocity_txns_1h", "amount_7d"];
        rows.iter().map(|row| names.iter().map(|name| row[*name].clone()).collect()).collect()
    };
    let expected = serde_json::json!([
        ["d1", 0, "x", 3, "15.30"],
        ["d2", 1, "y", 0, null],
        ["d2", 1, null, 1, "20000.00"],
        ["nobody", 0, "z", 0, null]
    ]);
    assert_eq!(serde_json::json!(columns(trained(&[]))), expected);
    let exclusive = columns(trained(&["--exclusive"]));
    assert!(exclusive.len() == 4 && exclusive.iter().all(|row| row[3] == 0), "{exclusive:?}");
    // What it sees is for the tests of training: here it depends on the clocks of two processes.
    assert_eq!(trained(&["--known", "log"]).len(), 4);
    let past = "device_id,ts\nd1,2020-01-01T00:00:00Z\nd2,2020-01-01T00:00:00Z\n";
    write("past.csv", past);
    let report = project.json(&training("past.csv", &["--known", "log"]));
    let not_arrived = &report["not_arrived"][0];
    assert_eq!((&not_arrived["stream"], &not_arrived["rows"]), (&"transactions".into(), &2.into()), "{report}");
    let reported = text(&project.run(&training("past.csv", &["--known", "log"])).stdout);
    let warning = "\nwarning: 2 of 2 rows lie before anything of transactions had arrived by the log's clock (first: ";
    assert!(reported.contains(warning) && reported.contains("--known event takes events by their own time"), "{reported}");
    let reported = text(&project.run(&training("past.csv", &[])).stdout);
    assert_eq!(reported, "2 rows with the columns of device_velocity (version 1) in train.ndjson\n");

    write("no_zone.csv", &spine.replace("2020-01-01T00:00:00Z", "2020-01-01T00:00:00"));
    write("no_key.csv", &spine.replace("d2,2020", ",2020"));
    write("other.csv", &spine.replace("device_id", "device"));
    write("train.txt", "");
    let no_zone = text(&project.run(&training("no_zone.csv", &[])).stderr);
    for part in ["found \"2020-01-01T00:00:00\", expected a time with a zone", "file: no_zone.csv", "line: 3", "column: ts"] {
        assert!(no_zone.contains(part), "{part}\n{no_zone}");
    }
    for (arguments, why) in [
        (training("no_key.csv", &[]), "found NULL, expected a value of type TEXT"),
        (training("other.csv", &[]), "no column \"device_id\", a key of the view \"device_velocity\": did you mean \"device\"?"),
        (training("spine.csv", &["--time", "at"]), "no column \"at\", the time of each row"),
        (training("spine.csv", &["--time", "label"]), "expected a time such as"),
        (training("train.txt", &[]), "names no format"),
        (training("gone.csv", &[]), "error: the file cannot be read: No such file or directory (os error 2)\n  file: gone.csv\n"),
        (vec!["training", "spine.csv", "device_velocity", "--out", "spine.csv", "--force"], "is the spine"),
        (vec!["training", "spine.csv", "device_velocity", "--out", "none/train.csv"], "there is no folder none: expected one that exists"),
        (vec!["training", "spine.csv", "device_velocit", "--out", "none/train.csv"], "error: 2 mistakes:\n- there is no folder none"),
        (vec!["training", "gone.csv", "device_velocit", "--out", "train.csv"], "error: 2 mistakes:\n- the file cannot be read: "),
    ] {
        assert_fails(&project.run(&arguments), 1, why);
    }
    assert!(!project.path().join("train.csv").exists());
    // Rows of a view that follows links.
    let linked = project.json(&["training", "spine.csv", "device_links", "--out", "linked.ndjson"]);
    assert_eq!((&linked["rows"], &linked["views"][0]["view"]), (&serde_json::json!(4), &serde_json::json!("device_links")));
}

fn paths_tell_what_a_number_consists_of(project: &Project) {
    let asked = |more: &[&'static str]| [&["lookup", "device_links", "device_id=tablet-1"], more].concat();
    let table = text(&project.run(&asked(&["--paths", "10"])).stdout);
    let shown = [
        "far_at                counted_in\n",
        "tablet-1   u1           tablet-1       2026-05-01T08:00:00Z  2026-05-03T11:00:00Z  users_7d, users_30d\n",
        "tablet-1   u4           phone-4        2025-09-01T10:00:00Z  2026-05-07T20:00:00Z  linked_to_old_accounts\n",
        "(6 paths, newest first)",
    ];
    for line in shown {
        assert!(table.contains(line), "{line}\n{table}");
    }
    let of_column = project.json(&asked(&["--paths", "10", "--of", "linked_devices_7d"]));
    let link = |path: &Value| (path["via_user_id"].to_string(), path["far_device_id"].to_string());
    let mut links: Vec<(String, String)> = of_column["paths"].as_array().unwrap().iter().map(link).collect();
    links.sort();
    let expected = [("u1", "phone-1"), ("u2", "phone-2"), ("u2", "phone-3"), ("u3", "phone-3")];
    assert_eq!(links, expected.map(|(user, device)| (format!("\"{user}\""), format!("\"{device}\""))));

    let unknown = project.run(&asked(&["--paths", "1", "--of", "linked_devices"]));
    assert_fails(&unknown, 1, "expected one of linked_devices_7d, linked_devices_30d, users_7d, users_30d, linked_to_old_accounts");
    assert_fails(&project.run(&asked(&["--of", "users_7d"])), 2, "--paths");
}
