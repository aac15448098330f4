//! Settings of a session that decide what its queries read, and the functions that ask for them and set them.

use std::sync::Arc;

use catalog::DefinitionKind::{Stream, View};
use serving::ServingLimits;
use serving::http::Protection;
use tokio_postgres::{Client, NoTls};

use crate::server::{Server, error_of, one, texts};

const EVENTS: &str = "CREATE STREAM events (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT) \
    WITH (topic = 'events', format = 'json', event_time = 'ts', id = 'id', key = 'device')";
/// Its name is that of a table in the schema `system`, which has no rows and other columns.
const RUNS: &str = "CREATE VIEW runs AS SELECT device, count(*) AS n FROM events GROUP BY device";

async fn server() -> Server {
    let open = Protection::none(Arc::new(|| 0)).unwrap();
    let mut server = Server::over(&[(Stream, "events", EVENTS), (View, "runs", RUNS)], &open, ServingLimits::default()).await;
    server.append(&[r#""device":"a""#]).await;
    server
}

async fn state(client: &Client, sql: &str) -> String {
    error_of(&client.simple_query(sql).await.expect_err(sql)).0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_looked_for_in_the_schemas_of_the_search_path() {
    let server = server().await;
    let client = server.connect().await;
    let counted = client.prepare("SELECT count(*) FROM runs").await.unwrap();
    let looked_up = client.prepare("SELECT n FROM runs WHERE device = $1").await.unwrap();
    // The same texts, again and again: nothing that is kept of one is taken for another search path.
    for (search_path, rows, has_public) in [
        ("DEFAULT", 1, true),
        ("system", 0, false),
        ("public, system", 1, true),
        ("system, public", 0, true),
        ("\"$user\", nowhere, public", 1, true),
        ("system, public", 0, true),
    ] {
        client.batch_execute(&format!("SET search_path = {search_path}")).await.unwrap();
        assert_eq!(client.query_one(&counted, &[]).await.unwrap().get::<_, i64>(0), rows, "{search_path}");
        assert_eq!(one(&client, "SELECT count(*) FROM runs").await, rows.to_string(), "{search_path}");
        assert_eq!(one(&client, "WITH runs AS (SELECT 7 AS n) SELECT n FROM runs").await, "7", "{search_path}");
        assert_eq!(one(&client, "SELECT n FROM public.runs WHERE device = 'a'").await, "1", "{search_path}");
        let found = match client.query_one(&looked_up, &[&"a"]).await {
            Ok(row) => row.get::<_, i64>(0).to_string(),
            Err(error) => error_of(&error).0,
        };
        assert_eq!(found, if rows == 1 { "1" } else { "42703" }, "{search_path}");
        match rows {
            1 => assert_eq!(one(&client, "SELECT n FROM runs WHERE device = 'a'").await, "1", "{search_path}"),
            _ => assert_eq!(state(&client, "SELECT n FROM runs WHERE device = 'a'").await, "42703", "{search_path}"),
        }
        match has_public {
            true => assert_eq!(one(&client, "SELECT count(*) FROM events").await, "1", "{search_path}"),
            false => assert_eq!(state(&client, "SELECT count(*) FROM events").await, "42P01", "{search_path}"),
        }
    }
    for nothing in ["''", "nowhere"] {
        client.batch_execute(&format!("SET search_path = {nothing}")).await.unwrap();
        for sql in ["SELECT count(*) FROM runs", "SELECT n FROM runs WHERE device = 'a'", "COPY events TO STDOUT"] {
            assert_eq!(state(&client, sql).await, "42P01", "{nothing}: {sql}");
        }
        assert!(client.query(&counted, &[]).await.is_err(), "{nothing}");
    }
    assert_eq!(state(&client, "SET search_path = public, information_schema").await, "0A000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_says_the_search_path_agrees_with_it() {
    let server = server().await;
    let client = server.connect().await;
    let visible = "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE c.relname = 'runs' AND pg_catalog.pg_table_is_visible(c.oid)";
    let said = async |client: &Client| {
        let mut said = Vec::new();
        for sql in [
            "SHOW search_path",
            "SELECT current_setting('search_path')",
            "SELECT current_schema()",
            "SELECT current_schema",
            "SELECT current_schemas(false)",
            "SELECT current_schemas(true)",
            visible,
        ] {
            said.push(texts(client, sql).await.concat().into_iter().flatten().collect::<Vec<_>>().join(" "));
        }
        said.join(" | ")
    };
    let default = r#""$user", public | "$user", public | public | public | {public} | {pg_catalog,public} | public"#;
    assert_eq!(said(&client).await, default);
    let system = "system | system | system | system | {system} | {pg_catalog,system} | system";
    for set in ["SET search_path = System", "SET SESSION search_path TO 'system'", "SET SCHEMA 'system'"] {
        for reset in ["RESET search_path", "RESET ALL", "DISCARD ALL", "SET search_path TO DEFAULT"] {
            client.batch_execute(set).await.unwrap();
            assert_eq!(said(&client).await, system, "{set}");
            client.batch_execute(reset).await.unwrap();
            assert_eq!(said(&client).await, default, "{reset}");
        }
    }
    client.batch_execute("SET search_path = \"$user\", nowhere, pg_catalog").await.unwrap();
    let path = r#""$user", nowhere, pg_catalog"#;
    assert_eq!(said(&client).await, format!("{path} | {path} | pg_catalog | pg_catalog | {{pg_catalog}} | {{pg_catalog}} | "));
    client.batch_execute("SET search_path = ''").await.unwrap();
    assert_eq!(said(&client).await, r#""" | "" |  |  | {} | {pg_catalog} | "#);

    client.batch_execute("RESET search_path; BEGIN; SET LOCAL search_path = system").await.unwrap();
    assert_eq!(one(&client, "SELECT current_schema()").await, "system");
    client.batch_execute("COMMIT; BEGIN; SET search_path = system; ROLLBACK").await.unwrap();
    assert_eq!(said(&client).await, default);
    assert_eq!(one(&client, "SELECT current_setting('server_version_num')").await, "150000");
    assert_eq!(texts(&client, "SELECT current_setting('no.such', true)").await.concat(), [None::<String>]);

    let options = format!("{} options='-c search_path=system'", server.url());
    let (client, connection) = tokio_postgres::connect(&options, NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(said(&client).await, system);
    client.batch_execute("SET search_path = public").await.unwrap();
    client.batch_execute("DISCARD ALL").await.unwrap();
    assert_eq!(said(&client).await, system, "what the client connected with");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_keeps_the_search_path_that_it_was_declared_with() {
    let server = server().await;
    let client = server.connect().await;
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT count(*) AS n FROM runs; SET LOCAL search_path = system").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM runs").await, "0");
    let fetch = client.prepare("FETCH c").await.unwrap();
    assert_eq!(client.query_one(&fetch, &[]).await.unwrap().get::<_, i64>("n"), 1);
    server.stop().await;
}
