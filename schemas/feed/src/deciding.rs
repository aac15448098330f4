//! A worker's side of the exchange about one event: it waits for the decision of the process's workers and sends it.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::FlightData;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tonic::Streaming;
use types::{Error, Result};

use crate::message::{DecisionRequest, EventDecision, Exchange, check_format, exchange, exchange_message};

/// How long a node may take to send its first request.
const BEGUN_WITHIN: Duration = Duration::from_secs(3);
/// How long the workers listen for an event. No client waits longer for its record.
const LISTENS_FOR: Duration = Duration::from_secs(60);

/// The decisions of a process's workers about events.
pub trait WorkerDecisions: Send + Sync {
    /// Listens from now on for one event that is not appended yet.
    fn listen(&self, topic: &str) -> DecisionSubscription;
}

/// The decisions from a moment on.
pub struct DecisionSubscription {
    /// The partitions of the topic that workers of this process have.
    pub partitions: BTreeSet<i32>,
    pub decision: AwaitDecision,
}

/// Waits until an event is decided and its records are durable in the log. `None` if no worker is left that could
/// decide it.
pub type AwaitDecision = Box<dyn FnOnce(DecisionRequest) -> BoxFuture<'static, Option<EventDecision>> + Send>;

/// Listens for the event that the node is about to append. The stream ends without an answer if the workers of this
/// process do not decide the event in time.
pub(crate) async fn begin(
    decisions: Arc<dyn WorkerDecisions>,
    mut said: Streaming<FlightData>,
) -> Result<BoxStream<'static, Result<FlightData>>> {
    let first = tokio::time::timeout(BEGUN_WITHIN, next(&mut said)).await;
    let Exchange::Listen { format, topic } = first.map_err(|_| Error::input("the node does not say what it wants"))?? else {
        return Err(Error::input("the node does not say to which topic it appends"));
    };
    check_format(format)?;
    let DecisionSubscription { partitions, decision } = decisions.listen(&topic);
    let listening = exchange_message(&Exchange::Listening { partitions })?;
    let decided = async move {
        // The node may append nothing.
        let Ok(Exchange::Appended(event)) = next(&mut said).await else { return None };
        decision(event).await
    };
    let decided = async move { tokio::time::timeout(LISTENS_FOR, decided).await.ok().flatten() };
    let answer = stream::once(decided).filter_map(ready).map(|decided| exchange_message(&Exchange::Decided(decided)));
    Ok(stream::once(ready(Ok(listening))).chain(answer).boxed())
}

async fn next(said: &mut Streaming<FlightData>) -> Result<Exchange> {
    let message = said.message().await.map_err(|status| Error::unavailable(format!("the node is gone: {}", status.message())))?;
    exchange(&message.ok_or_else(|| Error::unavailable("the node is gone"))?)
}
