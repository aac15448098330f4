//! A node's side of the exchange about one event: before it appends the event it asks a worker's process to listen, and
//! afterwards for the decision.

use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use arrow_flight::FlightData;
use futures::{FutureExt, StreamExt, stream};
use tokio::sync::oneshot;
use tonic::Streaming;
use types::{Error, Result};

use crate::message::{DecisionRequest, EventDecision, Exchange, FORMAT, exchange, exchange_message};
use crate::requests::{WorkerConnection, error_of, next};

/// The workers of another process, which listen for the decision about one event that is not appended yet. Dropping it
/// ends that.
pub struct DecisionListener {
    /// The partitions of the event's topic that these workers have.
    pub partitions: BTreeSet<i32>,
    appended: oneshot::Sender<FlightData>,
    answers: Streaming<FlightData>,
}

impl DecisionListener {
    pub(crate) async fn begin(connection: &WorkerConnection, topic: &Arc<str>) -> Result<DecisionListener> {
        let listen = exchange_message(&Exchange::Listen { format: FORMAT, topic: topic.clone() })?;
        let (appended, later) = oneshot::channel();
        let sent = stream::iter([listen]).chain(later.into_stream().filter_map(|sent| ready(sent.ok())));
        let mut answers = connection.exchange(sent).await?;
        let answer = next(&mut answers).await?;
        match exchange(&answer)? {
            Exchange::Listening { partitions } => Ok(DecisionListener { partitions, appended, answers }),
            _ => Err(Error::corrupt("a worker does not say whether it listens")),
        }
    }

    /// Waits for the decision about the event, which is in the log now. `None` if these workers do not decide it.
    pub async fn decision(self, event: &DecisionRequest) -> Result<Option<EventDecision>> {
        let DecisionListener { appended, mut answers, .. } = self;
        let message = exchange_message(&Exchange::Appended(event.clone()))?;
        appended.send(message).map_err(|_| Error::unavailable("a worker ended its stream"))?;
        let Some(answer) = answers.message().await.map_err(|status| error_of(&status))? else { return Ok(None) };
        match exchange(&answer)? {
            Exchange::Decided(decision) => Ok(Some(decision)),
            _ => Err(Error::corrupt("a worker does not say what it decided")),
        }
    }
}

impl fmt::Debug for DecisionListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionListener").field("partitions", &self.partitions).finish_non_exhaustive()
    }
}
