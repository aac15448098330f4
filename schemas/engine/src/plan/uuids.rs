//! Finds UUIDs among the texts. A UUID is stored as a text in one spelling, and SQL has no other type for it. This
//! finds the columns of a plan that hold UUIDs, and gives the texts that are compared with them that spelling.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::ListArray;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, BinaryExpr, Distinct, Expr, LogicalPlan, TableScan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;

use crate::events::asked_uuid;
use crate::functions::AS_UUID;
use crate::plan::ViewPlan;
use crate::plan::columns::strip_alias;
use crate::plan::hidden::strip_casts;
use definitions::{ColumnType, StreamDefinition};

/// The schema of tables whose names have none.
const DEFAULT_SCHEMA: &str = "public";
/// The function that `= ANY (..)` becomes, and the one that `ARRAY[..]` does.
const ARRAY_HAS: &str = "array_has";
const MAKE_ARRAY: &str = "make_array";
const ARRAY_AGG: &str = "array_agg";

/// Tables with columns that hold UUIDs.
#[derive(Debug, Clone, Default)]
pub struct UuidColumns(BTreeMap<String, BTreeSet<String>>);

impl UuidColumns {
    pub fn of_streams<'a>(streams: impl IntoIterator<Item = &'a StreamDefinition>) -> Self {
        let mut found = Self::default();
        for stream in streams {
            found.add_stream(stream);
        }
        found
    }

    /// Adds the stream as a table with its name.
    pub fn add_stream(&mut self, stream: &StreamDefinition) {
        let uuids = stream.columns.iter().filter(|column| column.column_type == ColumnType::Uuid);
        self.add(&stream.name, uuids.map(|column| column.name.clone()));
    }

    /// Adds the keys of a view, under their names in a table.
    pub fn add_view(&mut self, table: &str, plan: &ViewPlan) {
        let uuids = plan.answer_keys().iter().enumerate().filter(|(key, _)| plan.is_uuid(*key));
        self.add(table, uuids.map(|(_, field)| field.name().clone()));
    }

    fn add(&mut self, table: &str, columns: impl Iterator<Item = String>) {
        let columns: BTreeSet<String> = columns.collect();
        if !columns.is_empty() {
            self.0.insert(table.to_owned(), columns);
        }
    }

    /// Makes the session read the texts that are compared with these columns as UUIDs.
    pub fn register(self, session: &SessionContext) -> Respelled {
        let respelled = Respelled::default();
        if !self.0.is_empty() {
            session.add_analyzer_rule(Arc::new(UuidsHaveOneSpelling { columns: self, respelled: respelled.clone() }));
        }
        respelled
    }

    /// For each column of a plan's output, whether it holds UUIDs or lists of them.
    pub fn in_output(&self, plan: &LogicalPlan) -> Vec<bool> {
        (0..plan.schema().fields().len()).map(|index| self.hold(plan, index) || self.hold_lists(plan, index)).collect()
    }

    /// For each column of a table, whether it holds UUIDs.
    pub fn in_table(&self, table: &str, schema: &Schema) -> Vec<bool> {
        let columns = self.0.get(table);
        schema.fields().iter().map(|field| columns.is_some_and(|columns| columns.contains(field.name()))).collect()
    }

    /// The names of the parameters that are compared with columns that hold UUIDs or cast to UUID, such as `$1`.
    pub fn parameters(&self, plan: &LogicalPlan) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    let with = |value: &Expr| self.hold_in_node(node, value);
                    match expr {
                        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
                            found.extend(parameter(left).filter(|_| with(right)));
                            found.extend(parameter(right).filter(|_| with(left)));
                        }
                        Expr::InList(list) if with(&list.expr) => found.extend(list.list.iter().filter_map(parameter)),
                        Expr::ScalarFunction(call) if call.name() == AS_UUID => found.extend(call.args.iter().filter_map(parameter)),
                        Expr::ScalarFunction(call) if call.args.len() == 2 && with(&call.args[1]) => {
                            found.extend(parameter(&call.args[0]));
                        }
                        _ => {}
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(found)
    }

    fn has(&self, scan: &TableScan, index: usize) -> bool {
        let in_default_schema = scan.table_name.schema().is_none_or(|schema| schema == DEFAULT_SCHEMA);
        let columns = self.0.get(scan.table_name.table()).filter(|_| in_default_schema);
        columns.is_some_and(|columns| columns.contains(scan.projected_schema.field(index).name()))
    }

    /// Whether this column of the plan's output holds UUIDs: those of a table, unchanged, or what is cast to UUID.
    fn hold(&self, plan: &LogicalPlan, index: usize) -> bool {
        match plan {
            LogicalPlan::TableScan(scan) => self.has(scan, index),
            LogicalPlan::Projection(projection) => self.hold_value(&projection.input, &projection.expr[index]),
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.get(index).is_some_and(|key| self.hold_value(&aggregate.input, key)),
            LogicalPlan::Union(union) => union.inputs.iter().all(|input| self.hold(input, index)),
            LogicalPlan::Join(join) => {
                let left = join.left.schema().fields().len();
                match join.join_type {
                    JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => self.hold(&join.right, index),
                    _ if index < left => self.hold(&join.left, index),
                    JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => false,
                    _ => self.hold(&join.right, index - left),
                }
            }
            // A window function's columns follow those of its input.
            LogicalPlan::Window(window) => index < window.input.schema().fields().len() && self.hold(&window.input, index),
            LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Distinct(Distinct::All(_)) => plan.inputs().first().is_some_and(|input| self.hold(input, index)),
            _ => false,
        }
    }

    /// Whether this column of the plan's output holds lists of UUIDs: of columns that hold them, or of what is cast to
    /// UUID.
    fn hold_lists(&self, plan: &LogicalPlan, index: usize) -> bool {
        match plan {
            LogicalPlan::Projection(projection) => self.holds_list(&projection.input, &projection.expr[index]),
            LogicalPlan::Aggregate(aggregate) => {
                // GROUPING SETS has more columns than expressions.
                let keys = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
                let expr = match index.checked_sub(keys) {
                    Some(value) => aggregate.aggr_expr.get(value),
                    None => aggregate.group_expr.get(index),
                };
                expr.is_some_and(|expr| self.holds_list(&aggregate.input, expr))
            }
            LogicalPlan::Union(union) => union.inputs.iter().all(|input| self.hold_lists(input, index)),
            LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(Distinct::All(_)) => plan.inputs().first().is_some_and(|input| self.hold_lists(input, index)),
            _ => false,
        }
    }

    fn holds_list(&self, input: &LogicalPlan, expr: &Expr) -> bool {
        let is_item = |item: &Expr| self.hold_value(input, item);
        match strip_alias(expr) {
            Expr::Column(column) => input.schema().maybe_index_of_column(column).is_some_and(|index| self.hold_lists(input, index)),
            Expr::ScalarFunction(call) if call.name() == MAKE_ARRAY => !call.args.is_empty() && call.args.iter().all(is_item),
            Expr::AggregateFunction(call) if call.func.name() == ARRAY_AGG => call.params.args.first().is_some_and(is_item),
            _ => false,
        }
    }

    fn hold_value(&self, input: &LogicalPlan, expr: &Expr) -> bool {
        if is_cast_to_uuid(strip_alias(expr)) {
            return true;
        }
        match strip_casts(strip_alias(expr)) {
            Expr::Column(column) => self.hold_column(input, column),
            _ => false,
        }
    }

    fn hold_column(&self, input: &LogicalPlan, column: &Column) -> bool {
        input.schema().maybe_index_of_column(column).is_some_and(|index| self.hold(input, index))
    }

    /// Whether an expression of this node is a column that holds UUIDs, or is cast to UUID.
    fn hold_in_node(&self, node: &LogicalPlan, expr: &Expr) -> bool {
        let Expr::Column(column) = strip_casts(expr) else { return is_cast_to_uuid(expr) };
        if let LogicalPlan::TableScan(scan) = node {
            return scan.projected_schema.maybe_index_of_column(column).is_some_and(|index| self.has(scan, index));
        }
        node.inputs().iter().any(|input| self.hold_column(input, column))
    }
}

fn is_cast_to_uuid(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.name() == AS_UUID)
}

fn parameter(expr: &Expr) -> Option<String> {
    match strip_casts(expr) {
        Expr::Placeholder(placeholder) => Some(placeholder.id.clone()),
        _ => None,
    }
}

/// Whether a session respelled a text in one of its plans.
#[derive(Debug, Clone, Default)]
pub struct Respelled(Arc<AtomicBool>);

impl Respelled {
    pub(super) fn happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a stamp adds for a view with such a text, which in earlier releases was equal to no UUID.
pub(super) const STAMP: &str = "; uuid spellings/3";

/// Returns which keys of a view's aggregate are UUIDs, in the order of GROUP BY.
pub(super) fn of_keys(aggregate: &Aggregate, streams: &[Arc<StreamDefinition>]) -> Vec<bool> {
    let columns = UuidColumns::of_streams(streams.iter().map(|stream| &**stream));
    aggregate.group_expr.iter().map(|key| columns.hold_value(&aggregate.input, key)).collect()
}

/// Runs after DataFusion's coercion, when the texts are literals, parameters included.
#[derive(Debug)]
struct UuidsHaveOneSpelling {
    columns: UuidColumns,
    respelled: Respelled,
}

impl AnalyzerRule for UuidsHaveOneSpelling {
    fn name(&self) -> &str {
        "uuids_have_one_spelling"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|node| self.in_node(node))?.data)
    }
}

impl UuidsHaveOneSpelling {
    fn in_node(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        // Few texts are UUIDs in another spelling, so few columns have to be traced to their tables.
        let is_meant = |expr: &Expr| expr.exists(|expr| Ok(other_spelling(expr).is_some())).unwrap_or(false);
        if !node.expressions().iter().any(is_meant) {
            return Ok(Transformed::no(node));
        }
        let (names, before) = (NamePreserver::new(&node), node.clone());
        let is_uuid = |expr: &Expr| self.columns.hold_in_node(&before, expr);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let respelled = expr.transform_up(|expr| match respelled(&expr, &is_uuid) {
                Some(changed) => {
                    self.respelled.0.store(true, Ordering::Relaxed);
                    Ok(Transformed::yes(changed))
                }
                None => Ok(Transformed::no(expr)),
            })?;
            Ok(respelled.update_data(|expr| name.restore(expr)))
        })
    }
}

/// Returns a comparison of a UUID with texts in another spelling, with their spelling changed. `None` if there is
/// nothing to change.
fn respelled(expr: &Expr, is_uuid: &impl Fn(&Expr) -> bool) -> Option<Expr> {
    let mut changed = expr.clone();
    let compared: Vec<&mut Expr> = match &mut changed {
        Expr::BinaryExpr(both) if both.op.supports_propagation() => vec![both.left.as_mut(), both.right.as_mut()],
        Expr::InList(list) => std::iter::once(list.expr.as_mut()).chain(&mut list.list).collect(),
        Expr::Between(between) => vec![between.expr.as_mut(), between.low.as_mut(), between.high.as_mut()],
        Expr::Case(case) => {
            let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
            case.expr.as_deref_mut().into_iter().chain(whens).collect()
        }
        Expr::ScalarFunction(call) if call.name() == ARRAY_HAS => call.args.iter_mut().flat_map(items_of).collect(),
        _ => return None,
    };
    let others: Vec<Option<ScalarValue>> = compared.iter().map(|expr| other_spelling(expr)).collect();
    let is_meant = others.iter().any(Option::is_some) && compared.iter().any(|expr| is_uuid(expr));
    if !is_meant {
        return None;
    }
    for (expr, canonical) in compared.into_iter().zip(others) {
        if let Some(canonical) = canonical {
            *expr = Expr::Literal(canonical, None);
        }
    }
    Some(changed)
}

/// The items of an array that is made from some; any other expression is one itself.
fn items_of(expr: &mut Expr) -> Vec<&mut Expr> {
    if !matches!(expr, Expr::ScalarFunction(call) if call.name() == MAKE_ARRAY) {
        return vec![expr];
    }
    match expr {
        Expr::ScalarFunction(call) => call.args.iter_mut().collect(),
        other => vec![other],
    }
}

/// Returns the canonical spelling of a literal that is a UUID in another one, or a list with such texts.
fn other_spelling(expr: &Expr) -> Option<ScalarValue> {
    match strip_casts(expr) {
        Expr::Literal(ScalarValue::List(list), _) => other_spellings(list),
        Expr::Literal(value, _) => other_spelling_of_text(value),
        _ => None,
    }
}

fn other_spellings(list: &ListArray) -> Option<ScalarValue> {
    let data_type = Some(list.value_type()).filter(DataType::is_string)?;
    let items: Vec<ScalarValue> = ScalarValue::convert_array_to_scalar_vec(list).ok()?.into_iter().flatten().flatten().collect();
    let canonical: Vec<ScalarValue> = items.iter().map(|item| other_spelling_of_text(item).unwrap_or_else(|| item.clone())).collect();
    (canonical != items).then(|| ScalarValue::List(ScalarValue::new_list_nullable(&canonical, &data_type)))
}

fn other_spelling_of_text(value: &ScalarValue) -> Option<ScalarValue> {
    let text = value.try_as_str()??;
    let canonical = asked_uuid(text).filter(|canonical| canonical != text)?.into_owned();
    match value {
        ScalarValue::LargeUtf8(_) => Some(ScalarValue::LargeUtf8(Some(canonical))),
        ScalarValue::Utf8View(_) => Some(ScalarValue::Utf8View(Some(canonical))),
        _ => Some(ScalarValue::Utf8(Some(canonical))),
    }
}

#[cfg(test)]
mod tests;
