//! Metabase, by the JDBC driver: the extended protocol. The sources are metabase/metabase,
//! src/metabase/driver/postgres.clj (`get-tables-sql`, `describe-fields-sql`, `describe-fks-sql`, `enum-types`,
//! `current-user-table-privileges`), whose maps HoneySQL writes as SQL, and pgjdbc/pgjdbc,
//! org/postgresql/jdbc/PgDatabaseMetaData.java.

use tokio_postgres::types::Type;

use crate::server::Server;
use crate::tools::{Param, column, has, refused, rows};

const CONNECTING: [&str; 12] = [
    "SET extra_float_digits = 3",
    "SET application_name = 'Metabase v0.62.1.5 [d4fe74c4-96c3-4812-b3ae-35e513752b13]'",
    "SELECT 1",
    "SHOW TRANSACTION ISOLATION LEVEL",
    "select current_catalog",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TIMEZONE TO 'UTC'",
    "show timezone;",
    // pgjdbc, getSchemas
    r#"SELECT nspname AS "TABLE_SCHEM", current_database() AS "TABLE_CATALOG" FROM pg_catalog.pg_namespace  WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_'  OR nspname = (pg_catalog.current_schemas(true))[1]) AND (nspname !~ '^pg_toast_temp_'  OR nspname = replace((pg_catalog.current_schemas(true))[1], 'pg_temp_', 'pg_toast_temp_'))  ORDER BY "TABLE_SCHEM""#,
    "SELECT nspname, typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid IN (SELECT DISTINCT enumtypid FROM pg_enum e)",
    PRIVILEGES,
];

const PRIVILEGES: &str = r#"with table_privileges as (
 select
   NULL as role,
   t.schemaname as schema,
   t.objectname as table,
   pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"',  'update') as update,
   pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"',  'select') as select,
   pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"',  'insert') as insert,
   pg_catalog.has_table_privilege(     current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"',  'delete') as delete
 from (
   select schemaname, tablename as objectname from pg_catalog.pg_tables
   union
   select schemaname, viewname as objectname from pg_catalog.pg_views
   union
   select schemaname, matviewname as objectname from pg_catalog.pg_matviews
 ) t
 where t.schemaname !~ '^pg_'
   and t.schemaname <> 'information_schema'
   and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage')
)
select t.*
from table_privileges t"#;

const TABLES: &str = r#"SELECT "n"."nspname" AS "schema", "c"."relname" AS "name", CASE "c"."relkind" WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW' WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END AS "type", "d"."description" AS "description", NULLIF("stat"."n_live_tup", $1) AS "estimated_row_count" FROM "pg_catalog"."pg_class" AS "c" INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "c"."relnamespace" = "n"."oid" LEFT JOIN "pg_catalog"."pg_description" AS "d" ON ("c"."oid" = "d"."objoid") AND ("d"."objsubid" = $2) AND ("d"."classoid" = 'pg_class'::regclass) LEFT JOIN "pg_stat_user_tables" AS "stat" ON ("n"."nspname" = "stat"."schemaname") AND ("c"."relname" = "stat"."relname") WHERE ("c"."relnamespace" = "n"."oid") AND ("n"."nspname" !~ $3) AND ("n"."nspname" <> $4) AND c.relkind in ('r', 'p', 'v', 'f', 'm') AND ("n"."nspname" IN ($5)) ORDER BY "type" ASC, "schema" ASC, "name" ASC"#;

const FIELDS: &str = r#"SELECT "c"."column_name" AS "name", CASE WHEN "c"."udt_schema" IN ('public', 'pg_catalog') THEN FORMAT('%s', "c"."udt_name") ELSE FORMAT('"%s"."%s"', "c"."udt_schema", "c"."udt_name") END AS "database-type", "c"."ordinal_position" - 1 AS "database-position", "c"."table_schema" AS "table-schema", "c"."table_name" AS "table-name", "pk"."column_name" IS NOT NULL AS "pk?", COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST("c"."table_schema" AS TEXT), CAST("c"."table_name" AS TEXT)) AS REGCLASS) AS OID), "c"."ordinal_position") AS "field-comment", (("column_default" IS NULL) OR (LOWER("column_default") = 'null')) AND ("is_nullable" = 'NO') AND NOT ((("column_default" IS NOT NULL) AND ("column_default" LIKE '%nextval(%')) OR ("is_identity" <> 'NO')) AS "database-required", "column_default" AS "database-default", (("column_default" IS NOT NULL) AND ("column_default" LIKE '%nextval(%')) OR ("is_identity" <> 'NO') AS "database-is-auto-increment", "is_generated" = $1 AS "database-is-generated", "is_nullable" = 'YES' AS "database-is-nullable" FROM "information_schema"."columns" AS "c" LEFT JOIN (SELECT "tc"."table_schema", "tc"."table_name", "kc"."column_name" FROM "information_schema"."table_constraints" AS "tc" INNER JOIN "information_schema"."key_column_usage" AS "kc" ON ("tc"."constraint_name" = "kc"."constraint_name") AND ("tc"."table_schema" = "kc"."table_schema") AND ("tc"."table_name" = "kc"."table_name") WHERE "tc"."constraint_type" = 'PRIMARY KEY') AS "pk" ON ("c"."table_schema" = "pk"."table_schema") AND ("c"."table_name" = "pk"."table_name") AND ("c"."column_name" = "pk"."column_name") WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND ("c"."table_schema" IN ($2)) UNION ALL SELECT "pa"."attname" AS "name", CASE WHEN "ptn"."nspname" IN ('public', 'pg_catalog') THEN FORMAT('%s', "pt"."typname") ELSE FORMAT('"%s"."%s"', "ptn"."nspname", "pt"."typname") END AS "database-type", "pa"."attnum" - 1 AS "database-position", "pn"."nspname" AS "table-schema", "pc"."relname" AS "table-name", FALSE AS "pk?", NULL AS "field-comment", FALSE AS "database-required", NULL AS "database-default", FALSE AS "database-is-auto-increment", FALSE AS "database-is-generated", FALSE AS "database-is-nullable" FROM "pg_catalog"."pg_class" AS "pc" INNER JOIN "pg_catalog"."pg_namespace" AS "pn" ON "pn"."oid" = "pc"."relnamespace" INNER JOIN "pg_catalog"."pg_attribute" AS "pa" ON "pa"."attrelid" = "pc"."oid" INNER JOIN "pg_catalog"."pg_type" AS "pt" ON "pt"."oid" = "pa"."atttypid" INNER JOIN "pg_catalog"."pg_namespace" AS "ptn" ON "ptn"."oid" = "pt"."typnamespace" WHERE ("pc"."relkind" = 'm') AND ("pa"."attnum" >= 1) AND ("pn"."nspname" IN ($3)) ORDER BY "table-schema" ASC, "table-name" ASC, "database-position" ASC"#;

const FOREIGN_KEYS: &str = r#"SELECT "fk_ns"."nspname" AS "fk-table-schema", "fk_table"."relname" AS "fk-table-name", "fk_column"."attname" AS "fk-column-name", "pk_ns"."nspname" AS "pk-table-schema", "pk_table"."relname" AS "pk-table-name", "pk_column"."attname" AS "pk-column-name" FROM "pg_constraint" AS "c" INNER JOIN "pg_class" AS "fk_table" ON "c"."conrelid" = "fk_table"."oid" INNER JOIN "pg_namespace" AS "fk_ns" ON "c"."connamespace" = "fk_ns"."oid" INNER JOIN "pg_attribute" AS "fk_column" ON "c"."conrelid" = "fk_column"."attrelid" INNER JOIN "pg_class" AS "pk_table" ON "c"."confrelid" = "pk_table"."oid" INNER JOIN "pg_namespace" AS "pk_ns" ON "pk_table"."relnamespace" = "pk_ns"."oid" INNER JOIN "pg_attribute" AS "pk_column" ON "c"."confrelid" = "pk_column"."attrelid" WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_' AND ("c"."contype" = 'f'::char) AND ("fk_column"."attnum" = ANY(c.conkey)) AND ("pk_column"."attnum" = ANY(c.confkey)) AND ("fk_ns"."nspname" IN ($1)) ORDER BY "fk-table-schema" ASC, "fk-table-name" ASC"#;

const INDEXES: &str = r#"SELECT "tmp"."table-schema", "tmp"."table-name", TRIM(BOTH '"' FROM PG_CATALOG.PG_GET_INDEXDEF("tmp"."ci_oid", "tmp"."pos", FALSE)) AS "field-name" FROM (SELECT "n"."nspname" AS "table-schema", "ct"."relname" AS "table-name", "ci"."oid" AS "ci_oid", (INFORMATION_SCHEMA._PG_EXPANDARRAY("i"."indkey"))."n" AS "pos" FROM "pg_catalog"."pg_class" AS "ct" INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "ct"."relnamespace" = "n"."oid" INNER JOIN "pg_catalog"."pg_index" AS "i" ON "ct"."oid" = "i"."indrelid" INNER JOIN "pg_catalog"."pg_class" AS "ci" ON "ci"."oid" = "i"."indexrelid" WHERE (PG_CATALOG.PG_GET_EXPR("i"."indpred", "i"."indrelid") IS NULL) AND n.nspname !~ '^information_schema|catalog_history|pg_' AND ("n"."nspname" IN ($1))) AS "tmp" WHERE "tmp"."pos" = 1"#;

/// pgjdbc, getColumns
const JDBC_COLUMNS: &str = r#"SELECT * FROM (SELECT current_database() AS current_database, n.nspname,c.relname,a.attname,a.atttypid,a.attnotnull  OR (t.typtype = 'd' AND t.typnotnull) AS attnotnull,a.atttypmod,a.attlen,t.typtypmod,row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum, nullif(a.attidentity, '') as attidentity,nullif(a.attgenerated, '') as attgenerated,pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS adsrc,dsc.description,t.typbasetype,t.typtype  FROM pg_catalog.pg_namespace n  JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid)  JOIN pg_catalog.pg_attribute a ON (a.attrelid=c.oid)  JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid)  LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid=def.adrelid AND a.attnum = def.adnum)  LEFT JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid)  LEFT JOIN pg_catalog.pg_class dc ON (dc.oid=dsc.classoid AND dc.relname='pg_class')  LEFT JOIN pg_catalog.pg_namespace dn ON (dc.relnamespace=dn.oid AND dn.nspname='pg_catalog')  WHERE c.relkind in ('r','p','v','f','m') and a.attnum > 0 AND NOT a.attisdropped  AND n.nspname LIKE $1 AND c.relname LIKE $2) c WHERE true  ORDER BY nspname,c.relname,attnum"#;

/// pgjdbc, getPrimaryKeys
const JDBC_KEYS: &str = r#"SELECT        result.TABLE_CAT AS "TABLE_CAT",        result.TABLE_SCHEM AS "TABLE_SCHEM",        result.TABLE_NAME AS "TABLE_NAME",        result.COLUMN_NAME AS "COLUMN_NAME",        result.KEY_SEQ AS "KEY_SEQ",        result.PK_NAME AS "PK_NAME"FROM      (SELECT current_database() AS TABLE_CAT, n.nspname AS TABLE_SCHEM,   ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME,   (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME,   information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM, i.indnkeyatts as KEY_COUNT FROM pg_catalog.pg_class ct   JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid)   JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)   JOIN pg_catalog.pg_index i ON ( a.attrelid = i.indrelid)   JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) WHERE true  AND n.nspname = $1 AND ct.relname = $2 AND i.indisprimary  ) result where  result.A_ATTNUM = (result.KEYS).x AND result.KEY_SEQ <= KEY_COUNT  ORDER BY result.table_name, result.pk_name, result.key_seq"#;

fn columns_of_table(oid: &str) -> String {
    // pgjdbc, PgResultSetMetaData.fetchFieldMetaData: of the columns of an answer that are columns of a table.
    format!(
        r#"SELECT c.oid, a.attnum, a.attname, c.relname, n.nspname, a.attnotnull OR (t.typtype = 'd' AND t.typnotnull), a.attidentity != '' OR pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON (c.relnamespace = n.oid) JOIN pg_catalog.pg_attribute a ON (c.oid = a.attrelid) JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid) LEFT JOIN pg_catalog.pg_attrdef d ON (d.adrelid = a.attrelid AND d.adnum = a.attnum) JOIN (SELECT {oid} AS oid , 2 AS attnum UNION ALL SELECT {oid}, 3) vals ON (c.oid = vals.oid AND a.attnum = vals.attnum) where c.oid in ({oid})"#
    )
}

fn text<'a>(value: &'a &'static str) -> Param<'a> {
    (value, Type::VARCHAR)
}

#[tokio::test(flavor = "multi_thread")]
async fn metabase_connects() {
    let server = Server::filled().await;
    let client = server.connect().await;
    assert_eq!(refused(&client, &CONNECTING).await, Vec::<String>::new());
    has(&column(&rows(&client, PRIVILEGES, &[]).await, "table"), &["events", "per_device", "per_unit"]);
    for row in rows(&client, PRIVILEGES, &[]).await {
        let may = |what: &str| row.get::<_, bool>(what);
        let table: &str = row.get("table");
        assert!(may("select"), "{table}");
        assert!(!may("update") && !may("insert") && !may("delete"), "{table} is not written by clients");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metabase_lists_tables_and_their_columns() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let (zero, public) = (0_i64, "public");
    let of_tables = [(&zero, Type::INT8), (&zero, Type::INT8), text(&"^pg_"), text(&"information_schema"), text(&public)] as [Param; 5];
    let tables = rows(&client, TABLES, &of_tables).await;
    has(&column(&tables, "name"), &["events", "per_device", "per_unit"]);
    let kind = |name: &str| tables.iter().find(|row| row.get::<_, &str>("name") == name).unwrap().get::<_, String>("type");
    assert_eq!((kind("per_device").as_str(), kind("events").as_str()), ("VIEW", "TABLE"));

    let fields = rows(&client, FIELDS, &[text(&"ALWAYS"), text(&public), text(&public)]).await;
    let of = |name: &str| {
        let of_table = fields.iter().filter(|row| row.get::<_, &str>("table-name") == name);
        of_table.map(|row| [row.get("name"), row.get("database-type")]).collect::<Vec<[String; 2]>>()
    };
    assert_eq!(of("per_device"), [["device", "text"], ["n", "int8"], ["amount", "numeric"]]);
    has(&of("events").concat(), &["id", "ts", "timestamptz", "device", "marks", "_int8"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metabase_asks_for_keys_and_indexes_and_its_questions() {
    let server = Server::filled().await;
    let client = server.connect().await;
    for sql in [FOREIGN_KEYS, INDEXES] {
        assert!(rows(&client, sql, &[text(&"public")]).await.is_empty(), "{sql}");
    }
    let of_view = [text(&"public"), text(&"per_device")];
    assert_eq!(column(&rows(&client, JDBC_COLUMNS, &of_view).await, "attname"), ["device", "n", "amount"]);
    assert!(rows(&client, JDBC_KEYS, &of_view).await.is_empty());
    let oid: u32 = rows(&client, "SELECT oid FROM pg_class WHERE relname = 'per_device'", &[]).await[0].get(0);
    assert_eq!(column(&rows(&client, &columns_of_table(&oid.to_string()), &[]).await, "attname"), ["n", "amount"]);
    // Fingerprints of fields, and a question that is asked by clicks.
    let asked = [
        r#"-- Metabase
SELECT SUBSTRING("public"."per_device"."device", 1, 1234) AS "substring1" FROM "public"."per_device" LIMIT 10000"#,
        r#"SELECT DATE_TRUNC('month', "public"."events"."ts") AS "ts", SUM("public"."events"."amount") AS "sum" FROM "public"."events" GROUP BY DATE_TRUNC('month', "public"."events"."ts") ORDER BY DATE_TRUNC('month', "public"."events"."ts") ASC"#,
        r#"SELECT CAST("public"."events"."ts" AS date) AS "ts", COUNT(*) AS "count" FROM "public"."events" WHERE "public"."events"."ts" >= timestamp with time zone '2026-03-01 00:00:00.000Z' GROUP BY CAST("public"."events"."ts" AS date) ORDER BY CAST("public"."events"."ts" AS date) ASC"#,
        r#"SELECT "source"."device" AS "device", "source"."n" AS "n" FROM (SELECT "public"."per_device"."device" AS "device", "public"."per_device"."n" AS "n" FROM "public"."per_device") AS "source" WHERE (LOWER("source"."device") LIKE '%a%') LIMIT 1048575"#,
    ];
    assert_eq!(refused(&client, &asked).await, Vec::<String>::new());
    server.stop().await;
}
