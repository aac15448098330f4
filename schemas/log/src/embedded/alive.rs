//! Which consumers are dead: each one holds the lock of its own file in the log's folder.

use std::collections::BTreeSet;
use std::path::Path;

use types::Result;
use types::liveness::{LiveInstance, LockFolder};

const FOLDER: &str = "workers";

/// Takes a consumer's lock. Call this before it becomes a member, so that every member has a lock. `members` are the
/// instances that are members already.
pub(super) fn begin(log_folder: &Path, instance: &str, members: &BTreeSet<String>) -> Result<LiveInstance> {
    LockFolder::new(log_folder.join(FOLDER)).begin(instance, members)
}

/// Whether the process of a consumer is gone.
pub(super) fn is_dead(log_folder: &Path, instance: &str) -> bool {
    LockFolder::new(log_folder.join(FOLDER)).is_dead(instance)
}

/// Removes the file of a consumer that is no longer in any table.
pub(super) fn forget(alive: &LiveInstance, instance: &str) {
    if let Err(error) = alive.forget(instance) {
        tracing::debug!(%error, instance, "the lock file of a former consumer was not removed");
    }
}
