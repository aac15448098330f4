//! Plans the plainest queries ([`PlainLookup`]) without DataFusion, which takes far longer to plan such a query than
//! the node takes to answer it.
//!
//! Each key is named once, with values that have its type or can be converted to it in only one way. A query in any
//! other form, or with a mistake, is left to DataFusion, which gives the same answers and explains what is wrong.

use std::sync::Arc;

use access::Principal;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use engine::events::asked_uuid;
use engine::keys::parse_key;
use engine::plan::{ColumnKind, ViewPlan};
use serde_json::Value as Json;
use types::Result;

use super::equality::{each_once, with_values};
use super::rights::may_read;
use super::statement::{self, ParsedQuery};
use super::used::TablesRead;
use super::view::{FEW_KEYS, KeyLookup, ViewTable};
use super::{Params, QueryText, Ready, Work};
use crate::answerer::WantedPaths;
use crate::lookup::KeyRows;
use crate::plain_lookup::{AskedValues, CAST_TO_UUID, Constant, ConstantValue, KnownLookup, PlainLookup};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::ReadView;

/// A longer text is not examined.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Plans a query of this form; `None` for any other. `runtime` is that of the node.
pub(super) fn ready(
    runtime: &QueryRuntime,
    principal: &Principal,
    read_view: &Arc<ReadView>,
    text: QueryText<'_>,
    params: &Params,
) -> Result<Option<Ready>> {
    let Some(known) = known_lookup(runtime, text.sql) else { return Ok(None) };
    let lookup = &known.lookup;
    let Ok(loaded) = read_view.view(&lookup.view) else { return Ok(None) };
    let live = &loaded.live;
    let has_all_parameters = known.parameters == Some(count(params));
    let is_found = text.settings.search_path.finds_public(&lookup.view);
    if loaded.copying().is_some() || !may_read(principal, &read_view.loaded.registry, &lookup.view) || !has_all_parameters || !is_found {
        return Ok(None);
    }
    let Some(columns) = known.columns(&live.plan)? else { return Ok(None) };
    let Some(keys) = keys(lookup, &live.plan, params, text.settings.time_zone.is_some()) else { return Ok(None) };
    let context =
        QueryContext::new(read_view.clone(), text.settings.as_of, std::slice::from_ref(&lookup.view))?.on_value_error(text.on_value_error);
    if context.needs_archive(loaded) {
        return Ok(None);
    }
    if let Some(copy) = &loaded.snapshot {
        copy.note_asked();
    }
    let tables = TablesRead { views: vec![(live.name.clone(), Some(columns.places.clone()))], streams: Vec::new() };
    let (places, shown) = (columns.places.clone(), columns.shown.clone());
    let work = match keys.len() <= FEW_KEYS {
        true => {
            let (view, paths) = (live.name.clone(), WantedPaths::default());
            Work::Lookup(KeyLookup { rows: KeyRows { context: context.clone(), view, keys, columns: places, paths }, shown })
        }
        false => {
            let runtime = runtime.for_query(principal);
            let table = ViewTable { runtime: runtime.clone(), context: context.clone(), live: live.clone() };
            Work::Plan { physical: table.lookup(keys, places, shown), task: runtime.task_context(), runtime }
        }
    };
    Ok(Some(Ready { context, tables, work, text_types: columns.text_types.clone() }))
}

/// Returns the lookup that a text asks for. A text with parameters is parsed only once.
fn known_lookup(runtime: &QueryRuntime, sql: &str) -> Option<Arc<KnownLookup>> {
    let kept = runtime.plain_lookups();
    if let Some(known) = kept.get(sql) {
        return Some(known);
    }
    let lookup = Arc::new(KnownLookup::new(parsed(sql)?));
    if lookup.parameters != Some(0) {
        kept.put(sql, lookup.clone());
    }
    Some(lookup)
}

fn parsed(sql: &str) -> Option<PlainLookup> {
    if sql.len() > MAX_TEXT_BYTES {
        return None;
    }
    let ParsedQuery { as_of: None, statement } = statement::read(sql).ok()? else { return None };
    PlainLookup::from_statement(&statement)
}

fn count(params: &Params) -> usize {
    match params {
        Params::Json(values) => values.len(),
        Params::Typed(values) => values.len(),
    }
}

/// Returns the keys that are asked for, if the query names all of the view's keys and nothing else. `has_zone`: whether
/// the session has another zone than UTC.
fn keys(lookup: &PlainLookup, plan: &ViewPlan, params: &Params, has_zone: bool) -> Option<Vec<Vec<ScalarValue>>> {
    let answer_keys = plan.answer_keys();
    if lookup.keys.len() != answer_keys.len() {
        return None;
    }
    let mut keys = vec![Vec::new()];
    for (index, field) in answer_keys.iter().enumerate() {
        let column = plan.columns.iter().find(|column| matches!(column.kind, ColumnKind::Key(key) if key == index))?;
        let (_, asked) = lookup.keys.iter().find(|(name, _)| name == column.field.name())?;
        let key = Key { data_type: field.data_type(), is_uuid: plan.is_uuid(index), has_zone };
        keys = with_values(&keys, &key.values(asked, params)?)?;
    }
    Some(keys)
}

/// A key of the view.
struct Key<'a> {
    data_type: &'a DataType,
    is_uuid: bool,
    has_zone: bool,
}

impl Key<'_> {
    /// Returns the values that it may have, each once. `None` if there are none, or if it is uncertain how DataFusion
    /// converts one of them. Nothing equals NULL.
    fn values(&self, asked: &AskedValues, params: &Params) -> Option<Vec<ScalarValue>> {
        // What a float equals is not decided here.
        if self.data_type.is_floating() {
            return None;
        }
        let mut values = match asked {
            AskedValues::OneOf(constants) => {
                let value = |constant: &Constant| {
                    let value = given(&constant.value, params)?;
                    self.value(self.cast(value, constant.cast.as_ref())?)
                };
                constants.iter().map(value).collect::<Option<Vec<_>>>()?
            }
            AskedValues::ItemOf { parameter, cast: to } => {
                let item = |item: ScalarValue| {
                    let item = self.cast(item, to.as_ref())?;
                    // An array of texts is compared with nothing but texts.
                    let is_alike = item.data_type() == *self.data_type || item.data_type().is_integer();
                    self.value(item).filter(|_| is_alike)
                };
                items(*parameter, params)?.into_iter().map(item).collect::<Option<Vec<_>>>()?
            }
        };
        values.retain(|value| !value.is_null());
        each_once(&mut values);
        (!values.is_empty()).then_some(values)
    }

    fn cast(&self, value: ScalarValue, to: Option<&DataType>) -> Option<ScalarValue> {
        // The zone decides which time a text is.
        let is_in_zone = self.has_zone && matches!(self.data_type, DataType::Timestamp(_, Some(_)));
        if is_in_zone && value.data_type() == DataType::Utf8 { None } else { cast(value, to) }
    }

    fn value(&self, value: ScalarValue) -> Option<ScalarValue> {
        match (value, self.data_type) {
            (ScalarValue::Null, _) => Some(ScalarValue::Null),
            (ScalarValue::Utf8(Some(text)), DataType::Utf8) if self.is_uuid => parse_key(&text, self.data_type, true),
            (value, to) if value.data_type() == *to => Some(value),
            (value, _) if value.is_null() => None,
            (value, to) if value.data_type().is_integer() && to.is_integer() => value.cast_to(to).ok(),
            (value @ ScalarValue::Utf8(_), DataType::Date32) => exactly(&value, &DataType::Date32),
            (value @ ScalarValue::Utf8(_), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
                let finer = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
                exactly(&value.cast_to(&finer).ok()?, self.data_type)
            }
            (value, to) if is_timestamp_like(&value.data_type(), to) => exactly(&value, to),
            _ => None,
        }
    }
}

/// The value of a constant without its cast.
fn given(value: &ConstantValue, params: &Params) -> Option<ScalarValue> {
    match value {
        ConstantValue::Null => Some(ScalarValue::Null),
        ConstantValue::Text(text) => Some(ScalarValue::Utf8(Some(text.clone()))),
        ConstantValue::Integer(integer) => Some(ScalarValue::Int64(Some(*integer))),
        ConstantValue::Parameter(number) => parameter(*number, params),
    }
}

fn parameter(number: usize, params: &Params) -> Option<ScalarValue> {
    let index = number.checked_sub(1)?;
    match params {
        Params::Typed(values) => values.get(index).cloned(),
        Params::Json(values) => match values.get(index)? {
            Json::Null => Some(ScalarValue::Null),
            Json::String(text) => Some(ScalarValue::Utf8(Some(text.clone()))),
            Json::Number(number) => Some(ScalarValue::Int64(Some(number.as_i64()?))),
            _ => None,
        },
    }
}

/// The items of a parameter that is an array. JSON has none.
fn items(number: usize, params: &Params) -> Option<Vec<ScalarValue>> {
    match parameter(number, params)? {
        ScalarValue::List(list) => ScalarValue::convert_array_to_scalar_vec(&*list).ok()?.pop()?,
        _ => None,
    }
}

/// Returns the result of casting a value. `None` where it is uncertain.
fn cast(value: ScalarValue, to: Option<&DataType>) -> Option<ScalarValue> {
    let Some(to) = to else { return Some(value) };
    if *to == CAST_TO_UUID {
        return asked_uuid(value.try_as_str()??).map(|uuid| ScalarValue::Utf8(Some(uuid.into_owned())));
    }
    let from = value.data_type();
    let is_plain = from == DataType::Utf8 || from == *to || (from.is_integer() && to.is_integer()) || is_timestamp_like(&from, to);
    if value.is_null() || !is_plain {
        return None;
    }
    value.cast_to(to).ok()
}

fn is_timestamp_like(from: &DataType, to: &DataType) -> bool {
    matches!((from, to), (DataType::Timestamp(_, Some(from)), DataType::Timestamp(_, Some(to))) if from == to)
}

/// Converts the value to another type, if nothing is lost.
fn exactly(value: &ScalarValue, to: &DataType) -> Option<ScalarValue> {
    let cast = value.cast_to(to).ok()?;
    let back = cast.cast_to(&value.data_type()).ok()?;
    (back == *value).then_some(cast)
}

#[cfg(test)]
mod tests;
