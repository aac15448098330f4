//! A stream for tests of states, with views over it and its events.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::prelude::SessionContext;

use crate::events::plan_schema;
use crate::functions::Functions;
use crate::plan::{Planned, Planner, ViewPlan, planning_session};
use definitions::{Definitions, StreamDefinition, parse};
use types::columns::{EVENT_TIME, OFFSET, PARTITION, SOURCE};
use types::tiles::Micros;

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'k')";

fn stream() -> Arc<StreamDefinition> {
    Arc::new(parse::parse_stream(STREAM).unwrap())
}

pub(super) fn session() -> SessionContext {
    planning_session(&Functions::standard()).unwrap()
}

/// Plans a view over the stream.
pub(super) fn planned(view: &str) -> ViewPlan {
    let view = parse::parse_view(view).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    let planner = Planner::new(&project, Functions::standard());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match runtime.block_on(planner.plan(&view)) {
        Ok(Planned::Stateful(plan)) => (*plan).clone(),
        other => panic!("{:?}", other.err()),
    }
}

/// Events of the stream: key, number, time.
pub(super) fn events(rows: &[(String, i64, Micros)]) -> RecordBatch {
    let times = || rows.iter().map(|(_, _, time)| Some(*time)).collect::<TimestampMicrosecondArray>().with_timezone("UTC");
    let schema = plan_schema(&stream());
    let column = |name: &str| -> ArrayRef {
        match name {
            "id" => Arc::new(StringArray::from_iter_values((0..rows.len()).map(|at| at.to_string()))),
            "ts" | EVENT_TIME => Arc::new(times()),
            "k" => Arc::new(StringArray::from_iter_values(rows.iter().map(|(key, _, _)| key))),
            "x" => Arc::new(rows.iter().map(|(_, x, _)| Some(*x)).collect::<Int64Array>()),
            SOURCE => Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "s"))),
            PARTITION => Arc::new(Int32Array::from_value(0, rows.len())),
            OFFSET => Arc::new(Int64Array::from_iter_values(0..rows.len() as i64)),
            other => panic!("unknown column {other}"),
        }
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(|field| column(field.name())).collect()).unwrap()
}
