//! Subscriptions to the changes of this process's workers. A subscriber that does not keep up is cut off, so that it
//! never delays a worker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::state::{LayerChange, Snapshot, is_mirrored};

/// A subscriber may be this many changes behind.
pub(super) const QUEUE: usize = 256;
/// A worker without records reports all the time up to when it is complete. This is sent to subscribers this often:
/// each message includes the one before.
pub(super) const COMPLETED_EVERY: Duration = Duration::from_millis(40);

/// What there was at one moment, and all that changed since.
#[derive(Debug)]
pub struct LayerSubscription<S> {
    pub snapshot: Snapshot<S>,
    /// Ends when the subscriber is cut off.
    pub changes: mpsc::Receiver<SubscriptionChange<S>>,
}

/// A change of one of the process's workers.
#[derive(Debug)]
pub struct SubscriptionChange<S> {
    pub owner: u64,
    pub change: LayerChange<S>,
    pub at: Instant,
}

#[derive(Debug)]
pub(super) struct Subscribers<S> {
    queues: Vec<mpsc::Sender<SubscriptionChange<S>>>,
    /// When each worker's completeness was handed on last.
    completed_at: BTreeMap<u64, Instant>,
}

impl<S> Default for Subscribers<S> {
    fn default() -> Self {
        Self { queues: Vec::new(), completed_at: BTreeMap::new() }
    }
}

impl<S> Subscribers<S> {
    pub(super) fn add(&mut self) -> mpsc::Receiver<SubscriptionChange<S>> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.queues.push(sender);
        receiver
    }

    /// Hands a change of this process's own workers to all. What is in another process, that one publishes.
    pub(super) fn send(&mut self, owner: u64, change: &LayerChange<S>) {
        if self.queues.is_empty() || is_mirrored(owner) {
            return;
        }
        let at = Instant::now();
        if matches!(change, LayerChange::Completed(_)) {
            let last = self.completed_at.get(&owner);
            if last.is_some_and(|last| at.saturating_duration_since(*last) < COMPLETED_EVERY) {
                return;
            }
            self.completed_at.insert(owner, at);
        }
        self.queues.retain(|queue| queue.try_send(SubscriptionChange { owner, change: change.clone(), at }).is_ok());
    }
}
