//! A serving node: what its users hold. It follows the catalog ([`Follower`]), answers lookups ([`crate::lookup`]) and
//! SQL ([`crate::sql`]).

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{Action, Object, Principal, allow, may};
use arrow::datatypes::DataType;
use catalog::Catalog;
use committed::registry::{LiveView, Registry};
use datafusion::common::ScalarValue;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use engine::fresh::{Fresh, FreshLayer, LayerObserver, ViewVersion};
use engine::functions::Functions;
use engine::states::StateRows;
use event_log::Log;
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::outage::Outage;
use types::tiles::{Clock, Micros};
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

use crate::answerer::ReverseIndex;
use crate::follower::{AwaitedPosition, CountedEvents, FollowSettings, Follower, NodeSettings, WantedViews};
use crate::hot_keys::HotKey;
use crate::limits::ServingLimits;
use crate::lookup::{self, AskedPaths, Keys, Request, Response, ViewKeys, ViewsRequest, ViewsResponse};
use crate::meta::LookupMeta;
use crate::query_runtime::{QueryRuntime, RuntimeSettings};
use crate::read_view::{Loaded, ReadView};
use crate::scoring::Scorer;
use crate::sql::{self, Described, Params, QueryResponse, SearchPath, SessionSettings, TableDescription, TableReader, Turn};
use crate::status_reporter::StatusReporter;
use crate::value_errors::OnValueError;

/// A cheap-to-clone handle, which asks for a principal: everything is allowed unless [`Node::acting_for`] says for
/// whom.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
    /// Whose rights the lookups and queries of this handle have.
    principal: Arc<Principal>,
}

struct Inner {
    follower: Follower,
    runtime: QueryRuntime,
    /// The log, where it is known: for the partitions' ends in `system.partitions`.
    log: OnceLock<Arc<dyn Log>>,
    /// What makes the records of sinks, in a process that has some.
    scorer: OnceLock<Arc<dyn Scorer>>,
    /// What reports the status, in a process whose node is not all there is.
    status_reporter: OnceLock<Arc<dyn StatusReporter>>,
    /// What else of this process fails.
    others: OnceLock<Box<dyn Fn() -> Vec<Outage> + Send + Sync>>,
    /// Counts which keys the events of fresh layers are of, while it is here.
    _counting: Option<Arc<LayerObserver<StateRows>>>,
}

impl Node {
    /// Opens a node and loads the catalog's present state. `fresh` are the uncheckpointed layers of the speed workers
    /// in this process, and of those that it follows ([`Node::follow_workers`]).
    ///
    /// It takes no lease: that is [`Node::run`]'s. Until then its files are kept by the ten minutes for which a
    /// snapshot stays that another has replaced; a lease here would cost two commits with every command that asks once.
    pub async fn open(
        catalog: Catalog,
        storage: ObjectStorage,
        functions: Functions,
        fresh: Option<Fresh>,
        settings: NodeSettings,
        wall: Clock,
    ) -> Result<Node> {
        let NodeSettings { memory_limit_bytes, limits, hot_keys, cache, .. } = &settings;
        let of_queries = RuntimeSettings { memory_limit_bytes: *memory_limit_bytes, limits, hot_keys, cache };
        let runtime = QueryRuntime::new(&functions, &catalog, &storage, of_queries)?;
        let is_following = settings.at_once && settings.views == WantedViews::All;
        let follower = Follower::new(catalog, storage, functions, fresh.clone(), settings, wall)?;
        let counting = fresh.map(|fresh| count_events(&fresh, &follower, &runtime));
        let opened = match is_following {
            true => follower.refresh().await,
            false => follower.refresh_all().await,
        };
        match opened {
            Err(error) if follower.loaded().is_some() => warn!(%error, "not every view could be loaded yet; the others are served"),
            outcome => outcome?,
        }
        let inner = Inner {
            follower,
            runtime,
            log: OnceLock::new(),
            scorer: OnceLock::new(),
            status_reporter: OnceLock::new(),
            others: OnceLock::new(),
            _counting: counting,
        };
        Ok(Node { inner: Arc::new(inner), principal: Principal::anonymous() })
    }

    /// Returns a handle to the same node whose lookups and queries have the rights of this principal.
    pub fn acting_for(&self, principal: Arc<Principal>) -> Node {
        Node { inner: self.inner.clone(), principal }
    }

    /// Whose rights this handle has.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Follows the catalog, copies what is served and not copied yet, and keeps its files from being collected, until
    /// `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        self.inner.follower.run(stop).await;
    }

    /// Follows the workers of other processes that the catalog lists, until `stop`: answers count what they have not
    /// committed. Only a node that was opened with a list of fresh layers does.
    pub async fn follow_workers(&self, settings: FollowSettings, stop: CancellationToken) {
        self.inner.follower.follow_workers(settings, stop).await;
    }

    /// To be called before [`Node::follow_workers`]: the node is not ready before it follows the workers that the
    /// catalog lists, for a few seconds at most.
    pub fn await_workers(&self) {
        self.inner.follower.await_workers();
    }

    /// Whether the node has just started, and does not follow all workers yet.
    pub(crate) fn awaits_workers(&self) -> bool {
        self.inner.follower.awaits_workers()
    }

    /// The processes whose workers this node follows, and whether it reaches them.
    pub fn workers(&self) -> Vec<feed::Link> {
        self.inner.follower.workers()
    }

    /// Has the workers of each of these processes listen to what they decide, for one event that is about to be
    /// appended to this topic. Those that are slow are left out once the others have all of these partitions.
    pub async fn listen_to_workers(&self, topic: &Arc<str>, partitions: &BTreeSet<i32>) -> Vec<Result<feed::DecisionListener>> {
        self.inner.follower.listen_to_workers(topic, partitions).await
    }

    /// Loads the catalog's present state and makes it the one that queries read. While a file of a view that is served
    /// does not come (`Unavailable`), the state before stays: an answer that is a little older is better than none.
    pub async fn refresh(&self) -> Result<()> {
        self.inner.follower.refresh().await
    }

    /// Looks keys up at `as_of`, or now. Never scans, unless the kept tiles do not answer that
    /// time: then the archive does.
    ///
    /// Errors: `Forbidden`, `NotFound` for an unknown view, `Input` for keys that are not its keys, `Limit` past
    /// [`MAX_KEYS`](crate::MAX_KEYS).
    pub async fn lookup(&self, view: &str, keys: Keys, as_of: Option<Micros>) -> Result<Response> {
        self.lookup_with_paths(view, keys, as_of, AskedPaths::default()).await
    }

    /// The same for keys of a view over a JOIN, with the newest of the paths that link each: [`Response::paths`].
    ///
    /// Errors, beside those of a lookup: `Input` for paths of a view without JOIN, and of a column in which no path can
    /// count; `Limit` where they could be more than [`MAX_PATHS`](crate::MAX_PATHS).
    pub async fn lookup_with_paths(&self, view: &str, keys: Keys, as_of: Option<Micros>, paths: AskedPaths) -> Result<Response> {
        Ok(self.lookup_after(view, keys, as_of, paths, None).await?.with_meta())
    }

    /// The same, once it counts everything before the position `after`: see [`Node::wait_for`].
    pub(crate) async fn lookup_after(
        &self,
        view: &str,
        keys: Keys,
        as_of: Option<Micros>,
        paths: AskedPaths,
        after: Option<&Vector>,
    ) -> Result<Response<LookupMeta>> {
        allow(&self.principal, Action::Read, Object::View(view))?;
        let after = after.map(|position| self.awaited(position)).transpose()?;
        let request = Request { view, keys, as_of, after, paths, principal: &self.principal };
        let response = lookup::look_up(&self.inner.follower, &self.inner.runtime, request).await?;
        if self.may_know_all_streams() {
            return Ok(response);
        }
        let mut meta = response.meta.into_meta();
        self.hide_other_streams(&mut meta.cut)?;
        Ok(Response { meta: LookupMeta::Own(Box::new(meta)), ..response })
    }

    /// Looks keys of several views up at once. All are answered from one read view, once it counts everything before
    /// the position `after`: see [`Node::wait_for`].
    ///
    /// Errors: as of a lookup, `Forbidden` naming the first view without a right; `Input` for a view that is named
    /// twice; `Limit` past [`MAX_KEYS`](crate::MAX_KEYS) keys of all views.
    pub async fn lookup_views(&self, views: Vec<ViewKeys>, as_of: Option<Micros>, after: Option<&Vector>) -> Result<ViewsResponse> {
        views.iter().try_for_each(|asked| allow(&self.principal, Action::Read, Object::View(&asked.view)))?;
        let after = after.map(|position| self.awaited(position)).transpose()?;
        let request = ViewsRequest { views, as_of, after, principal: &self.principal };
        let mut response = lookup::look_up_views(&self.inner.follower, &self.inner.runtime, request).await?;
        self.hide_other_streams(&mut response.meta.cut)?;
        Ok(response)
    }

    /// Plans a query and begins it. `params` are the values of `$1`, `$2`, ..
    ///
    /// Errors: `Forbidden` for a table without a right; `Input` for SQL that is wrong, names no known table or is no
    /// query; `Limit` past the memory limit (also later, from the batches).
    pub async fn query(&self, sql: &str, params: Vec<serde_json::Value>) -> Result<QueryResponse> {
        self.query_with(sql, params, OnValueError::Fail).await
    }

    /// The same, with values that could not be computed treated as `on_value_error` says. Listed, they are in
    /// [`QueryResponse::meta_so_far`].
    pub async fn query_with(&self, sql: &str, params: Vec<serde_json::Value>, on_value_error: OnValueError) -> Result<QueryResponse> {
        self.query_after(sql, params, on_value_error, None).await
    }

    /// The same, once it counts everything before the position `after`: see [`Node::wait_for`]. A query that names
    /// streams waits until they are committed up to there.
    pub(crate) async fn query_after(
        &self,
        sql: &str,
        params: Vec<serde_json::Value>,
        on_value_error: OnValueError,
        after: Option<Vector>,
    ) -> Result<QueryResponse> {
        let after = after.as_ref().map(|position| self.awaited(position)).transpose()?;
        let (params, settings, principal) = (Params::Json(params), SessionSettings::default(), self.principal.clone());
        let asked = sql::Query { sql, params, settings, on_value_error, principal };
        let mut response = sql::query(&self.inner.follower, &self.inner.runtime, self.inner.log.get(), asked, after).await?;
        self.hide_other_streams(response.meta.cut_mut())?;
        Ok(response)
    }

    /// Waits until an answer counts everything before this position, so that who appended reads what it wrote. An
    /// answer that is computed from the archive has what is committed: lookups and queries that are given the position
    /// wait for that too, no longer all in all.
    ///
    /// Errors: `NotFound` for a stream that is not there, and for a partition that the log does not have; `Unavailable`
    /// if it takes longer than [`MOST_WAITED`](crate::MOST_WAITED).
    pub async fn wait_for(&self, position: &Vector) -> Result<()> {
        self.inner.follower.wait_for(self.awaited(position)?, CountedEvents::WithFresh).await
    }

    /// A position that an answer is to count. Errors: `NotFound` for a stream that is not there, or that this principal
    /// may not know of.
    fn awaited<'a>(&'a self, position: &'a Vector) -> Result<AwaitedPosition<'a>> {
        let loaded = self.inner.follower.expect_loaded()?;
        let registry = &loaded.registry;
        let is_known = |stream: &Arc<str>| registry.streams.contains_key(stream) && self.may_know(registry, stream);
        match position.iter().find(|(partition, _)| !is_known(&partition.stream)) {
            Some((partition, _)) => {
                Err(Error::not_found(format!("the position names the stream \"{}\", which does not exist", partition.stream)))
            }
            None => Ok(AwaitedPosition::new(position, self.inner.log.get())),
        }
    }

    /// Takes the streams out of a position that this principal may not know of.
    pub(crate) fn hide_other_streams(&self, position: &mut Vector) -> Result<()> {
        if self.may_know_all_streams() {
            return Ok(());
        }
        let loaded = self.inner.follower.expect_loaded()?;
        let registry = &loaded.registry;
        let known: Vec<Arc<str>> = registry.streams.keys().filter(|stream| self.may_know(registry, stream)).cloned().collect();
        *position = position.of_streams(&known);
        Ok(())
    }

    /// Who may list all partitions sees how far all streams are.
    fn may_know_all_streams(&self) -> bool {
        may(&self.principal, Action::Read, Object::System("partitions"))
    }

    /// A position shows how far a stream is: it is for who may read or append to the stream, or read a view over it.
    fn may_know(&self, registry: &Registry, stream: &str) -> bool {
        let reads_view = |view: &LiveView| view.plan.reads(stream) && may(&self.principal, Action::Read, Object::View(&view.name));
        [Action::Read, Action::Append].into_iter().any(|action| may(&self.principal, action, Object::Stream(stream)))
            || registry.views.iter().any(reads_view)
    }

    /// Plans a query over a read view at hand and begins it, so that several queries have one position and time. The
    /// caller keeps the files of the read view.
    pub async fn query_at(&self, read_view: ReadView, sql: &str, on_value_error: OnValueError) -> Result<QueryResponse> {
        let (params, settings, principal) = (Params::Json(Vec::new()), SessionSettings::default(), self.principal.clone());
        let asked = sql::Query { sql, params, settings, on_value_error, principal };
        let mut response = sql::query_at(&self.inner.follower, &self.inner.runtime, self.inner.log.get(), read_view, asked).await?;
        self.hide_other_streams(response.meta.cut_mut())?;
        Ok(response)
    }

    /// Plans a query with typed parameters and begins it: over a read view at hand, or that of this moment.
    pub async fn query_typed(
        &self,
        read_view: Option<ReadView>,
        sql: &str,
        params: Vec<ScalarValue>,
        settings: SessionSettings<'_>,
    ) -> Result<QueryResponse> {
        let (follower, runtime, log) = (&self.inner.follower, &self.inner.runtime, self.inner.log.get());
        let (params, on_value_error, principal) = (Params::Typed(params), OnValueError::Fail, self.principal.clone());
        let asked = sql::Query { sql, params, settings, on_value_error, principal };
        let mut response = match read_view {
            Some(read_view) => sql::query_at(follower, runtime, log, read_view, asked).await?,
            None => sql::query(follower, runtime, log, asked, None).await?,
        };
        self.hide_other_streams(response.meta.cut_mut())?;
        Ok(response)
    }

    /// Runs a plan over tables that are not the node's, such as PostgreSQL's catalog, as a query is run: when it is its
    /// turn, on threads for queries, and within the limits, but for that of rows.
    ///
    /// Errors: `Busy` when its turn does not come.
    pub async fn run_plan(&self, plan: Arc<dyn ExecutionPlan>, context: TaskContext) -> Result<(SendableRecordBatchStream, Turn)> {
        sql::run(&self.inner.runtime, &self.principal, plan, context).await
    }

    /// Plans a query over such tables as a query is planned: on threads that nothing else waits for, and for no longer
    /// than a query may take.
    pub async fn plan_apart<T: Send + 'static>(&self, planning: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        sql::plan_in_time(&self.inner.runtime, &self.principal, planning).await
    }

    /// What a query's columns and parameters are. `given` are the types of `$1`, `$2`, .. that the caller knows.
    ///
    /// Errors: `Input` for SQL that is wrong, names no known table or is no query.
    pub async fn describe(&self, read_view: ReadView, sql: &str, given: &[Option<DataType>], search_path: SearchPath) -> Result<Described> {
        sql::describe(&self.inner.runtime, self.table_reader(), read_view, sql, given, search_path).await
    }

    /// The tables that a query can name.
    pub async fn tables(&self, read_view: ReadView) -> Result<Vec<TableDescription>> {
        sql::all_tables(&self.inner.runtime, self.table_reader(), read_view).await
    }

    fn table_reader(&self) -> TableReader<'_> {
        TableReader { principal: &self.principal, log: self.inner.log.get() }
    }

    /// What a query begun now reads from.
    pub fn read_view(&self) -> Result<ReadView> {
        self.inner.follower.read_view()
    }

    /// A read view that counts every record of a partition before `next` and none from there on, with these versions of
    /// views, all of which can be answered for any key.
    ///
    /// Errors: `Unavailable` where it is not there yet, or not any more.
    pub async fn read_view_at(&self, partition: &PartitionId, next: Offset, views: &[ViewVersion]) -> Result<ReadView> {
        // Not what was read before: a worker that begins again reads from an earlier position.
        let mut read_view = self.inner.follower.present()?;
        let not_yet = |error| Error::unavailable("the node has other versions of the views").caused_by(error);
        for ViewVersion { name, version } in views {
            if read_view.live(name).map_err(not_yet)?.version != *version {
                read_view = read_view.with_version(name, *version).map_err(not_yet)?;
            }
            if let Some(copy) = read_view.view(name)?.copying() {
                copy.fetch_all().await?;
            }
        }
        match read_view.vector.get(partition) {
            found if found == next => Ok(read_view),
            found => Err(Error::unavailable("the node's read view is at another position")
                .with("partition", partition)
                .with("found", found)
                .with("expected", next)),
        }
    }

    /// The present read view with the served versions of views, in which all of these can be answered for any key.
    ///
    /// Errors: `NotFound` for an unknown view, `Unavailable` for one that is being built or loaded.
    pub async fn read_view_of(&self, views: &[Arc<str>]) -> Result<ReadView> {
        let read_view = self.read_view()?.with_served_versions();
        for view in views {
            if let Some(copy) = read_view.view(view)?.copying() {
                copy.fetch_all().await?;
            }
        }
        Ok(read_view)
    }

    /// The keys that are hot on this node, of the views that this handle's principal may read.
    pub(crate) fn hot_keys(&self) -> Result<Vec<HotKey>> {
        let read_view = self.read_view()?;
        let mut keys = self.inner.runtime.hot().list(&read_view.loaded.registry, read_view.now)?;
        keys.retain(|hot| self.may_see(hot));
        Ok(keys)
    }

    /// The same as of a moment ago, however many watch it: see [`HotKeys::recent`](crate::hot_keys::HotKeys::recent).
    pub(crate) fn recent_hot_keys(&self) -> Result<Vec<HotKey>> {
        let read_view = self.read_view()?;
        let keys = self.inner.runtime.hot().recent(&read_view.loaded.registry, read_view.now)?;
        Ok(keys.iter().filter(|hot| self.may_see(hot)).cloned().collect())
    }

    fn may_see(&self, hot: &HotKey) -> bool {
        may(&self.principal, Action::Read, Object::View(&hot.view))
    }

    /// Whether a view version has to be built by a run before it can be answered.
    pub fn is_building(&self, view: &ViewVersion) -> bool {
        self.loaded().is_some_and(|loaded| loaded.building.contains_key(view))
    }

    pub fn loaded(&self) -> Option<Arc<Loaded>> {
        self.inner.follower.loaded()
    }

    /// Returns what fails at the moment: of the catalog, the storage, and the speed layer of this process.
    pub fn outages(&self) -> Vec<Outage> {
        let mut outages = self.inner.follower.outages();
        outages.extend(self.inner.others.get().into_iter().flat_map(|others| others()));
        outages
    }

    /// Reports what else of this process fails with [`Node::outages`]. The first such function stays.
    pub fn attach_outages(&self, others: impl Fn() -> Vec<Outage> + Send + Sync + 'static) {
        let _ = self.inner.others.set(Box::new(others));
    }

    pub fn catalog(&self) -> &Catalog {
        self.inner.follower.catalog()
    }

    pub fn storage(&self) -> &ObjectStorage {
        self.inner.follower.storage()
    }

    pub fn functions(&self) -> &Functions {
        self.inner.follower.functions()
    }

    pub fn session(&self) -> &SessionContext {
        self.inner.follower.session()
    }

    /// How long a query may take until its answer begins.
    pub fn query_timeout(&self) -> Duration {
        self.inner.follower.settings().query_timeout
    }

    /// Returns the limits of queries.
    pub fn limits(&self) -> &ServingLimits {
        &self.inner.follower.settings().limits
    }

    /// An empty index for an alert over a linked view. All of them share [`Node::index_limit_bytes`].
    pub fn reverse_index(&self) -> ReverseIndex {
        ReverseIndex::new(self.inner.runtime.index_memory())
    }

    /// The bytes that the indexes of all alerts may take: half of the memory of queries, besides that.
    pub fn index_limit_bytes(&self) -> usize {
        self.inner.runtime.index_limit_bytes()
    }

    /// Lets `system.partitions` show the log's ends. The first log stays.
    pub fn attach_log(&self, log: Arc<dyn Log>) {
        let _ = self.inner.log.set(log);
    }

    /// Lets events be scored one by one. The first scorer stays.
    pub fn attach_scorer(&self, scorer: Arc<dyn Scorer>) {
        let _ = self.inner.scorer.set(scorer);
    }

    pub(crate) fn scorer(&self) -> Option<&Arc<dyn Scorer>> {
        self.inner.scorer.get()
    }

    /// Lets the status be asked for over HTTP. The first reporter stays.
    pub fn attach_status_reporter(&self, reporter: Arc<dyn StatusReporter>) {
        let _ = self.inner.status_reporter.set(reporter);
    }

    pub(crate) fn status_reporter(&self) -> Option<&Arc<dyn StatusReporter>> {
        self.inner.status_reporter.get()
    }

    /// Sessions for queries, under the node's memory limit.
    #[cfg(test)]
    pub(crate) fn runtime(&self) -> &QueryRuntime {
        &self.inner.runtime
    }
}

/// Counts the events of each layer that comes, for as long as what is returned lives.
fn count_events(fresh: &Fresh, follower: &Follower, runtime: &QueryRuntime) -> Arc<LayerObserver<StateRows>> {
    let (follower, hot) = (follower.clone(), runtime.hot().clone());
    let observer: Arc<LayerObserver<StateRows>> = Arc::new(move |layer: &FreshLayer| {
        let Some(loaded) = follower.loaded() else { return };
        if let Err(error) = hot.count_layer(layer, &loaded.registry, follower.now()) {
            warn!(%error, "the keys of a layer's events could not be counted");
        }
    });
    fresh.observe(&observer);
    observer
}

#[cfg(test)]
mod tests;
