use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::LogicalPlan;

use super::{TextType, TypedTextColumns};
use crate::events::user_schema;
use crate::functions::{Functions, typed_texts};
use crate::plan::planning_session;
use definitions::parse;

const STREAM: &str = "CREATE STREAM s (id UUID NOT NULL, ts TIMESTAMPTZ NOT NULL, doc JSON, docs JSON[], name TEXT) \
    WITH (event_time = 'ts', id = 'id', dedup_within = '1m')";

async fn planned(sql: &str) -> (TypedTextColumns, LogicalPlan) {
    let stream = parse::parse_stream(STREAM).unwrap();
    let session = planning_session(&Functions::standard()).unwrap();
    session.register_table("s", Arc::new(EmptyTable::new(user_schema(&stream)))).unwrap();
    typed_texts().into_iter().for_each(|function| session.register_udf(function));
    let plan = session.state().create_logical_plan(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    (TypedTextColumns::of_streams([&stream]), plan)
}

#[tokio::test]
async fn uuids_and_json_are_so_wherever_the_column_comes_out_unchanged() {
    use TextType::{Any, Json, Uuid};
    for (sql, expected) in [
        ("SELECT id, doc, docs, name FROM s", &[Uuid, Json, Json, Any][..]),
        ("SELECT doc AS d, CAST(doc AS TEXT), upper(doc) FROM s WHERE name = 'x' ORDER BY d LIMIT 1", &[Json, Any, Any][..]),
        ("SELECT DISTINCT CAST(id AS TEXT) AS t, as_uuid(name), CAST(as_uuid(name) AS TEXT) AS c FROM s ORDER BY t", &[Any, Uuid, Any][..]),
        ("SELECT CAST(id AS TEXT) AS t FROM s ORDER BY name", &[Any][..]),
        ("SELECT t, id FROM (SELECT CAST(id AS TEXT) AS t, id FROM s) WHERE t <> 'x'", &[Any, Uuid][..]),
        ("SELECT CAST(id AS TEXT) AS t, count(*) FROM s GROUP BY t", &[Any, Any][..]),
        ("SELECT ARRAY[CAST(id AS TEXT)], array_agg(id) FROM s GROUP BY id", &[Any, Uuid][..]),
        ("SELECT as_json(name), CAST(as_json(name) AS TEXT) AS c FROM s", &[Json, Any][..]),
        ("SELECT doc, array_agg(doc), ARRAY[doc, as_json(doc)], ARRAY[doc, 'x'] FROM s GROUP BY doc", &[Json, Json, Json, Any][..]),
        ("SELECT doc FROM s UNION ALL SELECT as_json(name) FROM s", &[Json][..]),
        ("SELECT doc FROM s UNION ALL SELECT name FROM s", &[Any][..]),
        ("SELECT a.doc, b.id FROM s a JOIN s b ON a.id = b.id", &[Json, Uuid][..]),
    ] {
        let (columns, plan) = planned(sql).await;
        assert_eq!(columns.in_output(&plan), expected, "{sql}");
    }
}

#[tokio::test]
async fn parameters_are_what_they_are_compared_with_or_cast_to() {
    // As the casts `$1::json` and `$6::text::json` are planned.
    let sql = "SELECT as_json(CAST($1 AS TEXT)), id = $2, as_json(CAST($3 AS TEXT[])), doc = $4, CAST(id AS TEXT) = $5, \
        as_json(CAST(CAST($6 AS TEXT) AS TEXT)) FROM s";
    let (columns, plan) = planned(sql).await;
    let expected = [("$1", TextType::Json), ("$2", TextType::Uuid), ("$3", TextType::Json)];
    assert_eq!(columns.parameters(&plan).unwrap(), BTreeMap::from(expected.map(|(name, of)| (name.to_owned(), of))));
}
