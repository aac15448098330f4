//! Sessions for queries: each its own, all under one memory limit, spilling to one folder.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionContext;
use engine::functions::Functions;
use engine::plan::{asking_session_builder, session_config};
use storage::ObjectStorage;
use types::{Error, Result};

use crate::blocking_pool::BlockingPool;
use crate::kept_keys::KeptKeys;

/// The catalog of all tables, as PostgreSQL clients know the database: `basestream.public.orders` is `orders`.
pub const CATALOG: &str = "basestream";
const SCHEMA: &str = "public";

/// What all queries of a node share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct QueryRuntime {
    functions: Functions,
    storage: ObjectStorage,
    runtime: Arc<RuntimeEnv>,
    memory_limit_bytes: usize,
    lookups: BlockingPool,
    scans: BlockingPool,
    kept: Arc<KeptKeys>,
}

impl QueryRuntime {
    pub(crate) fn new(functions: &Functions, storage: &ObjectStorage, memory_limit_bytes: usize, cache: &Path) -> Result<Self> {
        let folder = cache.join("spill");
        std::fs::create_dir_all(&folder).map_err(|error| Error::from(error).with("folder", folder.display()))?;
        let spill = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![folder]));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory_limit_bytes)))
            .with_disk_manager_builder(spill)
            .build_arc()?;
        storage.register(&runtime);
        let (functions, storage) = (functions.clone(), storage.clone());
        let kept = Arc::new(KeptKeys::new(memory_limit_bytes, &runtime.memory_pool));
        Ok(Self { functions, storage, runtime, memory_limit_bytes, lookups: BlockingPool::new(), scans: BlockingPool::new(), kept })
    }

    /// A session without tables.
    pub(crate) fn session(&self) -> Result<SessionContext> {
        let state = asking_session_builder()
            .with_config(session_config().with_default_catalog_and_schema(CATALOG, SCHEMA).with_information_schema(true))
            .with_runtime_env(self.runtime.clone())
            .build();
        let session = SessionContext::new_with_state(state);
        self.functions.register(&session)?;
        Ok(session)
    }

    pub(crate) fn storage(&self) -> &ObjectStorage {
        &self.storage
    }

    pub(crate) fn memory_limit_bytes(&self) -> usize {
        self.memory_limit_bytes
    }

    /// What was merged of hot keys.
    pub(crate) fn kept(&self) -> &KeptKeys {
        &self.kept
    }

    /// Where walks, and lookups that merge much, are answered.
    pub(crate) fn lookups(&self) -> &BlockingPool {
        &self.lookups
    }

    /// Where parts are scanned: not where lookups are answered, which would wait for whole parts.
    pub(crate) fn scans(&self) -> &BlockingPool {
        &self.scans
    }
}
