use std::net::SocketAddr;

use definitions::settings::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn serving(address: SocketAddr) -> ServingSettings {
    ServingSettings { http: address.to_string(), ..Settings::default().serving }
}

/// Answers one request with this status and body.
async fn answering(status: &'static str, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4_096]).await;
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let _ = stream.write_all(answer.as_bytes()).await;
    });
    address
}

#[tokio::test]
async fn what_a_node_does_not_tell_is_named_with_the_reason() {
    for (status, body, reason) in [
        ("200 OK", r#"{"status": "ready", "catalog": "c", "revision": 7}"#, "it tells this caller its status alone"),
        ("200 OK", r#"{"status": "ready"}"#, "it tells this caller its status alone"),
        ("401 Unauthorized", r#"{"title": "Unauthorized", "status": 401}"#, "it asks for a token"),
        ("403 Forbidden", r#"{"title": "Forbidden", "status": 403}"#, "the token may not read the process"),
        ("404 Not Found", "<h1>nothing here</h1>", "what answers there is not a node of basestream"),
    ] {
        let address = answering(status, body).await;
        match ask_node(&serving(address)).await {
            NodeAnswer::Unasked(unasked) => {
                assert_eq!((unasked.address, &*unasked.reason), (format!("http://{address}"), reason), "{body}");
            }
            NodeAnswer::Facts(_) | NodeAnswer::Silent => panic!("{body}"),
        }
    }
}

#[tokio::test]
async fn a_node_says_what_fails_and_none_is_silent() {
    let body = r#"{"status": "not ready", "catalog": "c", "outages": [{"what": "w", "seconds": 3, "error": "e"}]}"#;
    let address = answering("503 Service Unavailable", body).await;
    let NodeAnswer::Facts(node) = ask_node(&serving(address)).await else { panic!("it answered") };
    assert_eq!((&*node.catalog, node.outages.len()), ("c", 1));
    let loading = answering("503 Service Unavailable", r#"{"title": "Service Unavailable", "status": 503}"#).await;
    assert!(matches!(ask_node(&serving(loading)).await, NodeAnswer::Silent));
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(matches!(ask_node(&serving(gone)).await, NodeAnswer::Silent));
    let unknown = ServingSettings { http: "no-such-host.invalid:1".into(), ..Settings::default().serving };
    assert!(matches!(ask_node(&unknown).await, NodeAnswer::Silent));
}

#[tokio::test]
async fn an_answer_is_read_up_to_a_limit() {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (most_bytes, read) in [(4, Some(b"1234".to_vec())), (3, None)] {
        let address = answering("200 OK", "1234").await;
        let response = client.get(format!("http://{address}/")).send().await.unwrap();
        assert_eq!(body_of(response, most_bytes).await.unwrap(), read);
    }
}
