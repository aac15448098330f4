//! `<view>__batch` of a linked view: its join, materialised by the batch run that made the snapshot, as of that run's
//! cut and time.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use committed::registry::LiveView;
use datafusion::catalog::Session;
use datafusion::physical_plan::ExecutionPlan;
use storage::{MaterialisedJoin, scan_files};
use types::{Error, Result};

use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::lacks_snapshot;
use crate::sql::names::batch_name;
use crate::sql::table::{NodeTable, PlanFuture, ScanArgs};

pub(super) struct JoinedTable {
    pub(super) runtime: QueryRuntime,
    pub(super) context: QueryContext,
    pub(super) live: LiveView,
}

impl fmt::Debug for JoinedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinedTable({})", self.live.name)
    }
}

impl NodeTable for JoinedTable {
    fn schema(&self) -> SchemaRef {
        self.live.plan.output_schema()
    }

    fn scan<'a>(&'a self, session: &'a dyn Session, args: ScanArgs<'a>) -> PlanFuture<'a> {
        let plan = self.plan(args.columns(&self.schema()), session.config().target_partitions());
        Box::pin(ready(plan.map_err(Into::into)))
    }
}

impl JoinedTable {
    fn plan(&self, columns: Vec<usize>, partitions: usize) -> Result<Arc<dyn ExecutionPlan>> {
        if self.context.as_of.is_some() {
            let message = format!("\"{0}__batch\" is as of its batch run: it takes no as_of", self.live.name);
            return Err(Error::input(message).with("help", format_args!("\"{}\" answers at any time", self.live.name)));
        }
        let joined = self.joined()?;
        if joined.estimated {
            self.context.estimated.note(&self.live, &columns);
        }
        let files = joined.files.iter().map(Into::into).collect();
        scan_files(self.runtime.storage(), files, self.schema(), columns, None, partitions)
    }

    /// Returns an error instead of an empty table if there is no join, because an export of an empty table would go
    /// unnoticed.
    fn joined(&self) -> Result<&MaterialisedJoin> {
        let name = &self.live.name;
        let table = batch_name(name);
        let missing = |what: &str| lacks_snapshot(&table, name, what);
        match self.context.read_view.snapshot_of(&table, name)? {
            Some(snapshot) => {
                snapshot.manifest.joined.as_ref().ok_or_else(|| missing("its snapshot was made before joins were materialised"))
            }
            None => Err(missing("no batch run of this version of the view has ended yet")),
        }
    }
}
