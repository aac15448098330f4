use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::context::ExecutionProps;
use datafusion::execution::registry::MemoryFunctionRegistry;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Accumulator, LogicalPlan, Volatility, create_udf};
use datafusion::physical_expr::aggregate::{AggregateFunctionExpr, LoweredAggregateBuilder};
use datafusion::prelude::SessionConfig;

use super::*;

mod held;

/// Returns the analysed plan of a query over an empty table `t`, without optimizer, like our planner.
pub(super) async fn analysed(select: &str, schema: &SchemaRef) -> datafusion::common::Result<LogicalPlan> {
    let session = SessionContext::new();
    Functions::standard().register(&session).unwrap();
    session.register_table("t", Arc::new(EmptyTable::new(Arc::clone(schema))))?;
    let state = session.state();
    let plan = state.create_logical_plan(select).await?;
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})
}

/// Lowers the single aggregate of `SELECT {call} FROM t` like our planner.
pub(super) fn lowered(call: &str, schema: &SchemaRef) -> AggregateFunctionExpr {
    try_lowered(call, schema).unwrap_or_else(|error| panic!("{call}: {error}"))
}

pub(super) fn try_lowered(call: &str, schema: &SchemaRef) -> datafusion::common::Result<AggregateFunctionExpr> {
    lowered_after(call, schema, |expr| expr)
}

/// The same with accumulators of ours, where there are any.
pub(super) fn lowered_grouped(call: &str, schema: &SchemaRef) -> AggregateFunctionExpr {
    lowered_after(call, schema, grouped).unwrap_or_else(|error| panic!("{call}: {error}"))
}

fn lowered_after(call: &str, schema: &SchemaRef, change: impl Fn(Expr) -> Expr) -> datafusion::common::Result<AggregateFunctionExpr> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let plan = runtime.block_on(analysed(&format!("SELECT {call} FROM t"), schema))?;
    let mut found = None;
    plan.apply(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            let input = aggregate.input.schema();
            let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
            let expr = change(aggregate.aggr_expr[0].clone());
            let lowered = LoweredAggregateBuilder::new(&expr, input, input.as_arrow(), &props, &context).build()?;
            found = Some(Arc::unwrap_or_clone(lowered.aggregate));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found.expect("the query has an aggregate"))
}

/// Returns the columns that an accumulator of this call gets for a batch.
pub(super) fn inputs(call: &AggregateFunctionExpr, batch: &RecordBatch) -> Vec<ArrayRef> {
    let expressions = call.all_expressions();
    let evaluate = |expr: &Arc<dyn datafusion::physical_plan::PhysicalExpr>| expr.evaluate(batch)?.into_array(batch.num_rows());
    expressions.args.iter().chain(&expressions.order_by_exprs).map(|expr| evaluate(expr).unwrap()).collect()
}

/// Returns a state as columns of one row.
pub(super) fn state_columns(accumulator: &mut dyn Accumulator) -> Vec<ArrayRef> {
    accumulator.state().unwrap().iter().map(|value| value.to_array().unwrap()).collect()
}

/// Splits a batch into parts, computes a state of each, merges the states in two rounds in the given order, and
/// evaluates.
///
/// `parts` assigns each row to a part. `order` ranks the parts, and determines which of three intermediate states each
/// goes to.
pub(super) fn merged(call: &AggregateFunctionExpr, batch: &RecordBatch, parts: &[u8], order: &[u32]) -> ScalarValue {
    let mut states = Vec::new();
    for part in 0..order.len() as u8 {
        let rows: Vec<u64> = (0..batch.num_rows() as u64).filter(|row| parts[*row as usize] % order.len() as u8 == part).collect();
        let part = arrow::compute::take_record_batch(batch, &arrow::array::UInt64Array::from(rows)).unwrap();
        let mut accumulator = call.create_accumulator().unwrap();
        accumulator.update_batch(&inputs(call, &part)).unwrap();
        states.push(state_columns(accumulator.as_mut()));
    }
    let mut ranked: Vec<usize> = (0..order.len()).collect();
    ranked.sort_by_key(|part| order[*part]);
    let mut between: Vec<_> = (0..3).map(|_| call.create_accumulator().unwrap()).collect();
    for part in ranked {
        between[order[part] as usize % 3].merge_batch(&states[part]).unwrap();
    }
    let mut last = call.create_accumulator().unwrap();
    for accumulator in &mut between {
        let columns = state_columns(accumulator.as_mut());
        for (column, field) in columns.iter().zip(call.state_fields().unwrap()) {
            assert_eq!(column.data_type(), field.data_type(), "a state is of the type its field says");
        }
        last.merge_batch(&columns).unwrap();
    }
    let value = last.evaluate().unwrap();
    assert_eq!(&value.data_type(), call.field().data_type(), "a value is of the type its field says");
    value
}

/// Evaluates the call in a single pass over the batch.
pub(super) fn single(call: &AggregateFunctionExpr, batch: &RecordBatch) -> ScalarValue {
    let mut accumulator = call.create_accumulator().unwrap();
    accumulator.update_batch(&inputs(call, batch)).unwrap();
    accumulator.evaluate().unwrap()
}

pub(super) async fn query(sql: &str) -> datafusion::common::Result<String> {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(3).with_batch_size(2));
    Functions::standard().register(&session)?;
    let schema = Arc::new(Schema::new(vec![
        Field::new("device", DataType::Utf8, true),
        Field::new("city", DataType::Utf8, true),
        Field::new("ts", DataType::Int64, false),
    ]));
    let batch = |devices: Vec<&str>, cities: Vec<Option<&str>>, times: Vec<i64>| {
        let columns: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from(devices)), Arc::new(StringArray::from(cities)), Arc::new(Int64Array::from(times))];
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    let partitions = vec![
        vec![batch(vec!["a", "b", "a"], vec![Some("Rome"), Some("Oslo"), None], vec![3, 1, 5])],
        vec![batch(vec!["a", "a"], vec![Some("Bern"), Some("Rome")], vec![4, 1])],
        vec![batch(vec!["b", "a"], vec![Some("Bern"), Some("Kiev")], vec![2, 2])],
    ];
    session.register_table("t", Arc::new(MemTable::try_new(schema, partitions)?))?;
    Ok(pretty_format_batches(&session.sql(sql).await?.collect().await?)?.to_string())
}

#[tokio::test]
async fn the_aggregates_work_in_plain_sql_over_several_partitions() {
    let sql = "SELECT device, last_n(city, 3 ORDER BY ts) AS last, last_n(city, 2 ORDER BY ts DESC) AS first,
               last_n(city, 1 ORDER BY ts) FILTER (WHERE ts < 4) AS early, top_k(city, 2) AS top FROM t GROUP BY device ORDER BY device";
    let expected = "
+--------+--------------------+--------------+--------+------------------------------------------------------+
| device | last               | first        | early  | top                                                  |
+--------+--------------------+--------------+--------+------------------------------------------------------+
| a      | [, Bern, Rome]     | [Rome, Kiev] | [Rome] | [{value: Rome, count: 2}, {value: Bern, count: 1}]   |
| b      | [Bern, Oslo]       | [Oslo, Bern] | [Bern] | [{value: Bern, count: 1}, {value: Oslo, count: 1}]   |
+--------+--------------------+--------------+--------+------------------------------------------------------+";
    let words = |text: &str| text.split_whitespace().map(str::to_owned).filter(|word| !word.starts_with('+')).collect::<Vec<_>>();
    let answer = query(sql).await.unwrap();
    assert_eq!(words(&answer), words(expected), "{answer}");
}

/// In a view, and where a view is verified, the place of the event follows each order, so that one is not the other
/// backwards.
#[tokio::test]
async fn texts_are_joined_in_several_orders_in_one_select() {
    let sql = "SELECT string_agg(city, ',' ORDER BY ts, device) AS a, string_agg(city, ';' ORDER BY ts DESC, device) AS b,
               string_agg(DISTINCT device, '' ORDER BY device) AS c, string_agg(DISTINCT city, '/' ORDER BY city DESC) AS d
               FROM t WHERE ts > 1";
    let answer = query(sql).await.unwrap();
    let row = answer.lines().nth(3).unwrap().replace(' ', "");
    assert_eq!(row, "|Kiev,Bern,Rome,Bern|Bern;Rome;Kiev;Bern|ab|Rome/Kiev/Bern|", "{answer}");
}

#[tokio::test]
async fn the_statistics_work_in_plain_sql_also_on_integers_and_nulls() {
    let sql = "SELECT round(poisson_sf(count(*), 1), 4) AS p, zscore(max(ts), 3, 2) AS z, zscore(1, 2, NULL) AS n, poisson_sf(1, 0.0) AS o FROM t";
    let answer = query(sql).await.unwrap();
    let row = answer.lines().nth(3).unwrap().replace(' ', "");
    assert_eq!(row, "|0.0001|1.0||0.0|", "{answer}");
}

#[tokio::test]
async fn a_marker_that_is_executed_says_where_it_may_stand() {
    let error = query("SELECT count(*) FROM t WHERE within(to_timestamp(ts), '7d')").await.unwrap_err().to_string();
    assert!(error.contains("FILTER of an aggregate"), "{error}");
    let error = query("SELECT as_of() - to_timestamp(ts) FROM t").await.unwrap_err().to_string();
    assert!(error.contains("outside the aggregates"), "{error}");
}

#[test]
fn a_user_adds_functions_of_their_own_and_replaces_ours() {
    let mine = datafusion::functions_aggregate::sum::sum_udaf();
    let fixed = create_udf("zscore", vec![], DataType::Int64, Volatility::Immutable, Arc::new(|_| Ok(ScalarValue::Int64(Some(1)).into())));
    let functions = Functions::standard().with_aggregate(Arc::unwrap_or_clone(mine)).with_scalar(fixed);
    let mut registry = MemoryFunctionRegistry::new();
    functions.register_all(&mut registry).unwrap();
    assert!(registry.udaf("sum").is_ok() && registry.udaf(TOP_K).is_ok());
    assert_eq!(registry.udf("zscore").unwrap().signature().volatility, Volatility::Immutable);
    assert_eq!(registry.udf("zscore").unwrap().return_type(&[]).unwrap(), DataType::Int64);
    assert_eq!(Functions::standard().scalars().count(), 4, "a set that was cloned is not changed");
}

#[test]
fn a_bound_that_is_no_literal_in_range_is_refused_while_planning() {
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true), Field::new("f", DataType::Float64, true)]));
    for (call, expected) in [
        ("last_n(x, 0 ORDER BY x)", "is 0: expected a literal number from 1 to 1000"),
        ("last_n(x, 1001 ORDER BY x)", "from 1 to 1000"),
        ("last_n(x, -1 ORDER BY x)", "from 1 to 1000"),
        ("last_n(x, x ORDER BY x)", "is an expression"),
        ("last_n(DISTINCT x, 3)", "does not take DISTINCT"),
        ("top_k(x, 101)", "from 1 to 100"),
        ("top_k(x, NULL)", "expected"),
        ("top_k(f, 3)", "round them"),
        ("top_k(DISTINCT x, 3)", "does not take DISTINCT"),
    ] {
        let error = try_lowered(call, &schema).unwrap_err();
        assert!(error.to_string().contains(expected), "{call}: {error}");
        assert_eq!(types::Error::from(error).kind(), types::ErrorKind::Input, "{call}");
    }
}

#[tokio::test]
async fn an_approximate_percentile_takes_as_many_centroids_as_fit() {
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)]));
    for (call, place) in [
        ("approx_percentile_cont(x, 0.5, 1000000000000)", "third"),
        ("approx_percentile_cont(0.5, 1000000000000) WITHIN GROUP (ORDER BY x)", "third"),
        ("approx_percentile_cont(x, 0.5, 1000000 * 1000000)", "third"),
        ("approx_percentile_cont(x, 0.5, 1000000000000) OVER ()", "third"),
        ("approx_percentile_cont_with_weight(x, 1, 0.5, 1000000000000)", "fourth"),
    ] {
        let error = types::Error::from(analysed(&format!("SELECT {call} FROM t"), &schema).await.expect_err(call));
        assert_eq!(error.kind(), types::ErrorKind::Input, "{call}");
        let message = error.to_string();
        assert!(message.contains(&format!("the {place} argument of approx_percentile_cont")), "{call}: {message}");
        assert!(message.contains("expected a literal number from 1 to 10000"), "{call}: {message}");
    }
    for call in
        ["approx_percentile_cont(x, 0.5)", "approx_percentile_cont(x, 0.5, 10000)", "approx_percentile_cont_with_weight(x, 1, 0.5, 200)"]
    {
        analysed(&format!("SELECT {call} FROM t"), &schema).await.unwrap_or_else(|error| panic!("{call}: {error}"));
    }
}
