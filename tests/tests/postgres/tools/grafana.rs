//! Grafana's data source for PostgreSQL, by the simple protocol: its driver asks so what has no parameters.

use crate::server::{Server, one, texts};
use crate::tools::{firsts, has, refused};

/// grafana/grafana, public/app/plugins/datasource/grafana-postgresql-datasource/postgresMetaQuery.ts,
/// `buildSchemaConstraint`.
const IN_SEARCH_PATH: &str = r#"
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )"#;

/// The same file, `getVersion`, `getTimescaleDBVersion` and `showSchemas`.
const VERSION: &str = "SELECT current_setting('server_version_num')::int/100 as version";
const TIMESCALE: &str = "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'";
const SCHEMAS: &str = r#"SELECT schema_name AS "name"
    FROM information_schema.schemata
    WHERE schema_name NOT IN ('information_schema',
                              'pg_catalog',
                              'pg_toast',
                              '_timescaledb_cache',
                              '_timescaledb_catalog',
                              '_timescaledb_internal',
                              '_timescaledb_config',
                              'timescaledb_information',
                              'timescaledb_experimental')
    ORDER BY schema_name"#;

/// `showTables` without a schema.
fn tables() -> String {
    format!(
        r#"SELECT
    CASE WHEN {IN_SEARCH_PATH}
      THEN quote_ident(table_name)
      ELSE quote_ident(table_schema) || '.' || quote_ident(table_name)
    END AS "table"
    FROM information_schema.tables
    WHERE quote_ident(table_schema) NOT IN ('information_schema',
                             'pg_catalog',
                             '_timescaledb_cache',
                             '_timescaledb_catalog',
                             '_timescaledb_internal',
                             '_timescaledb_config',
                             'timescaledb_information',
                             'timescaledb_experimental')
    ORDER BY CASE WHEN {IN_SEARCH_PATH} THEN 0 ELSE 1 END, 1"#
    )
}

/// `showTables` with a schema.
fn tables_of(schema: &str) -> String {
    format!(
        r#"SELECT quote_ident(table_name) AS "table"
      FROM information_schema.tables
      WHERE quote_ident(table_schema) = '{schema}'
      ORDER BY 1"#
    )
}

/// `getSchema`.
fn columns_of(table: &str) -> String {
    format!(
        r#"SELECT quote_ident(column_name) AS "column", data_type AS "type"
    FROM information_schema.columns
    WHERE
      CASE WHEN array_length(parse_ident('{table}'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('{table}'))[1]
          AND quote_ident(table_name) = (parse_ident('{table}'))[2]
        ELSE quote_ident(table_name) = '{table}'
          AND {IN_SEARCH_PATH}
      END"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn grafana_connects() {
    let server = Server::filled().await;
    let client = server.connect().await;
    // The ping of lib/pq, that of pgx (jackc/pgx, pgconn/pgconn.go), and pkg/tsdb/.../sqleng.
    let asked = [";", "-- ping", "SELECT 1", VERSION, TIMESCALE, SCHEMAS, &tables(), &tables_of("public"), &columns_of("per_device")];
    assert_eq!(refused(&client, &asked).await, Vec::<String>::new());
    assert_eq!(one(&client, VERSION).await, "1500");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grafana_lists_tables_and_their_columns() {
    let server = Server::filled().await;
    let client = server.connect().await;
    assert_eq!(firsts(&client, SCHEMAS).await, ["public", "system"]);
    // Those of the search path come first, and by their names alone.
    let listed = firsts(&client, &tables()).await;
    has(&listed, &["events", "per_device", "per_unit", "system.views"]);
    let first_of_system = listed.iter().position(|name| name.starts_with("system.")).unwrap();
    assert!(listed[first_of_system..].iter().all(|name| name.starts_with("system.")), "{listed:?}");
    has(&firsts(&client, &tables_of("public")).await, &["events", "per_device", "per_unit"]);

    let columns = [["device", "text"], ["n", "bigint"], ["amount", "numeric"]];
    for table in ["per_device", "public.per_device"] {
        let described = texts(&client, &columns_of(table)).await;
        let described: Vec<Vec<String>> = described.into_iter().map(|row| row.into_iter().flatten().collect()).collect();
        assert_eq!(described, columns, "{table}");
    }
    has(&firsts(&client, &columns_of("system.views")).await, &["view"]);
    server.stop().await;
}

/// pkg/tsdb/grafana-postgresql-datasource/macros.go: what its macros become.
#[tokio::test(flavor = "multi_thread")]
async fn grafana_s_macros_are_answered() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let filter = "ts BETWEEN '2026-03-01T10:00:00Z' AND '2026-03-01T10:59:59.999Z'";
    let ten_o_clock = "1772359200";
    let texts_of = [
        ("$__time", format!(r#"SELECT ts AS "time" FROM events WHERE {filter} ORDER BY 1"#), 3),
        ("$__timeEpoch", format!(r#"SELECT extract(epoch from ts) as "time" FROM events WHERE {filter}"#), 3),
        ("$__timeFrom", "SELECT id FROM events WHERE ts >= '2026-03-01T10:02:00Z' AND ts < '2026-03-01T10:03:00Z'".to_owned(), 1),
        ("$__timeGroup", "SELECT floor(extract(epoch from ts)/3600)*3600, count(*) FROM events GROUP BY 1".to_owned(), 1),
        (
            "$__timeGroupAlias",
            format!(
                r#"SELECT floor(extract(epoch from ts)/60)*60 AS "time", device AS metric, count(*) AS n FROM events WHERE {filter} GROUP BY 1, 2 ORDER BY 1, 2"#
            ),
            3,
        ),
        ("$__unixEpochFilter", "SELECT id FROM events WHERE big >= 9007199254740993 AND big <= 9007199254740993".to_owned(), 1),
        ("$__unixEpochGroup", "SELECT floor((big)/300)*300, count(*) FROM events WHERE big IS NOT NULL GROUP BY 1".to_owned(), 1),
    ];
    for (macro_name, sql, expected) in &texts_of {
        assert_eq!(texts(&client, sql).await.len(), *expected, "{macro_name}: {sql}");
    }
    let hour = texts(&client, &texts_of[3].1).await.concat();
    let hour: Vec<f64> = hour.into_iter().flatten().map(|value| value.parse().unwrap()).collect();
    assert_eq!(hour, [ten_o_clock.parse().unwrap(), 3.0]);
    server.stop().await;
}
