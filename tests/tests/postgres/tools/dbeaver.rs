//! DBeaver, by the JDBC driver: the extended protocol, with OIDs as int8 and texts as varchar.
//!
//! The sources are dbeaver/dbeaver,
//! plugins/org.jkiss.dbeaver.ext.postgresql/src/org/jkiss/dbeaver/ext/postgresql/model/ (`PostgreDataSource`,
//! `PostgreDatabase`, `PostgreSchema`, `PostgreDataType`, `PostgreExecutionContext`), and pgjdbc/pgjdbc,
//! org/postgresql/jdbc/PgDatabaseMetaData.java and TypeInfoCache.java.

use tokio_postgres::types::Type;

use crate::server::Server;
use crate::tools::{Param, column, has, refused, rows};

/// What it asks on connecting.
const CONNECTING: [&str; 22] = [
    "SET extra_float_digits = 3",
    "SET application_name = 'DBeaver 25.3.3 - Main <basestream>'",
    "SHOW TRANSACTION ISOLATION LEVEL",
    // PostgreExecutionContext.refreshDefaults
    "SELECT current_schema(),session_user",
    "SHOW search_path",
    r#"SET search_path = public,public,"$user""#,
    // PostgreDataSource.initialize
    "SELECT version()",
    "SELECT * FROM pg_catalog.pg_enum WHERE 1<>1 LIMIT 1",
    "SELECT reltype FROM pg_catalog.pg_class WHERE 1<>1 LIMIT 1",
    "select * from pg_catalog.pg_settings",
    // PostgreDatabase
    "SELECT a.oid,a.*,pd.description FROM pg_catalog.pg_roles a left join pg_catalog.pg_shdescription pd on a.oid = pd.objoid ORDER BY a.rolname",
    "SELECT am.oid,am.* FROM pg_catalog.pg_am am \nORDER BY am.oid",
    "SELECT c.contoencoding as encid,pg_catalog.pg_encoding_to_char(c.contoencoding) as encname\nFROM pg_catalog.pg_conversion c\nGROUP BY c.contoencoding\nORDER BY 2\n",
    "SELECT l.oid,l.* FROM pg_catalog.pg_language l \nORDER BY l.oid",
    "SELECT l.oid,l.*,p.pronamespace as handler_schema_id \nFROM pg_catalog.pg_foreign_data_wrapper l\nLEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid=l.fdwhandler \nORDER BY l.fdwname",
    "SELECT l.oid,l.* FROM pg_catalog.pg_foreign_server l\nORDER BY l.srvname",
    "SELECT t.oid,t.*,pg_tablespace_location(t.oid) loc FROM pg_catalog.pg_tablespace t \nORDER BY t.oid",
    // PostgreDataType
    "SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description\nFROM pg_catalog.pg_type t\nLEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem \nLEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid\nLEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid\nWHERE t.typname IS NOT NULL\nAND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')",
    // pgjdbc, getSQLKeywords: the list of SQL:2003 is longer.
    "select string_agg(word, ',') from pg_catalog.pg_get_keywords() where word <> ALL ('{a,abs,absolute,action,ada,add,admin,work,write,year,zone}'::text[])",
    // pgjdbc, TypeInfoCache
    "SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 1034",
    "SELECT typinput='pg_catalog.array_in'::regproc as is_array, typtype, typname, pg_type.oid   FROM pg_catalog.pg_type   LEFT JOIN (select ns.oid as nspoid, ns.nspname, r.r           from pg_namespace as ns           join ( select s.r, (current_schemas(false))[s.r] as nspname                    from generate_series(1, array_upper(current_schemas(false), 1)) as s(r) ) as r          using ( nspname )        ) as sp     ON sp.nspoid = typnamespace  WHERE pg_type.oid = 1034  ORDER BY sp.r, pg_type.oid DESC",
    "SELECT e.oid,e.* FROM pg_catalog.pg_extension e ORDER BY e.oid",
];

const DATABASES: &str =
    "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn  AND NOT datistemplate OR db.datname =$1\nORDER BY db.datname";
const SETTING: &str = "select * from pg_catalog.pg_settings where name=$1";
const DATABASE_COMMENT: &str = "select description from pg_shdescription join pg_database on objoid = pg_database.oid where datname = $1";
const SCHEMAS: &str = "SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n\nLEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass\n ORDER BY nspname";
/// PostgreSchema, TableCache.
const TABLES: &str = "SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,  pg_catalog.pg_get_partkeydef(c.oid) as partition_key \nFROM pg_catalog.pg_class c\nLEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass\nWHERE c.relnamespace=$1 AND c.relkind not in ('i','I','c')";
const COLUMNS: &str = "SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid\nFROM pg_catalog.pg_attribute a\nINNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid)\nLEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum)\nLEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid)\nLEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid\nWHERE NOT a.attisdropped AND c.relkind not in ('i','I','c') AND c.oid=$1\nORDER BY a.attnum";

/// What it asks of a schema and of a table: constraints, indexes, triggers, rules, policies, sizes. There are none.
const OF_SCHEMA: [&str; 5] = [
    "SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when c.contype='c' then \"substring\"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy\nFROM pg_catalog.pg_constraint c\nINNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid\nLEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid\nLEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass\nWHERE t.relnamespace=$1\nORDER BY c.oid",
    "SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr,pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size,pg_catalog.pg_stat_get_numscans(i.indexrelid) as index_num_scans\nFROM pg_catalog.pg_index i\nINNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid\nINNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid\nLEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid\nWHERE  c.relnamespace=$1 ORDER BY c.relname",
    "SELECT p.oid as poid,p.*,pg_catalog.pg_get_expr(p.proargdefaults, 0) as arg_defaults,d.description\nFROM pg_catalog.pg_proc p\nLEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=p.oid AND d.objsubid = 0\nWHERE p.pronamespace=$1\nORDER BY p.proname",
    "SELECT c.oid,c.*,d.description FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=$1 AND c.relkind='S'",
    "select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,pg_catalog.pg_relation_size(c.oid) as rel_size\nFROM pg_class c\nWHERE c.relnamespace=$1",
];
const OF_TABLE: [&str; 7] = [
    "SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when c.contype='c' then \"substring\"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy\nFROM pg_catalog.pg_constraint c\nINNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid\nLEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid\nLEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass\nWHERE c.conrelid=$1\nORDER BY c.oid",
    "SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr,pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size,pg_catalog.pg_stat_get_numscans(i.indexrelid) as index_num_scans\nFROM pg_catalog.pg_index i\nINNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid\nINNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid\nLEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid\nWHERE  i.indrelid=$1 ORDER BY c.relname",
    "SELECT DISTINCT connamespace FROM pg_catalog.pg_constraint WHERE confrelid=$1",
    "SELECT x.oid,x.*,p.pronamespace as func_schema_id,d.description\nFROM pg_catalog.pg_trigger x\nLEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid=x.tgfoid \nLEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=x.oid AND d.objsubid=0 \nWHERE x.tgrelid = $1 AND NOT x.tgisinternal",
    "SELECT r.oid,r.*, pg_get_ruledef(r.oid) AS definition FROM pg_rewrite r WHERE r.ev_class=$1 AND r.rulename <> '_RETURN'::name",
    "SELECT i.*,c.relnamespace FROM pg_catalog.pg_inherits i,pg_catalog.pg_class c WHERE i.inhrelid=$1 AND c.oid=i.inhparent ORDER BY i.inhseqno",
    "select pg_catalog.pg_get_viewdef($1, true)",
];
/// PostgreTableBase.getDependencies: what depends on a table.
const DEPENDENCIES: &str = "SELECT DISTINCT dep.deptype, dep.classid, dep.objid, cl.relkind, attr.attname,pg_get_expr(ad.adbin, ad.adrelid) adefval,\n    CASE WHEN cl.relkind IS NOT NULL THEN cl.relkind::text || COALESCE(dep.objsubid::text, '')::text\n        WHEN tg.oid IS NOT NULL THEN 'T'::text\n        WHEN ty.oid IS NOT NULL THEN 'y'::text\n        WHEN ns.oid IS NOT NULL THEN 'n'::text\n        WHEN pr.oid IS NOT NULL THEN 'p'::text\n        WHEN la.oid IS NOT NULL THEN 'l'::text\n        WHEN rw.oid IS NOT NULL THEN 'R'::text\n        WHEN co.oid IS NOT NULL THEN 'C'::text || contype::text\n        WHEN ad.oid IS NOT NULL THEN 'A'::text\n        ELSE ''\n    END AS type,\n    COALESCE(coc.relname, clrw.relname, tgr.relname) AS ownertable,\n    CASE WHEN cl.relname IS NOT NULL AND att.attname IS NOT NULL THEN cl.relname || '.' || att.attname\n    ELSE COALESCE(cl.relname, co.conname, pr.proname, tg.tgname, ty.typname, la.lanname, rw.rulename, ns.nspname)\n    END AS refname,\n    COALESCE(nsc.nspname, nso.nspname, nsp.nspname, nst.nspname, nsrw.nspname, tgrn.nspname) AS nspname\nFROM pg_depend dep\nLEFT JOIN pg_class cl ON dep.objid=cl.oid\nLEFT JOIN pg_attribute att ON dep.objid=att.attrelid AND dep.objsubid=att.attnum\nLEFT JOIN pg_namespace nsc ON cl.relnamespace=nsc.oid\nLEFT JOIN pg_proc pr ON dep.objid=pr.oid\nLEFT JOIN pg_namespace nsp ON pr.pronamespace=nsp.oid\nLEFT JOIN pg_trigger tg ON dep.objid=tg.oid\nLEFT JOIN pg_class tgr ON tg.tgrelid=tgr.oid\nLEFT JOIN pg_namespace tgrn ON tgr.relnamespace=tgrn.oid\nLEFT JOIN pg_type ty ON dep.objid=ty.oid\nLEFT JOIN pg_namespace nst ON ty.typnamespace=nst.oid\nLEFT JOIN pg_constraint co ON dep.objid=co.oid\nLEFT JOIN pg_class coc ON co.conrelid=coc.oid\nLEFT JOIN pg_namespace nso ON co.connamespace=nso.oid\nLEFT JOIN pg_rewrite rw ON dep.objid=rw.oid\nLEFT JOIN pg_class clrw ON clrw.oid=rw.ev_class\nLEFT JOIN pg_namespace nsrw ON clrw.relnamespace=nsrw.oid\nLEFT JOIN pg_language la ON dep.objid=la.oid\nLEFT JOIN pg_namespace ns ON dep.objid=ns.oid\nLEFT JOIN pg_attrdef ad ON ad.oid=dep.objid\nLEFT JOIN pg_attribute attr ON attr.attrelid=ad.adrelid and attr.attnum=ad.adnum\nWHERE dep.refobjid=$1\nORDER BY type";
const POLICIES: &str = "select * from pg_catalog.pg_policies where schemaname=$1 and tablename=$2";

#[tokio::test(flavor = "multi_thread")]
async fn dbeaver_connects() {
    let server = Server::filled().await;
    let client = server.connect().await;
    assert_eq!(refused(&client, &CONNECTING).await, Vec::<String>::new());
    let database: [Param; 1] = [(&"basestream", Type::VARCHAR)];
    assert_eq!(column(&rows(&client, DATABASES, &database).await, "datname"), ["basestream"]);
    assert!(rows(&client, DATABASE_COMMENT, &database).await.is_empty());
    let setting = rows(&client, SETTING, &[(&"standard_conforming_strings", Type::VARCHAR)]).await;
    assert_eq!(column(&setting, "setting"), ["on"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dbeaver_lists_tables_and_their_columns() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let schemas = rows(&client, SCHEMAS, &[]).await;
    has(&column(&schemas, "nspname"), &["public", "system", "pg_catalog"]);
    let public = schemas.iter().find(|row| row.get::<_, &str>("nspname") == "public").unwrap();
    let public = i64::from(public.get::<_, u32>("oid"));
    let of_public: [Param; 1] = [(&public, Type::INT8)];

    let tables = rows(&client, TABLES, &of_public).await;
    has(&column(&tables, "relname"), &["events", "per_device", "per_unit"]);
    let view = tables.iter().find(|row| row.get::<_, &str>("relname") == "per_device").unwrap();
    assert_eq!(view.get::<_, &str>("relkind"), "v");
    let view = i64::from(view.get::<_, u32>("oid"));
    let of_view: [Param; 1] = [(&view, Type::INT8)];
    assert_eq!(column(&rows(&client, COLUMNS, &of_view).await, "attname"), ["device", "n", "amount"]);

    let of_both = OF_SCHEMA.iter().map(|sql| (sql, &of_public)).chain(OF_TABLE.iter().chain([&DEPENDENCIES]).map(|sql| (sql, &of_view)));
    let mut refused = Vec::new();
    for (sql, params) in of_both {
        refused.extend(client.query_typed(sql, params).await.err().map(|error| format!("{error:?}\n  {sql}")));
    }
    assert_eq!(refused, Vec::<String>::new());
    assert!(rows(&client, POLICIES, &[(&"public", Type::VARCHAR), (&"events", Type::VARCHAR)]).await.is_empty());
    // What it shows of a table's rows: PostgreTableBase, with the first 200.
    assert_eq!(client.simple_query("SELECT x.* FROM public.per_device x LIMIT 200").await.unwrap().len(), 3 + 2);
    server.stop().await;
}
