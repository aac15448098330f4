//! Keys that cancel a query: a client sends one over a connection of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The connections that have a key. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancels(Arc<Mutex<HashMap<i32, Running>>>);

#[derive(Debug)]
struct Running {
    key: i32,
    query: RunningQuery,
}

/// Cancels what a connection runs at the moment. The connection has it at hand, so that its queries do not wait for
/// others. They have one token until somebody cancels it.
#[derive(Debug, Clone, Default)]
struct RunningQuery(Arc<Mutex<CancellationToken>>);

/// A connection's key. It ends with the connection.
#[derive(Debug)]
pub(crate) struct CancelKey {
    all: Cancels,
    query: RunningQuery,
    pub(crate) process: i32,
    pub(crate) key: i32,
}

impl Cancels {
    pub(crate) fn register(&self) -> CancelKey {
        let mut running = self.lock();
        let process = std::iter::repeat_with(|| rand::random_range(1..=i32::MAX)).find(|process| !running.contains_key(process));
        let (process, key) = (process.unwrap_or_default(), rand::random());
        let query = RunningQuery::default();
        running.insert(process, Running { key, query: query.clone() });
        CancelKey { all: self.clone(), query, process, key }
    }

    /// Cancels what a connection runs, if the key is its own. Nobody learns whether it was.
    pub(crate) fn cancel(&self, process: i32, key: &[u8]) {
        let running = self.lock();
        let Some(connection) = running.get(&process) else { return };
        // All bytes are compared: how long it takes says nothing.
        let differs = connection.key.to_be_bytes().iter().zip(key).fold(0, |differs, (a, b)| differs | (a ^ b));
        if key.len() == size_of::<i32>() && differs == 0 {
            connection.query.lock().cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningQuery {
    fn lock(&self) -> MutexGuard<'_, CancellationToken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CancelKey {
    /// A token for what the connection runs now; a cancel before this has no effect.
    pub(crate) fn begin(&self) -> CancellationToken {
        let mut token = self.query.lock();
        if token.is_cancelled() {
            *token = CancellationToken::new();
        }
        token.clone()
    }
}

impl Drop for CancelKey {
    fn drop(&mut self) {
        self.all.lock().remove(&self.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cancels_what_its_connection_runs_and_nothing_else() {
        let all = Cancels::default();
        let (ours, other) = (all.register(), all.register());
        let (running, others) = (ours.begin(), other.begin());
        all.cancel(ours.process, &(ours.key ^ 1).to_be_bytes());
        all.cancel(ours.process, &ours.key.to_be_bytes()[..3]);
        all.cancel(ours.process, b"");
        assert!(!running.is_cancelled());
        all.cancel(ours.process, &ours.key.to_be_bytes());
        assert!(running.is_cancelled() && !others.is_cancelled());

        assert!(!ours.begin().is_cancelled(), "it runs something else");
        all.cancel(ours.process, &ours.key.to_be_bytes());
        assert!(!ours.begin().is_cancelled(), "a cancel that comes late is for nothing");
        let process = ours.process;
        drop(ours);
        all.cancel(process, b"gone");
        assert_eq!(all.lock().len(), 1);
    }
}
