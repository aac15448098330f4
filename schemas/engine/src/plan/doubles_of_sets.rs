//! Keeps DOUBLE a DOUBLE in a column of UNION and of VALUES that has decimals in other rows, in queries. DataFusion
//! makes a DECIMAL(30,15) of both, in which 1e15 does not fit and 1e-20 is 0. Definitions refuse such a UNION.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union, Values, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::plan::doubles::as_double;

/// The digits after the point of a DOUBLE that became a DECIMAL; with more of a decimal beside it, those.
const DIGITS_OF_DOUBLE: i8 = 15;

/// Runs before DataFusion's own coercion of UNION. VALUES has its casts by then.
#[derive(Debug)]
pub(super) struct DoublesOfSetsStay;

impl AnalyzerRule for DoublesOfSetsStay {
    fn name(&self) -> &str {
        "doubles_of_sets_stay"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut has_mixed = false;
        plan.apply_with_subqueries(|node| {
            has_mixed |= match node {
                LogicalPlan::Union(union) => !mixed_in_union(union).is_empty(),
                LogicalPlan::Values(values) => !mixed_in_values(values).is_empty(),
                _ => false,
            };
            Ok(if has_mixed { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !has_mixed {
            return Ok(plan);
        }
        let changed = plan.transform_up_with_subqueries(|node| {
            Ok(Transformed::yes(match node {
                LogicalPlan::Union(union) => in_union(union)?,
                LogicalPlan::Values(values) => in_values(values)?,
                // The type of a column below may have changed.
                other => other.recompute_schema()?,
            }))
        })?;
        Ok(changed.data)
    }
}

/// The columns with a DOUBLE in one input and a decimal in another.
fn mixed_in_union(union: &Union) -> Vec<usize> {
    let has = |column: usize, fits: fn(&DataType) -> bool| {
        union.inputs.iter().any(|input| input.schema().fields().get(column).is_some_and(|field| fits(field.data_type())))
    };
    (0..union.schema.fields().len()).filter(|column| has(*column, DataType::is_floating) && has(*column, DataType::is_decimal)).collect()
}

fn in_union(union: Union) -> Result<LogicalPlan> {
    let mixed = mixed_in_union(&union);
    let inputs = union.inputs.into_iter().map(|input| with_doubles(input, &mixed)).collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
}

fn with_doubles(input: Arc<LogicalPlan>, columns: &[usize]) -> Result<Arc<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    let is_cast = |column: usize| columns.contains(&column) && schema.field(column).data_type().is_decimal();
    if !columns.iter().any(|column| is_cast(*column)) {
        return Ok(input);
    }
    let exprs = schema.iter().enumerate().map(|(index, (qualifier, field))| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match is_cast(index) {
            true => cast(column, DataType::Float64).alias_qualified(qualifier.cloned(), field.name()),
            false => column,
        }
    });
    let projected = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input)).project(exprs)?.build()?;
    Ok(Arc::new(projected))
}

/// The columns in which a DOUBLE has become a decimal, because of a decimal in another row.
fn mixed_in_values(values: &Values) -> Vec<usize> {
    let has = |column: usize, data_type: &DataType, fits: fn(&DataType) -> bool| {
        let is_cast = |expr: &Expr| match unaliased(expr) {
            Expr::Cast(cast) => cast.field.data_type() == data_type && cast.expr.get_type(&DFSchema::empty()).is_ok_and(|of| fits(&of)),
            _ => false,
        };
        values.values.iter().any(|row| row.get(column).is_some_and(is_cast))
    };
    let is_mixed = |(column, data_type): (usize, &DataType)| {
        let is_common = match data_type {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale >= DIGITS_OF_DOUBLE,
            _ => false,
        };
        is_common && has(column, data_type, DataType::is_floating) && has(column, data_type, DataType::is_decimal)
    };
    let columns = values.schema.fields().iter().map(|field| field.data_type()).enumerate();
    columns.filter(|column| is_mixed(*column)).map(|(column, _)| column).collect()
}

/// Rules that ran before keep the name of a value that they change.
fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

fn in_values(values: Values) -> Result<LogicalPlan> {
    let mixed = mixed_in_values(&values);
    if mixed.is_empty() {
        return Ok(LogicalPlan::Values(values));
    }
    let Values { schema, values: mut rows } = values;
    for row in &mut rows {
        for column in &mixed {
            let common_type = schema.field(*column).data_type();
            let written = match std::mem::take(&mut row[*column]).unalias_nested().data {
                Expr::Cast(Cast { expr, field }) if field.data_type() == common_type => *expr,
                other => other,
            };
            row[*column] = as_double(written);
        }
    }
    LogicalPlanBuilder::values(rows)?.build()
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;

    use crate::plan::query_session_builder;

    #[tokio::test]
    async fn a_double_beside_a_decimal_keeps_its_size() {
        let session = SessionContext::new_with_state(query_session_builder().build());
        let double = |text: &str| format!("CAST('{text}' AS DOUBLE)");
        for (sql, expected) in [
            (format!("SELECT 0.5 AS x UNION ALL SELECT {} UNION ALL SELECT 2.25", double("1e30")), ["0.5", "1e30", "2.25"]),
            (format!("VALUES ({}), (NULL), (0.5)", double("1e-20")), ["", "0.5", "1e-20"]),
            (format!("SELECT x FROM (VALUES (1.5), (2), ({})) AS v (x)", double("3")), ["1.5", "2.0", "3.0"]),
            ("VALUES (0.5), (1e30::double), (2.25)".to_owned(), ["0.5", "1e30", "2.25"]),
        ] {
            let rows = session.sql(&sql).await.unwrap().collect().await.unwrap();
            let table = pretty_format_batches(&rows).unwrap().to_string();
            let lines: Vec<&str> = table.lines().skip(3).filter(|line| !line.starts_with('+')).collect();
            let mut found: Vec<&str> = lines.iter().map(|line| line.trim_matches(['|', ' '])).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{sql}");
        }
        let decimals = session.sql("SELECT CAST(0.5 AS DECIMAL(18,2)) AS x UNION ALL SELECT 2.25").await.unwrap();
        let schema = decimals.create_physical_plan().await.unwrap().schema();
        assert!(schema.field(0).data_type().is_decimal());
    }
}
