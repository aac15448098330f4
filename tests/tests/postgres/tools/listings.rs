//! The lists that drivers offer to programs: ADBC's `GetObjects` in full depth, and JDBC's `getFunctions`.

use crate::server::Server;
use crate::tools::{column, firsts, has};

/// apache/arrow-adbc, c/driver/postgresql/connection.cc, of `GetObjects`, with one space in the place of several.
const CATALOGS: &str = "SELECT datname FROM pg_catalog.pg_database";
const SCHEMAS: &str = "SELECT nspname FROM pg_catalog.pg_namespace WHERE (nspname !~ '^pg_' OR oid = pg_my_temp_schema()) AND \
    nspname <> 'information_schema'";
const TABLES: &str = "SELECT c.relname, CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized \
    view' WHEN 't' THEN 'TOAST table' WHEN 'f' THEN 'foreign table' WHEN 'p' THEN 'partitioned table' END AS reltype FROM \
    pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = ANY($2)";
const COLUMNS: &str = "SELECT attr.attname, attr.attnum, pg_catalog.col_description(cls.oid, attr.attnum), typ.typname FROM \
    pg_catalog.pg_attribute AS attr INNER JOIN pg_catalog.pg_class AS cls ON attr.attrelid = cls.oid INNER JOIN \
    pg_catalog.pg_namespace AS nsp ON nsp.oid = cls.relnamespace INNER JOIN pg_catalog.pg_type AS typ ON attr.atttypid = typ.oid \
    WHERE attr.attnum > 0 AND NOT attr.attisdropped AND nsp.nspname LIKE $1 AND cls.relname LIKE $2";
const CONSTRAINTS: &str = "WITH fk_unnest AS ( SELECT con.conname, 'FOREIGN KEY' AS contype, conrelid, UNNEST(con.conkey) AS \
    conkey, confrelid, UNNEST(con.confkey) AS confkey FROM pg_catalog.pg_constraint AS con INNER JOIN pg_catalog.pg_class AS cls ON \
    cls.oid = conrelid INNER JOIN pg_catalog.pg_namespace AS nsp ON nsp.oid = cls.relnamespace WHERE con.contype = 'f' AND \
    nsp.nspname = $1 AND cls.relname = $2 ), fk_names AS ( SELECT fk_unnest.conname, fk_unnest.contype, fk_unnest.conkey, \
    fk_unnest.confkey, attr.attname, fnsp.nspname AS fschema, fcls.relname AS ftable, fattr.attname AS fattname FROM fk_unnest INNER \
    JOIN pg_catalog.pg_class AS cls ON cls.oid = fk_unnest.conrelid INNER JOIN pg_catalog.pg_class AS fcls ON fcls.oid = \
    fk_unnest.confrelid INNER JOIN pg_catalog.pg_namespace AS fnsp ON fnsp.oid = fcls.relnamespace INNER JOIN \
    pg_catalog.pg_attribute AS attr ON attr.attnum = fk_unnest.conkey AND attr.attrelid = fk_unnest.conrelid LEFT JOIN \
    pg_catalog.pg_attribute AS fattr ON fattr.attnum = fk_unnest.confkey AND fattr.attrelid = fk_unnest.confrelid ), fkeys AS ( \
    SELECT conname, contype, ARRAY_AGG(attname ORDER BY conkey) AS colnames, fschema, ftable, ARRAY_AGG(fattname ORDER BY confkey) \
    AS fcolnames FROM fk_names GROUP BY conname, contype, fschema, ftable ), other_constraints AS ( SELECT con.conname, CASE \
    con.contype WHEN 'c' THEN 'CHECK' WHEN 'u' THEN 'UNIQUE' WHEN 'p' THEN 'PRIMARY KEY' END AS contype, ARRAY_AGG(attr.attname) AS \
    colnames FROM pg_catalog.pg_constraint AS con CROSS JOIN UNNEST(conkey) AS conkeys INNER JOIN pg_catalog.pg_class AS cls ON \
    cls.oid = con.conrelid INNER JOIN pg_catalog.pg_namespace AS nsp ON nsp.oid = cls.relnamespace INNER JOIN \
    pg_catalog.pg_attribute AS attr ON attr.attnum = conkeys AND cls.oid = attr.attrelid WHERE con.contype IN ('c', 'u', 'p') AND \
    nsp.nspname = $1 AND cls.relname = $2 GROUP BY conname, contype ) SELECT conname, contype, colnames, fschema, ftable, fcolnames \
    FROM fkeys UNION ALL SELECT conname, contype, colnames, NULL, NULL, NULL FROM other_constraints";

/// pgjdbc, PgDatabaseMetaData.java, `getFunctions`, without a schema and of one name.
const FUNCTIONS: &str = "SELECT current_database() AS \"FUNCTION_CAT\", n.nspname AS \"FUNCTION_SCHEM\", p.proname AS \
    \"FUNCTION_NAME\", d.description AS \"REMARKS\", CASE WHEN (format_type(p.prorettype, null) = 'unknown') THEN 0 WHEN \
    (substring(pg_get_function_result(p.oid) from 0 for 6) = 'TABLE') OR (substring(pg_get_function_result(p.oid) from 0 for 6) = \
    'SETOF') THEN 2 ELSE 1 END AS \"FUNCTION_TYPE\", p.proname || '_' || p.oid AS \"SPECIFIC_NAME\" FROM pg_catalog.pg_proc p INNER \
    JOIN pg_catalog.pg_namespace n ON p.pronamespace=n.oid LEFT JOIN pg_catalog.pg_description d ON p.oid=d.objoid WHERE true AND \
    p.prokind='f' AND p.proname LIKE $1 ORDER BY \"FUNCTION_SCHEM\", \"FUNCTION_NAME\", p.oid::text";

#[tokio::test(flavor = "multi_thread")]
async fn adbc_lists_all_objects() {
    let server = Server::filled().await;
    let client = server.connect().await;
    assert_eq!(firsts(&client, CATALOGS).await, ["basestream"]);
    has(&firsts(&client, SCHEMAS).await, &["public", "system"]);
    let tables = client.query(TABLES, &[&"public", &vec!["r", "v"]]).await.unwrap();
    let mut found: Vec<(String, String)> = tables.iter().map(|row| (row.get(0), row.get(1))).collect();
    found.retain(|(name, _)| ["events", "per_device"].contains(&name.as_str()));
    found.sort();
    assert_eq!(found, [("events", "table"), ("per_device", "view")].map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    let columns = client.query(COLUMNS, &[&"public", &"per_device"]).await.unwrap();
    has(&column(&columns, "attname"), &["device", "n", "amount"]);
    assert!(client.query(CONSTRAINTS, &[&"public", &"per_device"]).await.unwrap().is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jdbc_lists_functions() {
    let server = Server::start().await;
    let client = server.connect().await;
    let functions = client.query(FUNCTIONS, &[&"abs"]).await.unwrap();
    has(&column(&functions, "FUNCTION_NAME"), &["abs"]);
    server.stop().await;
}
