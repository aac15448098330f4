use std::sync::Arc;

use arrow::datatypes::{Schema, TimeUnit};
use datafusion::logical_expr::LogicalPlan;

use super::super::tests::analysed;
use super::*;

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("ts", timestamp_type(), false),
        Field::new("nanos", DataType::Timestamp(TimeUnit::Nanosecond, None), false),
        Field::new("day", DataType::Date32, false),
        Field::new("x", DataType::Int64, false),
    ]))
}

async fn plan(select: &str) -> Result<LogicalPlan> {
    analysed(select, &schema()).await
}

#[tokio::test]
async fn within_takes_every_timestamp_and_dates() {
    let sql = "SELECT count(*) FILTER (WHERE within(ts, '7d')), count(*) FILTER (WHERE within(nanos, '31d', '1d') AND x > 1),
               max(x) FILTER (WHERE within(day, 'all')) FROM t";
    let text = plan(sql).await.unwrap().display_indent().to_string();
    assert!(text.contains(r#"within(t.ts, Utf8("7d"))"#), "the marker is left for the planner to find: {text}");
}

#[tokio::test]
async fn within_refuses_what_is_no_time_and_no_text() {
    for call in ["within(x, '7d')", "within(ts, 7)", "within(ts)", "within(ts, '7d', '1d', '1h')", "within('2026-01-01', '7d')"] {
        let error = plan(&format!("SELECT count(*) FILTER (WHERE {call}) FROM t")).await.unwrap_err().to_string();
        assert!(error.contains("within"), "{call}: {error}");
    }
}

#[tokio::test]
async fn as_of_stands_in_expressions_over_aggregates() {
    let plan = plan("SELECT as_of() AS t, as_of() - max(ts) AS age FROM t HAVING max(ts) < as_of()").await.unwrap();
    assert_eq!(plan.schema().field(0).data_type(), &timestamp_type());
    assert!(!plan.schema().field(0).is_nullable());
    assert!(matches!(plan.schema().field(1).data_type(), DataType::Duration(TimeUnit::Microsecond)));
}
