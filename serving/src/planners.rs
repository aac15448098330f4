//! Where queries are planned: on threads of their own, because planning computes constants, which no await interrupts.
//! Who waits for a plan may leave at any time. The thread then goes on until its constants are computed, and keeps its
//! place until then. Each principal has a limited share of the places, so that the threads that one keeps busy are not
//! those of others.

use access::Principal;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use types::{Error, Result, threads};

use crate::admission::Admission;
use crate::limits::ServingLimits;

/// As many queries are planned at a time as may run. The others wait, and are not refused.
#[derive(Debug)]
pub(crate) struct Planners(Admission);

impl Planners {
    pub(crate) fn new(limits: &ServingLimits) -> Self {
        Self(Admission::to_plan(limits))
    }

    /// Runs this planning for a principal.
    pub(crate) async fn plan<T, F>(&self, principal: &Principal, planning: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let place = self.0.endless_place(principal).await?;
        let left = CancellationToken::new();
        let planning = left.clone().run_until_cancelled_owned(planning);
        let _until_planned = left.drop_guard();
        let planned = threads::QUERIES.spawn_blocking(move || {
            let _until_done = place;
            Handle::current().block_on(planning)
        });
        planned.await?.ok_or_else(|| Error::unavailable("the caller no longer waits for the plan"))?
    }
}

#[cfg(test)]
mod tests;
