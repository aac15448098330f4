//! `examples/grafana` and the guide for Grafana: what they ask, over the definitions of `examples/payments`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::DefinitionKind::{self, Stream, View};
use serde_json::Value;
use serving::ServingLimits;
use serving::http::Protection;

use crate::server::{Server, texts};

const STREAMS: [&str; 3] = ["create_account", "login", "transactions"];
const VIEWS: [&str; 5] = ["device_links", "device_velocity", "ip_reputation", "ring_candidates", "user_profile"];

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(example(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn guide() -> String {
    read("../docs/guides/query-from-grafana.md")
}

/// The blocks of code of a language in a page.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/dashboards/payments.json")).unwrap()
}

/// A server over the definitions of payments, with two devices of a ring and one payment of another.
async fn payments() -> Server {
    let sources = STREAMS.iter().map(|name| (Stream, *name, read(&format!("payments/streams/{name}.sql"))));
    let sources = sources.chain(VIEWS.iter().map(|name| (View, *name, read(&format!("payments/views/{name}.sql")))));
    let sources: Vec<(DefinitionKind, &str, String)> = sources.collect();
    let definitions: Vec<(DefinitionKind, &str, &str)> = sources.iter().map(|(kind, name, sql)| (*kind, *name, sql.as_str())).collect();
    let server = Server::over(&definitions, &Protection::none(Arc::new(|| 0)).unwrap(), ServingLimits::default()).await;
    let event = |id: &str, minute: u32, user: &str, device: &str, more: &str| {
        let text = format!(
            r#"{{"event_id":"{id}","ts":"2026-03-01T10:{minute:02}:00Z","user_id":"{user}","device_id":"{device}","ip":"192.0.2.7"{more}}}"#
        );
        (Some(device.to_owned()), text)
    };
    let paid = |amount: &str, status: &str| format!(r#","amount":"{amount}","currency":"EUR","status":"{status}""#);
    server.append_to("create_account", vec![event("a1", 1, "u1", "d1", ""), event("a2", 2, "u2", "d1", "")]).await;
    server.append_to("login", vec![event("l1", 3, "u1", "d2", ""), event("l2", 4, "u2", "d1", "")]).await;
    let payments = vec![
        event("t1", 10, "u1", "d1", &paid("12.30", "ok")),
        event("t2", 11, "u2", "d1", &paid("7.70", "declined")),
        event("t3", 20, "u3", "d3", &paid("1.00", "ok")),
    ];
    server.append_to("transactions", payments).await;
    server
}

/// Grafana's variables and macros of the data source, from ten to eleven, by minutes, with the device `d1`.
fn expanded(sql: &str) -> String {
    let sql = sql.replace("$__interval", "1m").replace("${device:sqlstring}", "'d1'");
    let sql = sql.replace("$__timeFilter(ts)", "ts BETWEEN '2026-03-01T10:00:00Z' AND '2026-03-01T11:00:00Z'");
    let sql = sql.replace("$__timeGroupAlias(ts, 1m)", r#"floor(extract(epoch from ts)/60)*60 AS "time""#);
    assert!(!sql.contains('$'), "a macro that this test does not know: {sql}");
    sql
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_of_the_example_is_answered() {
    let server = payments().await;
    let client = server.connect().await;
    let dashboard = dashboard();
    let mut answers = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let sql = expanded(target["rawSql"].as_str().unwrap());
            let rows = texts(&client, &sql).await;
            assert!(!rows.is_empty(), "{}: {sql}", panel["title"]);
            let shown: Vec<String> = rows.iter().map(|row| row.iter().flatten().cloned().collect::<Vec<_>>().join(" ")).collect();
            answers.push((panel["id"].as_u64().unwrap(), shown));
        }
    }
    let answer = |id: u64| answers.iter().find(|(panel, _)| *panel == id).unwrap().1.clone();
    assert_eq!(answers.len(), 9);
    assert_eq!(answer(1), ["3 1 21.00"]);
    assert_eq!(answer(2), ["1772359800 ok 1", "1772359860 declined 1", "1772360400 ok 1"]);
    assert_eq!(answer(3), ["2 0"]);
    assert!(answer(4)[0].starts_with("d1 2 1 2 20.00 "), "{:?}", answer(4));
    assert!(answer(6)[0].starts_with("d1 2 1 "), "{:?}", answer(6));
    assert_eq!(answer(7), ["d1 1 1 2"]);
    assert_eq!(answer(8), ["192.0.2.7 2 2"]);
    assert!(answer(9)[0].starts_with("d1 "), "{:?}", answer(9));
    let devices = dashboard["templating"]["list"][0]["query"].as_str().unwrap();
    assert_eq!(texts(&client, devices).await.concat().into_iter().flatten().collect::<Vec<_>>(), ["d1", "d3"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_guide_is_answered() {
    let server = payments().await;
    let client = server.connect().await;
    let page = guide();
    let mut queries = blocks(&page, "sql");
    queries.extend(page.split('`').filter(|part| part.starts_with("SELECT ")));
    let mut answers = Vec::new();
    for sql in queries {
        let rows = texts(&client, &expanded(sql)).await;
        answers.push(rows.iter().map(|row| row.iter().flatten().cloned().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>());
    }
    assert_eq!(answers, [vec!["1772359800 ok 1", "1772359860 declined 1", "1772360400 ok 1"], vec!["d1 1", "d3 0"]]);
    server.stop().await;
}

#[test]
fn the_guide_s_data_source_is_that_of_the_example() {
    let page = guide();
    let [source] = blocks(&page, "yaml")[..] else { panic!("the guide shows one data source") };
    let source = &serde_yaml_ng::from_str::<Value>(source).unwrap()["datasources"][0];
    let example = &yaml("grafana/provisioning/datasources/basestream.yaml")["datasources"][0];
    for field in ["name", "type", "user", "secureJsonData"] {
        assert_eq!(source[field], example[field], "{field}");
    }
    // It is of a node on another machine, with TLS.
    assert_eq!(source["jsonData"]["sslmode"], "verify-full");
    for (setting, value) in source["jsonData"].as_object().unwrap().iter().filter(|(setting, _)| *setting != "sslmode") {
        assert_eq!(*value, example["jsonData"][setting.as_str()], "{setting}");
    }
}

#[test]
fn the_example_s_files_name_one_data_source_and_where_dashboards_are() {
    let source = &yaml("grafana/provisioning/datasources/basestream.yaml")["datasources"][0];
    assert_eq!(source["type"], "grafana-postgresql-datasource");
    assert_eq!((&source["url"], &source["secureJsonData"]["password"]), (&"$BASESTREAM_ADDRESS".into(), &"$BASESTREAM_TOKEN".into()));
    // The version that a server says it has, as Grafana writes it.
    assert_eq!(source["jsonData"]["postgresVersion"], 1500);
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    for used in panels.iter().chain(dashboard["templating"]["list"].as_array().unwrap()) {
        assert_eq!(used["datasource"]["uid"], source["uid"], "{used}");
        assert_eq!(used["datasource"]["type"], source["type"], "{used}");
    }
    let folder = &yaml("grafana/provisioning/dashboards/payments.yaml")["providers"][0]["options"]["path"];
    let mounted = format!("dashboards:{}", folder.as_str().unwrap());
    assert!(read("grafana/README.md").contains(&mounted), "README.md mounts the dashboards at {folder}");
}
