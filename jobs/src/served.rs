//! The served side of `verify`: a serving node of this process.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::utils::quote_identifier;
use engine::plan::ViewPlan;
use engine::states::FailedRows;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use serving::{Node, OnValueError, StateSource, scan, scan_parts};
use types::{Error, Result};

use crate::verify::http::listed_errors;
use crate::verify::{FailedCells, Served, ServedAnswer};

/// Answers from a node's current read view.
#[derive(Clone)]
pub struct NodeServed(pub Node);

impl Served for NodeServed {
    fn answer<'a>(&'a self, view: &'a str, _: &'a SchemaRef) -> BoxFuture<'a, Result<ServedAnswer>> {
        Box::pin(self.all_rows(view))
    }
}

impl NodeServed {
    async fn all_rows(&self, view: &str) -> Result<ServedAnswer> {
        let read_view = self.0.read_view()?;
        let loaded = read_view.view(view)?;
        if !loaded.keeps(read_view.t_of(&loaded.live)) {
            return self.asked(view).await;
        }
        let view = view.to_owned();
        let merge = move || {
            let loaded = read_view.view(&view)?;
            let t = read_view.t_of(&loaded.live);
            let source = StateSource::Layers { read_view: &read_view, view: loaded };
            let columns: Vec<usize> = (0..loaded.live.plan.columns.len()).collect();
            let (mut rows, mut failed) = (Vec::new(), Vec::new());
            for part in 0..scan_parts(&source) {
                let (of_part, failed_in_part) = scan(&loaded.live, &source, part, t, &columns)?;
                rows.push(of_part);
                failed.extend(failed_cells(&loaded.live.plan, failed_in_part)?);
            }
            Ok(ServedAnswer { version: None, vector: read_view.vector.clone(), t, as_of: false, rows, failed, without_nan: false })
        };
        tokio::task::spawn_blocking(merge).await?
    }
}

impl NodeServed {
    /// Users get this answer from the archive: the snapshot was built for a later time and lacks what this time needs.
    async fn asked(&self, view: &str) -> Result<ServedAnswer> {
        let sql = format!("SELECT * FROM {}", quote_identifier(view));
        let mut answer = self.0.query_with(&sql, Vec::new(), OnValueError::List).await?;
        let mut rows = Vec::new();
        while let Some(batch) = answer.batches.try_next().await? {
            rows.push(batch);
        }
        let meta = answer.meta_so_far();
        let schema = self.0.read_view()?.view(view)?.live.plan.output_schema();
        let errors = serde_json::to_value(&meta.errors)?;
        let failed = listed_errors(errors.as_array().map_or(&[], Vec::as_slice), &schema)?;
        Ok(ServedAnswer { version: None, vector: meta.cut, t: meta.as_of, as_of: false, rows, failed, without_nan: false })
    }
}

/// Names what could not be computed.
pub(crate) fn failed_cells(plan: &ViewPlan, failed: FailedRows) -> Result<Option<FailedCells>> {
    if failed.values.is_empty() {
        return Ok(None);
    }
    // A view without keys has one row.
    let rows = failed.keys.first().map_or(1, |key| key.len());
    let schema = Arc::new(Schema::new(plan.answer_keys().to_vec()));
    let keys = RecordBatch::try_new_with_options(schema, failed.keys, &RecordBatchOptions::new().with_row_count(Some(rows)))?;
    let cells = failed.values.iter().map(|value| (value.row, plan.columns[value.column].field.name().clone())).collect();
    Ok(Some(FailedCells { keys, cells }))
}

/// Answers with what the last batch run of a linked view joined, as of its cut and time.
#[derive(Clone)]
pub struct JoinedServed(pub Node);

impl Served for JoinedServed {
    fn answer<'a>(&'a self, view: &'a str, _: &'a SchemaRef) -> BoxFuture<'a, Result<ServedAnswer>> {
        Box::pin(self.joined_rows(view))
    }
}

impl JoinedServed {
    async fn joined_rows(&self, view: &str) -> Result<ServedAnswer> {
        let read_view = self.0.read_view()?;
        let loaded = read_view.view(view)?;
        if loaded.live.plan.links().is_none() {
            let message = format!("the view \"{view}\" is not a join: its \"{view}__batch\" holds states, not answers");
            return Err(
                Error::input(message).with("help", "run without --batch: its answers are verified, which are computed from these states")
            );
        }
        let rows =
            self.0.query(&format!("SELECT * FROM {}", quote_identifier(&format!("{view}__batch"))), Vec::new()).await?.collect().await?;
        let joined = loaded.snapshot.as_ref().and_then(|snapshot| Some((&snapshot.manifest, snapshot.manifest.joined.as_ref()?)));
        // The query took its own read view: a node that follows the catalog may have advanced since.
        let same = self.0.loaded().is_some_and(|now| Arc::ptr_eq(&now, &read_view.loaded));
        match joined {
            Some((manifest, joined)) if same => Ok(ServedAnswer {
                version: None,
                vector: manifest.cut.clone(),
                t: joined.t,
                as_of: false,
                rows,
                failed: Vec::new(),
                without_nan: false,
            }),
            _ => Err(Error::conflict("a batch run ended while its join was verified: verify it again").with("view", view)),
        }
    }
}
