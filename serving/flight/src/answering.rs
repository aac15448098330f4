//! Sends rows to a client. A task of its own makes them, one message ahead of what is sent. It ends when the query is
//! cancelled, when the client has gone or reads nothing for too long, and when its token is revoked.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::FlightData;
use datafusion::physical_plan::EmptyRecordBatchStream;
use definitions::durations::format_duration;
use futures::{Stream, StreamExt, stream};
use serving::{Meta, Turn};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::task::AbortOnDropHandle;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use types::{Error, Reason, Result};

use crate::cancel::Running;
use crate::login::FlightCaller;
use crate::messages::{encode, wire_schema};
use crate::statements::Begun;
use crate::status::{count, status};

/// The answer's meta as JSON: in the metadata of its schema what is known before the first row, and in the trailer of
/// this name, with `-bin` behind it, all of it.
pub const META: &str = "basestream-meta";
const META_TRAILER: &str = "basestream-meta-bin";
/// Clients take few bytes of trailers: a longer meta is not sent in them.
const MAX_TRAILER_BYTES: usize = 4 << 10;

/// This many messages are made before they are sent.
const MADE_AHEAD: usize = 1;
/// A client that takes nothing for this time is left: what it does not take keeps memory and files.
const STALLED: Duration = Duration::from_secs(600);

/// Messages on their way to a client.
pub(crate) type Messages = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// What an answer holds until it is over.
pub(crate) struct UnderWay {
    pub(crate) caller: FlightCaller,
    pub(crate) running: Running,
    /// Its place among the answers under way.
    pub(crate) place: OwnedSemaphorePermit,
}

/// Sends an answer.
pub(crate) fn send(begun: Begun, under_way: UnderWay) -> Result<Messages> {
    let turn = begun.response.turn.clone();
    Ok(ahead(made(begun)?, under_way, turn, STALLED))
}

/// An answer's messages. The last one is its end, which is an error with the code of none.
fn made(begun: Begun) -> Result<impl Stream<Item = Result<FlightData, Status>> + Send + 'static> {
    let schema = with_meta(&begun.response.schema, &begun.response.meta)?;
    let Begun { mut response, first } = begun;
    let empty = Box::pin(EmptyRecordBatchStream::new(response.schema.clone()));
    let batches = std::mem::replace(&mut response.batches, empty);
    let batches = stream::iter(first.map(Ok)).chain(batches).map(|batch| batch.map_err(Error::from));
    let messages = encode(schema, batches).map(|message| message.map_err(Status::from));
    // Made once the rows are.
    Ok(messages.chain(stream::once(async move { Err(end(&response.meta_so_far())) })))
}

/// Makes messages on a task, ahead of what is sent, up to their first error.
fn ahead(
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
    under_way: UnderWay,
    turn: Turn,
    stalled: Duration,
) -> Messages {
    let (made, sent) = mpsc::channel(MADE_AHEAD);
    let cancelled = under_way.running.cancelled.clone();
    let making = AbortOnDropHandle::new(tokio::spawn(make(messages, under_way, (made, turn), stalled)));
    let state = Some((sent, making));
    Box::pin(stream::unfold(state, move |state| {
        let cancelled = cancelled.clone();
        async move {
            let (mut sent, making) = state?;
            match sent.recv().await {
                Some(Ok(message)) => Some((Ok(message), Some((sent, making)))),
                Some(Err(end)) => Some((Err(end), None)),
                // It must not look whole.
                None if cancelled.is_cancelled() => Some((Err(ended(was_cancelled())), None)),
                None => Some((Err(ended(left(making, stalled).await)), None)),
            }
        }
    }))
}

async fn make(
    messages: impl Stream<Item = Result<FlightData, Status>>,
    UnderWay { caller, running, place: _place }: UnderWay,
    (out, turn): (mpsc::Sender<Result<FlightData, Status>>, Turn),
    stalled: Duration,
) {
    let mut messages = pin!(messages);
    loop {
        let next = tokio::select! {
            biased;
            () = running.cancelled.cancelled() => Some(Err(status(was_cancelled()))),
            next = messages.next() => next,
        };
        let Some(message) = next else { return };
        let message = message.and_then(|message| caller.may_go_on().map(|()| message).map_err(status));
        let is_last = message.is_err();
        if let Err(end) = &message
            && end.code() != Code::Ok
        {
            count(end);
        }
        let is_taken = tokio::select! {
            biased;
            () = running.cancelled.cancelled() => false,
            sent = turn.while_sending(out.send_timeout(message, stalled)) => sent.is_ok(),
        };
        if is_last || !is_taken {
            return;
        }
    }
}

/// Why the messages ended before their end.
async fn left(making: AbortOnDropHandle<()>, stalled: Duration) -> Error {
    match making.await {
        Ok(()) => Error::conflict(format!("the client read nothing of the answer for {}: it was given up", format_duration(stalled))),
        Err(error) => Error::from(error),
    }
}

pub(crate) fn was_cancelled() -> Error {
    Error::conflict("the query was cancelled").with_reason(Reason::Cancelled)
}

fn ended(error: Error) -> Status {
    let end = status(error);
    count(&end);
    end
}

fn with_meta(schema: &Schema, meta: &Meta) -> Result<SchemaRef> {
    let wire = wire_schema(schema);
    let mut metadata = wire.metadata().clone();
    metadata.insert(META.to_owned(), json(meta)?);
    Ok(Arc::new(Schema::new_with_metadata(wire.fields().clone(), metadata)))
}

/// The end of an answer that is whole.
fn end(meta: &Meta) -> Status {
    let mut trailers = MetadataMap::new();
    if let Ok(meta) = json(meta)
        && meta.len() <= MAX_TRAILER_BYTES
    {
        trailers.insert_bin(META_TRAILER, MetadataValue::from_bytes(meta.as_bytes()));
    }
    Status::with_metadata(Code::Ok, "", trailers)
}

fn json(meta: &Meta) -> Result<String> {
    Ok(serde_json::to_string(meta)?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use access::Authenticator;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::cancel::Queries;
    use crate::login::caller;

    async fn under_way(queries: &Queries) -> UnderWay {
        let caller = caller(&Authenticator::open(Arc::new(|| 0)).unwrap(), &Default::default()).await.unwrap();
        let running = queries.begin(&bytes::Bytes::from_static(b"id"), &caller.principal.name);
        UnderWay { caller, running, place: Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap() }
    }

    /// Messages without end, and how many of them were made.
    fn endless() -> (impl Stream<Item = Result<FlightData, Status>> + Send + 'static, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counting = made.clone();
        let messages = stream::repeat_with(move || {
            counting.fetch_add(1, Ordering::Relaxed);
            Ok(FlightData::new())
        });
        (messages, made)
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_left() {
        let (queries, (messages, made)) = (Queries::default(), endless());
        let mut answer = ahead(messages, under_way(&queries).await, Turn::default(), Duration::from_secs(5));
        answer.next().await.unwrap().unwrap();
        while made.load(Ordering::Relaxed) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The one that was taken, the one ahead of it, and the one that has no room.
        assert_eq!((made.load(Ordering::Relaxed), queries.count()), (3, 1));
        while queries.count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(made.load(Ordering::Relaxed), 3);
        answer.next().await.unwrap().unwrap();
        let end = answer.next().await.unwrap().unwrap_err();
        assert_eq!((end.code(), end.message()), (Code::Aborted, "the client read nothing of the answer for 5s: it was given up"));
        assert!(answer.next().await.is_none());
    }

    #[tokio::test]
    async fn an_answer_that_is_dropped_or_cancelled_is_over() {
        let queries = Queries::default();
        let answer = ahead(endless().0, under_way(&queries).await, Turn::default(), STALLED);
        drop(answer);
        while queries.count() > 0 {
            tokio::task::yield_now().await;
        }
        let under_way = under_way(&queries).await;
        let cancelled = under_way.running.cancelled.clone();
        let mut answer = ahead(endless().0, under_way, Turn::default(), STALLED);
        answer.next().await.unwrap().unwrap();
        cancelled.cancel();
        let end = loop {
            if let Err(end) = answer.next().await.unwrap() {
                break end;
            }
        };
        assert_eq!((end.code(), queries.count()), (Code::Cancelled, 0));
    }

    #[tokio::test]
    async fn nothing_follows_an_error() {
        let queries = Queries::default();
        let messages = stream::iter([Ok(FlightData::new()), Err(Status::data_loss("damaged")), Err(Status::ok(""))]);
        let found: Vec<_> = ahead(messages, under_way(&queries).await, Turn::default(), STALLED).collect().await;
        assert!(matches!(&found[..], [Ok(_), Err(end)] if end.code() == Code::DataLoss), "{found:?}");
    }
}
