//! `<view>` as a table: a lookup where WHERE names every key, else a scan, part by part, of the columns that are named.

use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use committed::registry::LiveView;
use datafusion::catalog::Session;
use datafusion::common::ScalarValue;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use types::{Error, Result};

use crate::answerer::{AskedPart, StateSource, WantedPaths, answerer, scan_parts};
use crate::archive::{ArchiveLayer, archive_layer};
use crate::blocking_pool::CancelOnDrop;
use crate::lookup::{self, KeyRows};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::sql::equality::keys_named;
use crate::sql::source::SourceExec;
use crate::sql::table::{NodeTable, PlanFuture, ScanArgs};

/// A lookup of more keys than this waits for its turn like a scan.
pub(super) const FEW_KEYS: usize = 100;
/// The most rows per batch.
const BATCH_ROWS: usize = 8_192;

pub(super) struct ViewTable {
    pub(super) runtime: QueryRuntime,
    pub(super) context: QueryContext,
    pub(super) live: LiveView,
}

impl fmt::Debug for ViewTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewTable({})", self.live.name)
    }
}

impl NodeTable for ViewTable {
    fn schema(&self) -> SchemaRef {
        self.live.plan.output_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn pushdown(&self, _: &Expr) -> TableProviderFilterPushDown {
        TableProviderFilterPushDown::Inexact
    }

    fn scan<'a>(&'a self, _: &'a dyn Session, args: ScanArgs<'a>) -> PlanFuture<'a> {
        Box::pin(async move {
            let columns = args.columns(&self.schema());
            let schema = Arc::new(self.schema().project(&columns)?);
            let keys = keys_named(&self.live.plan, args.filters);
            lookup::fetch(&self.context, self.context.read_view.view(&self.live.name)?, keys.as_deref()).await?;
            Ok(match keys {
                Some(keys) => self.lookup(keys, columns, schema),
                None => self.scan_all(columns, schema)?,
            })
        })
    }
}

impl ViewTable {
    /// The rows of these keys. `columns` are indices of the plan's, and `schema` has their names in the answer.
    pub(super) fn lookup(&self, keys: Vec<Vec<ScalarValue>>, columns: Vec<usize>, schema: SchemaRef) -> Arc<dyn ExecutionPlan> {
        let archive = self.archive_note();
        let detail = format!("view={} keys={}{archive}", self.live.name, keys.len());
        let (rows, is_light) = (keys.len(), archive.is_empty() && keys.len() <= FEW_KEYS);
        let (runtime, context, view, shown) = (self.runtime.clone(), self.context.clone(), self.live.name.clone(), schema.clone());
        let open = move |_| -> BoxStream<'static, Result<RecordBatch>> {
            let (context, view, keys, columns) = (context.clone(), view.clone(), keys.clone(), columns.clone());
            let rows = KeyRows { context, view, keys, columns, paths: WantedPaths::default() };
            let (runtime, lookup) = (runtime.clone(), KeyLookup { rows, shown: shown.clone() });
            stream::once(async move { lookup.answer(&runtime).await }).boxed()
        };
        let source = SourceExec::new("LookupExec", detail, schema, Arc::new(open));
        if is_light { source.light(rows) } else { source }
    }

    fn scan_all(&self, columns: Vec<usize>, schema: SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
        let loaded = self.context.read_view.view(&self.live.name)?;
        let parts = match self.context.needs_archive(loaded) {
            true => 1,
            false => scan_parts(&StateSource::Layers { read_view: &self.context.read_view, view: loaded }),
        };
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let detail = format!("view={} parts={parts} columns=[{}]{}", self.live.name, names.join(", "), self.archive_note());
        let (runtime, context, live) = (self.runtime.clone(), self.context.clone(), self.live.clone());
        let open = move |task: Arc<TaskContext>| {
            let scan = Scan { context: context.clone(), live: live.clone(), columns: columns.clone(), archive: None };
            scan.batches(runtime.clone(), parts, task)
        };
        Ok(SourceExec::new("ViewScanExec", detail, schema, Arc::new(open)))
    }

    fn archive_note(&self) -> &'static str {
        let loaded = self.context.read_view.view(&self.live.name);
        if loaded.is_ok_and(|loaded| self.context.needs_archive(loaded)) { " from=archive" } else { "" }
    }
}

/// A lookup of some keys of a view by a query.
pub(super) struct KeyLookup {
    pub(super) rows: KeyRows,
    /// The columns, with their names in the answer.
    pub(super) shown: SchemaRef,
}

impl KeyLookup {
    /// The rows of the keys that have one.
    pub(super) async fn answer(self, runtime: &QueryRuntime) -> Result<RecordBatch> {
        let answers = self.rows.answer(runtime).await?;
        let rows = match answers.found.iter().all(|found| *found) {
            true => answers.rows,
            false => filter_record_batch(&answers.rows, &BooleanArray::from(answers.found))?,
        };
        named_as(&self.shown, rows)
    }
}

/// A scan under way.
struct Scan {
    context: QueryContext,
    live: LiveView,
    columns: Vec<usize>,
    archive: Option<ArchiveLayer>,
}

impl Scan {
    /// Scans one part after the other: memory holds the rows of one part at a time, which are reserved in the query's
    /// pool.
    fn batches(mut self, runtime: QueryRuntime, parts: u32, task: Arc<TaskContext>) -> BoxStream<'static, Result<RecordBatch>> {
        let begun = async move {
            if self.context.needs_archive(self.context.read_view.view(&self.live.name)?) {
                self.archive = Some(archive_layer(&runtime, &self.live, &self.context, None).await?);
            }
            let reservation = MemoryConsumer::new("ViewScanExec").register(task.memory_pool());
            let scan = Arc::new(self);
            let merged = stream::iter(0..parts).then(move |part| {
                let (scan, scans) = (scan.clone(), runtime.scans().clone());
                async move { scans.run(move |cancelled| scan.part(part, cancelled)).await }
            });
            Ok::<_, Error>(merged.and_then(move |batch| {
                let reserved = reservation.try_resize(batch.get_array_memory_size());
                async move { reserved.map(|()| batch).map_err(Error::from) }
            }))
        };
        stream::once(begun).try_flatten().flat_map(|batch| stream::iter(pieces(batch))).boxed()
    }

    fn part(&self, part: u32, cancelled: &CancelOnDrop) -> Result<RecordBatch> {
        let loaded = self.context.read_view.view(&self.live.name)?;
        let source = StateSource::new(&self.context.read_view, loaded, self.archive.as_ref());
        let asked = AskedPart { part, t: self.context.t(&self.live), wanted: &self.columns };
        let scanned = answerer(&self.live).scan(&source, &asked, &|| cancelled.check())?;
        if scanned.estimated {
            self.context.estimated.note(&self.live, &self.columns);
        }
        self.context.errors.take(&self.live, &scanned.failed)?;
        Ok(scanned.rows)
    }
}

/// Renames the columns of rows to those of a schema.
fn named_as(schema: &SchemaRef, rows: RecordBatch) -> Result<RecordBatch> {
    let mut columns = rows.schema_ref().fields().iter().zip(schema.fields());
    if Arc::ptr_eq(rows.schema_ref(), schema) || columns.all(|(column, shown)| column.name() == shown.name()) {
        return Ok(rows);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), rows.columns().to_vec(), &options)?)
}

fn pieces(batch: Result<RecordBatch>) -> Vec<Result<RecordBatch>> {
    match batch {
        Ok(batch) if batch.num_rows() > BATCH_ROWS => {
            let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
            starts.map(|from| Ok(batch.slice(from, BATCH_ROWS.min(batch.num_rows() - from)))).collect()
        }
        other => vec![other],
    }
}
