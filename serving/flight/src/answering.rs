//! Rows on their way to a client. They are made on a task of their own, a message ahead of what is sent. It ends when the
//! query is cancelled, when the client has gone or takes nothing for too long, and when its token is revoked.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::FlightData;
use datafusion::physical_plan::EmptyRecordBatchStream;
use futures::{Stream, StreamExt, stream};
use serving::Meta;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::task::AbortOnDropHandle;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use types::{Error, Result};

use crate::cancel::Running;
use crate::login::Caller;
use crate::messages::{encode, wire_schema};
use crate::statements::Begun;
use crate::status::{count, status};

/// The answer's meta as JSON: in the metadata of its schema what is known before the first row, and in the trailer of this
/// name, with `-bin` behind it, all of it.
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
    pub(crate) caller: Caller,
    pub(crate) running: Running,
    /// Its place among the answers under way.
    pub(crate) place: OwnedSemaphorePermit,
}

/// Sends an answer.
pub(crate) fn send(begun: Begun, under_way: UnderWay) -> Result<Messages> {
    send_within(begun, under_way, STALLED)
}

fn send_within(begun: Begun, under_way: UnderWay, stalled: Duration) -> Result<Messages> {
    let schema = with_meta(&begun.response.schema, &begun.response.meta)?;
    let (made, sent) = mpsc::channel(MADE_AHEAD);
    let cancelled = under_way.running.cancelled.clone();
    let making = AbortOnDropHandle::new(tokio::spawn(make(begun, schema, under_way, (made, stalled))));
    let state = Some((sent, making));
    Ok(Box::pin(stream::unfold(state, move |state| {
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
    })))
}

/// Why the rows ended before their end.
async fn left(making: AbortOnDropHandle<()>, stalled: Duration) -> Error {
    match making.await {
        Ok(()) => Error::conflict(format!("the client took nothing of the answer for {} s: it was given up", stalled.as_secs())),
        Err(error) => Error::from(error),
    }
}

async fn make(
    begun: Begun,
    schema: SchemaRef,
    UnderWay { caller, running, place: _place }: UnderWay,
    (out, stalled): (mpsc::Sender<Result<FlightData, Status>>, Duration),
) {
    let Begun { mut response, first } = begun;
    let empty = Box::pin(EmptyRecordBatchStream::new(response.schema.clone()));
    let batches = std::mem::replace(&mut response.batches, empty);
    let batches = stream::iter(first.map(Ok)).chain(batches).map(|batch| batch.map_err(Error::from));
    let mut messages = encode(schema, batches);
    loop {
        let next = tokio::select! {
            biased;
            () = running.cancelled.cancelled() => Some(Err(status(was_cancelled()))),
            next = messages.next() => next.map(|message| message.map_err(Status::from)),
        };
        let Some(message) = next else { break };
        let message = message.and_then(|message| caller.may_go_on().map(|()| message).map_err(status));
        let is_over = message.is_err();
        if let Err(end) = &message {
            count(end);
        }
        let is_taken = tokio::select! {
            biased;
            () = running.cancelled.cancelled() => false,
            sent = out.send_timeout(message, stalled) => sent.is_ok(),
        };
        if is_over || !is_taken {
            return;
        }
    }
    let _ = out.send_timeout(Err(end(&response.meta_so_far())), stalled).await;
}

fn was_cancelled() -> Error {
    Error::conflict("the query was cancelled")
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
