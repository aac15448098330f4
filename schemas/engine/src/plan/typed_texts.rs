//! Finds the texts that are UUIDs or JSON. Both are stored as texts, and Arrow has no types for them: this finds the
//! columns of tables and plans that hold them, and the parameters that stand for them.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, LogicalPlan, TableScan};

use crate::functions::{AS_JSON, AS_UUID, JSON_MEMBER};
use crate::plan::ViewPlan;
use crate::plan::columns::strip_alias;
use crate::plan::hidden::strip_casts;
use definitions::{ColumnType, StreamDefinition};

/// The schema of tables whose names have none.
const DEFAULT_SCHEMA: &str = "public";
/// The function that `ARRAY[..]` becomes.
pub(super) const MAKE_ARRAY: &str = "make_array";
const ARRAY_AGG: &str = "array_agg";

/// The type that the texts of a column, or those in its lists, stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextType {
    /// Any texts, or the column has none.
    #[default]
    Any,
    Uuid,
    Json,
}

/// Whether a UUID that is cast, as in `id::text`, still counts as a UUID.
#[derive(Debug, Clone, Copy)]
pub(super) enum CastUuid {
    /// It does: it may be compared with any spelling of a UUID.
    IsUuid,
    /// It is a text, as PostgreSQL clients expect.
    IsText,
}

impl CastUuid {
    /// The expression whose column is traced.
    fn traced(self, expr: &Expr) -> &Expr {
        match self {
            CastUuid::IsUuid => strip_casts(expr),
            CastUuid::IsText => expr,
        }
    }
}

/// Tables with columns whose texts are UUIDs or JSON.
#[derive(Debug, Clone, Default)]
pub struct TypedTextColumns(BTreeMap<String, BTreeMap<String, TextType>>);

impl TypedTextColumns {
    /// Finds the columns of these streams.
    pub fn of_streams<'a>(streams: impl IntoIterator<Item = &'a StreamDefinition>) -> Self {
        let mut found = Self::default();
        for stream in streams {
            found.add_stream(stream);
        }
        found
    }

    /// Adds the stream as a table with its name.
    pub fn add_stream(&mut self, stream: &StreamDefinition) {
        let typed = stream.columns.iter().map(|column| (column.name.clone(), type_of_values(&column.column_type)));
        self.add(&stream.name, typed);
    }

    /// Adds the keys of a view, under their names in a table.
    pub fn add_view(&mut self, table: &str, plan: &ViewPlan) {
        let key_type = |key: usize| if plan.is_uuid(key) { TextType::Uuid } else { TextType::Any };
        let typed = plan.answer_keys().iter().enumerate().map(|(key, field)| (field.name().clone(), key_type(key)));
        self.add(table, typed);
    }

    fn add(&mut self, table: &str, columns: impl Iterator<Item = (String, TextType)>) {
        let columns: BTreeMap<String, TextType> = columns.filter(|(_, of)| *of != TextType::Any).collect();
        if !columns.is_empty() {
            self.0.insert(table.to_owned(), columns);
        }
    }

    pub(super) fn have_uuids(&self) -> bool {
        self.0.values().any(|columns| columns.values().any(|of| *of == TextType::Uuid))
    }

    /// Returns the [`TextType`] of each column of a plan's output.
    pub fn in_output(&self, plan: &LogicalPlan) -> Vec<TextType> {
        let in_column = |index: usize| match self.of_column(plan, index, CastUuid::IsText) {
            TextType::Any => self.in_lists(plan, index),
            found => found,
        };
        (0..plan.schema().fields().len()).map(in_column).collect()
    }

    /// Returns the [`TextType`] of each column of a table.
    pub fn in_table(&self, table: &str, schema: &Schema) -> Vec<TextType> {
        let columns = self.0.get(table);
        let text_type = |name: &String| columns.and_then(|columns| columns.get(name)).copied().unwrap_or_default();
        schema.fields().iter().map(|field| text_type(field.name())).collect()
    }

    /// The names of the parameters that are compared with columns that hold UUIDs, or are cast to UUID or JSON, such as
    /// `$1`.
    pub fn parameters(&self, plan: &LogicalPlan) -> Result<BTreeMap<String, TextType>> {
        let mut found = BTreeMap::new();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    self.add_parameters(node, expr, &mut found);
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(found)
    }

    /// Adds the parameters among the operands of an expression, but not those of the expressions in it.
    fn add_parameters(&self, node: &LogicalPlan, expr: &Expr, found: &mut BTreeMap<String, TextType>) {
        let with = |value: &Expr| self.is_uuid_in_node(node, value, CastUuid::IsText);
        let uuid = |name: String| (name, TextType::Uuid);
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
                found.extend(parameter(left).filter(|_| with(right)).map(uuid));
                found.extend(parameter(right).filter(|_| with(left)).map(uuid));
            }
            Expr::InList(list) if with(&list.expr) => found.extend(list.list.iter().filter_map(parameter).map(uuid)),
            Expr::ScalarFunction(call) => match type_of_cast(expr) {
                TextType::Any if call.args.len() == 2 && with(&call.args[1]) => found.extend(parameter(&call.args[0]).map(uuid)),
                TextType::Any => {}
                of_first => found.extend(call.args.first().and_then(cast_parameter).map(|name| (name, of_first))),
            },
            _ => {}
        }
    }

    fn in_scan(&self, scan: &TableScan, index: usize) -> TextType {
        let in_default_schema = scan.table_name.schema().is_none_or(|schema| schema == DEFAULT_SCHEMA);
        let columns = self.0.get(scan.table_name.table()).filter(|_| in_default_schema);
        columns.and_then(|columns| columns.get(scan.projected_schema.field(index).name())).copied().unwrap_or_default()
    }

    /// Returns the type of the texts of this column of the plan's output, which come unchanged from a table or are cast
    /// to the type.
    fn of_column(&self, plan: &LogicalPlan, index: usize, cast: CastUuid) -> TextType {
        match plan {
            LogicalPlan::TableScan(scan) => self.in_scan(scan, index),
            LogicalPlan::Projection(projection) => self.of_value(&projection.input, &projection.expr[index], cast),
            LogicalPlan::Aggregate(aggregate) => {
                aggregate.group_expr.get(index).map_or(TextType::Any, |key| self.of_value(&aggregate.input, key, cast))
            }
            LogicalPlan::Union(union) => common(union.inputs.iter().map(|input| self.of_column(input, index, cast))),
            LogicalPlan::Join(join) => {
                let left = join.left.schema().fields().len();
                match join.join_type {
                    JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => self.of_column(&join.right, index, cast),
                    _ if index < left => self.of_column(&join.left, index, cast),
                    JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => TextType::Any,
                    _ => self.of_column(&join.right, index - left, cast),
                }
            }
            // A window function's columns follow those of its input.
            LogicalPlan::Window(window) if index < window.input.schema().fields().len() => self.of_column(&window.input, index, cast),
            LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Distinct(Distinct::All(_)) => {
                plan.inputs().first().map_or(TextType::Any, |input| self.of_column(input, index, cast))
            }
            _ => TextType::Any,
        }
    }

    /// The same for the texts in the lists of this column.
    fn in_lists(&self, plan: &LogicalPlan, index: usize) -> TextType {
        match plan {
            LogicalPlan::Projection(projection) => self.in_list(&projection.input, &projection.expr[index]),
            LogicalPlan::Aggregate(aggregate) => {
                // GROUPING SETS has more columns than expressions.
                let keys = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
                let expr = match index.checked_sub(keys) {
                    Some(value) => aggregate.aggr_expr.get(value),
                    None => aggregate.group_expr.get(index),
                };
                expr.map_or(TextType::Any, |expr| self.in_list(&aggregate.input, expr))
            }
            LogicalPlan::Union(union) => common(union.inputs.iter().map(|input| self.in_lists(input, index))),
            LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(Distinct::All(_)) => plan.inputs().first().map_or(TextType::Any, |input| self.in_lists(input, index)),
            _ => TextType::Any,
        }
    }

    fn in_list(&self, input: &LogicalPlan, expr: &Expr) -> TextType {
        let of_item = |item: &Expr| self.of_value(input, item, CastUuid::IsText);
        match strip_alias(expr) {
            Expr::Column(column) => {
                let index = input.schema().maybe_index_of_column(column);
                index.map_or(TextType::Any, |index| self.in_lists(input, index))
            }
            Expr::ScalarFunction(call) if call.name() == MAKE_ARRAY => common(call.args.iter().map(of_item)),
            Expr::AggregateFunction(call) if call.func.name() == ARRAY_AGG => call.params.args.first().map_or(TextType::Any, of_item),
            _ => TextType::Any,
        }
    }

    pub(super) fn of_value(&self, input: &LogicalPlan, expr: &Expr, cast: CastUuid) -> TextType {
        let expr = strip_alias(expr);
        match (type_of_cast(expr), cast.traced(expr)) {
            (TextType::Any, Expr::Column(column)) => self.of_input(input, column, cast),
            (found, _) => found,
        }
    }

    fn of_input(&self, input: &LogicalPlan, column: &Column, cast: CastUuid) -> TextType {
        input.schema().maybe_index_of_column(column).map_or(TextType::Any, |index| self.of_column(input, index, cast))
    }

    /// Whether an expression of this node is a column that holds UUIDs, or is cast to UUID.
    pub(super) fn is_uuid_in_node(&self, node: &LogicalPlan, expr: &Expr, cast: CastUuid) -> bool {
        let Expr::Column(column) = cast.traced(expr) else { return type_of_cast(expr) == TextType::Uuid };
        if let LogicalPlan::TableScan(scan) = node {
            let index = scan.projected_schema.maybe_index_of_column(column);
            return index.is_some_and(|index| self.in_scan(scan, index) == TextType::Uuid);
        }
        node.inputs().iter().any(|input| self.of_input(input, column, cast) == TextType::Uuid)
    }
}

/// Returns the type of the texts of a stream's column, or of those in its arrays of JSON.
fn type_of_values(column_type: &ColumnType) -> TextType {
    match column_type {
        ColumnType::Uuid => TextType::Uuid,
        ColumnType::Json => TextType::Json,
        ColumnType::Array(item) if **item == ColumnType::Json => TextType::Json,
        _ => TextType::Any,
    }
}

/// Returns the type that all of these are, or [`TextType::Any`].
fn common(mut types: impl Iterator<Item = TextType>) -> TextType {
    let Some(first) = types.next() else { return TextType::Any };
    if types.all(|of| of == first) { first } else { TextType::Any }
}

/// Returns the type of the texts that this function returns. Its first argument is such a text too.
fn type_of_cast(expr: &Expr) -> TextType {
    match expr {
        Expr::ScalarFunction(call) if call.name() == AS_UUID => TextType::Uuid,
        Expr::ScalarFunction(call) if matches!(call.func.name(), AS_JSON | JSON_MEMBER) => TextType::Json,
        _ => TextType::Any,
    }
}

fn parameter(expr: &Expr) -> Option<String> {
    match strip_casts(expr) {
        Expr::Placeholder(placeholder) => Some(placeholder.id.clone()),
        _ => None,
    }
}

/// The parameter that a cast to UUID or JSON takes. A parameter that is cast first, as in `$1::text::json`, has the
/// type of that first cast.
fn cast_parameter(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Cast(cast) if matches!(*cast.expr, Expr::Cast(_)) => None,
        other => parameter(other),
    }
}

#[cfg(test)]
mod tests;
