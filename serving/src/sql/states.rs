//! `<view>__batch` and `<view>__speed` return the kept states: those of the snapshot, and those after its cut. For a
//! linked view `<view>__edges` returns both together.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::physical_plan::ExecutionPlan;
use engine::plan::ViewPlan;
use engine::states::{StateRows, levels};
use futures::{StreamExt, stream};
use types::tiles::Level;
use types::{Error, Result};

use crate::query_context::QueryContext;
use crate::sql::names::{batch_name, edges_name, speed_name};
use crate::sql::source::SourceExec;
use crate::sql::table::{NodeTable, PlanFuture, ScanArgs};

/// Which of a view's states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerSelection {
    /// Those of the snapshot.
    Batch,
    /// Those of the checkpoints after the snapshot's cut, and the fresh ones.
    Speed,
    /// Both.
    All,
}

impl LayerSelection {
    fn name(self) -> &'static str {
        match self {
            LayerSelection::Batch => "batch",
            LayerSelection::Speed => "speed",
            LayerSelection::All => "all",
        }
    }

    /// The table of these states.
    pub(super) fn table(self, view: &str) -> String {
        match self {
            LayerSelection::Batch => batch_name(view),
            LayerSelection::Speed => speed_name(view),
            LayerSelection::All => edges_name(view),
        }
    }
}

pub(super) struct StatesTable {
    pub(super) context: QueryContext,
    pub(super) view: Arc<str>,
    pub(super) layer: LayerSelection,
    schema: SchemaRef,
    /// The index of `level` in a state row.
    level: usize,
}

impl StatesTable {
    pub(super) fn new(context: QueryContext, plan: &ViewPlan, layer: LayerSelection) -> Self {
        Self { context, view: plan.view.clone(), layer, schema: shown_schema(plan), level: plan.keys.len() }
    }

    /// The chunks of the sorted runs, in memory or in mapped files.
    fn chunks(&self) -> Result<Vec<StateRows>> {
        let read_view = &self.context.read_view;
        let loaded = read_view.view(&self.view)?;
        let mut chunks: Vec<StateRows> = Vec::new();
        if self.layer != LayerSelection::Speed {
            let snapshot = read_view.snapshot_of(&self.layer.table(&self.view), &self.view)?;
            let runs = snapshot.map_or(Ok(Vec::new()), |snapshot| snapshot.runs())?;
            chunks.extend(runs.iter().flat_map(|run| run.chunks().iter().cloned()));
        }
        if self.layer != LayerSelection::Batch {
            chunks.extend(loaded.layers.iter().flat_map(|layer| layer.run.chunks().iter().cloned()));
            chunks.extend(read_view.fresh_of(&loaded.live).map(|rows| (**rows).clone()));
        }
        Ok(chunks)
    }
}

impl fmt::Debug for StatesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatesTable({}, {:?})", self.view, self.layer)
    }
}

impl NodeTable for StatesTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn scan<'a>(&'a self, _: &'a dyn Session, args: ScanArgs<'a>) -> PlanFuture<'a> {
        Box::pin(async move {
            let columns = args.columns(&self.schema);
            let schema = Arc::new(self.schema.project(&columns)?);
            if self.layer != LayerSelection::Speed {
                self.context.fetch_all(&self.view).await?;
            }
            let chunks = self.chunks()?;
            let rows: usize = chunks.iter().map(StateRows::len).sum();
            let detail = format!("view={} layer={} chunks={} rows={rows}", self.view, self.layer.name(), chunks.len());
            let (level, shown) = (self.level, schema.clone());
            let open = move |_| {
                let (columns, shown) = (columns.clone(), shown.clone());
                stream::iter(chunks.clone()).map(move |chunk| show(chunk.batch(), &columns, level, &shown)).boxed()
            };
            let source: Arc<dyn ExecutionPlan> = SourceExec::new("StatesExec", detail, schema, Arc::new(open));
            Ok(source)
        })
    }
}

/// Returns some columns of state rows, with the names of levels.
fn show(batch: &RecordBatch, columns: &[usize], level: usize, schema: &SchemaRef) -> Result<RecordBatch> {
    let shown = columns
        .iter()
        .map(|index| match *index == level {
            true => level_names(batch),
            false => Ok(batch.column(*index).clone()),
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), shown, &options)?)
}

fn level_names(batch: &RecordBatch) -> Result<ArrayRef> {
    let name = |code: &u8| {
        Level::from_code(*code).map(|level| level.to_string()).ok_or_else(|| Error::corrupt(format!("unknown tile level {code}")))
    };
    let names = levels(batch)?.values().iter().map(name).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StringArray::from(names)))
}

/// Keys, `level`, `tile`, `events`, then each state's fields under their own names; a name that is already taken gets a
/// `_`.
fn shown_schema(plan: &ViewPlan) -> SchemaRef {
    let mut taken = BTreeSet::new();
    let keys = plan.keys.len();
    let fields = plan.state_schema().fields().iter().enumerate().map(|(index, field)| {
        let own = match index.checked_sub(keys) {
            Some(0) => Arc::new(Field::new("level", DataType::Utf8, false)),
            Some(1) => renamed(field, "tile"),
            Some(2) => renamed(field, "events"),
            _ => field.clone(),
        };
        let mut name = own.name().clone();
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        renamed(&own, &name)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn renamed(field: &FieldRef, name: &str) -> FieldRef {
    Arc::new(field.as_ref().clone().with_name(name))
}
