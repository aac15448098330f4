//! `system.parameters`: the values of sinks' and alerts' parameters.

use arrow::array::RecordBatch;
use committed::parameters::ListedParameter;
use types::Result;

use crate::sql::system::columns::NamedColumns;

pub(super) fn rows(rows: &[ListedParameter]) -> Result<RecordBatch> {
    NamedColumns::default()
        .text("parameter", rows, |of| Some(&of.in_effect.parameter))
        .text("type", rows, |of| Some(&of.in_effect.value_type))
        .text("value", rows, |of| Some(&of.in_effect.value))
        .integer("version", rows, |of| Some(of.in_effect.version.into()))
        .time("since", rows, |of| Some(of.in_effect.set_at))
        .text("set_by", rows, |of| Some(&of.in_effect.set_by))
        .text("initial", rows, |of| Some(&of.definition.value))
        .text("description", rows, |of| of.definition.description.as_ref())
        .text("used_by", rows, |of| Some(of.used_by.iter().map(|name| &**name).collect::<Vec<_>>().join(", ")))
        .batch()
}
