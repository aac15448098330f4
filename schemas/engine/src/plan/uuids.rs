//! Rewrites texts that are compared with UUIDs to the spelling in which UUIDs are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::ListArray;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;

use crate::events::asked_uuid;
use crate::plan::hidden::strip_casts;
use crate::plan::typed_texts::{CastUuid, MAKE_ARRAY};
use crate::plan::{TextType, TypedTextColumns};
use definitions::StreamDefinition;

/// The function that `= ANY (..)` becomes.
const ARRAY_HAS: &str = "array_has";

impl TypedTextColumns {
    /// Makes the session read the texts that are compared with columns of UUIDs as UUIDs.
    pub fn register(self, session: &SessionContext) -> Respelled {
        let respelled = Respelled::default();
        if self.have_uuids() {
            session.add_analyzer_rule(Arc::new(UuidsHaveOneSpelling { columns: self, respelled: respelled.clone() }));
        }
        respelled
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

/// The addition to the stamp of a view with such a text. In earlier releases the text was equal to no UUID.
pub(super) const STAMP: &str = "; uuid spellings/3";

/// Returns which keys of a view's aggregate are UUIDs, in the order of GROUP BY.
pub(super) fn of_keys(aggregate: &Aggregate, streams: &[Arc<StreamDefinition>]) -> Vec<bool> {
    let columns = TypedTextColumns::of_streams(streams.iter().map(|stream| &**stream));
    aggregate.group_expr.iter().map(|key| columns.of_value(&aggregate.input, key, CastUuid::IsUuid) == TextType::Uuid).collect()
}

/// Runs after DataFusion's coercion, when the texts are literals, parameters included.
#[derive(Debug)]
struct UuidsHaveOneSpelling {
    columns: TypedTextColumns,
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
        let is_uuid = |expr: &Expr| self.columns.is_uuid_in_node(&before, expr, CastUuid::IsUuid);
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

/// Returns a comparison of a UUID with texts, rewritten to the stored spelling. `None` if there is nothing to change.
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

/// Returns the items of an `ARRAY[..]`, or the expression itself if it is none.
fn items_of(expr: &mut Expr) -> Vec<&mut Expr> {
    if !matches!(expr, Expr::ScalarFunction(call) if call.name() == MAKE_ARRAY) {
        return vec![expr];
    }
    match expr {
        Expr::ScalarFunction(call) => call.args.iter_mut().collect(),
        other => vec![other],
    }
}

/// Returns a literal in the stored spelling if it is a UUID in another spelling, or a list with such texts.
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
