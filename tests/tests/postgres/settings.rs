//! Settings of a session that decide what its queries read, and the functions that ask for them and set them.

use std::sync::Arc;

use catalog::DefinitionKind::{Stream, View};
use serving::ServingLimits;
use serving::http::Protection;
use tokio_postgres::types::Type;
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
async fn the_user_is_the_one_that_logged_in() {
    let server = server().await;
    let client = server.connect().await;
    client.batch_execute("SET session_authorization = 'ben'").await.unwrap();
    let row = client.query_one("SELECT current_user, session_user, user, current_role AS role", &[]).await.unwrap();
    let names: Vec<&str> = row.columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, ["current_user", "session_user", "user", "role"]);
    assert_eq!([0, 1, 2, 3].map(|column| row.get::<_, &str>(column)), ["ann"; 4]);
    assert_eq!(one(&client, "SELECT user").await, "ann");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_is_not_known_is_null() {
    let server = server().await;
    let client = server.connect().await;
    for unknown in ["current_setting('default_table_access_method')", "current_setting('my.own')", "current_setting('nonsense', true)"] {
        assert_eq!(texts(&client, &format!("SELECT {unknown}")).await.concat(), [None::<String>], "{unknown}");
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn set_config_sets_what_set_does() {
    let server = server().await;
    let mut client = server.connect().await;
    assert_eq!(one(&client, "SELECT set_config('search_path', 'system', false)").await, "system");
    assert_eq!(one(&client, "SHOW search_path").await, "system");
    assert_eq!(one(&client, "SELECT count(*) FROM runs").await, "0");
    // As pgAdmin sends it on connecting.
    let of_pgadmin = "SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) \
        FROM pg_show_all_settings() WHERE name = 'bytea_output'; SET client_encoding='UTF8'";
    assert_eq!(texts(&client, of_pgadmin).await.concat(), [Some("hex".to_owned())]);
    // What follows in the same text sees it.
    let sql = "SELECT set_config('search_path', 'public', false); SELECT count(*) FROM runs";
    assert_eq!(texts(&client, sql).await.concat(), [Some("public".to_owned()), Some("1".to_owned())]);

    let set = client.prepare("SELECT set_config($1, $2, $3), pg_catalog.set_config('my.note', $2, false) AS note").await.unwrap();
    assert_eq!(set.params(), [Type::TEXT, Type::TEXT, Type::BOOL]);
    assert_eq!(one(&client, "SHOW TimeZone").await, "UTC", "to describe it sets nothing");
    let row = client.query_one(&set, &[&"TIMEZONE", &"europe/berlin", &false]).await.unwrap();
    assert_eq!([row.get::<_, &str>(0), row.get(1)], ["Europe/Berlin", "europe/berlin"]);
    assert_eq!(one(&client, "SELECT current_setting('my.note')").await, "europe/berlin");
    assert_eq!(one(&client, "SHOW TimeZone").await, "Europe/Berlin");
    assert_eq!(one(&client, "SELECT set_config('TimeZone', NULL, false)").await, "UTC");
    assert_eq!(one(&client, "SHOW TimeZone").await, "UTC");

    // The first rows of an answer have set it, whether the others are asked for or not.
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT set_config('my.note', 'in part', false)", &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 1).await.unwrap().len(), 1);
    transaction.commit().await.unwrap();
    assert_eq!(one(&client, "SHOW my.note").await, "in part");

    for (is_local, end, expected) in [("true", "COMMIT", "public"), ("false", "ROLLBACK", "public"), ("false", "COMMIT", "system")] {
        client.batch_execute(&format!("BEGIN; SELECT set_config('search_path', 'system', {is_local})")).await.unwrap();
        assert_eq!(one(&client, "SELECT current_schema()").await, "system");
        client.batch_execute(end).await.unwrap();
        assert_eq!(one(&client, "SELECT current_schema()").await, expected, "{is_local} {end}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_config_refuses_what_set_refuses() {
    let server = server().await;
    let client = server.connect().await;
    client.batch_execute("SET my.note = 'kept'").await.unwrap();
    for (sql, expected) in [
        ("SELECT set_config('nonsense', '1', false)", "42704"),
        ("SELECT set_config('nonsense', NULL, false)", "42704"),
        ("SELECT set_config('server_version', '9', false)", "55P02"),
        ("SELECT set_config('TimeZone', 'Mars/Base', false)", "22023"),
        ("SELECT set_config('search_path', 'a b', false)", "22023"),
        ("SELECT set_config('search_path', 'information_schema', false)", "0A000"),
        ("SELECT set_config('my.note', 'lost', false), set_config('nonsense', '1', false)", "42704"),
        ("SELECT set_config('my.note', device, false) FROM runs", "0A000"),
    ] {
        assert_eq!(state(&client, sql).await, expected, "{sql}");
    }
    assert_eq!(one(&client, "SHOW my.note").await, "kept");
    server.stop().await;
}
