use std::net::SocketAddr;
use std::time::Duration;

use arrow_ipc::reader::StreamReader;
use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, RunRecord, RunStatus};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use types::files::FileKind;
use uuid::Uuid;

use crate::harness::{Harness, NOW, PAYMENTS, event};
use crate::http::Protection;
use crate::limits::ServingLimits;
use crate::node::Node;
use crate::{NodeSettings, WantedViews};

pub(super) struct Client {
    harness: Harness,
    address: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Client {
    async fn new() -> Client {
        let harness = Harness::filled().await;
        let node = harness.node.clone();
        Client::of_node(harness, node).await
    }

    /// Of an empty node with these limits.
    pub(super) async fn limited(limits: ServingLimits) -> Client {
        let harness = Harness::with_settings(|settings| NodeSettings { limits, ..settings }).await;
        let node = harness.node.clone();
        Client::of_node(harness, node).await
    }

    pub(super) async fn of_node(harness: Harness, node: Node) -> Client {
        let protection = Protection::none(std::sync::Arc::new(|| NOW)).unwrap();
        Client::protected(harness, node, protection).await
    }

    pub(super) async fn protected(harness: Harness, node: Node, protection: Protection) -> Client {
        harness.log.create_topic("payments", 2).await.unwrap();
        let stop = CancellationToken::new();
        let listener = super::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.address;
        let task = super::serve(node, harness.log.clone(), None, protection, listener, stop.clone());
        Client { harness, address, stop, task }
    }

    /// HTTP/1.0: the body ends with the connection.
    pub(super) async fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        connection.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses a body may close before it is all sent.
        let _ = connection.write_all(body).await;
        let mut all = Vec::new();
        let _ = connection.read_to_end(&mut all).await;
        let end = all.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&all)));
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        Reply { status: head[9..12].parse().unwrap(), head: head.to_lowercase(), body: all[end + 4..].to_vec() }
    }

    /// Ends the server, as a process that stops does.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(60), self.task).await.expect("timed out: the server goes on").unwrap();
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn harness(&self) -> &Harness {
        &self.harness
    }

    async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", b"").await
    }

    pub(super) async fn post(&self, path: &str, body: &str) -> Reply {
        self.send("POST", path, "", body.as_bytes()).await
    }
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// An error's status and detail.
    pub(super) fn problem(&self) -> (u16, String) {
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        assert!(problem["type"].is_string() && problem["title"].is_string());
        (self.status, problem["detail"].as_str().unwrap().to_owned())
    }
}

/// As when many ask what takes long. One thread answers HTTP here.
#[tokio::test]
async fn health_and_short_lookups_are_answered_while_all_threads_for_longer_queries_are_busy() {
    let client = Client::new().await;
    let busy = types::threads::keep_busy(&types::threads::QUERIES);
    let mut longer = Box::pin(client.post("/v1/views/velocity/rows", r#"{"keys": [{"device": "a"}]}"#));
    let mut sql = Box::pin(client.post("/v1/sql", r#"{"query": "SELECT 1 AS one"}"#));
    let short = async { (client.get("/healthz").await.status, client.get("/v1/views/velocity/row?device=a").await.status) };
    let statuses = tokio::select! {
        biased;
        _ = &mut longer => panic!("rows of many keys are answered by the threads that answer HTTP"),
        _ = &mut sql => panic!("SQL is answered by the threads that answer HTTP"),
        statuses = short => statuses,
    };
    assert_eq!(statuses, (200, 200));
    drop(busy);
    assert_eq!((longer.await.status, sql.await.status), (200, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_answered_with_what_it_stands_on() {
    let client = Client::new().await;
    let reply = client.get("/v1/views/velocity/row?device=a").await;
    assert_eq!(reply.status, 200);
    let body = String::from_utf8(reply.body.clone()).unwrap();
    let row = r#"{"row":{"device":"a","n_1h":2,"n_7d":3,"amount_1h":"110.00","amount_7d":"115.50","last_seen":"2026-03-02T11:45:00Z"},"found":true,"meta":"#;
    assert!(body.starts_with(row), "columns keep the view's order: {body}");
    let meta = &reply.json()["meta"];
    assert_eq!(meta["as_of"], "2026-03-02T12:00:00Z");
    assert_eq!((&meta["degraded"], &meta["versions"]), (&json!(false), &json!({"velocity": 1})));
    let cut = types::vector::Vector::from_token(meta["cut"].as_str().unwrap()).unwrap();
    assert_eq!(cut, "payments/0:5,payments/1:1".parse().unwrap());

    let unknown = client.get("/v1/views/velocity/row?device=c%3C%26x").await.json();
    assert_eq!((&unknown["found"], &unknown["row"]["n_7d"], &unknown["row"]["amount_7d"]), (&json!(false), &json!(0), &Value::Null));
    let past = client.get("/v1/views/velocity/row?device=a&_as_of=2026-03-01T10:10:00Z").await.json();
    assert_eq!((&past["row"]["n_1h"], &past["meta"]["as_of"]), (&json!(1), &json!("2026-03-01T10:10:00Z")));
    let zone = client.get("/v1/views/velocity/row?device=a&_as_of=2026-03-01T12:10:00%2B02:00").await.json();
    assert_eq!(zone["row"], past["row"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_past_its_limit_is_listed_or_refused() {
    let client = Client::new().await;
    let view = "CREATE VIEW few WITH (max_state_bytes = '1B') AS SELECT device, count(*) AS n, count(DISTINCT status) AS kinds \
                FROM payments GROUP BY device";
    client.harness.define_view("few", view).await;
    let answer = client.get("/v1/views/few/row?device=a").await.json();
    assert_eq!((&answer["found"], &answer["row"]["kinds"]), (&json!(true), &Value::Null));
    assert!(answer["row"]["n"].as_i64().unwrap() > 0);
    let error = &answer["meta"]["errors"][0];
    assert_eq!((&error["view"], &error["key"], &error["column"]), (&json!("few"), &json!({"device": "a"}), &json!("kinds")));
    assert!(error["error"].as_str().unwrap().contains("approx_distinct"), "{error}");

    let ask = async |query: &str, more: Value| {
        let mut body = json!({ "query": query });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.post("/v1/sql", &body.to_string()).await
    };
    let refused = ask("SELECT * FROM few", json!({})).await;
    assert_eq!(refused.status, 413, "{}", refused.json());
    assert_eq!(ask("SELECT device, n FROM few", json!({})).await.json()["meta"]["errors"], json!([]));
    let listed = ask("SELECT * FROM few WHERE device = 'a'", json!({"on_value_error": "list"})).await.json();
    assert_eq!((&listed["rows"][0]["kinds"], &listed["meta"]["errors"]), (&Value::Null, &answer["meta"]["errors"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_may_have_a_mebibyte_where_its_view_sets_no_limit() {
    let client = Client::new().await;
    // A text counts its length and 8 bytes.
    let (longest, at) = ("x".repeat((1 << 20) - 8), "2026-03-02T11:00:00Z");
    let events =
        [event(&longest, at, "full", "1.00", "ok"), event(&longest, at, "past", "1.00", "ok"), event("y", at, "past", "1.00", "ok")];
    client.harness.checkpoint(0, &events).await;
    let view = "CREATE VIEW counted AS SELECT device, count(DISTINCT id) AS ids FROM payments GROUP BY device";
    client.harness.define_view("counted", view).await;
    let ask = async |device: &str| client.get(&format!("/v1/views/counted/row?device={device}")).await.json();
    let (full, past) = (ask("full").await, ask("past").await);
    assert_eq!((&full["row"]["ids"], &full["meta"]["errors"]), (&json!(1), &json!([])));
    assert_eq!((&past["found"], &past["row"]["ids"]), (&json!(true), &Value::Null));
    let error = &past["meta"]["errors"][0]["error"];
    assert!(error.as_str().unwrap().contains("more than max_state_bytes = '1MiB'"), "{error}");
}

/// A view that fails on an event that is committed, at offset 5, and on one that is not, at offset 7.
async fn failing() -> Client {
    let client = Client::new().await;
    let fails = |id: &str| [event(id, "2026-03-02T11:55:00Z", "a", "1.00", "ok"), event("8", "2026-03-02T11:55:00Z", "a", "1.00", "ok")];
    client.harness.checkpoint(0, &fails("seven")).await;
    let view = "CREATE VIEW numbers AS SELECT device, sum(CAST(id AS BIGINT)) AS ids FROM payments GROUP BY device";
    client.harness.define_view("numbers", view).await;
    client.harness.fresh(0, &fails("nine")).await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_how_many_events_its_view_fails_on() {
    let client = failing().await;
    let numbers = client.get("/v1/views/numbers/row?device=a").await.json();
    // 1, 2 and 5, and 8 twice.
    assert_eq!((&numbers["row"]["ids"], &numbers["meta"]["failed"]), (&json!(24), &json!(2)));
    let query = json!({ "query": "SELECT ids FROM numbers WHERE device = 'c<&'" }).to_string();
    assert_eq!(client.post("/v1/sql", &query).await.json()["meta"]["failed"], 2, "whichever keys are asked");
    assert_eq!(client.get("/v1/views/velocity/row?device=a").await.json()["meta"]["failed"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_fails_on_events_is_listed_by_a_node_that_stays_ready() {
    let ready = Client::new().await.get("/readyz").await.json();
    assert_eq!(ready["views_failing"], json!([]));
    let reply = failing().await.get("/readyz").await;
    let failing = reply.json()["views_failing"].clone();
    assert_eq!((reply.status, failing.as_array().unwrap().len()), (200, 1), "{failing}");
    let numbers = &failing[0];
    assert_eq!((&numbers["view"], &numbers["version"], &numbers["failed"]), (&json!("numbers"), &json!(1), &json!(2)));
    assert!(numbers["first"].as_str().unwrap().starts_with("the event at offset 5 of payments/0 fails: "), "{numbers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_come_in_the_order_of_their_keys() {
    let client = Client::new().await;
    let reply = client
        .post("/v1/views/velocity/rows", r#"{"keys": [{"device": "nobody"}, {"device": null}, {"device": "a"}], "as_of": null}"#)
        .await;
    let answer = reply.json();
    assert_eq!(answer["found"], json!([false, true, true]));
    assert_eq!(answer["rows"][2]["amount_7d"], "115.50");
    assert_eq!(client.post("/v1/views/velocity/rows", r#"{"keys": []}"#).await.json()["rows"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_paths_of_many_rows_come_in_the_order_of_their_keys_and_newest_first() {
    let client = Client::new().await;
    client
        .harness
        .define_view(
            "alike",
            "CREATE VIEW alike AS SELECT mine.device, count(DISTINCT theirs.device) AS devices FROM payments mine \
             JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device",
        )
        .await;
    let ask = async |body: &str| client.post("/v1/views/alike/rows", body).await;
    let answer = ask(r#"{"keys": [{"device": "c<&"}, {"device": "b"}, {"device": "a"}], "paths": 2}"#).await.json();
    assert_eq!(answer["found"], json!([true, false, true]));
    let path = |device: &str, other: &str, near_at: &str, far_at: &str| {
        let (near_at, far_at) = (format!("2026-03-02T{near_at}:00Z"), format!("2026-03-02T{far_at}:00Z"));
        json!({"device": device, "via_status": "ok", "far_device": other, "near_at": near_at, "far_at": far_at, "counted_in": ["devices"]})
    };
    let expected = [path("c<&", "a", "11:50", "11:45"), path("a", "c<&", "11:45", "11:50")];
    assert_eq!(answer["paths"], json!(expected));
    assert!(ask(r#"{"keys": [{"device": "a"}]}"#).await.json().get("paths").is_none());

    let (status, detail) = ask(r#"{"keys": [{"device": "a"}, {"device": "b"}], "paths": 5001}"#).await.problem();
    assert!(status == 413 && detail.contains("5001 paths of each of 2 keys"), "{status} {detail}");
    let (status, detail) = client.post("/v1/views/velocity/rows", r#"{"keys": [{"device": "a"}], "paths": 1}"#).await.problem();
    assert!(status == 400 && detail.contains("no JOIN"), "{status} {detail}");
    let (status, detail) = ask(r#"{"keys": [{"device": "a"}], "paths": "many"}"#).await.problem();
    assert!(status == 400 && detail.contains("paths"), "{status} {detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_say_in_which_columns_they_count_and_are_asked_for_by_one() {
    let client = Client::new().await;
    client
        .harness
        .define_view(
            "shared",
            "CREATE VIEW shared AS SELECT mine.device, \
             count(DISTINCT theirs.device) FILTER (WHERE theirs.device <> mine.device) AS linked, count(DISTINCT theirs.device) AS devices \
             FROM payments mine JOIN payments theirs ON mine.status = theirs.status GROUP BY mine.device",
        )
        .await;
    let row = async |asked: &str| client.get(&format!("/v1/views/shared/row?device=a{asked}")).await;
    let ends = |answer: &Value| -> Vec<(Value, Value)> {
        let paths = answer["paths"].as_array().unwrap();
        paths.iter().map(|path| (path["far_device"].clone(), path["counted_in"].clone())).collect()
    };
    let linked = (json!("c<&"), json!(["linked", "devices"]));
    let all = row("&_paths=5").await.json();
    let with_null = [(json!("a"), json!(["devices"])), linked.clone(), (Value::Null, json!([]))];
    assert_eq!(ends(&all), with_null, "count(DISTINCT ..) takes no NULL");
    assert_eq!(ends(&row("&_paths=1&_of=linked").await.json()), std::slice::from_ref(&linked));
    let body = r#"{"keys": [{"device": "a"}, {"device": "nobody"}], "paths": 1, "of": "linked"}"#;
    assert_eq!(ends(&client.post("/v1/views/shared/rows", body).await.json()), [linked]);

    for column in ["linkd", "device"] {
        let (status, detail) = row(&format!("&_paths=1&_of={column}")).await.problem();
        let expected = format!("\"{column}\" is not a column of the view in which paths count: expected one of linked, devices");
        assert_eq!((status, detail), (400, expected));
    }
    let (status, detail) = row("&_of=linked").await.problem();
    assert!(
        status == 400 && detail.contains("paths that count in \"linked\" are requested without a number of paths"),
        "{status} {detail}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_is_answered_as_json_and_as_an_arrow_stream() {
    let client = Client::new().await;
    let query = r#"{"query": "SELECT device, amount_7d FROM velocity WHERE device = $1", "params": ["a"]}"#;
    let reply = client.post("/v1/sql", query).await;
    assert_eq!(reply.json()["rows"], json!([{"device": "a", "amount_7d": "115.50"}]));
    assert_eq!(reply.json()["meta"]["versions"], json!({"velocity": 1}));

    let reply = client.send("POST", "/v1/sql", "accept: application/vnd.apache.arrow.stream\r\n", query.as_bytes()).await;
    assert!(
        reply.head.contains("content-type: application/vnd.apache.arrow.stream") && reply.head.contains("basestream-meta: {\"cut\":"),
        "{}",
        reply.head
    );
    let reader = StreamReader::try_new(reply.body.as_slice(), None).unwrap();
    let meta: Value = serde_json::from_str(&reader.schema().metadata()["basestream-meta"]).unwrap();
    assert_eq!(meta["versions"], json!({"velocity": 1}));
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    assert_eq!(batches[0].schema().field(1).name(), "amount_7d");
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_is_answered_as_lines_of_json_and_as_csv() {
    let client = Client::new().await;
    let body = json!({ "query": "SELECT 'a, \"b\"' AS text, '' AS empty, NULL AS nothing, 1.50 AS number, ['x', 'y'] AS list UNION ALL \
        SELECT 'plain', 'e', 'n', 2.25, NULL ORDER BY number" });
    let lines = client.send("POST", "/v1/sql", "accept: application/x-ndjson\r\n", body.to_string().as_bytes()).await;
    assert!(lines.head.contains("content-type: application/x-ndjson") && lines.head.contains("basestream-meta"), "{}", lines.head);
    let rows: Vec<Value> =
        lines.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_slice(line).unwrap()).collect();
    let document = client.post("/v1/sql", &body.to_string()).await;
    assert_eq!(Value::Array(rows), document.json()["rows"]);

    let refused = client.send("POST", "/v1/sql", "accept: text/csv;q=0, application/json;q=0.5\r\n", body.to_string().as_bytes()).await;
    assert_eq!(refused.json()["rows"], document.json()["rows"]);
    let csv = client.send("POST", "/v1/sql", "accept: text/csv;q=0.9, application/json;q=0.1, */*\r\n", body.to_string().as_bytes()).await;
    let expected = "text,empty,nothing,number,list\r\n\"a, \"\"b\"\"\",\"\",,1.50,\"[\"\"x\"\",\"\"y\"\"]\"\r\nplain,e,n,2.25,\r\n";
    assert_eq!(String::from_utf8(csv.body).unwrap(), expected);

    let nothing = json!({ "query": "SELECT device, n_1h FROM velocity WHERE n_1h > 1000" }).to_string();
    let csv = client.send("POST", "/v1/sql", "accept: text/csv\r\n", nothing.as_bytes()).await;
    assert_eq!(csv.body, b"device,n_1h\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_waits_until_it_counts_what_was_appended() {
    let client = Client::new().await;
    let ask = async |path: &str| client.get(path).await;
    // Offset 5 of partition 0 is not there yet.
    let (reply, ()) = tokio::join!(ask("/v1/views/velocity/row?device=a&_after=payments/0:6"), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "a", "1.00", "ok")]).await;
    });
    assert_eq!((reply.status, &reply.json()["row"]["n_1h"]), (200, &json!(3)), "{}", String::from_utf8_lossy(&reply.body));

    let body = json!({ "query": "SELECT sum(n_1h) AS n FROM velocity", "after": reply.json()["meta"]["cut"] });
    assert_eq!(client.post("/v1/sql", &body.to_string()).await.json()["rows"][0]["n"], 4);
    let keys = json!({ "keys": [{ "device": "a" }], "after": "payments/0:6" });
    assert_eq!(client.post("/v1/views/velocity/rows", &keys.to_string()).await.json()["rows"][0]["n_1h"], 3);
    let views = json!({ "views": { "velocity": [{ "device": "a" }] }, "after": "payments/0:6" });
    assert_eq!(client.post("/v1/rows", &views.to_string()).await.json()["views"]["velocity"]["rows"][0]["n_1h"], 3);

    // The stream itself has what is committed: the query waits for a checkpoint, here in vain.
    let stream = json!({ "query": "SELECT count(*) AS n FROM payments", "after": "payments/0:6", "timeout_ms": 50 });
    let (status, detail) = client.post("/v1/sql", &stream.to_string()).await.problem();
    assert!(status == 503 && detail.contains("timeout_ms of 50"), "{status} {detail}");
    let (status, detail) = client.get("/v1/views/velocity/row?device=a&_after=nowhere/0:1").await.problem();
    assert!(status == 404 && detail.contains("\"nowhere\""), "{status} {detail}");
    let (status, detail) = client.get("/v1/views/velocity/row?device=a&_after=then").await.problem();
    assert!(status == 400 && detail.contains("expected the `position` of an append"), "{status} {detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_in_a_partition_that_the_topic_lacks_is_not_waited_for() {
    let client = Client::new().await;
    let expected = "the partition 99 of the stream \"payments\", whose topic has 2 partitions";
    let began = std::time::Instant::now();
    let (status, detail) = client.get("/v1/views/velocity/row?device=a&_after=payments/99:1").await.problem();
    assert!(status == 404 && detail.contains(expected), "{status} {detail}");
    let query = json!({ "query": "SELECT count(*) AS n FROM payments", "after": "payments/0:5,payments/99:1" });
    let (status, detail) = client.post("/v1/sql", &query.to_string()).await.problem();
    assert!(status == 404 && detail.contains(expected), "{status} {detail}");
    assert!(began.elapsed() < crate::MOST_WAITED, "neither waited in vain");
    // Nothing is counted before it.
    assert_eq!(client.get("/v1/views/velocity/row?device=a&_after=payments/99:0").await.status, 200);
}

/// It has what is committed, although the node counts more.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_the_archive_waits_until_what_was_appended_is_committed() {
    let client = Client::new().await;
    let appended = [event("9", "2026-03-01T10:05:00Z", "a", "1.00", "ok")];
    client.harness.fresh(0, &appended).await;
    let as_of = "2026-03-01T10:10:00Z";
    let sql = json!({
        "query": format!("SET as_of = '{as_of}'; SELECT n_1h FROM velocity WHERE device = 'a'"),
        "after": "payments/0:6",
    });
    let keys = json!({ "keys": [{ "device": "a" }], "as_of": as_of, "after": "payments/0:6" });
    let views = json!({ "views": { "velocity": [{ "device": "a" }] }, "as_of": as_of, "after": "payments/0:6" });
    let (sql, keys, views) = (sql.to_string(), keys.to_string(), views.to_string());
    let path = format!("/v1/views/velocity/row?device=a&_as_of={as_of}&_after=payments/0:6");
    let (row, of_sql, of_keys, of_views, ()) = tokio::join!(
        client.get(&path),
        client.post("/v1/sql", &sql),
        client.post("/v1/views/velocity/rows", &keys),
        client.post("/v1/rows", &views),
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            client.harness.withdraw(0);
            client.harness.checkpoint(0, &appended).await;
            client.harness.node.refresh().await.unwrap();
        }
    );
    let (row, of_sql, of_keys, of_views) = (row.json(), of_sql.json(), of_keys.json(), of_views.json());
    assert_eq!(row["meta"]["from_archive"], true, "{row}");
    let counted = [&row["row"]["n_1h"], &of_sql["rows"][0]["n_1h"], &of_keys["rows"][0]["n_1h"]];
    assert_eq!(counted, [&json!(2), &json!(2), &json!(2)]);
    assert_eq!(of_views["views"]["velocity"]["rows"][0]["n_1h"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_is_compressed_where_that_is_accepted() {
    let client = Client::new().await;
    let body = json!({ "query": "SELECT 'the same text again' AS text FROM range(1, 2000)" }).to_string();
    let plain = client.post("/v1/sql", &body).await;
    for encoding in ["gzip", "zstd"] {
        let zipped = client.send("POST", "/v1/sql", &format!("accept-encoding: {encoding}\r\n"), body.as_bytes()).await;
        let is_encoded = zipped.head.contains(&format!("content-encoding: {encoding}"));
        assert!(is_encoded && zipped.body.len() * 10 < plain.body.len(), "{}", zipped.head);
    }
    let row = client.send("GET", "/v1/views/velocity/row?device=a", "accept-encoding: gzip\r\n", b"").await;
    assert!(!row.head.contains("content-encoding"), "{}", row.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_rows_that_is_compressed_comes_to_its_end() {
    let client = Client::new().await;
    let body = json!({ "query": "SELECT 'the same text again' AS text FROM range(1, 2000)" }).to_string();
    for media_type in ["application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"] {
        for encoding in ["gzip", "zstd", "identity"] {
            let request = format!(
                "POST /v1/sql HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\naccept: {media_type}\r\n\
                 accept-encoding: {encoding}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let mut connection = TcpStream::connect(client.address()).await.unwrap();
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut all = Vec::new();
            connection.read_to_end(&mut all).await.unwrap();
            assert!(all.starts_with(b"HTTP/1.1 200") && all.ends_with(b"\r\n0\r\n\r\n"), "{media_type} {encoding}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_appended_and_the_broken_ones_named() {
    let client = Client::limited(ServingLimits::default()).await;
    let good = event("20", "2026-03-02T11:59:00Z", "a", "1.00", "ok");
    let array = format!("[{good}, {{\"id\": \"21\"}}, 7, {good}]");
    let reply = client.post("/v1/streams/payments/events", &array).await;
    assert_eq!(reply.status, 202);
    let answer = reply.json();
    assert_eq!((&answer["accepted"], answer["rejected"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!((&answer["rejected"][0]["index"], &answer["rejected"][1]["index"]), (&json!(1), &json!(2)));
    assert!(answer["rejected"][0]["error"].as_str().unwrap().contains("column ts"), "{answer}");

    let lines = format!("{good}\n\nnot json\n{}\r\n", event("22", "2026-03-02T11:59:00Z", "", "1.00", "ok"));
    let answer = client.post("/v1/streams/payments/events", &lines).await.json();
    assert_eq!((&answer["accepted"], &answer["rejected"][0]["index"]), (&json!(2), &json!(1)));
    let pretty = "{\n \"id\": \"23\",\n \"ts\": \"2026-03-02T11:59:00Z\", \"device\": \"a\", \"amount\": 1, \"status\": \"ok\"\n}";
    assert_eq!(client.post("/v1/streams/payments/events", pretty).await.json()["accepted"], 1);

    let bounds = client.harness.log.bounds("payments").await.unwrap();
    assert_eq!(bounds.iter().map(|bounds| bounds.end.0).sum::<i64>(), 5);
    let position: types::vector::Vector = answer["position"].as_str().unwrap().parse().unwrap();
    assert!(position.iter().all(|(id, next)| &*id.stream == "payments" && next.0 > 0));

    assert_eq!(client.post("/v1/streams/payments/events", "  ").await.problem().0, 400);
    let zipped = client.send("POST", "/v1/streams/payments/events", "content-encoding: gzip\r\n", &[0x1f, 0x8b, 8, 0]).await;
    assert_eq!(zipped.problem(), (400, "the body is compressed (Content-Encoding: gzip): expected it uncompressed".into()));
    let plain = client.send("POST", "/v1/streams/payments/events", "content-encoding: identity\r\n", good.as_bytes()).await;
    assert_eq!(plain.json()["accepted"], 1);
    let (status, mistake) = client.post("/v1/streams/payments/events", "[{\"id\": \"24\"}, {\"id\": ]").await.problem();
    assert_eq!(status, 400);
    assert!(mistake.ends_with("at $[1].id (line 1, column 23); expected a JSON array of events, or one event per line"), "{mistake}");
    assert_eq!(
        client.post("/v1/streams/nothing/events", "{}").await.problem(),
        (404, "there is no stream \"nothing\": expected one of payments".into())
    );
    let large = vec![b' '; super::MAX_BODY_BYTES + 1];
    assert_eq!(client.send("POST", "/v1/streams/payments/events", "", &large).await.problem().0, 413);
}

/// The speed layer would not read them.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_refused_where_the_log_is_not_the_one_whose_records_are_committed() {
    let client = Client::new().await;
    let (status, detail) =
        client.post("/v1/streams/payments/events", &event("20", "2026-03-02T11:59:00Z", "a", "1.00", "ok")).await.problem();
    assert_eq!(status, 503);
    assert!(detail.contains("the log is not the one that the catalog knows"), "{detail}");
    assert!(client.harness.log.bounds("payments").await.unwrap().iter().all(|bounds| bounds.end.0 == 0));
}

/// The node does not know yet that nothing is read from it any more.
#[tokio::test(flavor = "multi_thread")]
async fn events_in_a_topic_that_the_stream_has_left_are_not_acknowledged() {
    let client = Client::limited(ServingLimits::default()).await;
    let catalog = &client.harness.catalog;
    let state = catalog.state().await.unwrap();
    let first = state.definitions.get(DefinitionKind::Stream, "payments", 1).unwrap();
    let version = |version, status, sql: &str| Add::Definition(DefinitionRecord { version, status, sql: sql.into(), ..first.clone() });
    let posted = || async { client.post("/v1/streams/payments/events", &event("20", "2026-03-02T11:59:00Z", "a", "1.00", "ok")).await };
    let add = vec![version(1, DefinitionStatus::Redecoded, PAYMENTS), version(2, DefinitionStatus::Active, PAYMENTS)];
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    assert_eq!(posted().await.status, 202, "it is in the same topic");
    let elsewhere = PAYMENTS.replace("WITH (", "WITH (topic = 'orders', ");
    let add = vec![version(2, DefinitionStatus::Redecoded, PAYMENTS), version(3, DefinitionStatus::Active, &elsewhere)];
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    let (status, detail) = posted().await.problem();
    assert_eq!(status, 503);
    assert!(detail.contains("was defined anew while events were appended"), "{detail}");
}

/// Each said that it has the most bytes that one may have, and sent none.
#[tokio::test(flavor = "multi_thread")]
async fn while_there_is_no_room_for_more_bodies_they_are_told_to_come_again() {
    let client = Client::new().await;
    let head = format!("POST /v1/streams/payments/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", super::MAX_BODY_BYTES);
    let announce = async || {
        let mut connection = TcpStream::connect(client.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connection
    };
    let mut unfinished = Vec::new();
    for _ in 0..super::MAX_BODIES_BYTES / super::MAX_BODY_BYTES {
        unfinished.push(announce().await);
    }
    let until = async |status: u16| {
        for _ in 0..6_000 {
            let reply = client.post("/v1/sql", r#"{"query": "SELECT 1 AS one"}"#).await;
            if reply.status == status {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never {status}");
    };
    // The query that asks takes room itself: a body that arrives at that moment is refused, and another takes its
    // place.
    let mut refused = client.post("/v1/sql", r#"{"query": "SELECT 1 AS one"}"#).await;
    for _ in 0..1000 {
        if refused.status == 429 {
            break;
        }
        unfinished.push(announce().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
        refused = client.post("/v1/sql", r#"{"query": "SELECT 1 AS one"}"#).await;
    }
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert!(refused.problem().1.contains("try again"));
    for path in ["/v1/streams/payments/events", "/v1/views/velocity/rows"] {
        assert_eq!(client.post(path, "{}").await.problem().0, 429, "{path}");
    }
    assert_eq!(client.get("/v1/views/velocity/row?device=a").await.status, 200, "what has no body is answered");
    drop(unfinished);
    until(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_asked_for_once() {
    let client = Client::new().await;
    let reply = client.post("/v1/views/velocity/runs", "").await;
    assert_eq!(reply.status, 202);
    let again = client.post("/v1/views/velocity/runs", "").await.json();
    assert_eq!(again["run"], reply.json()["run"]);
    let runs = client.harness.catalog.state().await.unwrap().runs.clone();
    assert_eq!(runs.len(), 1);
    assert_eq!((&*runs[0].view, runs[0].status), ("velocity", catalog::RunStatus::Requested));
    assert_eq!(client.post("/v1/views/nothing/runs", "").await.problem().0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_says_what_it_is() {
    let client = Client::new().await;
    let view = client.get("/v1/views/velocity").await.json();
    assert_eq!((&view["version"], &view["keys"], &view["windows"]), (&json!(1), &json!(["device"]), &json!(["1h", "7d"])));
    assert_eq!(view["columns"][0], json!({"name": "device", "type": "TEXT", "key": true, "window": null, "approximate": false}));
    assert_eq!(
        view["columns"][3],
        json!({"name": "amount_1h", "type": "DECIMAL(28,2)", "key": false, "window": "1h", "approximate": false})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_answered_as_problems() {
    let client = Client::new().await;
    let cases = [
        ("GET", "/v1/views/nothing", "", 404),
        ("GET", "/v1/views/%FF", "", 400),
        ("GET", "/v1/views/velocity/row", "", 400),
        ("GET", "/v1/views/velocity/row?device=a&_as_off=1", "", 400),
        ("GET", "/v1/views/velocity/row?device=%FF", "", 400),
        ("GET", "/v1/views/velocity/row?device=a&_after=payments/0:1&_after=payments/1:1", "", 400),
        ("GET", "/v1/alerts?alert=%FF", "", 400),
        ("GET", "/v1/views/velocity/row?device=a&_as_of=2026-03-01", "", 400),
        ("POST", "/v1/views/velocity/row?device=a", "", 405),
        ("POST", "/v1/views/velocity/rows", "{\"keys\": 7}", 400),
        ("POST", "/v1/views/velocity/rows", "{\"keys\": [], \"limit\": 7}", 400),
        ("POST", "/v1/sql", "SELECT 1", 400),
        ("POST", "/v1/sql", "{\"query\": \"DROP TABLE velocity\"}", 400),
        ("POST", "/v1/sql", "{\"query\": \"SELECT * FROM nothing\"}", 400),
        ("GET", "/v2", "", 404),
        ("GET", "/metrics", "", 404),
    ];
    for (method, path, body, status) in cases {
        let reply = client.send(method, path, "", body.as_bytes()).await;
        assert_eq!(reply.problem().0, status, "{method} {path}: {}", String::from_utf8_lossy(&reply.body));
    }
    let detail = client.get("/v1/views/velocity/row?devise=a").await.problem().1;
    assert_eq!(detail, "\"devise\" is not a key column of the view: expected device TEXT");
    assert_eq!(client.get("/v2").await.problem().1, "there is no such path: GET /v1/openapi.json lists them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_takes_too_long_is_stopped_and_names_the_setting() {
    let harness = Harness::filled().await;
    let node = harness.node_with_query_timeout(Duration::from_millis(50)).await;
    let client = Client::of_node(harness, node).await;
    // Ten thousand million rows.
    let slow = "SELECT sum(a.x + b.x) FROM range(1, 100001) AS a (x) CROSS JOIN range(1, 100001) AS b (x)";
    let (status, detail) = client.post("/v1/sql", &json!({ "query": slow }).to_string()).await.problem();
    assert_eq!(status, 503);
    assert!(detail.starts_with("the query was stopped after 50ms, the setting serving.query_timeout: "), "{detail}");
    assert_eq!(client.get("/v1/views/velocity/row?device=a").await.status, 200, "the setting is about queries alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_cannot_post() {
    let client = Client::new().await;
    let body = br#"{"query": "SELECT 1 AS one"}"#;
    assert_eq!(client.send("POST", "/v1/sql", "sec-fetch-site: cross-site\r\n", body).await.problem().0, 403);
    assert_eq!(client.send("POST", "/v1/sql", "sec-fetch-site: same-origin\r\n", body).await.status, 200);
    assert_eq!(client.send("POST", "/v1/sql", "origin: http://evil.example\r\n", body).await.problem().0, 403);
    assert_eq!(client.send("POST", "/v1/sql", "origin: http://localhost\r\n", body).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_needs_nothing_from_elsewhere_and_health_is_reported() {
    let client = Client::new().await;
    assert_eq!(client.get("/healthz").await.json(), json!({"status": "ok"}));
    let ready = client.get("/readyz").await.json();
    assert_eq!((&ready["status"], &ready["views_copying"]), (&json!("ready"), &json!([])));
    let page = client.get("/").await;
    assert!(page.head.contains("content-security-policy: default-src 'none'"));
    let text = String::from_utf8(page.body).unwrap();
    for outside in ["http://", "https://", "src=", "@import", "innerHTML", "insertAdjacentHTML", "document.write"] {
        assert!(!text.replace("http://www.w3.org/2000/svg", "").contains(outside), "the page has {outside}");
    }
}

/// A snapshot has more of them than its view has rows.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_calls_state_rows_by_their_name() {
    let client = Client::new().await;
    let page = String::from_utf8(client.get("/").await.body).unwrap();
    let of_row = ["snapshot_rows", "rows_written"].map(|field| format!(r#""state rows": row => number(row.{field})"#));
    assert!(page.contains("<dt>state rows</dt>") && of_row.iter().all(|column| page.contains(column)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_view_shows_wherever_health_does() {
    let client = Client::new().await;
    let archived = client.harness.catalog.state().await.unwrap().files.clone();
    for file in archived.iter().filter(|file| file.kind == FileKind::Archive) {
        client.harness.storage.delete(&file.path).await.unwrap();
    }
    // The others are loaded; a new one needs the archive.
    client.harness.define_view("late", "CREATE VIEW late AS SELECT status, count(*) AS n FROM payments GROUP BY status").await;

    let (reply, of_others) = (client.get("/readyz").await, client.get("/readyz?refused=ok").await);
    let ready = reply.json();
    assert_eq!((reply.status, &ready["status"], &ready["views_refused"][0]["view"]), (503, &json!("degraded"), &json!("late")));
    assert_eq!((of_others.status, of_others.json()), (200, ready));

    let views = client.get("/v1/views").await.json();
    let refused: Vec<bool> = views["views"].as_array().unwrap().iter().map(|view| view["refused"].is_string()).collect();
    assert_eq!(refused, [true, false, false, false], "{views}");
    let query = "SELECT view, served, refused IS NOT NULL AS refused FROM system.views WHERE NOT served OR refused IS NOT NULL";
    let shown = client.post("/v1/sql", &json!({ "query": query }).to_string()).await.json();
    assert_eq!(shown["rows"], json!([{"view": "late", "served": false, "refused": true}]));
    let page = String::from_utf8(client.get("/").await.body).unwrap();
    assert!(page.contains(r#"errors ? "dot bad""#) && page.contains(r#"withReason("refused", "bad", row.refused)"#));
}

/// A node that may compute the states of two archived events, and a view whose three nothing holds.
async fn building() -> Client {
    let harness = Harness::with_settings(|settings| NodeSettings { max_rebuilt_events: 2, ..settings }).await;
    let events = ["1", "2", "3"].map(|id| event(id, "2026-03-02T11:30:00Z", "a", "10.00", "ok"));
    harness.checkpoint(0, &events).await;
    for view in ["velocity", "totals"] {
        harness.snapshot(view).await;
    }
    harness.node.refresh().await.unwrap();
    let node = harness.node.clone();
    Client::of_node(harness, node).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_being_built_says_how_far_it_is_and_the_others_are_answered() {
    let client = building().await;
    let refused = client.get("/v1/views/pairs/row?device=a&status=ok").await;
    assert_eq!(refused.problem(), (503, "the view \"pairs\" is being built from 3 archived events: waits for its run".to_owned()));
    assert!(refused.head.contains("retry-after: 5"), "{}", refused.head);

    let mut run = client.harness.catalog.request_run(&"pairs".into(), 1).await.unwrap();
    run = RunRecord { status: RunStatus::Running, started_at: Some(NOW - 20_000_000), events_read: 1, ..run };
    run.cut = Some(client.harness.node.loaded().unwrap().vector.clone());
    client.harness.catalog.commit(Commit { id: Uuid::now_v7(), add: vec![Add::Run(run)], ..Commit::default() }).await.unwrap();
    client.harness.node.refresh().await.unwrap();

    let progress = json!({"version": 1, "percent": 33, "events_read": 1, "events": 3, "seconds_left": 40});
    let sql = json!({"query": "SELECT * FROM pairs"}).to_string();
    let keys = json!({"keys": [{"device": "a", "status": "ok"}]}).to_string();
    let views = json!({"views": {"pairs": [], "velocity": [{"device": "a"}]}}).to_string();
    for (path, body) in [("/v1/sql", &sql), ("/v1/views/pairs/rows", &keys), ("/v1/rows", &views)] {
        let refused = client.post(path, body).await;
        assert_eq!(refused.problem().0, 503);
        assert!(refused.head.contains("retry-after: 30"), "{}", refused.head);
        let problem = refused.json();
        let fields =
            ["version", "percent", "events_read", "events", "seconds_left"].map(|field| (field.to_owned(), problem[field].clone()));
        assert_eq!(Value::Object(fields.into_iter().collect()), progress);
        assert!(problem["help"].as_str().unwrap().contains("basestream batch run pairs"), "{problem}");
    }
    let described = client.get("/v1/views/pairs").await.json();
    assert_eq!((&described["building"], &described["keys"]), (&progress, &json!(["device", "status"])));
    let listed = client.get("/v1/views").await.json();
    let of_list: Vec<&Value> = listed["views"].as_array().unwrap().iter().map(|view| &view["building"]).collect();
    assert_eq!(of_list, [&progress, &Value::Null, &Value::Null]);
    let ready = client.get("/readyz").await;
    assert_eq!(
        (ready.status, &ready.json()["views_building"][0]["percent"], &ready.json()["views_not_loaded"]),
        (200, &json!(33), &json!([]))
    );
    let query = json!({"query": "SELECT view, percent_built, seconds_left FROM system.views WHERE NOT served"}).to_string();
    let shown = client.post("/v1/sql", &query).await.json();
    assert_eq!(shown["rows"], json!([{"view": "pairs", "percent_built": 33, "seconds_left": 40}]));
    assert_eq!(client.get("/v1/views/velocity/row?device=a").await.json()["row"]["n_1h"], 3);

    client.harness.snapshot("pairs").await;
    assert_eq!(client.get("/v1/views/pairs/row?device=a&status=ok").await.json()["row"]["n"], 3);
    assert_eq!(client.get("/v1/views/pairs").await.json()["building"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_another_release_over_many_events_is_no_answer() {
    let client = building().await;
    client.harness.snapshot_of_release("pairs", " of another release").await;
    assert_eq!(client.get("/v1/views/pairs/row?device=a&status=ok").await.problem().0, 503);
    assert_eq!(client.get("/v1/views/velocity/row?device=a").await.json()["row"]["n_1h"], 3);
    let patient = client.harness.node_that_rebuilds(3).await;
    let response = patient.query("SELECT n FROM pairs", Vec::new()).await.unwrap();
    assert_eq!(serde_json::to_value(&response.meta).unwrap()["degraded"], true, "few events are computed without it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_asked_for_while_a_view_is_being_built() {
    let client = building().await;
    assert_eq!(client.post("/v1/views/pairs/runs", "").await.json()["status"], "requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_refresh_may_not_compute_for_all_views_the_next_ones_do() {
    let harness = Harness::new().await;
    harness.checkpoint(0, &[event("1", "2026-03-02T11:30:00Z", "a", "10.00", "ok")]).await;
    let node = harness.node_that_rebuilds(2).await;
    let served = |node: &Node| (node.loaded().unwrap().views.len(), node.loaded().unwrap().building.len());
    assert_eq!(served(&node), (2, 1));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (node, stop) = (node.clone(), stop.clone());
        async move { node.run(stop).await }
    });
    for _ in 0..6_000 {
        if served(&node) == (3, 0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(served(&node), (3, 0));
    stop.cancel();
    running.await.unwrap();
    assert_eq!(served(&harness.node_of(WantedViews::All).await), (3, 0), "a node that is opened for one query waits for all views");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_write_is_not_ready_says_why_and_answers() {
    let client = Client::new().await;
    client.harness.note(Err(types::Error::unavailable("no space left on device")));
    let reply = client.get("/readyz").await;
    let outage = json!({"what": "the speed layer cannot commit", "seconds": 0, "error": "no space left on device"});
    assert_eq!((reply.status, &reply.json()["status"], &reply.json()["outages"]), (503, &json!("not ready"), &json!([outage])));
    assert_eq!(client.get("/v1/views/velocity/row?device=a").await.json()["found"], true);
    client.harness.note(Ok(()));
    let reply = client.get("/readyz").await;
    assert_eq!((reply.status, &reply.json()["outages"]), (200, &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stops_when_it_is_asked_to() {
    let client = Client::new().await;
    client.stop.cancel();
    client.task.await.unwrap();
    assert!(TcpStream::connect(client.address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zones_plus_that_is_not_escaped_is_understood() {
    let client = Client::new().await;
    let at = async |time: &str| client.get(&format!("/v1/views/velocity/row?device=a&_as_of={time}")).await;
    for time in ["2026-03-01T12:10:00+02:00", "2026-03-01+12:10:00+02:00", "2026-03-01%2012:10:00%2B02", "2026-03-01+10:10:00Z"] {
        assert_eq!(at(time).await.json()["meta"]["as_of"], "2026-03-01T10:10:00Z", "{time}");
    }
    assert_eq!(at("2026-03-01+12:10:00").await.problem().0, 400, "a time without a zone stays one");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_and_streams_are_listed() {
    let client = Client::new().await;
    let views = client.get("/v1/views").await.json();
    let names: Vec<&Value> = views["views"].as_array().unwrap().iter().map(|view| &view["view"]).collect();
    assert_eq!(names, ["pairs", "totals", "velocity"]);
    let velocity = json!({
        "view": "velocity", "version": 1, "status": "active", "building": null, "refused": null, "keys": ["device"], "windows": ["1h", "7d"], "streams": ["payments"],
    });
    assert_eq!(views["views"][2], velocity);
    let streams = client.get("/v1/streams").await.json();
    let payments = &streams["streams"][0];
    assert_eq!((&payments["stream"], &payments["event_time"]), (&json!("payments"), &json!("ts")));
    assert_eq!(payments["columns"][3], json!({"name": "amount", "type": "DECIMAL(18,2)", "nullable": false}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_is_not_answered_is_reported_with_the_one_that_is() {
    let client = Client::new().await;
    let paths = [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/status",
        "/v1/views",
        "/v1/views/a",
        "/v1/views/a/row",
        "/v1/views/a/rows",
        "/v1/views/a/runs",
        "/v1/sql",
        "/v1/streams",
        "/v1/streams/a/events",
    ];
    for path in paths {
        let reply = client.send("DELETE", path, "", b"").await;
        let (status, detail) = reply.problem();
        let allowed = if reply.head.contains("allow: post") { "POST" } else { "GET" };
        assert_eq!(status, 405, "{path}");
        assert!(detail.ends_with(&format!("expected {allowed}")) && reply.head.contains("allow: "), "{path}: {detail}\n{}", reply.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_place_of_a_mistake_is_reported_in_numbers() {
    let client = Client::new().await;
    let problem = client.post("/v1/sql", r#"{"query": "SELECT device,\n summ(n_7d) FROM velocity"}"#).await.json();
    assert_eq!((&problem["line"], &problem["column"]), (&json!(2), &json!(2)), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_asked_as_a_view_is_reported_as_a_stream() {
    let client = Client::new().await;
    let (status, detail) = client.get("/v1/views/payments/row?device=a").await.problem();
    assert_eq!(status, 404);
    assert_eq!(detail, "\"payments\" is a stream, and this is about views: expected one of pairs, totals, velocity");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_clips_what_is_long_and_has_all_of_it_in_a_title() {
    let client = Client::new().await;
    let page = String::from_utf8(client.get("/").await.body).unwrap();
    assert!(page.contains("td.long { max-width: 460px; overflow: hidden; text-overflow: ellipsis; }") && page.contains("td.title = text"));
}

/// The clock of its partition decides about it when it is read, and may be ahead of any clock that is known here.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_dated_ahead_is_appended() {
    let client = Client::limited(ServingLimits::default()).await;
    let ahead = event("20", "2126-03-02T11:59:00Z", "a", "1.00", "ok");
    let reply = client.post("/v1/streams/payments/events", &ahead).await;
    assert_eq!((reply.status, &reply.json()["accepted"], &reply.json()["rejected_count"]), (202, &json!(1), &json!(0)));
}

/// Found by an attacker: 16 MiB of them were answered with two million errors.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_broken_events_the_first_are_named_and_all_counted() {
    let client = Client::limited(ServingLimits::default()).await;
    let good = event("20", "2026-03-02T11:59:00Z", "a", "1.00", "ok");
    let lines = format!("{{}}\n{good}\n{}", "{}\n".repeat(100_000));
    let reply = client.post("/v1/streams/payments/events", &lines).await;
    assert_eq!(reply.status, 202);
    let answer = reply.json();
    assert_eq!((&answer["accepted"], &answer["rejected_count"]), (&json!(1), &json!(100_001)));
    let reported = answer["rejected"].as_array().unwrap();
    assert_eq!((reported.len(), &reported[0]["index"], &reported[999]["index"]), (1000, &json!(0), &json!(1000)));

    let answer = client.post("/v1/streams/payments/events", &good).await.json();
    assert_eq!((&answer["rejected"], &answer["rejected_count"]), (&json!([]), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_repeats_no_more_than_the_beginning_of_a_long_request() {
    let client = Client::new().await;
    let long = "x".repeat(20_000);
    for path in
        [format!("/v1/views/{long}"), format!("/v1/views/velocity/row?{long}=1"), format!("/v1/views/velocity/row?device=a&_as_of={long}")]
    {
        let reply = client.get(&path).await;
        assert!(reply.body.len() < 3_000, "{} bytes", reply.body.len());
        assert!(reply.problem().1.contains("xxx"), "it says what it is about");
    }
    let sql = client.post("/v1/sql", &json!({ "query": format!("SELECT {long} FROM velocity") }).to_string()).await;
    assert!(sql.status == 400 && sql.body.len() < 3_000, "{} bytes", sql.body.len());
}

/// A page of another site whose name leads here.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_the_name_of_another_site_is_refused() {
    let client = Client::new().await;
    let mut connection = TcpStream::connect(client.address).await.unwrap();
    connection.write_all(b"GET /v1/views HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("evil.example") && !answer.contains("velocity"), "{answer}");
    assert_eq!(client.get("/v1/views").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_of_this_is_answered() {
    let client = Client::new().await;
    let reply = client.get("/v1/openapi.json").await;
    assert!(reply.head.contains("content-type: application/json"), "{}", reply.head);
    assert!(reply.json()["paths"]["/v1/sql"]["post"].is_object());
}
