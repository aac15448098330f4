//! The plainest questions are read and planned here: columns of one view, where its keys have these values.
//!
//! ```text
//! SELECT { * | column, .. } FROM view WHERE key = { 'text' | 1 | $1 } [AND ..] [;]
//! ```
//!
//! A column may have the view's name in front. Each key is named once, with a value of its own type.
//!
//! Applications ask little else, thousands of times a second, and DataFusion takes far longer to plan such a question
//! than the node to answer it. A question in any other form, or with a mistake, is left to DataFusion, which gives the
//! same answers and says what is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::Principal;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, Ident, ObjectNamePart, SelectItem, TableFactor, Value};
use engine::keys::parse_key;
use engine::plan::{ColumnKind, UuidColumns, ViewPlan};
use serde_json::Value as Json;
use types::Result;

use super::rights::may_read;
use super::statement::{self, ParsedQuery};
use super::view::ViewTable;
use super::{Params, QueryText, Ready};
use crate::meta::{AskedView, Meta};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::ReadView;

/// In a longer text it is not looked for.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Plans a question of this form; `None` for any other.
pub(super) fn ready(
    runtime: &QueryRuntime,
    principal: &Principal,
    read_view: &ReadView,
    text: QueryText<'_>,
    params: &Params,
) -> Result<Option<Ready>> {
    let Some(lookup) = PlainLookup::read(text.sql) else { return Ok(None) };
    let Ok(loaded) = read_view.view(&lookup.view) else { return Ok(None) };
    let live = &loaded.live;
    let is_at_hand = loaded.copying().is_none() && live.plan.links().is_none();
    if !is_at_hand || !may_read(principal, &read_view.loaded.registry, &lookup.view) {
        return Ok(None);
    }
    let view_schema = live.plan.output_schema();
    let (Some(columns), Some(key)) = (lookup.columns(&view_schema), lookup.key(&live.plan, params)) else { return Ok(None) };
    let context = QueryContext::new(read_view.clone(), text.as_of, &[&*live.name])?.on_value_error(text.on_value_error);
    let loaded = context.read_view.view(&live.name)?;
    if context.needs_archive(loaded) {
        return Ok(None);
    }
    let meta = Meta::new(&context, &[AskedView { view: loaded, columns: Some(&columns) }], &[]);
    let schema = Arc::new(view_schema.project(&columns)?);
    let mut uuids = UuidColumns::default();
    uuids.add_view(&live.name, &live.plan);
    let uuids = uuids.in_table(&live.name, &schema);
    let table = ViewTable { runtime: runtime.clone(), context: context.clone(), live: live.clone() };
    let physical = table.lookup(vec![key], columns, schema);
    Ok(Some(Ready { context, physical, task: runtime.task_context(), meta, uuids }))
}

/// What a text of this form asks.
#[derive(Debug)]
struct PlainLookup {
    view: String,
    /// `None`: all.
    columns: Option<Vec<String>>,
    keys: Vec<(String, Asked)>,
}

/// What a key is compared with.
#[derive(Debug)]
enum Asked {
    Text(String),
    Number(String),
    /// By its number, from 1 on.
    Parameter(usize),
}

impl PlainLookup {
    fn read(sql: &str) -> Option<PlainLookup> {
        if sql.len() > MAX_TEXT_BYTES {
            return None;
        }
        let ParsedQuery { as_of: None, statement: Statement::Statement(statement) } = statement::read(sql).ok()? else { return None };
        let ast::Statement::Query(query) = *statement else { return None };
        let ast::SetExpr::Select(select) = &*query.body else { return None };
        let ([from], Some(condition)) = (select.from.as_slice(), &select.selection) else { return None };
        let items = select.projection.iter().map(ToString::to_string).collect::<Vec<_>>();
        let plain = format!("SELECT {} FROM {} WHERE {condition}", items.join(", "), from.relation);
        // There is nothing else in it, whatever else SQL allows there.
        if items.is_empty() || plain != query.to_string() {
            return None;
        }
        let view = only_name(&from.relation)?;
        let columns = match items.as_slice() {
            [all] if all == "*" => None,
            _ => Some(select.projection.iter().map(|item| item_column(item, &view)).collect::<Option<_>>()?),
        };
        let mut keys = Vec::new();
        add_keys(condition, &view, &mut keys)?;
        Some(PlainLookup { view, columns, keys })
    }

    /// The places of the columns, unless one is not there or is named twice.
    fn columns(&self, schema: &Schema) -> Option<Vec<usize>> {
        let Some(names) = &self.columns else { return Some((0..schema.fields().len()).collect()) };
        let columns = names.iter().map(|name| schema.index_of(name).ok()).collect::<Option<Vec<usize>>>()?;
        let is_repeated = (1..columns.len()).any(|at| columns[..at].contains(&columns[at]));
        (!is_repeated).then_some(columns)
    }

    /// The values of the view's keys, if it names all of them and nothing else.
    fn key(&self, plan: &ViewPlan, params: &Params) -> Option<Vec<ScalarValue>> {
        let keys = plan.answer_keys();
        if self.keys.len() != keys.len() || !self.names_all(params) {
            return None;
        }
        let value = |(index, field): (usize, &FieldRef)| {
            let column = plan.columns.iter().find(|column| matches!(column.kind, ColumnKind::Key(key) if key == index))?;
            let (_, asked) = self.keys.iter().find(|(name, _)| name == column.field.name())?;
            asked.value(field.data_type(), plan.is_uuid(index), params)
        };
        keys.iter().enumerate().map(value).collect()
    }

    /// Whether it names these parameters and no others.
    fn names_all(&self, params: &Params) -> bool {
        let count = match params {
            Params::Json(values) => values.len(),
            Params::Typed(values) => values.len(),
        };
        let number = |asked: &Asked| match asked {
            Asked::Parameter(number) => Some(*number),
            _ => None,
        };
        let named: BTreeSet<usize> = self.keys.iter().filter_map(|(_, asked)| number(asked)).collect();
        named.into_iter().eq(1..=count)
    }
}

impl Asked {
    /// The value of a key of this type. What a NULL or a float equals is not decided here.
    fn value(&self, data_type: &DataType, is_uuid: bool, params: &Params) -> Option<ScalarValue> {
        let value = match (self, params) {
            (Asked::Text(text), _) => ScalarValue::Utf8(Some(text.clone())),
            (Asked::Number(digits), _) => ScalarValue::Int64(Some(digits.parse().ok()?)),
            (Asked::Parameter(number), Params::Typed(values)) => values.get(number.checked_sub(1)?)?.clone(),
            (Asked::Parameter(number), Params::Json(values)) => match values.get(number.checked_sub(1)?)? {
                Json::String(text) => ScalarValue::Utf8(Some(text.clone())),
                Json::Number(number) => ScalarValue::Int64(Some(number.as_i64()?)),
                _ => return None,
            },
        };
        let value = match value.data_type().is_integer() && data_type.is_integer() {
            true => value.cast_to(data_type).ok()?,
            false => value,
        };
        if value.is_null() || value.data_type() != *data_type || data_type.is_floating() {
            return None;
        }
        match value {
            ScalarValue::Utf8(Some(text)) if is_uuid => parse_key(&text, data_type, true),
            value => Some(value),
        }
    }
}

/// The name of a table that stands alone: without a schema, an alias or anything else.
fn only_name(table: &TableFactor) -> Option<String> {
    match table {
        TableFactor::Table { name, .. } if table.to_string() == name.to_string() => match name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] => identifier(name),
            _ => None,
        },
        _ => None,
    }
}

fn item_column(item: &SelectItem, view: &str) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => column(expr, view),
        _ => None,
    }
}

/// The column of `column` or `view.column`.
fn column(expr: &Expr, view: &str) -> Option<String> {
    match expr {
        Expr::Identifier(name) => identifier(name),
        Expr::CompoundIdentifier(names) => match names.as_slice() {
            [of, name] if identifier(of)? == view => identifier(name),
            _ => None,
        },
        _ => None,
    }
}

/// A name as DataFusion reads it.
fn identifier(name: &Ident) -> Option<String> {
    match name.quote_style {
        None => Some(name.value.to_ascii_lowercase()),
        Some('"') => Some(name.value.clone()),
        Some(_) => None,
    }
}

/// Adds the columns and values of `column = value AND ..`.
fn add_keys(condition: &Expr, view: &str, keys: &mut Vec<(String, Asked)>) -> Option<()> {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            add_keys(left, view, keys)?;
            add_keys(right, view, keys)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            keys.push((column(left, view)?, asked(right)?));
            Some(())
        }
        _ => None,
    }
}

fn asked(expr: &Expr) -> Option<Asked> {
    let Expr::Value(value) = expr else { return None };
    match &value.value {
        Value::SingleQuotedString(text) => Some(Asked::Text(text.clone())),
        Value::Number(digits, false) => Some(Asked::Number(digits.clone())),
        Value::Placeholder(name) => name.strip_prefix('$')?.parse().ok().map(Asked::Parameter),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
