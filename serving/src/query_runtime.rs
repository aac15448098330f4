//! Sessions for queries: one for each query, all under one memory limit and spilling to one folder.

use std::path::Path;
use std::sync::Arc;

use access::Principal;
use catalog::Catalog;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use engine::functions::Functions;
use engine::plan::{query_session_builder, session_config};
use storage::ObjectStorage;
use types::{Result, threads};

use crate::admission::Admission;
use crate::blocking_pool::BlockingPool;
use crate::hot_keys::{HotKeySettings, HotKeys};
use crate::kept_keys::KeptKeys;
use crate::limits::ServingLimits;
use crate::lookup_times::LookupTimes;
use crate::meta::KeptMetas;
use crate::plain_lookup::PlainLookups;
use crate::planners::Planners;
use crate::query_memory::{MemoryLevel, MemoryScope, PrincipalMemory, QueryMemory};
use crate::row_cache::RowCache;
use crate::spill_folder::SpillFolder;

/// The catalog of all tables, as PostgreSQL clients know the database: `basestream.public.orders` is `orders`.
pub const CATALOG: &str = "basestream";
const SCHEMA: &str = "public";

/// The indexes of alerts may take one of this many parts of what queries may, besides.
const INDEX_PART: usize = 2;

/// What all queries of a node share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct QueryRuntime {
    shared: Arc<Shared>,
    runtime: Arc<RuntimeEnv>,
    /// The memory of one query, where this is for one.
    of_query: Option<Arc<QueryMemory>>,
}

/// What is the same for each query.
#[derive(Debug)]
struct Shared {
    functions: Functions,
    catalog: Catalog,
    storage: ObjectStorage,
    /// Of sessions.
    config: SessionConfig,
    spill: SpillFolder,
    memory_limit_bytes: usize,
    /// That of alerts' indexes, which no query takes.
    index_memory: Arc<dyn MemoryPool>,
    /// Where that of one principal is limited.
    principal_memory: Option<PrincipalMemory>,
    limits: ServingLimits,
    admission: Admission,
    planners: Planners,
    lookups: BlockingPool,
    scans: BlockingPool,
    kept_keys: KeptKeys,
    hot: Arc<HotKeys>,
    rows: RowCache,
    plain_lookups: PlainLookups,
    lookup_times: LookupTimes,
    kept_metas: KeptMetas,
}

/// What the queries of a node may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuntimeSettings<'a> {
    pub(crate) memory_limit_bytes: usize,
    pub(crate) limits: &'a ServingLimits,
    pub(crate) hot_keys: &'a HotKeySettings,
    /// The folder in which a folder for spilled data is made.
    pub(crate) cache: &'a Path,
}

impl QueryRuntime {
    pub(crate) fn new(functions: &Functions, catalog: &Catalog, storage: &ObjectStorage, settings: RuntimeSettings<'_>) -> Result<Self> {
        let RuntimeSettings { memory_limit_bytes, limits, hot_keys, cache } = settings;
        let spill = SpillFolder::make_in(cache)?;
        let files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![spill.path().to_owned()]));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory_limit_bytes)))
            .with_disk_manager_builder(files)
            .build_arc()
            .map_err(|error| spill.named(error))?;
        storage.register(&runtime);
        let shared = Shared {
            functions: functions.clone(),
            catalog: catalog.clone(),
            storage: storage.clone(),
            config: config(),
            spill,
            memory_limit_bytes,
            index_memory: Arc::new(GreedyMemoryPool::new(memory_limit_bytes / INDEX_PART)),
            principal_memory: limits.memory_per_principal_bytes.map(|bytes| PrincipalMemory::new(bytes.min(memory_limit_bytes))),
            limits: limits.clone(),
            admission: Admission::new(limits),
            planners: Planners::new(limits),
            lookups: BlockingPool::new(&threads::QUERIES),
            scans: BlockingPool::new(&threads::SCANS),
            kept_keys: KeptKeys::new(memory_limit_bytes, &runtime.memory_pool),
            hot: Arc::new(HotKeys::new(hot_keys)),
            rows: RowCache::new(hot_keys.row_cache_bytes, &runtime.memory_pool),
            plain_lookups: PlainLookups::default(),
            lookup_times: LookupTimes::default(),
            kept_metas: KeptMetas::default(),
        };
        Ok(Self { shared: Arc::new(shared), runtime, of_query: None })
    }

    /// The same for one query of this principal, which has its share of the memory.
    pub(crate) fn for_query(&self, principal: &Principal) -> Self {
        let most = self.shared.memory_limit_bytes;
        let share = self.shared.limits.query_memory_bytes.unwrap_or(most / 2).min(most);
        let of_principal = self.shared.principal_memory.as_ref().map(|memory| memory.level(&principal.name));
        let of_node = MemoryLevel::new(MemoryScope::Node, most, self.runtime.memory_pool.clone());
        let memory = Arc::new(QueryMemory::new(share, of_principal.into_iter().chain([of_node])));
        let runtime = Arc::new(RuntimeEnv { memory_pool: memory.clone(), ..(*self.runtime).clone() });
        Self { shared: self.shared.clone(), runtime, of_query: Some(memory) }
    }

    /// A session without tables, which can spill also after somebody has removed the folder.
    pub(crate) fn session(&self) -> Result<SessionContext> {
        self.shared.spill.restore(&self.runtime.disk_manager.temp_dir_paths());
        let builder = query_session_builder().with_config(self.shared.config.clone()).with_runtime_env(self.runtime.clone());
        let session = SessionContext::new_with_state(builder.build());
        self.shared.functions.register(&session)?;
        Ok(session)
    }

    /// What a plan runs in that calls no function by its name.
    pub(crate) fn task_context(&self) -> Arc<TaskContext> {
        let (config, runtime) = (self.shared.config.clone(), self.runtime.clone());
        let (scalars, higher_order, aggregates, windows) = Default::default();
        Arc::new(TaskContext::new(None, String::new(), config, scalars, higher_order, aggregates, windows, runtime))
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }

    pub(crate) fn storage(&self) -> &ObjectStorage {
        &self.shared.storage
    }

    pub(crate) fn memory_limit_bytes(&self) -> usize {
        self.shared.memory_limit_bytes
    }

    /// What the indexes of alerts may take.
    pub(crate) fn index_limit_bytes(&self) -> usize {
        self.shared.memory_limit_bytes / INDEX_PART
    }

    /// The memory of alerts' indexes.
    pub(crate) fn index_memory(&self) -> &Arc<dyn MemoryPool> {
        &self.shared.index_memory
    }

    pub(crate) fn limits(&self) -> &ServingLimits {
        &self.shared.limits
    }

    /// Whose turn it is.
    pub(crate) fn admission(&self) -> &Admission {
        &self.shared.admission
    }

    /// Where queries are planned.
    pub(crate) fn planners(&self) -> &Planners {
        &self.shared.planners
    }

    /// The memory of the query that this is for.
    pub(crate) fn query_memory(&self) -> Option<&Arc<QueryMemory>> {
        self.of_query.as_ref()
    }

    /// Where queries spill to.
    pub(crate) fn spill_folder(&self) -> &SpillFolder {
        &self.shared.spill
    }

    /// What queries hold at the moment.
    #[cfg(test)]
    pub(crate) fn memory_reserved(&self) -> usize {
        self.runtime.memory_pool.reserved()
    }

    /// What was merged of hot keys.
    pub(crate) fn kept_keys(&self) -> &KeptKeys {
        &self.shared.kept_keys
    }

    /// The rows of hot keys.
    pub(crate) fn rows(&self) -> &RowCache {
        &self.shared.rows
    }

    /// Which keys are hot.
    pub(crate) fn hot(&self) -> &Arc<HotKeys> {
        &self.shared.hot
    }

    /// The texts of SQL that are not parsed again.
    pub(crate) fn plain_lookups(&self) -> &PlainLookups {
        &self.shared.plain_lookups
    }

    /// How long lookups take.
    pub(crate) fn lookup_times(&self) -> &LookupTimes {
        &self.shared.lookup_times
    }

    /// What answers of lookups from one read view have in common.
    pub(crate) fn kept_metas(&self) -> &KeptMetas {
        &self.shared.kept_metas
    }

    /// Where walks, and lookups that merge much, are answered.
    pub(crate) fn lookups(&self) -> &BlockingPool {
        &self.shared.lookups
    }

    /// Where parts are scanned: not where lookups are answered, which would wait for whole parts.
    pub(crate) fn scans(&self) -> &BlockingPool {
        &self.shared.scans
    }
}

fn config() -> SessionConfig {
    let mut config = session_config().with_default_catalog_and_schema(CATALOG, SCHEMA).with_information_schema(true);
    // Lookups only estimate their rows: a key may have none.
    config.options_mut().execution.use_row_number_estimates_to_optimize_partitioning = true;
    config
}
