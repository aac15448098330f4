//! `<view>` as a table: a lookup where WHERE names every key, else a scan, part by part, of the columns that are named.

use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use committed::registry::LiveView;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use types::{Error, Result};

use crate::archive::ArchiveLayer;
use crate::aside::Waiting;
use crate::ask::{Lookup, Question};
use crate::edges;
use crate::lookup::{Source, scan, scan_parts};
use crate::sql::Queries;
use crate::sql::equality::keys_named;
use crate::sql::source::SourceExec;

/// Batches are handed on in pieces of this many rows at the most.
const BATCH_ROWS: usize = 8_192;

pub(super) struct ViewTable {
    pub(super) queries: Queries,
    pub(super) question: Question,
    pub(super) live: LiveView,
}

impl fmt::Debug for ViewTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewTable({})", self.live.name)
    }
}

#[async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        self.live.plan.output_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.live.plan.columns.len()).collect();
        let columns: Vec<usize> = projection.cloned().unwrap_or_else(all);
        let schema = Arc::new(self.schema().project(&columns)?);
        let keys = keys_named(&self.live.plan, filters);
        self.question.fetch(self.question.stand.view(&self.live.name)?, keys.as_deref()).await?;
        Ok(match keys {
            Some(keys) => self.lookup(keys, columns, schema),
            None => self.scan_all(columns, schema)?,
        })
    }
}

impl ViewTable {
    fn lookup(&self, keys: Vec<Vec<ScalarValue>>, columns: Vec<usize>, schema: SchemaRef) -> Arc<dyn ExecutionPlan> {
        let detail = format!("view={} keys={}{}", self.live.name, keys.len(), self.archive_note());
        let (queries, question, view) = (self.queries.clone(), self.question.clone(), self.live.name.clone());
        let open = move |_| -> BoxStream<'static, Result<RecordBatch>> {
            let (question, view, keys, columns) = (question.clone(), view.clone(), keys.clone(), columns.clone());
            let lookup = Lookup { question, view, keys, columns, paths: 0, of: None };
            let queries = queries.clone();
            stream::once(async move {
                let answers = lookup.run(&queries).await?;
                Ok(filter_record_batch(&answers.rows, &BooleanArray::from(answers.found))?)
            })
            .boxed()
        };
        SourceExec::new("LookupExec", detail, schema, Arc::new(open))
    }

    fn scan_all(&self, columns: Vec<usize>, schema: SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
        let loaded = self.question.stand.view(&self.live.name)?;
        let parts = match self.question.needs_archive(loaded) {
            true => 1,
            false => scan_parts(&Source::Layers { stand: &self.question.stand, view: loaded }),
        };
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let detail = format!("view={} parts={parts} columns=[{}]{}", self.live.name, names.join(", "), self.archive_note());
        let (queries, question, live) = (self.queries.clone(), self.question.clone(), self.live.clone());
        let open = move |context: Arc<TaskContext>| {
            let view = Scan { question: question.clone(), live: live.clone(), columns: columns.clone(), archive: None };
            view.batches(queries.clone(), parts, context)
        };
        Ok(SourceExec::new("ViewScanExec", detail, schema, Arc::new(open)))
    }

    fn archive_note(&self) -> &'static str {
        let loaded = self.question.stand.view(&self.live.name);
        if loaded.is_ok_and(|loaded| self.question.needs_archive(loaded)) { " from=archive" } else { "" }
    }
}

/// A scan under way.
struct Scan {
    question: Question,
    live: LiveView,
    columns: Vec<usize>,
    archive: Option<ArchiveLayer>,
}

impl Scan {
    /// One part after the other: memory holds one part's rows at a time, and says so to the query's pool.
    fn batches(mut self, queries: Queries, parts: u32, context: Arc<TaskContext>) -> BoxStream<'static, Result<RecordBatch>> {
        let begun = async move {
            if self.question.needs_archive(self.question.stand.view(&self.live.name)?) {
                self.archive = Some(self.question.archive(&queries, &self.live, None).await?);
            }
            let reservation = MemoryConsumer::new("ViewScanExec").register(context.memory_pool());
            let scan = Arc::new(self);
            let merged = stream::iter(0..parts).then(move |part| {
                let (scan, scans) = (scan.clone(), queries.scans().clone());
                async move { scans.run(move |waiting| scan.part(part, waiting)).await }
            });
            Ok::<_, Error>(merged.and_then(move |batch| {
                let reserved = reservation.try_resize(batch.get_array_memory_size());
                async move { reserved.map(|()| batch).map_err(Error::from) }
            }))
        };
        stream::once(begun).try_flatten().flat_map(|batch| stream::iter(pieces(batch))).boxed()
    }

    fn part(&self, part: u32, waiting: &Waiting) -> Result<RecordBatch> {
        let loaded = self.question.stand.view(&self.live.name)?;
        let source = match &self.archive {
            Some(layer) => Source::Archive(layer),
            None => Source::Layers { stand: &self.question.stand, view: loaded },
        };
        let t = self.question.t(&self.live);
        let Some(links) = &self.live.plan.links else { return scan(&self.live, &source, part, t, &self.columns) };
        let (rows, estimated) = edges::scan((&self.live, links), &source, part, t, &self.columns, &|| waiting.check())?;
        if estimated {
            self.question.estimated.note(&self.live, &self.columns);
        }
        Ok(rows)
    }
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
