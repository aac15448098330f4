//! SQL over one stand: `SELECT` and `EXPLAIN`, with `SET as_of = '..';` in front to name the time. Nothing can be written.
//!
//! | table | what it is |
//! | --- | --- |
//! | `<view>` | its answer: a lookup where WHERE names every key, else a scan of what the SELECT names |
//! | `<view>__batch`, `<view>__speed` | the kept states: the snapshot's, and those after its cut |
//! | `<linked view>__batch` | its join as of the snapshot's cut; the kept edges, of all layers, are `<linked view>__edges` |
//! | `<stream>` | the accepted events up to the committed vector |
//! | `system.*` | `runs`, `checkpoints`, `partitions`, `views`, `handover` |

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use types::{Error, Result};

use crate::ask::{Estimated, Question};
use crate::meta::Meta;
use crate::node::Node;
use crate::stand::Stand;

mod equality;
mod events;
mod joined;
mod params;
mod queries;
mod source;
mod statement;
mod states;
mod system;
mod tables;
mod used;
mod view;

pub(crate) use queries::Queries;
pub use statement::parse_as_of;

/// The answer of a query: batches as they are made, and what they stand on.
pub struct QueryResponse {
    pub schema: SchemaRef,
    pub batches: SendableRecordBatchStream,
    pub meta: Meta,
    estimated: Arc<Estimated>,
}

impl QueryResponse {
    /// The meta, with what the batches so far turned out to be: whole once the last one came.
    pub fn meta_so_far(&self) -> Meta {
        let mut meta = self.meta.clone();
        self.estimated.tell(&mut meta);
        meta
    }

    /// All batches. The caller bounds what it asks for.
    pub async fn collect(self) -> Result<Vec<RecordBatch>> {
        Ok(self.batches.try_collect().await?)
    }
}

impl Node {
    /// Plans a query and begins it. `params` are the values of `$1`, `$2`, ..
    ///
    /// Errors: `Input` for SQL that is wrong, names no known table or is no query; `Limit` past the memory limit (also later, from
    /// the batches).
    pub async fn query(&self, sql: &str, params: Vec<serde_json::Value>) -> Result<QueryResponse> {
        loop {
            let stand = self.stand()?;
            let loaded = stand.loaded.clone();
            match self.query_on(stand, sql, params.clone()).await {
                // Found while it was planned: no row was answered yet.
                Err(error) if self.goes_on_without(&loaded, &error).await? => {}
                outcome => return self.telling(outcome).await,
            }
        }
    }

    async fn query_on(&self, stand: Stand, sql: &str, params: Vec<serde_json::Value>) -> Result<QueryResponse> {
        let timer = Timer(Instant::now());
        let asked = statement::read(sql)?;
        let session = self.queries().session()?;
        let views = tables::views_named(&stand, &session.state(), &asked.statement)?;
        let question = Question::over(stand, asked.as_of, &views)?;
        tables::register(&session, self, &question)?;

        let state = session.state();
        let plan = state.statement_to_plan(asked.statement).await?;
        statement::allow(&plan)?;
        let plan = state.optimize(&params::bind(plan, params)?)?;
        let meta = used::meta(&plan, &question)?;
        let estimated = question.estimated.clone();
        let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
        let schema = physical.schema();
        let batches = execute_stream(physical, session.task_ctx())?;
        let node = self.clone();
        let told = batches.then(move |batch| {
            let _until_dropped = &timer;
            let node = node.clone();
            async move {
                if let Some(error) = batch.as_ref().err().and_then(Error::inside) {
                    drop(node.telling::<()>(Err(error)).await);
                }
                batch
            }
        });
        Ok(QueryResponse { schema: schema.clone(), batches: Box::pin(RecordBatchStreamAdapter::new(schema, told)), meta, estimated })
    }
}

/// Measures a query until its stream is dropped.
struct Timer(Instant);

impl Drop for Timer {
    fn drop(&mut self) {
        metrics::histogram!("basestream_serving_query_seconds").record(self.0.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
