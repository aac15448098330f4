use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::ACCEPT_ENCODING;
use axum::routing::get;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tower::util::MapResponseLayer;
use tower_http::compression::CompressionLayer;

use super::*;

/// A body that is long once it is compressed, too: what is read of it is compressed by the thread that reads.
#[tokio::test]
async fn a_body_is_compressed_on_the_threads_for_longer_queries() {
    let readers: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let noted = readers.clone();
    let answer = move || {
        let noted = noted.clone();
        let pieces = stream::iter(0_u32..4_096).map(move |number| {
            noted.lock().unwrap().insert(thread::current().name().unwrap_or_default().to_owned());
            Ok::<_, Error>(Bytes::from(number.wrapping_mul(0x9e37_79b9).to_string()))
        });
        std::future::ready(Body::from_stream(pieces))
    };
    let router = Router::new().route("/", get(answer)).layer((MapResponseLayer::new(compressed_apart), CompressionLayer::new()));
    let request = Request::get("/").header(ACCEPT_ENCODING, "gzip").body(Body::empty()).unwrap();
    let response = TowerToHyperService::new(router).call(request).await.unwrap();
    assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
    assert!(!to_bytes(response.into_body(), usize::MAX).await.unwrap().is_empty());
    assert_eq!(*readers.lock().unwrap(), BTreeSet::from(["queries".to_owned()]));
}
