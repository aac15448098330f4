//! The expected rows: runs the plain SELECT with DataFusion over the archive's files.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use batch::SessionFolder;
use catalog::{CatalogState, DefinitionKind, DefinitionRecord};
use committed::names::{live_names, no_view};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use definitions::{Definitions, OnError, StreamDefinition, ViewDefinition, parse};
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::{Planned, Planner, TypedTextColumns, asking_session_builder, session_config};
use futures::TryStreamExt;
use storage::{ObjectStorage, OffsetRanges, archive_plan};
use types::files::{FileKind, FileRecord};
use types::sql_dialect::parse_statement;
use types::vector::Vector;
use types::{Error, Result};

use super::Verifier;
use super::events_scanned::EventsScanned;
use super::left_out::FailingOffsets;
use super::plain::{self, Moment, Plain, plain};

/// One view over the archive of one catalog state.
#[derive(Debug)]
pub struct Expected {
    view: ViewDefinition,
    version: u32,
    definitions: Definitions,
    archive: Archive,
    functions: Functions,
    memory_limit: usize,
    temp_dir: Option<PathBuf>,
    left_out: FailingOffsets,
    read: EventsScanned,
    /// How many events are evaluated at once; absent: as many as usual.
    batch_rows: Option<usize>,
}

#[derive(Debug, Clone)]
struct Archive {
    storage: ObjectStorage,
    files: Vec<FileRecord>,
}

impl Expected {
    /// Reads the definitions of the served version of `view`.
    pub fn new(verifier: &Verifier, state: &CatalogState, view: &str) -> Result<Expected> {
        let record = state.served_or_building(DefinitionKind::View, view).ok_or_else(|| no_view(view, live_names(state)))?;
        Self::of_version(verifier, state, record)
    }

    /// Like [`Expected::new`], for a given version.
    pub fn of_version(verifier: &Verifier, state: &CatalogState, record: &DefinitionRecord) -> Result<Expected> {
        let definitions = definitions(state)?;
        let view = parse::parse_view(&record.sql)?;
        Ok(Expected {
            view,
            version: record.version,
            definitions,
            archive: Archive { storage: verifier.storage.clone(), files: state.readable(FileKind::Archive).cloned().collect() },
            functions: verifier.functions.clone(),
            memory_limit: verifier.memory_limit,
            temp_dir: verifier.temp_dir.clone(),
            left_out: FailingOffsets::default(),
            read: EventsScanned::default(),
            batch_rows: None,
        })
    }

    /// Counts the events that are read from now on.
    pub(super) fn count_into(&mut self, read: &EventsScanned) {
        self.read = read.clone();
    }

    /// Leaves out the events before `vector` on which the view fails: each evaluated alone, whatever the layers
    /// recorded.
    pub async fn leave_out_failing(&mut self, vector: &Vector) -> Result<()> {
        let session = self.session_of_batches(None)?;
        self.archive.storage.register(&session.runtime_env());
        let planned = Planner::new(&self.definitions, self.functions.clone()).plan(&self.view).await;
        let Ok(Planned::Stateful(plan)) = planned else { return Ok(()) };
        if plan.on_error == OnError::Skip {
            let scan = |stream: &StreamDefinition, columns: &[usize]| -> Result<Arc<dyn ExecutionPlan>> {
                let table = ArchiveTable::new(&self.archive, stream, vector, &FailingOffsets::default());
                let plan = table.plan(Some(columns), session.copied_config().target_partitions())?;
                self.read.watch(&plan);
                Ok(plan)
            };
            self.left_out = FailingOffsets::find(&plan, &session, &scan).await?;
        }
        Ok(())
    }

    /// How many events of a stream are left out.
    pub fn left_out(&self, stream: &str) -> u64 {
        self.left_out.count(stream)
    }

    /// Evaluates events one by one from now on, and conditions in the order of their text. A condition such as
    /// `x <> 0 AND 1 / x > 2` holds for each event, and still fails for many at once: DataFusion evaluates both sides
    /// for all of them, or the second first. Returns false if it does so already.
    pub fn one_by_one(&mut self) -> bool {
        self.batch_rows.replace(1).is_none()
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the schema of the view's columns.
    pub async fn schema(&self) -> Result<SchemaRef> {
        let plain = self.ask(Moment { t: 0, as_of: false })?;
        let planned = planned(&self.session(&Vector::new())?, &plain.sql).await.map_err(|error| about(&plain, error))?;
        // Analysed, as the rows are: a quotient of decimals has another type before.
        let planned = planned.into_optimized_plan().map_err(|error| about(&plain, error))?;
        let fields = planned.schema().fields().iter().take(plain.columns.len()).cloned();
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    /// Returns the view as plain SQL.
    pub fn ask(&self, moment: Moment) -> Result<Plain> {
        let session = self.session_of_batches(None)?;
        let state = session.state();
        plain(&self.view, &self.definitions, &|name| state.aggregate_functions().contains_key(name), moment)
    }

    /// Returns the rows of the query over the events before `vector`. Where some column collects values, one more
    /// column says whether they may be past a limit: as a query of its own that would read the archive again.
    pub async fn rows(&self, plain: &Plain, vector: &Vector) -> Result<SendableRecordBatchStream> {
        let sql = plain.may_be_past_sql.as_ref().unwrap_or(&plain.sql);
        self.run(sql, vector).await.map_err(|error| error.with("sql", sql))
    }

    /// Returns the keys whose rows may be estimates.
    pub async fn crowded(&self, plain: &Plain, vector: &Vector) -> Result<Vec<RecordBatch>> {
        let Some(sql) = &plain.crowded_sql else { return Ok(Vec::new()) };
        let rows = self.run(sql, vector).await.map_err(|error| error.with("sql", sql))?;
        Ok(rows.try_collect().await?)
    }

    /// Returns what the error of their estimates depends on.
    pub async fn weights(&self, plain: &Plain, vector: &Vector) -> Result<Vec<RecordBatch>> {
        let Some(sql) = &plain.weights_sql else { return Ok(Vec::new()) };
        let rows = self.run(sql, vector).await.map_err(|error| error.with("sql", sql))?;
        Ok(rows.try_collect().await?)
    }

    /// Returns which values are past a limit.
    pub async fn past(&self, plain: &Plain, vector: &Vector) -> Result<Vec<RecordBatch>> {
        let Some(sql) = &plain.past_sql else { return Ok(Vec::new()) };
        let rows = self.run(sql, vector).await.map_err(|error| error.with("sql", sql))?;
        Ok(rows.try_collect().await?)
    }

    /// Runs any SQL over the events before `vector`.
    pub async fn run(&self, sql: &str, vector: &Vector) -> Result<SendableRecordBatchStream> {
        let asked = planned(&self.session(vector)?, sql).await?;
        let task = Arc::new(asked.task_ctx());
        let plan = asked.create_physical_plan().await?;
        self.read.watch(&plan);
        Ok(execute_stream(plan, task)?)
    }

    fn session(&self, vector: &Vector) -> Result<SessionContext> {
        let session = self.session_of_batches(self.batch_rows)?;
        self.archive.storage.register(&session.runtime_env());
        TypedTextColumns::of_streams(&self.definitions.streams).register(&session);
        for stream in &self.definitions.streams {
            let table = ArchiveTable::new(&self.archive, stream, vector, &self.left_out);
            session.register_table(datafusion::common::TableReference::bare(&*stream.name), Arc::new(table))?;
        }
        Ok(session)
    }

    /// Creates a session with the same dialect as all others, its own memory limit, and none of their plans.
    fn session_of_batches(&self, batch_rows: Option<usize>) -> Result<SessionContext> {
        let folder = SessionFolder::create(self.temp_dir.as_deref())?;
        let pool = Arc::new(FairSpillPool::new(self.memory_limit));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(folder.disk()).build_arc()?;
        let config = batch_rows.into_iter().fold(session_config(), SessionConfig::with_batch_size);
        let mut state = asking_session_builder().with_config(folder.kept_in(config)).with_runtime_env(runtime).build();
        if batch_rows.is_some() {
            let rules = state.optimizers().iter().filter(|rule| rule.name() != REORDERING).cloned().collect();
            state = SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build();
        }
        let session = SessionContext::new_with_state(state);
        self.functions.register(&session)?;
        plain::register(&session);
        Ok(session)
    }
}

/// The rule that evaluates the cheaper ones of several conditions first.
const REORDERING: &str = "push_down_filter";

/// Parses the text as the SQL of views is parsed, and plans it.
async fn planned(session: &SessionContext, sql: &str) -> DataFusionResult<DataFrame> {
    let plan = session.state().statement_to_plan(parse_statement(sql)?).await?;
    session.execute_logical_plan(plan).await
}

fn about(plain: &Plain, error: datafusion::error::DataFusionError) -> Error {
    Error::from(error).with("sql", &plain.sql)
}

fn definitions(state: &CatalogState) -> Result<Definitions> {
    let named = |kind| {
        state
            .live(kind)
            .filter(move |record| state.served_or_building(kind, &record.name).is_some_and(|active| active.version == record.version))
    };
    Ok(Definitions {
        streams: named(DefinitionKind::Stream).map(|record| parse::parse_stream(&record.sql)).collect::<Result<_>>()?,
        views: named(DefinitionKind::View).map(|record| parse::parse_view(&record.sql)).collect::<Result<_>>()?,
        ..Definitions::default()
    })
}

/// A stream as a table: its archived events before a vector.
#[derive(Debug)]
struct ArchiveTable {
    storage: ObjectStorage,
    files: Vec<FileRecord>,
    schema: SchemaRef,
    ranges: OffsetRanges,
    left_out: FailingOffsets,
}

impl ArchiveTable {
    fn new(archive: &Archive, stream: &StreamDefinition, vector: &Vector, left_out: &FailingOffsets) -> Self {
        let files = archive.files.iter().filter(|file| file.subject.as_deref() == Some(&*stream.name)).cloned().collect();
        let ranges = OffsetRanges { stream: stream.name.clone(), from: Vector::new(), to: vector.clone() };
        Self { storage: archive.storage.clone(), files, schema: plan_schema(stream), ranges, left_out: left_out.clone() }
    }

    fn plan(&self, columns: Option<&[usize]>, partitions: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let scan =
            |columns: Option<&[usize]>| archive_plan(&self.storage, &self.files, self.schema.clone(), &self.ranges, columns, partitions);
        self.left_out.without(&self.ranges.stream, &self.schema, columns, &scan)
    }
}

#[async_trait]
impl TableProvider for ArchiveTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self.plan(projection.map(Vec::as_slice), session.config().target_partitions())?)
    }
}
