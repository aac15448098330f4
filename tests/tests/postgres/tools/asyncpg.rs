//! asyncpg: what it asks of types that it does not know, which are all arrays but `text[]` and `oid[]`.
//!
//! The source is MagicStack/asyncpg, asyncpg/introspection.py (`INTRO_LOOKUP_TYPES`, `_TYPEINFO`).

use tokio_postgres::Row;
use tokio_postgres::types::{Kind, Type};

use crate::server::Server;

const LOOKUP_TYPES: &str = "WITH RECURSIVE typeinfo_tree(
    oid, ns, name, kind, basetype, elemtype, elemdelim,
    range_subtype, attrtypoids, attrnames, depth)
AS (
    SELECT
        ti.oid, ti.ns, ti.name, ti.kind, ti.basetype,
        ti.elemtype, ti.elemdelim, ti.range_subtype,
        ti.attrtypoids, ti.attrnames, 0
    FROM
        {typeinfo} AS ti
    WHERE
        ti.oid = any($1::oid[])

    UNION ALL

    SELECT
        ti.oid, ti.ns, ti.name, ti.kind, ti.basetype,
        ti.elemtype, ti.elemdelim, ti.range_subtype,
        ti.attrtypoids, ti.attrnames, tt.depth + 1
    FROM
        {typeinfo} ti,
        typeinfo_tree tt
    WHERE
        (tt.elemtype IS NOT NULL AND ti.oid = tt.elemtype)
        OR (tt.attrtypoids IS NOT NULL AND ti.oid = any(tt.attrtypoids))
        OR (tt.range_subtype IS NOT NULL AND ti.oid = tt.range_subtype)
        OR (tt.basetype IS NOT NULL AND ti.oid = tt.basetype)
)

SELECT DISTINCT
    *,
    basetype::regtype::text AS basetype_name,
    elemtype::regtype::text AS elemtype_name,
    range_subtype::regtype::text AS range_subtype_name
FROM
    typeinfo_tree
ORDER BY
    depth DESC
";

/// What it has in the place of `{typeinfo}`.
const TYPEINFO: &str = "    (
        SELECT
            t.oid                           AS oid,
            ns.nspname                      AS ns,
            t.typname                       AS name,
            t.typtype                       AS kind,
            (CASE WHEN t.typtype = 'd' THEN
                (WITH RECURSIVE typebases(oid, depth) AS (
                    SELECT
                        t2.typbasetype      AS oid,
                        0                   AS depth
                    FROM
                        pg_type t2
                    WHERE
                        t2.oid = t.oid

                    UNION ALL

                    SELECT
                        t2.typbasetype      AS oid,
                        tb.depth + 1        AS depth
                    FROM
                        pg_type t2,
                        typebases tb
                    WHERE
                       tb.oid = t2.oid
                       AND t2.typbasetype != 0
               ) SELECT oid FROM typebases ORDER BY depth DESC LIMIT 1)

               ELSE NULL
            END)                            AS basetype,
            t.typelem                       AS elemtype,
            elem_t.typdelim                 AS elemdelim,
            COALESCE(
                range_t.rngsubtype,
                multirange_t.rngsubtype)    AS range_subtype,
            (CASE WHEN t.typtype = 'c' THEN
                (SELECT
                    array_agg(ia.atttypid ORDER BY ia.attnum)
                FROM
                    pg_attribute ia
                    INNER JOIN pg_class c
                        ON (ia.attrelid = c.oid)
                WHERE
                    ia.attnum > 0 AND NOT ia.attisdropped
                    AND c.reltype = t.oid)

                ELSE NULL
            END)                            AS attrtypoids,
            (CASE WHEN t.typtype = 'c' THEN
                (SELECT
                    array_agg(ia.attname::text ORDER BY ia.attnum)
                FROM
                    pg_attribute ia
                    INNER JOIN pg_class c
                        ON (ia.attrelid = c.oid)
                WHERE
                    ia.attnum > 0 AND NOT ia.attisdropped
                    AND c.reltype = t.oid)

                ELSE NULL
            END)                            AS attrnames
        FROM
            pg_catalog.pg_type AS t
            INNER JOIN pg_catalog.pg_namespace ns ON (
                ns.oid = t.typnamespace)
            LEFT JOIN pg_type elem_t ON (
                t.typlen = -1 AND
                t.typelem != 0 AND
                t.typelem = elem_t.oid
            )
            LEFT JOIN pg_range range_t ON (
                t.oid = range_t.rngtypid
            )
            LEFT JOIN pg_range multirange_t ON (
                t.oid = multirange_t.rngmultitypid
            )
    )
";

#[tokio::test(flavor = "multi_thread")]
async fn asyncpg_asks_for_the_items_of_arrays() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let asked = client.prepare(&LOOKUP_TYPES.replace("{typeinfo}", TYPEINFO)).await.unwrap();
    // These it knows. For a type of the query itself that it does not know, it would ask the same query, without end.
    assert_eq!(asked.params(), [Type::OID_ARRAY]);
    let known = [Type::OID, Type::TEXT, Type::INT4, Type::INT8, Type::TEXT_ARRAY];
    for column in asked.columns() {
        assert!(known.contains(column.type_()), "{column:?}");
    }

    let arrays = [
        Type::BOOL_ARRAY,
        Type::INT2_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::FLOAT8_ARRAY,
        Type::NUMERIC_ARRAY,
        Type::BYTEA_ARRAY,
        Type::UUID_ARRAY,
        Type::DATE_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ];
    let oids: Vec<u32> = arrays.iter().map(Type::oid).collect();
    let rows = client.query(&asked, &[&oids]).await.unwrap();
    assert_eq!(rows.len(), 2 * arrays.len());
    for array in arrays {
        let Kind::Array(item) = array.kind() else { panic!("{array}") };
        for (found, elemtype, elemdelim, depth) in [(&array, item.oid(), Some(","), 0), (item, 0, None, 1)] {
            let is_found = |row: &&Row| row.get::<_, u32>("oid") == found.oid();
            let row = rows.iter().find(is_found).unwrap_or_else(|| panic!("{found}"));
            let text = |column: &str| row.get::<_, Option<String>>(column);
            assert_eq!((text("ns").as_deref(), text("name").as_deref()), (Some("pg_catalog"), Some(found.name())));
            assert_eq!((text("kind").as_deref(), text("elemdelim").as_deref()), (Some("b"), elemdelim), "{found}");
            assert_eq!((row.get::<_, u32>("elemtype"), row.get::<_, i64>("depth")), (elemtype, depth), "{found}");
            assert_eq!(row.get::<_, Option<Vec<String>>>("attrtypoids"), None, "{found}");
        }
    }
    let depths: Vec<i64> = rows.iter().map(|row| row.get("depth")).collect();
    assert!(depths.is_sorted_by(|a, b| a >= b), "the items come first: {depths:?}");
    server.stop().await;
}
