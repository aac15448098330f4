//! An HTTP proxy in front of S3 that can refuse requests with 503, lose their replies after they took effect, and delay
//! them. It counts what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode};

/// The largest request that the tests send.
const LARGEST: usize = 64 << 20;

/// The faults of requests: shares out of 100, drawn by the request's number.
#[derive(Default)]
pub struct Faults {
    /// Refused with 503, and not forwarded.
    refused: AtomicU64,
    /// Forwarded, and answered with 503 nevertheless: the reply is lost.
    lost: AtomicU64,
    /// Puts wait this long before they are forwarded.
    delay_ms: AtomicU64,
    refuse_gets: AtomicBool,
}

#[derive(Default)]
pub struct Front {
    faults: Faults,
    requests: AtomicU64,
    puts: AtomicU64,
    pub refusals: AtomicU64,
    pub losses: AtomicU64,
    http: reqwest::Client,
    upstream: String,
}

impl Front {
    /// Listens on a free port; returns the proxy and its address.
    pub async fn before(upstream: &str) -> (Arc<Front>, String) {
        let front = Arc::new(Front { upstream: upstream.to_owned(), ..Front::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().fallback(pass).with_state(front.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (front, address)
    }

    /// From now on, of 100 requests `refused` are refused, and `lost` lose their replies.
    pub fn fail(&self, refused: u64, lost: u64) {
        self.faults.refused.store(refused, Ordering::SeqCst);
        self.faults.lost.store(lost, Ordering::SeqCst);
    }

    /// Refuses reads while writes continue.
    pub fn refuse_gets(&self, refuse: bool) {
        self.faults.refuse_gets.store(refuse, Ordering::SeqCst);
    }

    /// From now on each put takes this much longer.
    pub fn delay_puts(&self, delay: Duration) {
        self.faults.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// Puts in progress.
    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::SeqCst)
    }

    async fn forward(&self, request: Request) -> Result<Response<Body>, String> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let body = axum::body::to_bytes(body, LARGEST).await.map_err(|error| error.to_string())?;
        // The signature covers the host that the client requested, so the header is forwarded unchanged.
        let url = format!("http://{}{path}", self.upstream);
        let sent = self.http.request(parts.method, url).headers(parts.headers).body(body).send();
        let reply = sent.await.map_err(|error| error.to_string())?;
        let mut answer = Response::builder().status(reply.status());
        for (name, value) in reply.headers().iter().filter(|(name, _)| *name != "transfer-encoding" && *name != "connection") {
            answer = answer.header(name, value);
        }
        let content = reply.bytes().await.map_err(|error| error.to_string())?;
        answer.body(Body::from(content)).map_err(|error| error.to_string())
    }
}

async fn pass(State(front): State<Arc<Front>>, request: Request) -> Response<Body> {
    let number = front.requests.fetch_add(1, Ordering::SeqCst);
    // Spread without a pattern, and the same in every run.
    let drawn = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let drawn = drawn % 100;
    let is_put = request.method() == Method::PUT;
    if is_put {
        front.puts.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(front.faults.delay_ms.load(Ordering::SeqCst))).await;
    }
    let refused = front.faults.refused.load(Ordering::SeqCst);
    let is_refused_get = request.method() == Method::GET && front.faults.refuse_gets.load(Ordering::SeqCst);
    let answer = if drawn < refused || is_refused_get {
        front.refusals.fetch_add(1, Ordering::SeqCst);
        unavailable("refused")
    } else {
        let done = front.forward(request).await.unwrap_or_else(|error| unavailable(&error));
        if drawn < refused + front.faults.lost.load(Ordering::SeqCst) && done.status().is_success() {
            front.losses.fetch_add(1, Ordering::SeqCst);
            unavailable("done, and the reply lost")
        } else {
            done
        }
    };
    if is_put {
        front.puts.fetch_sub(1, Ordering::SeqCst);
    }
    answer
}

fn unavailable(why: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from(why.to_owned()));
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer
}
