//! Waiting for a position: who appended something asks for an answer that counts it.

use std::time::Duration;

use types::vector::Vector;
use types::{Error, Result};

use super::Follower;
use crate::read_view::ReadView;

/// An answer waits at most this long for its position.
pub const MOST_WAITED: Duration = Duration::from_secs(20);
/// How often it is looked whether the position is reached: a layer closes every 50 ms.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Which events have to be counted: a query that names streams, and an answer from the archive, reads only committed
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedEvents {
    WithFresh,
    Committed,
}

impl CountedEvents {
    fn vector(self, read_view: &ReadView) -> &Vector {
        match self {
            CountedEvents::WithFresh => &read_view.vector,
            CountedEvents::Committed => &read_view.loaded.vector,
        }
    }
}

impl Follower {
    /// Waits until the position that a query begun now stands on covers `position`. It is never behind afterwards,
    /// because no query reads an older vector. But the archive may have to answer it: then the committed vector counts.
    ///
    /// Errors: `Unavailable` after [`MOST_WAITED`].
    pub(crate) async fn wait_for(&self, position: &Vector, counted: CountedEvents) -> Result<()> {
        let waiting = async {
            loop {
                let read_view = self.read_view()?;
                if counted.vector(&read_view).covers(position) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        match tokio::time::timeout(MOST_WAITED, waiting).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.not_reached(position, counted)),
        }
    }

    fn not_reached(&self, position: &Vector, counted: CountedEvents) -> Error {
        let seconds = MOST_WAITED.as_secs();
        let error = Error::unavailable(format!("answers do not count everything before that position after {seconds} s: try again"));
        match self.read_view().ok().and_then(|read_view| counted.vector(&read_view).behind(position)) {
            Some(behind) => error.with("partition", behind.partition).with("found", behind.found).with("expected", behind.expected),
            None => error,
        }
    }
}
