use std::sync::Arc;

use super::{EdgeKind, EndsIndex, LinkPlan, PairRange};
use crate::functions::Functions;
use crate::plan::explain::explain;
use crate::plan::{Planned, Planner, ViewPlan};
use definitions::{Definitions, parse};
use types::tiles::{Level, TimeRange};

const STREAMS: [&str; 3] = [
    "CREATE STREAM created (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT, ip TEXT, age BIGINT) \
     WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')",
    "CREATE STREAM login (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT, amount BIGINT, ok BOOLEAN) \
     WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')",
    "CREATE STREAM third (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, age TEXT, score DOUBLE, born DATE) \
     WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')",
];

async fn plan(options: &str, select: &str) -> Result<Arc<ViewPlan>, String> {
    let streams = STREAMS.iter().map(|sql| parse::parse_stream(sql).unwrap()).collect();
    let view = parse::parse_view(&format!("CREATE VIEW v {options} AS {select}")).map_err(|error| error.to_string())?;
    let project = Definitions { streams, views: vec![view.clone()], ..Definitions::default() };
    match Planner::new(&project, Functions::standard()).plan(&view).await {
        Ok(Planned::Stateful(plan)) => Ok(plan),
        Ok(Planned::Staging) => Err("inlined".into()),
        Err(found) => Err(found.to_string()),
    }
}

async fn linked(options: &str, select: &str) -> (Arc<ViewPlan>, Arc<LinkPlan>) {
    let plan = plan(options, select).await.unwrap();
    let links = plan.links().cloned().unwrap();
    (plan, links)
}

fn names(plan: &ViewPlan) -> Vec<&str> {
    plan.keys.iter().map(|key| key.name().as_str()).collect()
}

#[tokio::test]
async fn a_group_key_keeps_its_name_whatever_the_edges_call_their_own() {
    let (plan, links) = linked(
        "",
        "SELECT c.device AS far_side, c.ip AS via_user_id, count(DISTINCT l.device) AS linked \
         FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device, c.ip",
    )
    .await;
    assert_eq!(links.keys.iter().map(|key| key.name().as_str()).collect::<Vec<_>>(), ["far_side", "via_user_id"]);
    assert_eq!(names(&plan), ["far_side_", "far_side", "via_user_id", "via_user_id_", "far_device"]);
}

#[tokio::test]
async fn different_end_points_need_only_when_an_edge_was_last_seen() {
    let (plan, links) = linked(
        "WITH (windows = '7d, 30d')",
        "SELECT c.device, count(DISTINCT l.device) FILTER (WHERE l.device <> c.device) AS linked, count(DISTINCT c.user_id) AS users \
         FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device",
    )
    .await;
    assert_eq!(links.kind, EdgeKind::Liveness);
    assert_eq!(names(&plan), ["far_side", "device", "via_user_id", "far_device"]);
    assert_eq!(plan.ranges, [TimeRange::ALL]);
    assert_eq!(plan.levels, [Level::All]);
    let columns: Vec<&str> = plan.columns.iter().map(|column| column.field.name().as_str()).collect();
    assert_eq!(columns, ["device", "linked_7d", "linked_30d", "users_7d", "users_30d"]);
    assert_eq!(links.keys.iter().map(|key| key.name().as_str()).collect::<Vec<_>>(), ["device"]);
}

#[tokio::test]
async fn counts_and_sums_keep_tiles() {
    let (plan, links) = linked(
        "WITH (windows = '1h')",
        "SELECT l.device, sum(c.age) AS ages, count(*) AS pairs FROM created c JOIN login l ON c.user_id = l.user_id WHERE l.ok GROUP BY l.device",
    )
    .await;
    assert_eq!(links.kind, EdgeKind::Full);
    // The group key is a column of login, so login is the near side.
    assert_eq!(names(&plan), ["far_side", "device", "via_user_id"]);
    assert_eq!(plan.finest(), Level::Minute1);
}

/// The cast of the one is not shown, and both round.
#[tokio::test]
async fn sums_that_differ_in_a_cast_alone_have_states_of_their_own() {
    let joined = "third f JOIN login l ON f.user_id = l.user_id";
    let select = format!("SELECT l.device, sum(CAST(f.score AS BIGINT)) AS a, sum(round(f.score)) AS b FROM {joined} GROUP BY l.device");
    let (_, links) = linked("", &select).await;
    assert_eq!(links.kind, EdgeKind::Full);
}

#[tokio::test]
async fn an_upper_edge_needs_tiles() {
    let select = "SELECT c.device, count(DISTINCT l.device) FILTER (WHERE within(l.ts, '30d', '1d')) AS before \
                  FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device";
    assert_eq!(linked("", select).await.1.kind, EdgeKind::Full);
}

#[tokio::test]
async fn each_side_has_its_own_range_and_a_row_needs_the_longest_of_both() {
    let (_, links) = linked(
        "WITH (windows = '7d')",
        "SELECT c.device, count(DISTINCT l.device) AS devices, \
         count(DISTINCT l.device) FILTER (WHERE within(c.ts, '365d') AND within(l.ts, '1d')) AS old_accounts \
         FROM created c, login l WHERE c.user_id = l.user_id AND c.ip IS NOT NULL GROUP BY c.device",
    )
    .await;
    let range = |near, far| PairRange { near: trailing(near), far: trailing(far) };
    assert_eq!(links.ranges, [range(7, 7), range(365, 1), range(365, 7)]);
    assert_eq!(links.existence.0, 2);
}

#[tokio::test]
async fn events_of_each_side_count_for_as_long_as_its_own_windows() {
    let hours = |hours: u64| Some(std::time::Duration::from_secs(hours * 3_600));
    let (plan, _) = linked(
        "WITH (windows = '7d')",
        "SELECT c.device, count(DISTINCT l.device) AS devices, \
         count(DISTINCT l.device) FILTER (WHERE within(c.ts, '365d') AND within(l.ts, '30d')) AS old_accounts \
         FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device",
    )
    .await;
    assert_eq!((plan.counts_for("created"), plan.counts_for("login")), (hours(366 * 24), hours(30 * 24 + 1)));
    let (plan, _) = linked(
        "",
        "SELECT c.device, count(*) FILTER (WHERE within(c.ts, '365d') AND within(l.ts, '30d')) AS logins \
         FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device",
    )
    .await;
    assert_eq!((plan.counts_for("created"), plan.counts_for("login")), (hours(366 * 24), hours(366 * 24)), "tiles are kept for both");
    let (plan, _) = linked(
        "",
        "SELECT a.ip, count(DISTINCT b.ip) FILTER (WHERE within(a.ts, '7d') AND within(b.ts, '1d')) AS ips \
         FROM created a JOIN created b ON a.user_id = b.user_id GROUP BY a.ip",
    )
    .await;
    assert_eq!(plan.counts_for("created"), hours(7 * 24 + 1), "one stream on both sides counts for the longer one");
    let (plan, _) = linked(
        "",
        "SELECT c.device, count(DISTINCT l.device) FILTER (WHERE within(c.ts, '7d')) AS devices \
         FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device",
    )
    .await;
    assert_eq!((plan.counts_for("created"), plan.counts_for("login")), (hours(7 * 24 + 1), None));
}

fn trailing(days: u64) -> TimeRange {
    TimeRange::trailing(std::time::Duration::from_secs(days * 86_400), None)
}

#[tokio::test]
async fn a_stream_joins_with_itself_and_over_several_keys() {
    let (plan, links) = linked(
        "",
        "SELECT a.ip, a.device, count(DISTINCT b.ip) AS ips, array_agg(DISTINCT b.age ORDER BY b.age) AS ages \
         FROM created a JOIN created b ON a.user_id = b.user_id AND a.device = b.device WHERE a.ip <> b.ip GROUP BY a.ip, a.device",
    )
    .await;
    assert_eq!(plan.streams.len(), 1);
    assert_eq!(names(&plan), ["far_side", "ip", "device", "via_user_id", "via_device", "far_ip", "far_age"]);
    assert_eq!(links.apart, [EndsIndex(0)]);
}

#[tokio::test]
async fn max_degree_is_the_views_and_of_linked_views_alone() {
    let join = "SELECT c.device, count(*) AS n FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device";
    assert_eq!(linked("", join).await.1.max_degree, super::MAX_DEGREE);
    assert_eq!(linked("WITH (max_degree = 12)", join).await.1.max_degree, 12);
    for wrong in ["0", "'many'", "-1", "1.5"] {
        let error = plan(&format!("WITH (max_degree = {wrong})"), join).await.unwrap_err();
        assert!(error.contains("max_degree") || error.contains("option"), "{wrong}: {error}");
    }
    let error = plan("WITH (max_degree = 12)", "SELECT device, count(*) AS n FROM login GROUP BY device").await.unwrap_err();
    assert!(error.contains("no max_degree"), "{error}");
}

#[tokio::test]
async fn what_is_not_exact_is_refused_with_the_nearest_form() {
    let from = "FROM created c JOIN login l ON c.user_id = l.user_id";
    let refused = [
        ("SELECT c.device, count(*) AS n FROM created c NATURAL JOIN login l GROUP BY c.device".into(), "every column of the same name"),
        (format!("SELECT c.device, count(*) AS n {} GROUP BY c.device", from.replace("JOIN", "LEFT JOIN")), "an outer (or other than inner) JOIN"),
        ("SELECT c.device, count(*) AS n FROM created c JOIN login l ON c.user_id = l.user_id JOIN third t ON t.user_id = l.user_id GROUP BY c.device".into(), "three streams"),
        ("SELECT c.device, count(*) AS n FROM created c CROSS JOIN login l GROUP BY c.device".into(), "joined by no equality"),
        (format!("SELECT c.device, count(*) AS n {from} AND c.ts < l.ts GROUP BY c.device"), "compares the two sides"),
        (format!("SELECT c.device, count(*) FILTER (WHERE l.ts > c.ts) AS n {from} GROUP BY c.device"), "compares the two sides"),
        (format!("SELECT c.device, l.device AS other, count(*) AS n {from} GROUP BY c.device, l.device"), "both sides of the JOIN"),
        (format!("SELECT count(*) AS n {from}"), "without GROUP BY"),
        (format!("SELECT c.device, sum(c.age) AS n {from} GROUP BY c.device"), "the side of the group keys"),
        (format!("SELECT c.device, median(l.amount) AS n {from} GROUP BY c.device"), "median() over a JOIN"),
        (format!("SELECT c.device, sum(l.amount + c.age) AS n {from} GROUP BY c.device"), "reads both sides"),
        (format!("SELECT c.device, count(*) FILTER (WHERE within(l.ts, '1d') AND within(l.ts, '2d')) AS n {from} GROUP BY c.device"), "two calls of within() for one side"),
        (format!("SELECT device, count(*) AS n FROM (SELECT c.device {from}) x GROUP BY device"), "a JOIN below the view's own FROM"),
        ("SELECT device, count(*) AS n FROM (SELECT c.device FROM created c, login l) x GROUP BY device".into(), "several streams, which is a JOIN"),
        ("SELECT c.device, count(*) AS n FROM created c, login l, third t WHERE c.user_id = l.user_id AND c.user_id = t.user_id GROUP BY c.device".into(), "three streams"),
    ];
    for (select, reason) in refused {
        let error = plan("", &select).await.unwrap_err();
        assert!(error.contains(reason), "{select}\n{error}");
        assert!(error.contains("expected") || error.contains("help"), "{select}\n{error}");
    }
}

#[tokio::test]
async fn join_keys_of_different_types_are_refused_with_the_cast_to_write() {
    let refused = [
        (
            "created c JOIN login l ON c.age = l.user_id",
            "c.age and l.user_id are of different types, BIGINT and TEXT",
            "CAST(c.age AS TEXT) = l.user_id",
        ),
        ("created c JOIN login l ON c.user_id = l.amount", "TEXT and BIGINT", "c.user_id = CAST(l.amount AS TEXT)"),
        ("created c, login l WHERE c.ip = 'x' AND l.amount = c.user_id", "BIGINT and TEXT", "l.amount AS TEXT) = c.user_id"),
        ("created c JOIN third l USING (age)", "BIGINT and TEXT", "CAST(c.age AS TEXT) = l.age"),
        ("created c JOIN third l ON c.user_id = l.user_id AND c.age = l.score", "BIGINT and DOUBLE", "c.age = CAST(l.score AS BIGINT)"),
        ("created c JOIN third l ON c.ts = l.born", "TIMESTAMPTZ and DATE", "c.ts = CAST(l.born AS TIMESTAMPTZ)"),
    ];
    for (from, types, cast) in refused {
        let error = plan("", &format!("SELECT c.device, count(*) AS n FROM {from} GROUP BY c.device")).await.unwrap_err();
        assert!(error.contains(types) && error.contains(cast), "{from}\n{error}");
    }
    let exact = [
        "created c JOIN login l ON CAST(c.age AS TEXT) = l.user_id",
        "created c JOIN login l ON c.age = CAST(l.amount AS INT)",
        "created c JOIN login l ON c.age = CAST(l.amount AS DECIMAL(18,2))",
        "created c JOIN third l ON c.ts = CAST(l.born AS TIMESTAMPTZ)",
    ];
    for from in exact {
        let planned = plan("", &format!("SELECT c.device, count(*) AS n FROM {from} GROUP BY c.device")).await;
        assert!(planned.is_ok(), "{from}\n{planned:?}");
    }
}

#[tokio::test]
async fn explain_names_the_table_of_each_column_and_walks_the_edges_under_the_same_names() {
    let (plan, _) = linked(
        "WITH (windows = '7d')",
        "SELECT c.device, count(DISTINCT l.device) FILTER (WHERE l.device <> c.device AND l.ok AND c.age > 3) AS others \
         FROM created c JOIN login l ON c.user_id = l.user_id WHERE l.amount > 0 GROUP BY c.device",
    )
    .await;
    let explained = explain(&plan);
    let expected = "SELECT c.device,\n       \
        count(DISTINCT l.device) FILTER (WHERE (((c.age > 3) AND l.ok) AND (l.device <> c.device))) AS others_7d \
        /* c.s1 >= floor(t - 7d, '1h') AND l.s1 >= floor(t - 7d, '1h') */\n\
        FROM v__edges c JOIN v__edges l USING (via_user_id)\n\
        WHERE NOT c.far_side AND l.far_side AND c.s1 >= floor(t - 7d, '1h') AND l.s1 >= floor(t - 7d, '1h')\n\
        GROUP BY c.device";
    assert_eq!(explained.answer_sql, expected);
    let states: Vec<&str> = explained.states.iter().map(|state| state.aggregate.as_str()).collect();
    let expected = ["count(*)", "max(event_time)", "max(event_time) FILTER (WHERE (c.age > 3))", "max(event_time) FILTER (WHERE l.ok)"];
    assert_eq!(states, expected);
}
