//! Plans queries on threads of their own, because planning computes constants, and nothing can interrupt that.
//!
//! The caller may stop waiting at any time. The thread then continues until the constants are computed, and keeps its
//! place until then. Each principal has a limited share of the places, so no principal can keep all threads busy. While
//! planning waits for something else, such as the copy of a snapshot, it has no place.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use access::Principal;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use types::{Result, threads};

use crate::admission::Admission;
use crate::limits::ServingLimits;

/// As many queries are planned at a time as may run. The others wait, and are not refused.
#[derive(Debug)]
pub(crate) struct Planners(Admission);

impl Planners {
    pub(crate) fn new(limits: &ServingLimits) -> Self {
        Self(Admission::to_plan(limits))
    }

    /// Runs `planning` on behalf of a principal.
    pub(crate) async fn plan<T, F>(&self, principal: &Principal, planning: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut planning = Box::pin(planning);
        let woken = Arc::new(Woken::default());
        loop {
            let place = self.0.endless_place(principal).await?;
            let waker = Waker::from(woken.clone());
            let step = threads::QUERIES.spawn_blocking(move || {
                let _until_done = place;
                let outcome = planning.as_mut().poll(&mut Context::from_waker(&waker));
                (outcome, planning)
            });
            // If the caller leaves before this step has started, it never starts.
            let (outcome, rest) = AbortOnDropHandle::new(step).await?;
            if let Poll::Ready(planned) = outcome {
                return planned;
            }
            planning = rest;
            woken.0.notified().await;
        }
    }
}

/// Wakes a planning that waits.
#[derive(Debug, Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests;
