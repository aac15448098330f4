//! A node that has just started is not ready before it follows the workers of other processes: its first answers would
//! count less than those of the nodes that its clients asked before.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

/// Then the node is ready without those that it does not reach. A process that was killed is listed for longer.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(3);

/// The workers that a node waits for, if it does.
#[derive(Debug, Default)]
pub(super) struct AwaitedWorkers(Mutex<Option<Awaited>>);

#[derive(Debug)]
struct Awaited {
    since: Instant,
    /// Their names, once the catalog's list was read.
    workers: Option<Vec<String>>,
}

impl AwaitedWorkers {
    pub(super) fn begin(&self, now: Instant) {
        *self.lock() = Some(Awaited { since: now, workers: None });
    }

    /// Takes note of who is listed. The first list counts; processes that register later are followed as they come.
    pub(super) fn list<'w>(&self, listed: impl Iterator<Item = &'w str>) {
        if let Some(awaited) = &mut *self.lock()
            && awaited.workers.is_none()
        {
            awaited.workers = Some(listed.map(str::to_owned).collect());
        }
    }

    /// Whether the node waits still. It waits once.
    pub(super) fn are_awaited(&self, is_followed: impl Fn(&str) -> bool, now: Instant) -> bool {
        let mut awaited = self.lock();
        let Some(Awaited { since, workers }) = &*awaited else { return false };
        let missing: Option<Vec<&str>> =
            workers.as_ref().map(|workers| workers.iter().map(String::as_str).filter(|worker| !is_followed(worker)).collect());
        match missing {
            Some(missing) if missing.is_empty() => {}
            _ if now.saturating_duration_since(*since) < FOLLOWED_WITHIN => return true,
            Some(missing) => {
                warn!(workers = missing.join(", "), "ready without following all workers: answers count what these have committed");
            }
            None => {}
        }
        *awaited = None;
        false
    }

    fn lock(&self) -> MutexGuard<'_, Option<Awaited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_waits_once_for_those_that_are_listed_first_and_not_for_long() {
        let (awaited, began) = (AwaitedWorkers::default(), Instant::now());
        let waits = |followed: &[&str], after: Duration| awaited.are_awaited(|worker| followed.contains(&worker), began + after);
        assert!(!waits(&[], Duration::ZERO), "nothing says that it is to wait");

        awaited.begin(began);
        assert!(waits(&["a", "b"], Duration::ZERO), "it does not know yet who there is");
        awaited.list(["a", "b"].into_iter());
        awaited.list(["a", "b", "c"].into_iter());
        assert!(waits(&["a"], FOLLOWED_WITHIN - Duration::from_millis(1)));
        assert!(!waits(&["a", "b"], Duration::ZERO));
        assert!(!waits(&[], Duration::ZERO), "a worker that is lost later does not matter");

        awaited.begin(began);
        awaited.list(["a"].into_iter());
        assert!(!waits(&[], FOLLOWED_WITHIN));
        assert!(!waits(&[], Duration::ZERO));

        awaited.begin(began);
        awaited.list([].into_iter());
        assert!(!waits(&[], Duration::ZERO), "there is nobody to follow");
    }
}
