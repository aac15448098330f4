//! Bodies that are not read to their end, because the request is refused before: hyper closes such a connection. The
//! answer says so, or a client that keeps its connections would send its next request into a closed one.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use futures::{StreamExt, stream};

/// hyper reads a smaller body off, which mostly comes with its head.
const SMALL_BYTES: u64 = 4 << 10;

/// Whether the body of a request is read to its end; `None` for a small one.
pub(super) struct BodyRead(Option<Arc<AtomicBool>>);

/// Watches the body of a request.
pub(super) fn watched(request: Request) -> (Request, BodyRead) {
    if request.body().size_hint().exact().is_some_and(|bytes| bytes <= SMALL_BYTES) {
        return (request, BodyRead(None));
    }
    let is_read = Arc::new(AtomicBool::new(false));
    let read = is_read.clone();
    let request = request.map(|body| {
        let end = stream::once(async move { read.store(true, Ordering::Relaxed) });
        let end = end.filter_map(|()| ready(None::<Result<Bytes, axum::Error>>));
        Body::from_stream(body.into_data_stream().chain(end))
    });
    (request, BodyRead(Some(is_read)))
}

impl BodyRead {
    /// Says in the answer whether its connection closes.
    pub(super) fn answered(self, mut response: Response) -> Response {
        if self.0.is_some_and(|is_read| !is_read.load(Ordering::Relaxed)) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    fn of_bytes(bytes: usize) -> Request {
        Request::new(Body::from(vec![b' '; bytes]))
    }

    fn closes(read: BodyRead) -> bool {
        read.answered(Response::new(Body::empty())).headers().get(CONNECTION).is_some_and(|value| value == "close")
    }

    #[tokio::test]
    async fn an_answer_before_the_end_of_a_large_body_closes_the_connection() {
        let large = SMALL_BYTES as usize + 1;
        assert!(closes(watched(of_bytes(large)).1));
        let (request, read) = watched(of_bytes(large));
        assert!(to_bytes(request.into_body(), large - 1).await.is_err(), "more than is taken");
        assert!(closes(read));
        let (request, read) = watched(Request::new(Body::from_stream(stream::iter([Ok::<_, axum::Error>(Bytes::from_static(b"x"))]))));
        drop(request);
        assert!(closes(read), "nobody knows how long it is");
    }

    #[tokio::test]
    async fn a_body_that_is_read_or_small_leaves_the_connection_open() {
        let large = SMALL_BYTES as usize + 1;
        let (request, read) = watched(of_bytes(large));
        assert_eq!(to_bytes(request.into_body(), large).await.unwrap().len(), large);
        assert!(!closes(read));
        assert!(!closes(watched(of_bytes(SMALL_BYTES as usize)).1));
        assert!(!closes(watched(Request::new(Body::empty())).1));
    }
}
