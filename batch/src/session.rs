//! The DataFusion session of a run, with the run's memory limit and a folder to spill to.

use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use engine::functions::Functions;
use engine::plan::{session_builder, session_config};
use storage::ObjectStorage;
use types::Result;
use types::process_folder::ProcessFolder;

use crate::layer::RunSettings;
use crate::memory::PeakPool;
use crate::temp_folder::at_folder;

/// What the names of the folders begin with that runs spill to.
const SPILL_PREFIX: &str = "basestream-run-";

pub(crate) fn open_session(
    settings: &RunSettings,
    storage: &ObjectStorage,
    functions: &Functions,
    pool: Arc<PeakPool>,
) -> Result<SessionContext> {
    let folder = spill_folder(settings)?;
    let directories = |folder: &ProcessFolder| DiskManagerMode::Directories(vec![folder.path().to_owned()]);
    let mode = folder.as_ref().map_or(DiskManagerMode::OsTmpDirectory, directories);
    let disk = DiskManagerBuilder::default().with_mode(mode);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()?;
    storage.register(&runtime);
    // The folder lasts as long as the session.
    let config = match folder {
        Some(folder) => config(settings).with_extension(Arc::new(folder)),
        None => config(settings),
    };
    let state = session_builder().with_config(config).with_runtime_env(runtime).build();
    let session = SessionContext::new_with_state(state);
    functions.register(&session)?;
    Ok(session)
}

/// `None` if the system has no temporary folder that can be written: a run that does not spill needs none.
fn spill_folder(settings: &RunSettings) -> Result<Option<ProcessFolder>> {
    match &settings.temp_dir {
        Some(folder) => Ok(Some(ProcessFolder::create(folder, SPILL_PREFIX).map_err(|error| at_folder(folder, error))?)),
        None => Ok(ProcessFolder::create(&std::env::temp_dir(), SPILL_PREFIX).ok()),
    }
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
