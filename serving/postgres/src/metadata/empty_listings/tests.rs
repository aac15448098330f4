use super::*;

#[test]
fn what_lists_the_columns_of_indexes_has_its_columns_and_no_rows() {
    let sql = "SELECT r.TABLE_CAT, r.KEY_SEQ AS n FROM (SELECT (information_schema._pg_expandarray(i.indkey)) AS KEYS FROM pg_index i) r \
        WHERE r.A = (r.KEYS).x ORDER BY 1";
    assert_eq!(no_rows(sql).unwrap(), "SELECT CAST(NULL AS TEXT) AS TABLE_CAT, CAST(NULL AS TEXT) AS n WHERE false");
    let bound = "SELECT x.pg_index.indrelid, 1 AS one FROM x WHERE a = $2 AND b = $1 AND c = $2";
    let expected = "SELECT CAST(NULL AS TEXT) AS indrelid, CAST(NULL AS TEXT) AS one WHERE false AND CAST($1 AS TEXT) IS NULL \
        AND CAST($2 AS TEXT) IS NULL";
    assert_eq!(no_rows(bound).unwrap(), expected, "its parameters stay");
    let union = "WITH a AS (SELECT unnest(con.conkey) FROM b) SELECT c, d AS e FROM a UNION ALL SELECT f, NULL FROM g";
    assert_eq!(no_rows(union).unwrap(), "SELECT CAST(NULL AS TEXT) AS c, CAST(NULL AS TEXT) AS e WHERE false");
    assert_eq!(no_rows("DELETE FROM x"), None);
    assert_eq!(no_rows("SELECT * FROM x"), None);
}
