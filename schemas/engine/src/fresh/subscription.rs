//! Who is handed the changes of this process's workers. A subscriber that does not keep up is cut off, so that it never
//! holds a worker up.

use std::time::Instant;

use tokio::sync::mpsc;

use super::state::{Change, Snapshot, is_mirrored};

/// A subscriber may be this many changes behind.
pub(super) const QUEUE: usize = 256;

/// What there was at one moment, and all that changed since.
#[derive(Debug)]
pub struct Subscription<S> {
    pub snapshot: Snapshot<S>,
    /// Ends when the subscriber is cut off.
    pub changes: mpsc::Receiver<SubscriptionChange<S>>,
}

/// A change of one of the process's workers.
#[derive(Debug)]
pub struct SubscriptionChange<S> {
    pub owner: u64,
    pub change: Change<S>,
    pub at: Instant,
}

#[derive(Debug)]
pub(super) struct Subscribers<S>(Vec<mpsc::Sender<SubscriptionChange<S>>>);

impl<S> Default for Subscribers<S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S> Subscribers<S> {
    pub(super) fn add(&mut self) -> mpsc::Receiver<SubscriptionChange<S>> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.0.push(sender);
        receiver
    }

    /// Hands a change of this process's own workers to all. What is in another process is for that one to tell.
    pub(super) fn send(&mut self, owner: u64, change: &Change<S>) {
        if self.0.is_empty() || is_mirrored(owner) {
            return;
        }
        let at = Instant::now();
        self.0.retain(|subscriber| {
            // The next one says as much, and more.
            let may_wait = matches!(change, Change::Completed(_)) && subscriber.capacity() < QUEUE / 2;
            may_wait || subscriber.try_send(SubscriptionChange { owner, change: change.clone(), at }).is_ok()
        });
    }
}
