use std::sync::Arc;

use definitions::{Definitions, parse};

use super::*;
use crate::functions::Functions;
use crate::plan::{Planned, Planner};

const STREAM: &str = "CREATE STREAM s (k TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, v TEXT, n BIGINT) WITH (event_time = 'ts')";

async fn planned(view: &str) -> Arc<ViewPlan> {
    let view = parse::parse_view(view).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    match Planner::new(&project, Functions::standard()).plan(&view).await {
        Ok(Planned::Stateful(plan)) => plan,
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn aggregates_are_shown_with_their_order() {
    let plan = planned(
        "CREATE VIEW v AS SELECT k, string_agg(v, ',' ORDER BY ts, v DESC) AS l, \
         array_length(array_agg(v ORDER BY ts DESC NULLS LAST) FILTER (WHERE n > 3)) AS a, string_agg(v, ',' ORDER BY n NULLS FIRST) AS m, \
         percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS p FROM s GROUP BY k",
    )
    .await;
    let explained = explain(&plan);
    let states: Vec<&str> = explained.states.iter().map(|state| state.aggregate.as_str()).collect();
    let expected = [
        "count(*)",
        "string_agg(v, ',' ORDER BY ts, v DESC)",
        "array_agg(v ORDER BY ts DESC NULLS LAST) FILTER (WHERE (n > 3))",
        "string_agg(v, ',' ORDER BY n NULLS FIRST)",
    ];
    assert_eq!(states[..4], expected);
    assert!(states[4].starts_with("percentile_cont(0.5) WITHIN GROUP (ORDER BY n"), "{states:?}");
    for part in [
        "string_agg_merge(s1) FILTER (all time) AS l,",
        "array_length(array_agg_merge(s2) FILTER (all time)) AS a,",
        "string_agg_merge(s3) FILTER (all time) AS m,",
    ] {
        assert!(explained.answer_sql.contains(part), "{}", explained.answer_sql);
    }
    assert!(explained.states_sql.contains("string_agg_state(v, ',' ORDER BY ts, v DESC) AS s1"), "{}", explained.states_sql);
    // What is stored is named without the order, as ever, where that is enough.
    for (state, name) in [(1, "string_agg(v, ',')["), (3, "string_agg(v, ',' ORDER BY n NULLS FIRST)[")] {
        assert!(plan.states[state].fields[0].name().starts_with(name), "{:?}", plan.states[state].fields);
    }
}

#[tokio::test]
async fn states_are_kept_as_types_of_sql() {
    let plan = planned("CREATE VIEW v AS SELECT k, max(n) AS m, sum(CAST(n AS DECIMAL(10,2))) AS d FROM s GROUP BY k").await;
    let kept: Vec<String> = explain(&plan).states.iter().map(StateExplanation::kept_as).collect();
    assert!(kept.contains(&"BIGINT".to_owned()) && kept.iter().any(|kept| kept.contains("DECIMAL(")), "{kept:?}");
    assert!(!kept.iter().any(|kept| kept.contains("Int64") || kept.contains("Decimal128")), "{kept:?}");
}
