//! Sessions for queries: each its own, all under one memory limit, spilling to one folder.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionContext;
use schemas::functions::Functions;
use schemas::plan::session_config;
use schemas::storage::ObjectStorage;
use schemas::{Error, Result};

/// Functions whose result has no bound but its argument, and is allocated at once: the process would end, not the query.
const WITHOUT_BOUND: [&str; 2] = ["array_repeat", "list_repeat"];

/// What all queries of a node share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Queries {
    functions: Functions,
    storage: ObjectStorage,
    runtime: Arc<RuntimeEnv>,
}

impl Queries {
    pub(crate) fn new(functions: &Functions, storage: &ObjectStorage, memory_limit_bytes: usize, cache: &Path) -> Result<Self> {
        let folder = cache.join("spill");
        std::fs::create_dir_all(&folder).map_err(|error| Error::from(error).with("folder", folder.display()))?;
        let spill = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![folder]));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory_limit_bytes)))
            .with_disk_manager_builder(spill)
            .build_arc()?;
        storage.register(&runtime);
        Ok(Self { functions: functions.clone(), storage: storage.clone(), runtime })
    }

    /// A session without tables.
    pub(crate) fn session(&self) -> Result<SessionContext> {
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(session_config().with_information_schema(true))
            .with_runtime_env(self.runtime.clone())
            .build();
        let session = SessionContext::new_with_state(state);
        self.functions.register(&session)?;
        for name in WITHOUT_BOUND {
            session.deregister_udf(name);
        }
        Ok(session)
    }

    pub(crate) fn storage(&self) -> &ObjectStorage {
        &self.storage
    }
}
