//! The time that a query may take in all: to be planned, to wait for its turn, and to send its rows.

use std::pin::Pin;
use std::time::Duration;

use access::Principal;
use definitions::durations::format_duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use types::{Error, Reason, Result};

use crate::limits::ServingLimits;
use crate::query_runtime::QueryRuntime;

/// When a query's time is over, if it is limited.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryTime(Option<End>);

#[derive(Debug, Clone, Copy)]
struct End {
    at: Instant,
    /// How long the time was.
    after: Duration,
}

/// Waits for the end of a query's time.
pub(super) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    after: Duration,
}

impl QueryTime {
    /// The time of a query that is asked now.
    pub(super) fn begin(limits: &ServingLimits) -> Self {
        Self(limits.query_time.map(|after| End { at: Instant::now() + after, after }))
    }

    /// Does a part of the query's work, if it ends in time.
    pub(super) async fn within<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.0 {
            Some(End { at, after }) => timeout_at(at, work).await.unwrap_or_else(|_| Err(past_query_time(after))),
            None => work.await,
        }
    }

    /// Returns what to wait for, if the time is limited.
    pub(super) fn deadline(self) -> Option<Deadline> {
        self.0.map(|End { at, after }| Deadline { sleep: Box::pin(sleep_until(at)), after })
    }
}

impl Deadline {
    /// Returns an error once the time is over.
    pub(super) fn poll(&mut self, context: &mut std::task::Context<'_>) -> Option<Error> {
        self.sleep.as_mut().poll(context).is_ready().then(|| past_query_time(self.after))
    }
}

/// Plans something for a principal, within the time of a query that does nothing else.
pub(crate) async fn plan_in_time<T: Send + 'static>(
    runtime: &QueryRuntime,
    principal: &Principal,
    planning: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    QueryTime::begin(runtime.limits()).within(runtime.planners().plan(principal, planning)).await
}

/// The error for a query whose time is over. `what` names the time, its setting, and what to do.
pub fn out_of_time(what: &str) -> Error {
    Error::unavailable(format!("the query was stopped after {what}")).with_reason(Reason::OutOfTime)
}

fn past_query_time(limit: Duration) -> Error {
    metrics::counter!("basestream_serving_queries_refused_total", "reason" => "time").increment(1);
    let limit = format_duration(limit);
    out_of_time(&format!("{limit}, the setting serving.limits.query_time: select less, or raise the setting"))
        .with("limit", "serving.limits.query_time")
}

#[cfg(test)]
mod tests;
