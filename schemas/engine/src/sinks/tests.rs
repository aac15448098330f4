//! Which SELECTs are put out for each event, and what a record is made of.

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use definitions::{Definitions, parse};

use super::*;
use crate::plan::{Planned, Planner};

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) \
    WITH (event_time = 'ts', id = 'id', key = 'k')";
const OTHER: &str = "CREATE STREAM other (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (event_time = 'ts')";
const BY_KEY: &str = "CREATE VIEW by_key AS SELECT k, count(*) AS n, sum(x) AS total FROM s GROUP BY k";
const BY_TWO: &str = "CREATE VIEW by_two AS SELECT k, x, count(*) AS n FROM s GROUP BY k, x";
const ALL: &str = "CREATE VIEW everything AS SELECT count(*) AS n FROM s";

async fn planned(select: &str) -> Result<SinkPlan, String> {
    planned_with(select, &[]).await
}

async fn planned_with(select: &str, parameters: &[(&str, &str)]) -> Result<SinkPlan, String> {
    let definitions = parameters.iter().map(|(name, value)| parse::parse_parameter(&format!("CREATE PARAMETER {name} {value}")).unwrap());
    let parameters = Parameters::initial(&definitions.collect::<Vec<_>>());
    let sql = format!("CREATE SINK out WITH (topic = 'out', key = 'id') AS {select}");
    let sink = parse::parse_sink(&sql).map_err(|error| error.to_string())?;
    let streams = [STREAM, OTHER].map(|sql| parse::parse_stream(sql).unwrap());
    let views = [BY_KEY, BY_TWO, ALL].map(|sql| parse::parse_view(sql).unwrap());
    let project = Definitions { streams: streams.to_vec(), views: views.to_vec(), ..Definitions::default() };
    let functions = Functions::standard();
    let planner = Planner::new(&project, functions.clone());
    let mut plans = Vec::new();
    for view in &views {
        let Ok(Planned::Stateful(plan)) = planner.plan(view).await else { panic!("{} is planned", view.name) };
        plans.push(plan);
    }
    let streams: Vec<_> = streams.into_iter().map(Arc::new).collect();
    let staging = BTreeSet::from(["bare".into()]);
    let sources = Sources { streams: &streams, views: &plans, staging: &staging, parameters: &parameters, is_strict: true };
    let planned = SinkPlan::new(&sink, &functions, sources).await;
    planned.map_err(|found| found.0.iter().map(|one| format!("{}:{} {}", one.line, one.column, one.message)).collect::<Vec<_>>().join("\n"))
}

fn events() -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["a", "b", "c", "d"])),
        Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3, 4]).with_timezone("UTC")),
        Arc::new(StringArray::from(vec![Some("k1"), None, Some("k2"), Some("k1")])),
        Arc::new(Int64Array::from(vec![Some(5), Some(2), Some(0), Some(1)])),
    ];
    let stream = parse::parse_stream(STREAM).unwrap();
    RecordBatch::try_new(user_schema(&stream), columns).unwrap()
}

use arrow::array::RecordBatch;

fn times() -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(vec![10, 20, 30, 40]).with_timezone("UTC"))
}

#[tokio::test]
async fn a_record_has_columns_of_the_event_and_of_its_rows() {
    let plan = planned(
        "SELECT p.id, p.x + v.n AS x, v.total, CASE WHEN v.n > 1 THEN 'many' ELSE 'few' END AS decision, as_of() AS at, _position
        FROM s p LEFT JOIN by_key v ON p.k = v.k WHERE p.x <> 2",
    )
    .await
    .unwrap();
    assert_eq!((plan.joins.len(), plan.joins[0].wanted.clone(), plan.key), (1, vec![1, 2], Some(0)));
    let (keys, has_key) = plan.joins[0].keys(&plan.stream, &events()).unwrap();
    assert_eq!((keys.len(), has_key.iter().flatten().collect::<Vec<_>>()), (1, vec![true, false, true, true]));
    let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 0, 2, 3]));
    let total =
        arrow::compute::cast(&(Arc::new(Int64Array::from(vec![5, 0, 7, 6])) as ArrayRef), plan.joins[0].plan.columns[2].field.data_type());
    let fields = plan.joins[0].wanted.iter().map(|column| plan.joins[0].plan.columns[*column].field.clone()).collect::<Vec<_>>();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![n, total.unwrap()]).unwrap();
    let records = plan.records(&events(), &[rows], "s/0:7", &times()).unwrap();
    let text = pretty_format_batches(&[records.rows]).unwrap().to_string();
    let expected = "\
+----+---+-------+----------+-----------------------------+-----------+
| id | x | total | decision | at                          | _position |
+----+---+-------+----------+-----------------------------+-----------+
| a  | 6 | 5     | few      | 1970-01-01T00:00:00.000010Z | s/0:7     |
| c  | 2 | 7     | many     | 1970-01-01T00:00:00.000030Z | s/0:7     |
| d  | 4 | 6     | many     | 1970-01-01T00:00:00.000040Z | s/0:7     |
+----+---+-------+----------+-----------------------------+-----------+";
    assert_eq!((text.as_str(), records.events.as_slice(), records.failed.len()), (expected, &[0, 2, 3][..], 0));
}

#[tokio::test]
async fn a_star_has_no_column_of_the_system() {
    let names = async |select: &str| planned(select).await.unwrap().column_names();
    assert_eq!(names("SELECT * FROM s").await, "id, ts, k, x");
    assert_eq!(names("SELECT s.*, v.n FROM s LEFT JOIN by_key v ON v.k = s.k WHERE s.x > 1").await, "id, ts, k, x, n");
    assert_eq!(names("SELECT *, as_of() AS at FROM s").await, "id, ts, k, x, at");
    assert_eq!(names("SELECT id, _POSITION, _as_of FROM s").await, "id, _position, _as_of");
    let plan = planned("SELECT * FROM s WHERE x <> 2").await.unwrap();
    assert_eq!(plan.records(&events(), &[], "s/0:7", &times()).unwrap().rows.num_columns(), 4);
}

/// A reader of the records takes them for the position and the time of what was read.
#[tokio::test]
async fn a_name_of_the_system_is_no_alias_of_another_value() {
    for good in [
        "SELECT id, _position, as_of() AS _as_of FROM s",
        "SELECT id, p AS _position FROM (SELECT id, _position AS p FROM s) e",
        "SELECT s.id, s._as_of, v.n FROM s LEFT JOIN by_key v ON v.k = s.k WHERE v.n > 1",
    ] {
        planned(good).await.unwrap_or_else(|found| panic!("{good}: {found}"));
    }
    for (bad, name) in [
        ("SELECT id, k AS _position FROM s", "_position"),
        ("SELECT id, ts AS _as_of FROM s", "_as_of"),
        ("SELECT id, _as_of AS _position FROM s", "_position"),
        ("SELECT id, upper(_position) AS _position FROM s", "_position"),
        ("SELECT e.id, e._position FROM (SELECT id, k AS _position FROM s) e", "_position"),
    ] {
        let found = planned(bad).await.map(drop).unwrap_err();
        assert!(found.contains(&format!("the column '{name}' is an alias of another value than the system's")), "{bad}: {found}");
    }
}

/// What is left out of the plan would put out other records than the text says.
/// The planner gives a position for columns alone.
#[tokio::test]
async fn a_mistake_without_a_column_is_reported_at_its_expression() {
    let adds = "cannot coerce arithmetic expression TEXT + BIGINT to valid types";
    for (select, place) in [
        ("SELECT id,\n  'a' + 1 AS y FROM s", "2:3 "),
        ("SELECT id,\n  x FROM s\nWHERE x > 0 AND\n  (2 = 'a' + 1)", "4:8 "),
        ("SELECT id,\n  round(1.5 + ('a' + 1)) AS y FROM s", "2:16 "),
        ("SELECT id, x FROM (\n  SELECT id, x, 'a' + 1 AS y FROM s) t", "1:"),
    ] {
        let found = planned(select).await.map(drop).unwrap_err();
        assert!(found.starts_with(place) && found.ends_with(adds), "{select}: {found}");
    }
}

#[tokio::test]
async fn what_would_be_ignored_is_refused() {
    for (select, found) in [
        ("SELECT id FROM s PREWHERE x > 100", "PREWHERE is not supported"),
        ("SELECT id FROM s TABLESAMPLE BERNOULLI (1)", "TABLESAMPLE is not supported"),
        ("SELECT id, upper(k) FILTER (WHERE x > 1) AS k FROM s", "FILTER of a function that is no aggregate is not supported"),
        ("SELECT id, upper(3)(k) AS k FROM s", "a call with two lists of arguments is not supported"),
        ("SELECT id FROM s WHERE k = 'a' IS DISTINCT FROM true AND x > 1", "IS DISTINCT FROM lacks brackets"),
        ("SELECT id FROM s WHERE k = \"abc\"", "there is no column \"abc\": for a text, write 'abc'; expected one of id"),
        ("SELECT id FROM s WHERE within(ts, '1h')", "within() belongs to the FILTER of an aggregate"),
    ] {
        let refused = planned(select).await.unwrap_err().to_string();
        assert!(refused.contains(found), "{select}: {refused}");
    }
}

#[tokio::test]
async fn an_alias_beside_a_name_that_nothing_has_is_known() {
    let found = planned("SELECT id, nothing, upper(k) AS big FROM s ORDER BY big").await.map(drop).unwrap_err();
    assert!(found.contains("there is no column \"nothing\"") && found.lines().count() == 1, "{found}");
}

/// An event on which the SELECT fails is listed; the others are not held up.
#[tokio::test]
async fn a_failing_event_is_named() {
    let plan = planned("SELECT id, 10 / x AS part FROM s").await.unwrap();
    let records = plan.records(&events(), &[], "", &times()).unwrap();
    assert_eq!(records.events, [0, 1, 3]);
    assert_eq!(records.failed.iter().map(|failed| failed.event).collect::<Vec<_>>(), [2]);
    assert_eq!(records.failed[0].reason, "division by zero");
}

#[tokio::test]
async fn functions_that_are_rewritten_are_computed() {
    let plan = planned("SELECT id, coalesce(k, 'none') AS k, nvl(k, 'nobody') AS named FROM s WHERE coalesce(x, 1) <> 2").await.unwrap();
    let records = plan.records(&events(), &[], "", &times()).unwrap();
    assert_eq!((records.events.as_slice(), records.failed.len()), (&[0, 2, 3][..], 0), "{:?}", records.failed);
    assert_eq!(records.rows.column(2).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["k1", "k2", "k1"]);
    let plan = planned("SELECT p.id, v.n FROM s p LEFT JOIN by_key v ON v.k = coalesce(p.k, 'none')").await.unwrap();
    let (keys, has_key) = plan.joins[0].keys(&plan.stream, &events()).unwrap();
    assert_eq!(keys[0].as_string::<i32>().value(1), "none");
    assert_eq!(has_key.true_count(), 4);
}

/// The number 7 is written '7', and not '07'.
#[tokio::test]
async fn a_key_that_is_compared_as_another_type_is_equal_as_that_type() {
    let keys = async |on: &str| {
        let plan = planned(&format!("SELECT s.id, v.n FROM s LEFT JOIN by_two v ON v.k = s.k AND {on}")).await.unwrap();
        let (keys, has_key) = plan.joins[0].keys(&plan.stream, &events()).unwrap();
        let number = arrow::compute::cast(&keys[1], &DataType::Int64).unwrap();
        let numbers = number.as_primitive::<Int64Type>().iter().zip(has_key.iter());
        numbers.map(|(number, has_key)| number.filter(|_| has_key == Some(true))).collect::<Vec<_>>()
    };
    // Of the events, the second one has no `k`.
    assert_eq!(keys("v.x = s.x").await, [Some(5), None, Some(0), Some(1)]);
    assert_eq!(keys("CAST(v.x AS TEXT) = CAST(s.x AS TEXT)").await, [Some(5), None, Some(0), Some(1)]);
    assert_eq!(keys("CAST(v.x AS TEXT) = '0' || CAST(s.x AS TEXT)").await, [None; 4]);
}

/// Only for what is stored already it is left to the events.
#[tokio::test]
async fn what_fails_on_every_event_is_refused() {
    for condition in
        ["x > 1 / 0", "x > CAST('many' AS BIGINT)", "k IN ('a', 'b') AND ts > '2026-13-01'", "regexp_like(k, '(')", "x / 0 > 1"]
    {
        assert!(planned(&format!("SELECT id FROM s WHERE {condition}")).await.is_err(), "{condition}");
        assert!(planned(&format!("SELECT id, {condition} AS found FROM s")).await.is_err(), "{condition}");
    }
    let pattern = planned("SELECT id, to_char(ts, 'YYYY') AS year FROM s").await.map(drop).unwrap_err();
    assert!(pattern.contains("does not read PostgreSQL's pattern 'YYYY': expected '%Y'"), "{pattern}");
    let guarded = "SELECT id FROM s WHERE param('since') = '' OR ts > CAST(param('since') AS TIMESTAMPTZ)";
    assert!(planned_with(guarded, &[("since", "= ''")]).await.is_ok());
    assert!(planned_with(guarded, &[("since", "= '2026-01-01'")]).await.is_ok());
    assert!(planned_with(guarded, &[("since", "= 'then'")]).await.is_err());
}

#[tokio::test]
async fn a_parameter_is_the_value_that_it_has() {
    let select = "SELECT id, x, param('word') AS word FROM s WHERE x >= param('least')";
    for (least, expected) in [("= 2", vec![0, 1]), ("DOUBLE = 4.5", vec![0]), ("DECIMAL(4,2) = 1.5", vec![0, 1])] {
        let plan = planned_with(select, &[("least", least), ("word", "= 'it''s'"), ("other", "= 1")]).await.unwrap();
        assert_eq!(plan.parameters.keys().map(|name| &**name).collect::<Vec<_>>(), ["least", "word"]);
        let records = plan.records(&events(), &[], "", &times()).unwrap();
        assert_eq!(records.events, expected, "{least}");
        assert_eq!(records.rows.column(2).as_string::<i32>().value(0), "it's");
    }
    let found = planned_with(select, &[("leest", "= 2"), ("word", "= 'a'")]).await.map(drop).unwrap_err();
    assert!(found.starts_with("1:107 sink \"out\": there is no parameter \"least\": did you mean \"leest\"?"), "{found}");
    let found = planned_with("SELECT id FROM s WHERE x >= least", &[("least", "= 2")]).await.map(drop).unwrap_err();
    assert!(found.contains("there is no column \"least\"") && found.ends_with("; the parameter is param('least')"), "{found}");
    let before = "SELECT id, ts - param('length') AS before FROM s";
    planned_with(before, &[("length", "= INTERVAL '1 day'")]).await.unwrap();
    let found = planned_with(before, &[("length", "= 20")]).await.map(drop).unwrap_err();
    assert!(found.starts_with("1:") && found.contains("TIMESTAMPTZ - BIGINT"), "{found}");
}

#[tokio::test]
async fn a_view_is_not_kept_with_a_parameter() {
    for sql in [
        "CREATE VIEW v AS SELECT k, count(*) FILTER (WHERE x > param('most')) AS n FROM s GROUP BY k",
        "CREATE VIEW v AS SELECT k, count(*) AS n FROM s WHERE x > Param('most') GROUP BY k",
        "CREATE VIEW v AS SELECT k, x FROM s WHERE x > param('most')",
    ] {
        let (stream, view) = (parse::parse_stream(STREAM).unwrap(), parse::parse_view(sql).unwrap());
        let project = Definitions { streams: vec![stream], views: vec![view.clone()], ..Definitions::default() };
        let found = Planner::new(&project, Functions::standard()).plan(&view).await.map(drop).unwrap_err().to_string();
        assert!(found.contains("param() is not kept: the states of a view do not change when a parameter is set"), "{sql}: {found}");
        assert!(found.contains("the parameter in a sink or an alert that reads the view"), "{found}");
    }
}

#[tokio::test]
async fn what_joins_a_view_is_each_of_its_keys() {
    for good in [
        "SELECT id, v.n FROM s LEFT JOIN by_key v USING (k)",
        "SELECT id, v.n FROM s LEFT JOIN by_two v ON v.k = upper(s.k) AND s.x = v.x",
        "SELECT id, v.n, w.n AS all_events FROM s LEFT JOIN by_key v ON v.k = s.k LEFT JOIN everything w ON true",
        "SELECT id, w.n FROM s CROSS JOIN everything w",
        "SELECT id, v.n, w.n AS all_events, _position FROM s LEFT JOIN by_key v ON v.k = s.k CROSS JOIN everything w",
        "WITH bare AS (SELECT id, x FROM s) SELECT id, x FROM bare WHERE x > 1",
        "SELECT s.*, v.n FROM s LEFT JOIN by_key v ON v.k = CAST(s.x AS TEXT)",
        "SELECT s.id, v.n FROM s LEFT JOIN by_two v ON v.k = s.k AND CAST(v.x AS DECIMAL(20,2)) = CAST(s.x AS DECIMAL(20,2))",
        // WHERE chooses events: what it compares is no key.
        "SELECT p.id, v.n FROM s p LEFT JOIN by_key v ON v.k = p.k WHERE CAST(p.x AS DOUBLE) = v.n",
    ] {
        planned(good).await.unwrap_or_else(|found| panic!("{good}: {found}"));
    }
    for (bad, message) in [
        ("SELECT id, v.n FROM s JOIN by_key v ON v.k = s.k", "expected LEFT JOIN"),
        ("SELECT id, v.n FROM s LEFT JOIN by_two v ON v.k = s.k", "is not joined by its key \"x\""),
        ("SELECT id, v.n FROM s LEFT JOIN by_key v ON v.k = s.k AND v.n > 2", "expected its keys alone"),
        ("SELECT id, v.n FROM s LEFT JOIN by_key v ON v.k > s.k", "expected its keys alone"),
        ("SELECT id, v.n FROM s LEFT JOIN by_key v ON v.k = s.k AND v.k = s.id", "is compared twice"),
        ("SELECT id, v.n FROM s LEFT JOIN by_key w ON w.k = s.k LEFT JOIN by_two v ON v.k = s.k AND v.x = w.n", "which is of another view"),
        (
            "SELECT s.id, v.n FROM s LEFT JOIN by_key v ON v.k = s.x",
            "the join keys v.k and s.x are of different types, TEXT and BIGINT: expected one type, with a cast, for example \
             v.k = CAST(s.x AS TEXT)",
        ),
        ("SELECT s.id, v.n FROM s LEFT JOIN by_two v ON v.k = s.k AND s.k = v.x", "CAST(v.x AS TEXT)"),
        (
            "SELECT s.id, v.n FROM s LEFT JOIN by_key v ON CAST(v.k AS BIGINT) = s.x",
            "the key v.k is compared as BIGINT, and several keys may be equal then: expected the key itself, \
             for example v.k = CAST(s.x AS TEXT)",
        ),
        ("SELECT s.id, v.n FROM s LEFT JOIN by_key v ON CAST(CAST(v.k AS DATE) AS TEXT) = s.k", "the key v.k is compared as DATE"),
        ("SELECT s.id, o.k FROM s LEFT JOIN other o ON o.k = s.k", "a sink puts out the events of one"),
        ("SELECT k AS id, n FROM by_key", "a sink begins with a stream"),
        ("SELECT id, count(*) AS n FROM s GROUP BY id", "a sink puts out one record for each event"),
        ("SELECT count(*) FROM s", "expected the aggregate in a view, which the sink joins by its keys"),
        ("SELECT id FROM s GROUP BY id", "an aggregate (or GROUP BY) is over many"),
        ("SELECT id FROM (SELECT max(id) AS id FROM s) m", "an aggregate (or GROUP BY) is over many"),
        ("SELECT id FROM s WHERE count(*) > 3", "an aggregate (or GROUP BY) is over many"),
        ("SELECT id, sum(x) OVER () AS n FROM s", "a window function (OVER) is not supported in a sink"),
        ("SELECT id, v.n FROM s LEFT JOIN (SELECT k, n FROM by_key) v ON v.k = s.k", "a subquery is not supported in the FROM of a sink"),
        ("SELECT id FROM s LEFT JOIN by_key v ON v.k = s.k AND v.k <> 'it''s'", "is joined on (v.k <> 'it''s'): expected its keys alone"),
        ("SELECT id FROM s LEFT JOIN by_two v ON v.k = s.k AND v.x + 3 = s.x", "(v.x + 3)"),
        ("SELECT id FROM bare", "\"bare\" is a view without an aggregate, which has no rows of its own: expected a stream after FROM"),
        (
            "SELECT id FROM ss",
            "there is no stream or view \"ss\": did you mean \"s\"? expected one of s, other, by_key, by_two, everything",
        ),
        ("SELECT id FROM s ORDER BY id", "is not supported in a sink"),
        ("SELECT DISTINCT id FROM s", "is not supported in a sink"),
        ("SELECT id, now() AS at FROM s", "now() answers differently"),
        ("SELECT id, x + 1 FROM s", "the column \"s.x + 1\" has no alias"),
        ("SELECT id, k || 'a', ts - INTERVAL '1 day' FROM s", "the column \"s.k || 'a'\" has no alias"),
        ("SELECT id, k AS _k FROM s", "is reserved"),
        ("SELECT id, nothing FROM s", "1:64"),
        ("SELECT k FROM s", "key names the column 'id'"),
        ("SELECT id FROM s WHERE x IN (SELECT n FROM by_key)", "a subquery is not supported"),
    ] {
        let found = planned(bad).await.map(drop).unwrap_err();
        assert!(found.contains(message), "{bad}: {found}");
    }
}
