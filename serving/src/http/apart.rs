//! Requests that can take longer than a millisecond: their work leaves the threads that answer HTTP, so that `/healthz`
//! and the lookups of others are answered meanwhile.

use std::future::Future;

use axum::body::Body;
use axum::http::header::CONTENT_ENCODING;
use axum::response::Response;
use bytes::Bytes;
use futures::stream::{self, Stream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tower_http::compression::CompressionBody;
use types::{Error, threads};

use super::problem::HttpProblem;
use crate::sql::Turn;

/// This many pieces of a body are made before they are sent.
const MADE_AHEAD: usize = 2;

/// Runs a request's work on the threads for longer queries. It is aborted when the request is.
pub(super) async fn apart(work: impl Future<Output = Result<Response, HttpProblem>> + Send + 'static) -> Result<Response, HttpProblem> {
    match AbortOnDropHandle::new(threads::QUERIES.spawn(work)).await {
        Ok(outcome) => outcome,
        Err(ended) => match ended.try_into_panic() {
            // As if it had happened here.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => Err(Error::from(cancelled).into()),
        },
    }
}

/// Makes the pieces of a body on those threads, a few ahead of what is sent. It stops when the client has gone. `turn`
/// is that of the query that they are made from, if they are.
pub(super) fn made_apart<S>(pieces: S, turn: Turn) -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static
where
    S: Stream<Item = Result<Bytes, Error>> + Send + 'static,
{
    let (made, sent) = mpsc::channel(MADE_AHEAD);
    let making = threads::QUERIES.spawn(async move {
        let mut pieces = std::pin::pin!(pieces);
        while let Some(piece) = pieces.next().await {
            if turn.while_sending(made.send(piece)).await.is_err() {
                return;
            }
        }
    });
    let state = (sent, AbortOnDropHandle::new(making));
    // A body whose maker panicked breaks off: it must not look whole.
    let pieces = stream::unfold(Some(state), |state| async move {
        let (mut sent, making) = state?;
        match sent.recv().await {
            Some(piece) => Some((piece, Some((sent, making)))),
            None => making.await.err().map(|ended| (Err(Error::from(ended)), None)),
        }
    });
    // What compresses a body asks once more after its end.
    pieces.fuse()
}

/// Has a compressed body made on those threads: the layer inside this one compresses a body as it is read, and hyper
/// reads hundreds of kilobytes of it at a time.
pub(super) fn compressed_apart(response: Response<CompressionBody<Body>>) -> Response {
    let response = response.map(Body::new);
    if !response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let broken = |error: axum::Error| Error::internal("the body of an answer broke off").caused_by(error);
    response.map(|body| Body::from_stream(made_apart(body.into_data_stream().map_err(broken), Turn::default())))
}

#[cfg(test)]
mod tests;
