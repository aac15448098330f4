//! `system.sinks`: the sinks of the catalog, and whether they can put out records.

use arrow::array::RecordBatch;
use catalog::{CatalogState, DefinitionKind};
use committed::registry::{LiveSink, Registry};
use definitions::Features;
use engine::sinks::JoinedView;
use types::Result;

use crate::sql::system::columns::NamedColumns;

pub(super) fn rows(state: &CatalogState, registry: &Registry) -> Result<RecordBatch> {
    let rows = &registry.sinks;
    let since = |sink: &LiveSink| {
        let mut records = state.live(DefinitionKind::Sink);
        records.find(|record| record.name == sink.name && record.version == sink.version).map(|record| record.since)
    };
    NamedColumns::default()
        .text("sink", rows, |sink| Some(&sink.name))
        .integer("version", rows, |sink| Some(sink.version.into()))
        .time("since", rows, since)
        .text("stream", rows, |sink| sink.plan.as_ref().ok().map(|plan| &plan.stream.name))
        .text("views", rows, views)
        .text("topic", rows, |sink| Some(&sink.definition.topic))
        .text("key", rows, |sink| sink.definition.key.as_ref())
        .text("features", rows, |sink| Some(features(sink.definition.features)))
        .time("paused_since", rows, |sink| sink.paused_since)
        .text("refused", rows, |sink| sink.plan.as_ref().err())
        .text("sql", rows, |sink| Some(&sink.definition.sql))
        .batch()
}

/// The views that it joins, in the order of the SELECT.
fn views(sink: &LiveSink) -> Option<String> {
    let name = |join: &JoinedView| join.plan.view.to_string();
    sink.plan.as_ref().ok().map(|plan| plan.joins.iter().map(name).collect::<Vec<_>>().join(", "))
}

fn features(features: Features) -> &'static str {
    match features {
        Features::Inclusive => "inclusive",
        Features::Exclusive => "exclusive",
    }
}
