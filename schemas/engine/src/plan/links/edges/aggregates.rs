//! Lowers the aggregates of a linked view: over the end points of pairs, or over the states of far edges.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_expr::aggregate::{AggregateFunctionExpr, LoweredAggregateBuilder};
use datafusion::prelude::SessionContext;

use super::{Edges, PlacedInput};
use crate::functions::grouped;
use crate::functions::sums::judged_sum;
use crate::plan::columns::is_approximate;
use crate::plan::links::calls::{CallArgument, LinkCall};
use crate::plan::links::{AggregateInput, LinkAggregate};
use crate::plan::lower::simplify_inputs;
use types::{Error, Result};

impl Edges<'_> {
    pub(in crate::plan::links) fn aggregates(&self, calls: &[LinkCall], session: &SessionContext) -> Result<Vec<LinkAggregate>> {
        let lowered = calls.iter().zip(&self.placed).map(|(call, placed)| {
            let input = match (&call.argument, &placed.input) {
                (CallArgument::Ends(side, argument), PlacedInput::Ends(end)) => {
                    let data_type = argument.get_type(self.joined.side(*side).input.schema())?;
                    AggregateInput::Ends { aggregate: over_ends(&call.function, argument, data_type, session)?, argument: *end }
                }
                (CallArgument::Events { idempotent }, PlacedInput::State(state)) => {
                    AggregateInput::States { state: *state, idempotent: *idempotent }
                }
                _ => return Err(Error::internal("an aggregate of a linked view changed its input")),
            };
            Ok(LinkAggregate {
                sql: call.sql.clone(),
                function: call.function.func.name().to_owned(),
                near: placed.near,
                far: placed.far,
                apart: placed.apart.clone(),
                input,
                approximate: is_approximate(call.function.func.name()),
            })
        });
        lowered.collect()
    }
}

/// Returns an aggregate over the end points themselves, which is the one that the plain SELECT would compute over the
/// pairs.
fn over_ends(
    function: &AggregateFunction,
    argument: &Expr,
    data_type: DataType,
    session: &SessionContext,
) -> Result<Arc<AggregateFunctionExpr>> {
    let schema = Schema::new(vec![Field::new("x", data_type, true)]);
    let logical = Arc::new(DFSchema::try_from(schema.clone())?);
    let x = Expr::Column(Column::from_name("x"));
    let mut function = function.clone();
    let inputs = function.params.args.iter_mut().chain(function.params.order_by.iter_mut().map(|sort| &mut sort.expr));
    inputs.filter(|input| *input == argument).for_each(|input| *input = x.clone());
    let call = grouped(simplify_inputs(Expr::AggregateFunction(function), &logical, session)?);
    let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let lower = |call: &Expr| -> Result<Arc<AggregateFunctionExpr>> {
        Ok(LoweredAggregateBuilder::new(call, &logical, &schema, &props, &context).with_name("x").build()?.aggregate)
    };
    let aggregate = lower(&call)?;
    match judged_sum(&call, &aggregate.state_fields()?) {
        Some(judged) => lower(&judged),
        None => Ok(aggregate),
    }
}
