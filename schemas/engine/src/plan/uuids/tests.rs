use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;

use super::TypedTextColumns;
use crate::functions::Functions;
use crate::plan::{Planned, Planner, ViewPlan, planning_session};
use definitions::{Definitions, parse};

const ONE: &str = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
const OTHER: &str = "ffffffff-4e5f-6789-abcd-ef0123456789";

const STREAM: &str = "CREATE STREAM s (id UUID NOT NULL, ts TIMESTAMPTZ NOT NULL, name TEXT, n BIGINT) \
    WITH (event_time = 'ts', id = 'id', dedup_within = '1m')";

/// Table s: a row for each of the UUIDs, with its upper case as `name`.
fn session() -> SessionContext {
    let session = planning_session(&Functions::standard()).unwrap();
    let names: Vec<String> = [ONE, OTHER].iter().map(|uuid| uuid.to_uppercase()).collect();
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(StringArray::from(vec![ONE, OTHER]))),
        ("name", Arc::new(StringArray::from(names))),
        ("n", Arc::new(Int64Array::from(vec![1, 2]))),
    ];
    session.register_batch("s", RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    TypedTextColumns::of_streams([&parse::parse_stream(STREAM).unwrap()]).register(&session);
    session
}

/// The sum of `n` over the rows that a query's FROM and WHERE leave, 0 for none.
async fn rows(rest: &str) -> i64 {
    let sql = format!("SELECT coalesce(sum(n), 0) AS n {rest}");
    let frame = session().sql(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches = frame.collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

#[tokio::test]
async fn a_uuid_is_equal_to_each_of_its_spellings() {
    let in_fours = "0a1b-2c3d-4e5f-6789-abcd-ef01-2345-6789";
    let spellings =
        [ONE.to_owned(), ONE.to_uppercase(), ONE.replace('-', ""), format!("{{{ONE}}}"), format!("urn:uuid:{ONE}"), in_fours.to_owned()];
    for spelling in spellings {
        for (condition, expected) in [
            ("id = $", 1),
            ("$ = id", 1),
            ("id <> $", 2),
            ("id IN ($, 'x')", 1),
            ("id NOT IN ('x', $)", 2),
            ("id = ANY (ARRAY['x', $])", 1),
            ("id IS NOT DISTINCT FROM $", 1),
            ("id BETWEEN $ AND $", 1),
            ("id > $", 2),
            ("CASE id WHEN $ THEN true ELSE false END", 1),
            ("NOT (id = $ OR n = 7)", 2),
            ("s.id = CAST($ AS TEXT)", 1),
        ] {
            let condition = condition.replace('$', &format!("'{spelling}'"));
            assert_eq!(rows(&format!("FROM s WHERE {condition}")).await, expected, "{condition}");
        }
    }
}

#[tokio::test]
async fn a_uuid_is_one_wherever_the_column_comes_out() {
    let spelling = ONE.to_uppercase();
    for from in [
        format!("FROM s AS t WHERE t.id = '{spelling}'"),
        format!("FROM (SELECT id AS who, n FROM s ORDER BY n LIMIT 9) WHERE who = '{spelling}'"),
        format!("FROM (SELECT id, sum(n) AS n FROM s GROUP BY id HAVING id = '{spelling}')"),
        format!("FROM (SELECT DISTINCT id, n FROM s) WHERE id = '{spelling}'"),
        format!("FROM (SELECT id, n FROM s UNION ALL SELECT id, n FROM s WHERE false) WHERE id = '{spelling}'"),
        format!("FROM s JOIN (SELECT id AS other FROM s) ON id = other AND other = '{spelling}'"),
        format!("FROM s WHERE EXISTS (SELECT 1 FROM s AS t WHERE t.n = s.n AND t.id = '{spelling}')"),
        format!("FROM (SELECT id, n, row_number() OVER (ORDER BY n) AS place FROM s) WHERE id = '{spelling}'"),
    ] {
        assert_eq!(rows(&from).await, 1, "{from}");
    }
    let batches = session().sql(&format!("SELECT id = '{spelling}' FROM s")).await.unwrap().collect().await.unwrap();
    assert_eq!(batches[0].schema().field(0).name(), &format!("s.id = Utf8(\"{spelling}\")"), "columns keep their names");
}

#[tokio::test]
async fn a_text_is_not_a_uuid() {
    assert_eq!(rows(&format!("FROM s WHERE name = '{}'", ONE.to_uppercase())).await, 1);
    assert_eq!(rows(&format!("FROM s WHERE name = '{ONE}'")).await, 0);
    assert_eq!(rows(&format!("FROM s WHERE lower(name) = '{}'", ONE.to_uppercase())).await, 0);
    assert_eq!(rows("FROM s WHERE id = 'no uuid'").await, 0);
    let mixed = "FROM (SELECT id, n FROM s UNION ALL SELECT name, n FROM s)";
    assert_eq!(rows(&format!("{mixed} WHERE id = '{}'", ONE.to_uppercase())).await, 1, "of texts only that one");
}

async fn planned(views: &[&str]) -> Arc<ViewPlan> {
    let views: Vec<_> = views.iter().map(|view| parse::parse_view(view).unwrap()).collect();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: views.clone(), ..Definitions::default() };
    match Planner::new(&project, Functions::standard()).plan(&views[0]).await {
        Ok(Planned::Stateful(plan)) => plan,
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn a_view_knows_which_of_its_keys_are_uuids() {
    for (views, expected) in [
        (&["CREATE VIEW v AS SELECT n, id, name, count(*) AS c FROM s GROUP BY n, id, name"][..], &[false, true, false][..]),
        (&["CREATE VIEW v AS SELECT upper(id) AS k, count(*) AS c FROM s GROUP BY upper(id)"][..], &[false][..]),
        (
            &["CREATE VIEW v AS SELECT who, count(*) AS c FROM w GROUP BY who", "CREATE VIEW w AS SELECT id AS who, ts FROM s"][..],
            &[true][..],
        ),
        (&["CREATE VIEW v AS SELECT a.id, count(DISTINCT b.name) AS c FROM s a JOIN s b ON a.n = b.n GROUP BY a.id"][..], &[true][..]),
        (&["CREATE VIEW v AS SELECT a.name, count(DISTINCT b.id) AS c FROM s a JOIN s b ON a.n = b.n GROUP BY a.name"][..], &[false][..]),
    ] {
        let plan = planned(views).await;
        let found: Vec<bool> = (0..plan.answer_keys().len()).map(|key| plan.is_uuid(key)).collect();
        assert_eq!(found, expected, "{views:?}");
    }
}

#[tokio::test]
async fn a_view_reads_its_own_literals_as_uuids() {
    let sql = |uuid: &str| {
        format!("CREATE VIEW v AS SELECT n, count(*) FILTER (WHERE id <> '{uuid}') AS c FROM s WHERE id > '{uuid}' GROUP BY n")
    };
    let (upper, stored) = (planned(&[&sql(&ONE.to_uppercase())]).await, planned(&[&sql(ONE)]).await);
    assert_eq!(upper.prepare.display_indent().to_string(), stored.prepare.display_indent().to_string());
    assert_eq!(upper.states[1].sql, stored.states[1].sql);
    assert_eq!(upper.stamp, format!("{}; uuid spellings/3", stored.stamp), "states of an earlier release counted no such event");
}
