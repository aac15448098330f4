//! Which views read which columns of a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{CatalogState, DefinitionStatus};
use committed::registry::{LiveView, Registry};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use definitions::StreamDefinition;
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::{ViewPlan, planning_session};
use engine::states::{FailureSink, prepared_plan};
use types::Result;

/// A live view version that reads columns of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingView {
    pub view: Arc<str>,
    pub version: u32,
    pub status: DefinitionStatus,
    /// `stream.column`, ordered; a stream alone where all of it counts.
    pub columns: Vec<String>,
}

/// Returns the live view versions of a catalog state that read one of these columns, by the names of their streams.
pub(crate) async fn views_that_read(
    state: &CatalogState,
    functions: &Functions,
    columns: &BTreeMap<Arc<str>, BTreeSet<String>>,
) -> Result<Vec<ReadingView>> {
    let registry = Registry::load(state, functions).await?;
    let mut readers = Vec::new();
    for live in registry.views.iter().filter(|live| live.plan.streams.iter().any(|stream| columns.contains_key(&stream.name))) {
        let read = columns_read(&live.plan, functions)?;
        let read = read.into_iter().filter(|(stream, column)| columns.get(stream).is_some_and(|columns| columns.contains(column)));
        let columns: Vec<String> = read.map(|(stream, column)| format!("{stream}.{column}")).collect();
        if !columns.is_empty() {
            readers.push(ReadingView { view: live.name.clone(), version: live.version, status: live.status, columns });
        }
    }
    Ok(readers)
}

/// Returns the live view versions of a catalog state that read one of these streams.
pub(crate) async fn views_over(state: &CatalogState, functions: &Functions, streams: &[Arc<str>]) -> Result<Vec<ReadingView>> {
    if streams.is_empty() {
        return Ok(Vec::new());
    }
    let registry = Registry::load(state, functions).await?;
    let reader = |live: &LiveView| {
        let read = streams.iter().filter(|name| live.plan.streams.iter().any(|stream| stream.name == **name));
        let columns: Vec<String> = read.map(|name| name.to_string()).collect();
        let reader = ReadingView { view: live.name.clone(), version: live.version, status: live.status, columns };
        (!reader.columns.is_empty()).then_some(reader)
    };
    Ok(registry.views.iter().filter_map(reader).collect())
}

/// Returns the columns that a view's states are made of, with their streams.
fn columns_read(plan: &ViewPlan, functions: &Functions) -> Result<BTreeSet<(Arc<str>, String)>> {
    let read: Mutex<BTreeSet<(Arc<str>, String)>> = Mutex::default();
    let note = |stream: &StreamDefinition, columns: &[usize]| {
        let schema = plan_schema(stream);
        let names = columns.iter().map(|column| (stream.name.clone(), schema.field(*column).name().clone()));
        read.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
        Ok(Arc::new(EmptyExec::new(Arc::new(schema.project(columns)?))) as Arc<dyn ExecutionPlan>)
    };
    prepared_plan(plan, &planning_session(functions)?, &note, &FailureSink::default())?;
    Ok(read.into_inner().unwrap_or_else(PoisonError::into_inner))
}
