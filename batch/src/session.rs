//! The DataFusion session of a run, with the run's memory limit and a folder to spill to.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use engine::functions::Functions;
use engine::plan::{session_builder, session_config};
use storage::ObjectStorage;
use types::Result;

use crate::layer::RunSettings;
use crate::memory::PeakPool;
use crate::temp_folder::SessionFolder;

pub(crate) fn open_session(
    settings: &RunSettings,
    storage: &ObjectStorage,
    functions: &Functions,
    pool: Arc<PeakPool>,
) -> Result<SessionContext> {
    let folder = SessionFolder::create(settings.temp_dir.as_deref())?;
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(folder.disk()).build_arc()?;
    storage.register(&runtime);
    let state = session_builder().with_config(folder.kept_in(config(settings))).with_runtime_env(runtime).build();
    let session = SessionContext::new_with_state(state);
    functions.register(&session)?;
    Ok(session)
}

/// Returns the configuration of a session. With a small limit, batches and the memory that a sort reserves for merging
/// its spilled runs must be small as well.
fn config(settings: &RunSettings) -> SessionConfig {
    let limit = settings.memory_limit_bytes;
    let default = session_config();
    let execution = &default.options().execution;
    let reserved = execution.sort_spill_reservation_bytes.min(limit / 16);
    let rows = default.batch_size().min(limit / (16 << 10)).max(256);
    default.with_target_partitions(settings.thread_count()).with_batch_size(rows).with_sort_spill_reservation_bytes(reserved)
}

#[cfg(test)]
mod tests;
