//! What is beyond a limit, as a client of HTTP gets it.

use std::time::Duration;

use access::Principal;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::tests::{Client, Reply};
use crate::limits::ServingLimits;

/// Takes hours, if it is let.
const ENDLESS: &str = "SELECT a.value FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17";

async fn ask(client: &Client, sql: &str) -> Reply {
    client.post("/v1/sql", &json!({ "query": sql }).to_string()).await
}

/// The status, and the limit that was reached.
fn reached(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["limit"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_turn_does_not_come_is_refused_and_lookups_are_answered() {
    let one = ServingLimits { concurrent_queries: 1, queue_wait: Duration::from_millis(50), ..ServingLimits::default() };
    let client = Client::limited(one).await;
    let place = client.harness().node.runtime().admission().place(&Principal::anonymous()).await.unwrap();
    let refused = ask(&client, "SELECT * FROM velocity").await;
    assert_eq!(reached(&refused), (429, "serving.limits.queue_wait".to_owned()));
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);

    let row = client.send("GET", "/v1/views/velocity/row?device=a", "", b"").await;
    let rows = client.post("/v1/views/velocity/rows", r#"{"keys":[{"device":"a"},{"device":"b"}]}"#).await;
    let by_key = ask(&client, "SELECT * FROM velocity WHERE device = 'a'").await;
    assert_eq!([row.status, rows.status, by_key.status], [200; 3]);
    drop(place);
    assert_eq!(ask(&client, "SELECT * FROM velocity").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_memory_and_rows_have_their_statuses() {
    let client = Client::limited(ServingLimits { query_time: Some(Duration::from_millis(200)), ..ServingLimits::default() }).await;
    assert_eq!(reached(&ask(&client, ENDLESS).await), (503, "serving.limits.query_time".to_owned()));
    let limits = ServingLimits { query_memory_bytes: Some(4 << 20), result_rows: Some(10), ..ServingLimits::default() };
    let client = Client::limited(limits).await;
    let large = "SELECT array_agg(CAST(value AS TEXT) || repeat('x', 100)) AS texts FROM range(0, 200000)";
    assert_eq!(reached(&ask(&client, large).await), (413, "serving.limits.query_memory".to_owned()));
    assert_eq!(reached(&ask(&client, "SELECT value FROM range(0, 11)").await), (413, "serving.limits.result_rows".to_owned()));
    assert_eq!(ask(&client, "SELECT value FROM range(0, 10)").await.status, 200);
}

/// What it does not read is more than the system holds for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_its_client_does_not_read_takes_no_place() {
    let one = ServingLimits { concurrent_queries: 1, queue_wait: Duration::from_secs(60), ..ServingLimits::default() };
    let client = Client::limited(one).await;
    let body = json!({ "query": "SELECT value, repeat('x', 1000) AS text FROM range(0, 100000)" }).to_string();
    let head = "POST /v1/sql HTTP/1.0\r\nhost: localhost\r\naccept: application/x-ndjson";
    let mut slow = TcpStream::connect(client.address()).await.unwrap();
    slow.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    let mut status = [0; 12];
    slow.read_exact(&mut status).await.unwrap();
    assert!(status.ends_with(b" 200"), "{}", String::from_utf8_lossy(&status));
    assert_eq!(ask(&client, "SELECT value FROM range(0, 10)").await.status, 200);
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.windows(2).filter(|end| end == b"}\n").count(), 100_000);
}
