//! Which rows satisfy an alert's condition, and when that changes.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use definitions::{Definitions, parse};
use proptest::prelude::*;

use super::*;
use crate::parameters::Parameters;
use crate::plan::{Planned, Planner};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (event_time = 'ts', key = 'k')";
const VIEW: &str = "CREATE VIEW v WITH (windows = '1h, 1d') AS SELECT k, count(*) AS n, \
    max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen, \
    as_of() - max(ts) FILTER (WHERE within(ts, 'all')) AS silence FROM s GROUP BY k";

const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;

async fn planned(select: &str) -> Result<AlertPlan, String> {
    planned_with(select, "= 0").await
}

/// The parameter `p` has this value.
async fn planned_with(select: &str, value: &str) -> Result<AlertPlan, String> {
    planned_over(VIEW, select, value).await
}

async fn planned_over(view: &str, select: &str, value: &str) -> Result<AlertPlan, String> {
    let parameters = Parameters::initial(&[parse::parse_parameter(&format!("CREATE PARAMETER p {value}")).unwrap()]);
    let alert = parse::parse_alert(&format!("CREATE ALERT a WITH (topic = 'alerts', repeat = '1h', resolve = true) AS {select}"));
    let alert = alert.map_err(|error| error.to_string())?;
    let view = parse::parse_view(view).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    let functions = Functions::standard();
    let Planned::Stateful(plan) = Planner::new(&project, functions.clone()).plan(&view).await.unwrap() else {
        panic!("the view is planned")
    };
    let (streams, views) = ([Arc::new(project.streams[0].clone())], [plan]);
    let staging = BTreeSet::from(["bare".into()]);
    let sources = Sources { streams: &streams, views: &views, staging: &staging, parameters: &parameters, is_strict: true };
    let planned = AlertPlan::new(&alert, &functions, sources).await;
    planned.map_err(|found| found.0.iter().map(|one| format!("{}:{} {}", one.line, one.column, one.message)).collect::<Vec<_>>().join("\n"))
}

/// Rows of the view, of the columns that the alert wants.
fn rows(plan: &AlertPlan, of: &[(i64, Option<Micros>)]) -> RecordBatch {
    let columns = plan.wanted.iter().map(|column| {
        let field = plan.view.columns[*column].field.clone();
        let values: ArrayRef = match field.name().as_str() {
            "k" => Arc::new(StringArray::from_iter_values((0..of.len()).map(|row| format!("k{row}")))),
            "last_seen" => Arc::new(TimestampMicrosecondArray::from_iter(of.iter().map(|(_, seen)| *seen)).with_timezone("UTC")),
            _ => Arc::new(Int64Array::from_iter_values(of.iter().map(|(n, _)| *n))),
        };
        (field.as_ref().clone().with_nullable(true), values)
    });
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = columns.unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn held(plan: &AlertPlan, rows: &RecordBatch, t: Micros) -> Vec<usize> {
    let holds = plan.held(rows, &vec![t; rows.num_rows()]).unwrap().holds;
    (0..holds.len()).filter(|row| holds[*row]).collect()
}

#[tokio::test]
async fn a_star_has_no_column_of_the_system() {
    let plan = planned("SELECT * FROM v WHERE n_1h > 1").await.unwrap();
    let names: Vec<&str> = plan.output.fields().iter().map(|field| field.name().as_str()).collect();
    assert!(names.contains(&"n_1h") && !names.contains(&AS_OF), "{names:?}");
}

#[tokio::test]
async fn a_name_of_the_system_is_no_alias_of_another_value() {
    planned("SELECT k, as_of() AS _as_of FROM v WHERE n_1h > 1").await.unwrap();
    for (column, name) in [("n_1h AS _position", "_position"), ("last_seen AS _as_of", "_as_of")] {
        let found = planned(&format!("SELECT k, {column} FROM v WHERE n_1h > 1")).await.map(drop).unwrap_err();
        assert!(found.contains(&format!("the column '{name}' is an alias of another value")), "{found}");
    }
}

#[tokio::test]
async fn a_silence_can_be_as_long_as_a_parameter_says() {
    let select = "SELECT k, last_seen FROM v WHERE as_of() - last_seen > param('p')";
    for (value, begins) in [("= INTERVAL '30 minutes'", HOUR / 2), ("INTERVAL = '5 seconds'", 5 * SECOND)] {
        let plan = planned_with(select, value).await.unwrap();
        assert_eq!(plan.parameters.keys().map(|name| &**name).collect::<Vec<_>>(), ["p"]);
        let rows = rows(&plan, &[(1, Some(HOUR))]);
        assert_eq!(plan.next_change(&rows, &[HOUR]).unwrap(), [Some(HOUR + begins + 1)], "{value}");
    }
    let before = "SELECT k FROM v WHERE last_seen < as_of() - param('p')";
    planned_with(before, "= INTERVAL '1 day'").await.unwrap();
    let found = planned_with(before, "= INTERVAL '1 month'").await.map(drop).unwrap_err();
    assert!(found.contains("becomes true cannot be computed"), "{found}");
    let plan = planned_with("SELECT k FROM v WHERE n_1h >= param('p')", "= 2").await.unwrap();
    assert_eq!(held(&plan, &rows(&plan, &[(1, None), (2, None)]), HOUR), [1]);
}

#[tokio::test]
async fn silence_begins_a_microsecond_after_its_length() {
    let plan = planned("SELECT k, last_seen FROM v WHERE as_of() - last_seen > INTERVAL '30 minutes'").await.unwrap();
    let rows = rows(&plan, &[(1, Some(0)), (1, Some(HOUR)), (1, None)]);
    let next = plan.next_change(&rows, &vec![HOUR; rows.num_rows()]).unwrap();
    assert_eq!(next, [None, Some(HOUR + HOUR / 2 + 1), None]);
    assert_eq!(held(&plan, &rows, HOUR), [0]);
    assert_eq!(held(&plan, &rows, HOUR + HOUR / 2), [0]);
    assert_eq!(held(&plan, &rows, HOUR + HOUR / 2 + 1), [0, 1]);
}

#[tokio::test]
async fn a_length_without_a_unit_is_refused_at_its_comparison() {
    let refused = planned("SELECT k FROM v\nWHERE n_1h > 2\n  AND as_of() - last_seen > 30").await.map(drop).unwrap_err();
    let message = "cannot infer common argument type for comparison operation INTERVAL > BIGINT: expected an interval, such as \
                   INTERVAL '30 minutes'";
    assert_eq!(refused, format!("3:7 alert \"a\": {message}"));
}

#[tokio::test]
async fn a_silence_of_a_day_is_compared_as_a_length() {
    let plan = planned("SELECT k FROM v WHERE as_of() - last_seen > INTERVAL '1 day'").await.unwrap();
    let rows = rows(&plan, &[(1, Some(0))]);
    assert_eq!(plan.next_change(&rows, &vec![HOUR; rows.num_rows()]).unwrap(), [Some(24 * HOUR + 1)]);
}

#[tokio::test]
async fn a_row_may_change_where_an_edge_of_a_window_moves() {
    let plan = planned("SELECT k, n_1h FROM v WHERE n_1h >= 10").await.unwrap();
    assert_eq!((plan.comparisons.len(), plan.wanted.clone()), (0, vec![0, 1]));
    // The hop of an hour is a minute.
    assert_eq!(plan.next_edge(10 * HOUR + 5 * SECOND), Some(10 * HOUR + 60 * SECOND));
    let of_all_time = planned("SELECT k FROM v WHERE last_seen IS NOT NULL").await.unwrap();
    assert_eq!(of_all_time.next_edge(10 * HOUR), None);
}

#[tokio::test]
async fn a_row_of_a_linked_view_depends_on_the_ranges_of_both_sides() {
    const JOIN: &str = "FROM s a JOIN s b ON a.x = b.x WHERE a.k <> b.k GROUP BY a.k";
    let windows = async |columns: &str| {
        let view = format!("CREATE VIEW v WITH (windows = '1h') AS SELECT a.k, {columns} {JOIN}");
        let plan = planned_over(&view, "SELECT k, n_1h FROM v WHERE n_1h >= 2", "= 0").await.unwrap();
        // The hop of an hour is a minute.
        assert_eq!(plan.next_edge(10 * HOUR + 5 * SECOND), Some(10 * HOUR + 60 * SECOND));
        plan.ranges().iter().map(|range| range.window.map(|window| window.as_secs() / 3_600)).collect::<Vec<_>>()
    };
    for aggregate in ["count(DISTINCT b.k)", "count(*)"] {
        assert_eq!(windows(&format!("{aggregate} AS n")).await, [Some(1)]);
        // The longest range of each side decides which keys have a row.
        let wide = format!("{aggregate} AS n, count(DISTINCT b.k) FILTER (WHERE within(a.ts, '7d') AND within(b.ts, '30d')) AS wide");
        assert_eq!(windows(&wide).await, [Some(1), Some(7 * 24), Some(30 * 24)]);
    }
}

#[tokio::test]
async fn a_row_is_settled_once_its_values_of_all_time_are_what_they_are() {
    const COLUMNS: &str = "count(*) AS n, min(ts) FILTER (WHERE within(ts, 'all')) AS first_seen, \
        max(ts) FILTER (WHERE x = 1 AND within(ts, 'all')) AS last_seen, count(x) FILTER (WHERE within(ts, 'all')) AS total";
    let plan = async |columns: &str, condition: &str| {
        let view = format!("CREATE VIEW v WITH (windows = '1h') AS SELECT k, {columns} FROM s GROUP BY k");
        planned_over(&view, &format!("SELECT k FROM v WHERE {condition}"), "= 0").await.unwrap()
    };
    let values_since = async |condition: &str| {
        let plan = plan(COLUMNS, condition).await;
        plan.values_since(&rows(&plan, &[(1, Some(HOUR)), (1, None)]))
    };
    let (always, since) = ([Some(Micros::MIN); 2], [Some(HOUR), Some(Micros::MIN)]);
    let silent = "as_of() - last_seen > INTERVAL '1 minute'";
    // By the time itself, which is that of some events.
    assert_eq!(values_since(silent).await, since);
    assert_eq!(values_since(&format!("{silent} AND n_1h = 0")).await, since);
    // A count of all time came to be at the last event, of whichever kind.
    assert_eq!(values_since(&format!("{silent} AND total > 5")).await, [None, None]);
    assert_eq!(values_since("total > 5").await, [None, None]);
    let plan = plan(&format!("{COLUMNS}, max(ts) FILTER (WHERE within(ts, 'all')) AS last_event"), "total > 5").await;
    let wanted: Vec<&str> = plan.wanted.iter().map(|column| plan.view.columns[*column].field.name().as_str()).collect();
    assert_eq!(wanted, ["k", "total", "last_event"]);
    // A count in a window ends with its time.
    assert_eq!(values_since("n_1h >= 10").await, always);
    assert_eq!(values_since("n_1h >= 10 AND total > 5").await, always);
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused() {
    for (select, expected) in [
        ("SELECT k FROM v", "it has no WHERE"),
        ("SELECT k, count(*) AS n FROM v WHERE n_1h > 1 GROUP BY k", "an alert looks at one row of its view at a time"),
        ("SELECT count(*) AS n FROM v", "expected the aggregate in the view"),
        ("SELECT k FROM v WHERE count(*) > 1", "expected the aggregate in the view"),
        ("SELECT k FROM s WHERE x > 1", "an alert reads the rows of a view, and \"s\" is a stream"),
        ("SELECT count(*) AS n FROM s", "an alert reads the rows of a view, and \"s\" is a stream"),
        ("SELECT k FROM bare WHERE x > 1", "\"bare\" is a view without an aggregate, which has no rows of its own"),
        ("SELECT a.k FROM v a JOIN v b ON a.k = b.k WHERE a.n_1h > 1", "is not supported in an alert"),
        ("SELECT k FROM w WHERE n > 1", "there is no stream or view \"w\": did you mean \"v\"? expected one of v"),
        ("SELECT k FROM v WHERE k = \"abc\"", "there is no column \"abc\": for a text, write 'abc'; expected one of k"),
        ("SELECT k FROM v WHERE random() > 0.5", "random() answers differently"),
        ("SELECT k, to_char(last_seen, 'YYYY') AS y FROM v WHERE n_1h > 1", "does not read PostgreSQL's pattern 'YYYY': expected '%Y'"),
        (
            "SELECT k FROM v WHERE date_part('hour', as_of()) = 3",
            "the time at which (date_part('hour', as_of()) = 3) becomes true cannot be computed",
        ),
        ("SELECT k FROM v WHERE as_of() - INTERVAL '1 month' > last_seen", "becomes true cannot be computed"),
        ("SELECT k FROM v WHERE silence > INTERVAL '1 hour'", "computed from as_of() in the view"),
        ("SELECT k, n_1h + 1 FROM v WHERE n_1h > 1", "the column \"v.n_1h + 1\" has no alias"),
    ] {
        let found = planned(select).await.expect_err(select);
        assert!(found.contains(expected), "{select}: {found}");
    }
}

#[tokio::test]
async fn a_condition_that_no_row_satisfies_is_known() {
    const COLUMNS: &str = "count(*) AS n, count(*) FILTER (WHERE x = 1) AS ones, max(ts) AS seen, max(x) AS most, \
        max(ts) FILTER (WHERE x = 1 AND within(ts, '1h')) AS seen_one";
    let plan = async |condition: &str, group: &str| {
        let (keys, selected) = if group.is_empty() { ("", "n_1h") } else { ("k, ", "k") };
        let view = format!("CREATE VIEW v WITH (windows = '1m, 1h') AS SELECT {keys}{COLUMNS} FROM s {group}");
        planned_over(&view, &format!("SELECT {selected} FROM v WHERE {condition}"), "= 0").await.unwrap().why_never
    };
    for never in [
        "n_1h = 0",
        "n_1h < 1 AND ones_1h > 5",
        "0 >= n_1h",
        "as_of() - seen_1h > INTERVAL '2 hours'",
        "as_of() - seen_1h >= INTERVAL '61 minutes'",
        "seen_1h < as_of() - INTERVAL '2 hours'",
        "seen_1h + INTERVAL '1 day' <= as_of()",
        "as_of() - seen_one > INTERVAL '2 hours' AND n_1h > 3",
    ] {
        assert!(plan(never, "GROUP BY k").await.is_some(), "{never}");
    }
    for begins in [
        "n_1m = 0",
        "n_1h = 1",
        "n_1h <= 1",
        "n_1h >= 0",
        "ones_1h = 0",
        "most_1h = 0",
        "n_1h = 0 OR ones_1h > 5",
        "as_of() - seen_1h > INTERVAL '59 minutes'",
        "as_of() - seen_1h > INTERVAL '60 minutes'",
        "as_of() - seen_1h < INTERVAL '2 hours'",
        "seen_1h < as_of() + INTERVAL '2 hours'",
    ] {
        assert_eq!(plan(begins, "GROUP BY k").await, None, "{begins}");
    }
    assert_eq!(plan("n_1h = 0", "").await, None, "a view without GROUP BY always has its row");
    let found = plan("n_1h = 0", "GROUP BY k").await.unwrap();
    assert_eq!(found, "a key has a row only while n_1h, which counts all events of the longest window, is at least 1");
    let found = plan("as_of() - seen_1h > INTERVAL '2 hours'", "GROUP BY k").await.unwrap();
    assert_eq!(found, "seen_1h is the time of an event that is less than 1h 1m old");
    let of_all_time = planned("SELECT k FROM v WHERE as_of() - last_seen > INTERVAL '900 days'").await.unwrap();
    assert_eq!(of_all_time.why_never, None);
}

const CONDITIONS: [&str; 11] = [
    "as_of() - last_seen > INTERVAL '30 minutes'",
    "last_seen < as_of() - INTERVAL '90 seconds'",
    "last_seen + INTERVAL '1 day' <= as_of() AND n_1h > 3",
    "as_of() - last_seen BETWEEN INTERVAL '10 minutes' AND INTERVAL '20 minutes'",
    "NOT (as_of() - last_seen > INTERVAL '5 minutes') OR n_1h = 2",
    "date_trunc('hour', as_of()) > last_seen",
    "as_of() = last_seen + INTERVAL '7 seconds'",
    "date_part('epoch', as_of() - last_seen) > 1800",
    "CAST(date_part('epoch', as_of() - last_seen) AS BIGINT) > 1800",
    "floor(date_part('epoch', as_of())) - ceil(date_part('epoch', last_seen)) > 1800",
    "(as_of() - last_seen > INTERVAL '1 minute') IS NOT TRUE OR as_of() > TIMESTAMPTZ '1970-01-01T05:00:00Z'",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Between `t` and the next change, the same row satisfies the condition at every time or at none; and at the next
    /// change a comparison has changed, so that no timer is armed in vain for the condition alone.
    #[test]
    fn nothing_changes_before_the_next_change(
        which in 0..CONDITIONS.len(),
        of in prop::collection::vec((0i64..5, prop::option::of(0..8 * HOUR)), 1..60),
        t in 0..8 * HOUR,
        shares in prop::collection::vec(0.0f64..1.0, 6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let plan = runtime.block_on(planned(&format!("SELECT k, n_1h, last_seen FROM v WHERE {}", CONDITIONS[which]))).unwrap();
        let rows = rows(&plan, &of);
        let next = plan.next_change(&rows, &vec![t; of.len()]).unwrap();
        let at_t = plan.held(&rows, &vec![t; of.len()]).unwrap();
        prop_assert!(at_t.failed.is_empty());
        for (row, next) in next.into_iter().enumerate() {
            let one = rows.slice(row, 1);
            let holds = at_t.holds[row];
            let end = next.unwrap_or(t + 40 * HOUR);
            prop_assert!(end > t);
            let mut times: Vec<Micros> = shares.iter().map(|share| t + ((end - 1 - t) as f64 * share) as Micros).collect();
            times.push(end - 1);
            for time in times {
                prop_assert_eq!(plan.held(&one, &[time]).unwrap().holds[0], holds, "row {} at {} of {}..{}", row, time, t, end);
            }
            if let Some(next) = next {
                let outcomes = |time| plan.comparisons.iter().map(|one_of| plan.outcomes(one_of, &one, &[time]).unwrap()).collect::<Vec<_>>();
                prop_assert_ne!(outcomes(next - 1), outcomes(next));
            }
        }
    }
}
