//! Passes on what workers made of single events between processes: the one that appends an event asks those whose
//! workers may have its partition.

use std::pin::pin;
use std::sync::Arc;

use event_log::{NewRecord, TopicPartition};
use feed::{AwaitDecision, DecidingSink, DecisionListener, DecisionRequest, DecisionSubscription, EventDecision, WorkerDecisions};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{Semaphore, oneshot};
use tracing::debug;
use types::vector::Offset;

use crate::Sinks;
use crate::outcomes::{DecidedBatch, Outcomes, Provenance, SinkRecords, batch_with};

/// This many events are asked about whose clients wait no longer. Their streams take room on the connections to other
/// processes, which the events of other clients need.
static UNANSWERED: Semaphore = Semaphore::const_new(512);

/// Receives what is decided about an event in another process.
pub(crate) type DecisionElsewhere = oneshot::Receiver<Arc<DecidedBatch>>;

impl WorkerDecisions for Sinks {
    fn listen(&self, topic: &str) -> DecisionSubscription {
        let mut decisions = self.outcomes.listen(topic);
        let partitions = self.outcomes.assigned(topic);
        let decision: AwaitDecision = Box::new(move |event| {
            Box::pin(async move {
                let source = TopicPartition { topic: event.topic, partition: event.partition };
                let batch = batch_with(&mut decisions, &source, event.offset).await?;
                Some(decision_of(&batch, &event.sink, event.offset))
            })
        });
        DecisionSubscription { partitions, decision }
    }
}

/// Asks the workers of other processes for what becomes of an event. It goes on if the client hangs up or waits no
/// longer, unless that holds for too many, so that what was made is known when the client sends the event again.
pub(crate) fn ask_elsewhere(outcomes: &Outcomes, listeners: Vec<DecisionListener>, event: DecisionRequest) -> Option<DecisionElsewhere> {
    if listeners.is_empty() {
        return None;
    }
    let (outcomes, (mut found, elsewhere)) = (outcomes.clone(), oneshot::channel());
    tokio::spawn(async move {
        let decision = while_asked(first_decision(listeners, &event), found.closed(), &UNANSWERED).await;
        if let Some(decision) = decision {
            let batch = Arc::new(batch_of(&event, decision));
            outcomes.note_events(&batch);
            // The client may be gone.
            let _ = found.send(batch);
        }
    });
    Some(elsewhere)
}

/// Waits for a decision, with a permit once the client waits no longer. `None` also if there is no permit left.
async fn while_asked<T>(
    decision: impl Future<Output = Option<T>>,
    client_left: impl Future<Output = ()>,
    unanswered: &Semaphore,
) -> Option<T> {
    let mut decision = pin!(decision);
    tokio::select! {
        biased;
        decided = &mut decision => return decided,
        () = client_left => {}
    }
    let _permit = unanswered.try_acquire().ok()?;
    decision.await
}

/// Whoever has the partition answers. The others are not waited for any more.
async fn first_decision(listeners: Vec<DecisionListener>, event: &DecisionRequest) -> Option<EventDecision> {
    let mut answers: FuturesUnordered<_> = listeners.into_iter().map(|listener| listener.decision(event)).collect();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Some(decision)) => return Some(decision),
            Ok(None) => {}
            Err(error) => {
                debug!(%error, topic = %event.topic, event.partition, offset = %event.offset, "a worker does not decide an event")
            }
        }
    }
    None
}

/// What a batch says about one of its events.
fn decision_of(batch: &DecidedBatch, sink: &str, offset: Offset) -> EventDecision {
    let accepted = batch.accepted.binary_search(&offset.0).ok();
    let of_sink = batch.sinks.iter().find(|put_out| *put_out.sink == *sink);
    let by = of_sink.map(|put_out| {
        let found = put_out.records.binary_search_by_key(&offset, |(of, _)| *of).ok();
        let Provenance { version, parameters } = put_out.by.clone();
        let record = found.and_then(|at| put_out.records[at].1.value.clone());
        DecidingSink { version, parameters, from: put_out.from, record }
    });
    EventDecision {
        identity: batch.identity.clone(),
        is_dead_letter: batch.dead_letters.contains(&offset),
        timestamp: accepted.and_then(|at| batch.timestamps.get(at).copied()),
        ids_since: batch.ids_since,
        by,
    }
}

/// A batch of one event.
fn batch_of(event: &DecisionRequest, decision: EventDecision) -> DecidedBatch {
    let EventDecision { identity, is_dead_letter, timestamp, ids_since, by } = decision;
    let offset = event.offset;
    let put_out = |by: DecidingSink| {
        let record = by.record.map(|value| (offset, NewRecord { value: Some(value), ..NewRecord::default() }));
        SinkRecords {
            sink: event.sink.clone(),
            by: Provenance { version: by.version, parameters: by.parameters },
            from: by.from,
            records: record.into_iter().collect(),
        }
    };
    DecidedBatch {
        source: TopicPartition { topic: event.topic.clone(), partition: event.partition },
        identity,
        start: offset,
        end: offset.next(),
        accepted: timestamp.iter().map(|_| offset.0).collect(),
        timestamps: timestamp.into_iter().collect(),
        ids_since,
        dead_letters: is_dead_letter.then_some(offset).into_iter().collect(),
        sinks: by.into_iter().map(put_out).collect(),
    }
}

#[cfg(test)]
mod tests;
