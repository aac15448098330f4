//! `pg_catalog` and `information_schema`, as clients ask them. What psql, JDBC and SQLAlchemy ask is in
//! `tests/clients`.

use std::sync::Arc;

use catalog::DefinitionKind::{Stream, View};
use serving::ServingLimits;
use serving::http::Protection;
use tokio_postgres::types::Type;

use crate::server::{Server, error_of, one, texts};

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_columns_are_described_as_their_answers_are() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT a.attname, a.atttypid, a.atttypmod FROM pg_catalog.pg_attribute a \
        JOIN pg_catalog.pg_class c ON c.oid = a.attrelid WHERE c.relname = $1 ORDER BY a.attnum";
    for table in ["per_device", "per_unit", "events"] {
        let described: Vec<(String, u32)> =
            client.query(sql, &[&table]).await.unwrap().iter().map(|row| (row.get(0), row.get::<_, i32>(1) as u32)).collect();
        let statement = client.prepare(&format!("SELECT * FROM {table}")).await.unwrap();
        let answered: Vec<(String, u32)> = statement.columns().iter().map(|c| (c.name().to_owned(), c.type_().oid())).collect();
        assert_eq!(described, answered, "{table}");
    }
    let kinds = texts(&client, "SELECT relname, relkind FROM pg_class WHERE relname IN ('events', 'per_device') ORDER BY 1").await;
    assert_eq!(kinds.concat().into_iter().flatten().collect::<Vec<_>>(), ["events", "r", "per_device", "v"]);
    let listed = texts(&client, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1").await.concat();
    assert!(listed.contains(&Some("per_device".into())) && listed.contains(&Some("events".into())), "{listed:?}");
    assert!(one(&client, "SELECT version()").await.starts_with("PostgreSQL 15.0 (basestream "));
    assert_eq!(one(&client, "SELECT current_database()").await, "basestream");
    server.stop().await;
}

/// As SQLAlchemy lists tables and schemas where none is named.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_other_schemas_are_not_visible() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname <> 'pg_catalog' AND";
    let listed = texts(&client, &format!("{sql} pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1")).await.concat();
    assert!(listed.contains(&Some("events".into())) && listed.contains(&Some("per_device".into())), "{listed:?}");
    assert_eq!(listed, texts(&client, &format!("{sql} n.nspname = 'public' ORDER BY 1")).await.concat());
    let schemas = "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname NOT LIKE $1 || '%' ESCAPE '/' ORDER BY nspname";
    let schemas = client.query(schemas, &[&"pg/_"]).await.unwrap();
    assert_eq!(schemas.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["information_schema", "public", "system"]);
    server.stop().await;
}

/// JDBC asks for the privileges on tables; DuckDB would read a table of some pages by `ctid`.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_has_no_pages_privileges_and_options() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT relname, relkind, relpages, relacl, reloptions FROM pg_catalog.pg_class \
        WHERE relname IN ('events', 'per_device') ORDER BY relname";
    let found = texts(&client, sql).await;
    let described = |name: &str, kind: &str| vec![Some(name.to_owned()), Some(kind.to_owned()), Some("0".to_owned()), None, None];
    assert_eq!(found, [described("events", "r"), described("per_device", "v")]);
    assert_eq!(one(&client, "SELECT relkind FROM pg_catalog.pg_class WHERE relname = 'pg_class'").await, "r");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_keeps_its_oid() {
    let mut server = Server::filled().await;
    let (client, other) = (server.connect().await, server.connect().await);
    let oid = async |client: &tokio_postgres::Client, table: &str| {
        let sql = format!("SELECT oid FROM pg_catalog.pg_class WHERE relname = '{table}'");
        one(client, &sql).await
    };
    let (events, view) = (oid(&client, "events").await, oid(&client, "per_device").await);
    assert_ne!(events, view);
    server.append(&[r#""device":"a""#]).await;
    server.run("per_device").await;
    texts(&other, "SELECT count(*) FROM pg_catalog.pg_attribute").await;
    assert_eq!((oid(&other, "events").await, oid(&client, "per_device").await), (events, view));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_are_cast_to_oids_are_oids() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let names = "SELECT typname FROM pg_type WHERE oid";
    let one_type = client.prepare(&format!("{names} = $1::oid")).await.unwrap();
    assert_eq!(one_type.params(), [Type::OID]);
    assert_eq!(client.query_one(&one_type, &[&23u32]).await.unwrap().get::<_, &str>(0), "int4");
    let several = client.prepare(&format!("{names} = ANY($1::oid[]) ORDER BY oid")).await.unwrap();
    assert_eq!(several.params(), [Type::OID_ARRAY]);
    let found = client.query(&several, &[&[20u32, 23].as_slice()]).await.unwrap();
    assert_eq!(found.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["int8", "int4"]);
    let literals = texts(&client, "SELECT '23'::oid, '{23}'::oid[]").await.concat();
    assert_eq!(literals, [Some("23".to_owned()), Some("{23}".to_owned())]);
    let cast = client.prepare("SELECT CAST($1 AS oid) AS a, 23::oid AS b").await.unwrap();
    assert_eq!(cast.params(), [Type::OID]);
    assert!(cast.columns().iter().all(|column| *column.type_() == Type::OID), "{cast:?}");
    let row = client.query_one(&cast, &[&20u32]).await.unwrap();
    assert_eq!([row.get::<_, u32>(0), row.get(1)], [20, 23]);
    let types = texts(&client, "SELECT oid::regtype::text, 'int8'::regtype::text FROM pg_type WHERE typname = 'int4'").await.concat();
    assert_eq!(types, [Some("integer".to_owned()), Some("bigint".to_owned())]);
    server.stop().await;
}

/// By JDBC's `getUDTs`, which has an arm for each type that the driver knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_case_of_a_thousand_arms_is_answered_where_there_are_no_rows() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let arms = |column: &str| (0..1_000).map(|number| format!(" when {column} = {number} then {}", -number)).collect::<String>();
    let types = format!(
        "select null as type_cat, n.nspname as type_schem, t.typname as type_name,  null as class_name, CASE WHEN t.typtype='c' then \
         2002 else 2001 end as data_type, pg_catalog.obj_description(t.oid, 'pg_type')  as remarks, CASE WHEN t.typtype = 'd' then  \
         (select CASE{} else 1111 end from pg_type base_type where base_type.oid=t.typbasetype) else null end as base_type \
         from pg_catalog.pg_type t, pg_catalog.pg_namespace n where t.typnamespace = n.oid and n.nspname != 'pg_catalog' \
         and n.nspname != 'pg_toast' and t.typtype IN ('c','d')  and t.typname LIKE '%' order by data_type, type_schem, type_name",
        arms("base_type.oid")
    );
    assert_eq!(client.prepare(&types).await.unwrap().columns().len(), 7);
    assert_eq!(texts(&client, &types).await.len(), 0);
    let of_view = format!("SELECT device FROM per_device WHERE CASE{} END = -1", arms("n"));
    let of_catalog = format!("SELECT relname FROM pg_catalog.pg_class WHERE CASE{} END = -1", arms("relpages"));
    for sql in [of_view, of_catalog] {
        let (_, message, _) = error_of(&client.simple_query(&sql).await.unwrap_err());
        assert!(message.contains("found more than 1024 words and symbols in a row"), "{message}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_not_read_together_with_the_catalog() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let error = client.simple_query("SELECT d.n, c.oid FROM per_device d CROSS JOIN pg_catalog.pg_class c").await.unwrap_err();
    assert_eq!(error_of(&error).0, "0A000");
    server.stop().await;
}

/// As the fee of a payment gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_may_be_called_as_what_the_catalog_has() {
    let charges = "CREATE STREAM charges (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, pg_fee BIGINT) \
        WITH (topic = 'charges', format = 'json', event_time = 'ts', id = 'id')";
    let largest = "CREATE VIEW largest AS SELECT max(pg_fee) AS pg_largest FROM charges";
    let open = Protection::none(Arc::new(|| 0)).unwrap();
    let server = Server::over(&[(Stream, "charges", charges), (View, "largest", largest)], &open, ServingLimits::default()).await;
    let charge = r#"{"id":"1","ts":"2026-03-01T10:00:00Z","pg_fee":7}"#;
    server.append_to("charges", vec![(None, charge.to_owned())]).await;
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT sum(PG_FEE) FROM charges c WHERE c.pg_fee > 1").await, "7");
    assert_eq!(one(&client, "SELECT l.pg_largest FROM largest l").await, "7");
    assert_eq!(client.query_one("SELECT pg_fee FROM charges", &[]).await.unwrap().get::<_, i64>(0), 7);
    server.stop().await;
}
