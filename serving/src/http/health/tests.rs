use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::tls::{ServerTls, TlsFiles};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::http::listen;

/// A process that is ready or not.
#[derive(Default)]
struct Process {
    is_ready: AtomicBool,
}

impl Readiness for Process {
    fn outages(&self) -> Vec<Outage> {
        Vec::new()
    }

    fn ready(&self) -> Result<Value> {
        match self.is_ready.load(Ordering::SeqCst) {
            true => Ok(json!({ "status": "ready", "partitions": 4 })),
            false => Err(Error::unavailable("the process is not ready: 4 partitions are being taken over")),
        }
    }
}

/// Sends a request over HTTP/1.0; returns the status, the lower-cased head and the body.
async fn send(address: std::net::SocketAddr, method: &str, path: &str) -> (u16, String, Value) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_lowercase(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn a_process_without_a_node_answers_its_health_and_why_it_is_not_ready() {
    let process = Arc::new(Process::default());
    let stop = CancellationToken::new();
    let bound = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = bound.address;
    let protection = Protection::none(Arc::new(|| 0)).unwrap();
    let task = serve_health(process.clone(), None, protection, bound, &ServingLimits::default(), stop.clone());

    assert_eq!(send(address, "GET", "/healthz").await.2, json!({"status": "ok"}));
    let (status, head, problem) = send(address, "GET", "/readyz").await;
    assert_eq!((status, &problem["type"]), (503, &json!("urn:basestream:problem:unavailable")));
    assert_eq!(problem["detail"], "the process is not ready: 4 partitions are being taken over");
    assert!(head.contains("content-type: application/problem+json"), "{head}");

    process.is_ready.store(true, Ordering::SeqCst);
    let (status, _, ready) = send(address, "GET", "/readyz").await;
    assert_eq!((status, ready), (200, json!({"status": "ready", "partitions": 4})));

    let (status, _, problem) = send(address, "GET", "/v1/views").await;
    assert_eq!((status, &problem["detail"]), (404, &json!("there is no such path: expected /healthz, /readyz or /metrics")));
    let (status, _, problem) = send(address, "POST", "/readyz").await;
    assert_eq!((status, &problem["detail"]), (405, &json!("the path does not support this method: expected GET")));
    assert_eq!(send(address, "GET", "/metrics").await.2["detail"], "this process keeps no metrics");

    stop.cancel();
    task.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody answers any more");
}

#[tokio::test]
async fn a_process_without_a_node_has_as_many_connections_as_the_setting_allows() {
    let stop = CancellationToken::new();
    let bound = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = bound.address;
    let limits = ServingLimits { http_connections: 1, ..ServingLimits::default() };
    let protection = Protection::none(Arc::new(|| 0)).unwrap();
    let task = serve_health(Arc::new(Process::default()), None, protection, bound, &limits, stop.clone());

    let first = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    let mut reply = String::new();
    second.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");

    drop((first, second));
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn a_process_without_a_node_is_not_ready_while_its_changed_certificate_cannot_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFiles { cert: folder.path().join("cert"), key: folder.path().join("key"), client_ca: None };
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(&files.cert, certificate.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    let tls = ServerTls::load(files.clone(), &["http/1.1"]).unwrap();
    let protection = Protection { tls: Some(tls.clone()), ..Protection::none(Arc::new(|| 0)).unwrap() };
    let process = Process { is_ready: AtomicBool::new(true) };
    let app = App { process: Arc::new(process), metrics: None, protection: Arc::new(protection) };
    assert!(ready(&app).is_ok());

    std::fs::write(&files.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let stop = CancellationToken::new();
    let watching = tokio::spawn({
        let stop = stop.clone();
        async move { tls.watch(stop).await }
    });
    let noticed = async {
        while ready(&app).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), noticed).await.expect("timed out: the key is not noticed");
    let error = ready(&app).unwrap_err().to_string();
    assert!(error.starts_with("the process is not ready: the changed TLS files cannot be loaded"), "{error}");
    stop.cancel();
    watching.await.unwrap();
}
