//! Limits how many queries run, and how many are planned, at a time. A query that reads more than a few keys takes a
//! place, or waits for one; places are given in the order of requests. Each principal has a limited share of the places
//! to run and to wait, so that some are left for others.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use access::Principal;
use definitions::durations::format_duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use types::{Error, Result};

use crate::limits::ServingLimits;

/// The places of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: ServingLimits,
    /// The gauge of those that have a place.
    running: &'static str,
    all: Line,
    /// One for each principal that runs or waits for a query.
    principals: Mutex<HashMap<Arc<str>, Arc<Line>>>,
}

/// Places, and how many queries wait for one.
#[derive(Debug)]
struct Line {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A query's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_principal: OwnedSemaphorePermit,
    _membership: Membership,
}

/// Keeps a principal's line as long as one of its queries runs or waits.
#[derive(Debug)]
struct Membership {
    admission: Admission,
    name: Arc<str>,
    line: Arc<Line>,
}

impl Admission {
    /// Of queries that run.
    pub(crate) fn new(limits: &ServingLimits) -> Self {
        Self::with_gauge(limits, "basestream_serving_queries_running")
    }

    /// Of queries that are planned.
    pub(crate) fn to_plan(limits: &ServingLimits) -> Self {
        Self::with_gauge(limits, "basestream_serving_queries_planning")
    }

    fn with_gauge(limits: &ServingLimits, running: &'static str) -> Self {
        let all = Line::new(limits.concurrent_queries);
        Self(Arc::new(Inner { limits: limits.clone(), running, all, principals: Mutex::default() }))
    }

    /// Waits for a place.
    ///
    /// Errors: `Busy` when too many wait already, and when it takes too long.
    pub(crate) async fn place(&self, principal: &Principal) -> Result<Place> {
        let membership = self.join(&principal.name);
        let line = membership.line.clone();
        let limits = &self.0.limits;
        let begun = Instant::now();
        let taking = async {
            let of_principal = line
                .place(limits.queued_queries_per_principal, || {
                    refused("queue", format!("{} has too many queries waiting already", quoted_name(principal)))
                        .with("limit", "serving.limits.queued_queries_per_principal")
                        .with("found", limits.queued_queries_per_principal)
                })
                .await?;
            let of_all = self
                .0
                .all
                .place(limits.queued_queries, || {
                    refused("queue", "too many queries are waiting already".to_owned())
                        .with("limit", "serving.limits.queued_queries")
                        .with("found", limits.queued_queries)
                })
                .await?;
            Ok((of_principal, of_all))
        };
        let taken = tokio::time::timeout(limits.queue_wait, taking).await;
        metrics::histogram!("basestream_serving_queue_seconds").record(begun.elapsed().as_secs_f64());
        let (of_principal, of_all) = taken.unwrap_or_else(|_| {
            let wait = format_duration(limits.queue_wait);
            Err(refused("wait", format!("no turn came within {wait}: the maximum number of queries is running"))
                .with("limit", "serving.limits.queue_wait")
                .with("running", self.running()))
        })?;
        self.show();
        Ok(Place { _of_all: of_all, _of_principal: of_principal, _membership: membership })
    }

    /// Waits for a place for a query that is not refused: its own limits end it.
    pub(crate) async fn endless_place(&self, principal: &Principal) -> Result<Place> {
        let membership = self.join(&principal.name);
        let endless = || Error::internal("a queue without an end is full");
        let of_principal = membership.line.place(usize::MAX, endless).await?;
        let of_all = self.0.all.place(usize::MAX, endless).await?;
        self.show();
        Ok(Place { _of_all: of_all, _of_principal: of_principal, _membership: membership })
    }

    fn join(&self, name: &Arc<str>) -> Membership {
        let mut principals = self.0.principals.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Line::new(self.0.limits.concurrent_queries_per_principal));
        let line = principals.entry(name.clone()).or_insert_with(new).clone();
        Membership { admission: self.clone(), name: name.clone(), line }
    }

    /// How many queries have a place.
    fn running(&self) -> usize {
        self.0.limits.concurrent_queries.saturating_sub(self.0.all.places.available_permits())
    }

    fn show(&self) {
        metrics::gauge!(self.0.running).set(self.running() as f64);
    }

    /// How many principals run or wait for something.
    #[cfg(test)]
    fn principals(&self) -> usize {
        self.0.principals.lock().unwrap().len()
    }
}

impl Line {
    fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), waiting: AtomicUsize::new(0) }
    }

    /// Takes a place: at once, or after waiting in a queue of at most `most`.
    async fn place(&self, most: usize, refuse: impl FnOnce() -> Error) -> Result<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _place_in_queue = PlaceInQueue::take(&self.waiting, most).ok_or_else(refuse)?;
        closed(self.places.clone().acquire_owned()).await
    }
}

async fn closed(place: impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>>) -> Result<OwnedSemaphorePermit> {
    place.await.map_err(|_| Error::internal("a semaphore was closed"))
}

/// A place in the queue, until it is dropped.
struct PlaceInQueue<'a>(&'a AtomicUsize);

impl<'a> PlaceInQueue<'a> {
    fn take(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(waiting);
        metrics::gauge!("basestream_serving_queries_waiting").increment(1.0);
        (before < most).then_some(place)
    }
}

impl Drop for PlaceInQueue<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        metrics::gauge!("basestream_serving_queries_waiting").decrement(1.0);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut principals = self.admission.0.principals.lock().unwrap_or_else(PoisonError::into_inner);
        // This one and the map's: nobody else runs or waits.
        if Arc::strong_count(&self.line) == 2 {
            principals.remove(&self.name);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The permits go after this: one more than will be.
        let admission = &self._membership.admission;
        metrics::gauge!(admission.0.running).set(admission.running().saturating_sub(1) as f64);
    }
}

fn refused(reason: &'static str, message: String) -> Error {
    metrics::counter!("basestream_serving_queries_refused_total", "reason" => reason).increment(1);
    Error::busy(format!("the node is busy: {message}; try again in a moment"))
}

fn quoted_name(principal: &Principal) -> String {
    format!("\"{}\"", principal.name)
}

#[cfg(test)]
mod tests;
