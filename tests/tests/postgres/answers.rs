//! What clients get: values, parameters, COPY, and on which read view.

use futures::{StreamExt, TryStreamExt};
use rust_decimal::Decimal;
use serde_json::{Value as Json, json};
use tokio_postgres::Statement;
use tokio_postgres::types::{FromSql, ToSql, Type};
use uuid::Uuid;

use crate::server::{Server, UNIT, error_of, one, texts};

const COLUMNS: &str = "device, unit, ok, small, big, real, amount, day, raw, tags, marks, ts";

#[tokio::test(flavor = "multi_thread")]
async fn values_of_every_type_are_the_same_in_text_and_binary() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = format!("SELECT {COLUMNS} FROM events WHERE device = 'a'");
    let text = texts(&client, &sql).await.concat();
    let shown: Vec<&str> = text.iter().map(|value| value.as_deref().unwrap()).collect();
    let expected = [
        "a",
        UNIT,
        "t",
        "-7",
        "9007199254740993",
        "1.5",
        "12.34",
        "2026-02-03",
        "\\x00ff",
        "{x,\"y z\",NULL}",
        "{1,-2}",
        "2026-03-01 10:01:00+00",
    ];
    assert_eq!(shown, expected);

    let row = client.query_one(&sql, &[]).await.unwrap();
    let types: Vec<Type> = row.columns().iter().map(|column| column.type_().clone()).collect();
    let expected = [
        Type::TEXT,
        Type::UUID,
        Type::BOOL,
        Type::INT4,
        Type::INT8,
        Type::FLOAT8,
        Type::NUMERIC,
        Type::DATE,
        Type::BYTEA,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ,
    ];
    assert_eq!(types, expected);
    assert_eq!((row.get::<_, &str>(0), row.get::<_, Uuid>(1), row.get::<_, bool>(2)), ("a", UNIT.parse().unwrap(), true));
    assert_eq!((row.get::<_, i32>(3), row.get::<_, i64>(4), row.get::<_, f64>(5)), (-7, 9_007_199_254_740_993, 1.5));
    assert_eq!((row.get::<_, Decimal>(6), row.get::<_, &[u8]>(8)), ("12.34".parse().unwrap(), &b"\x00\xff"[..]));
    assert_eq!(row.get::<_, Vec<Option<String>>>(9), [Some("x".to_owned()), Some("y z".to_owned()), None]);
    assert_eq!(row.get::<_, Vec<i64>>(10), [1, -2]);
    let at: std::time::SystemTime = row.get(11);
    assert_eq!(at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_772_359_260);

    let nulls = client.query_one(&format!("SELECT {COLUMNS} FROM events WHERE device IS NULL"), &[]).await.unwrap();
    assert!((0..11).all(|column| nulls.try_get::<_, Option<&str>>(column).is_err() || nulls.get::<_, Option<&str>>(column).is_none()));
    assert_eq!(
        texts(&client, &format!("SELECT {COLUMNS} FROM events WHERE device IS NULL")).await.concat()[..11],
        vec![None::<String>; 11]
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_and_numbers_of_items_are_integers() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT n, n + 1 AS next, rank, items FROM (
            SELECT row_number() OVER (ORDER BY id) AS n, rank() OVER (ORDER BY id) - 1 AS rank, cardinality(tags) AS items FROM events
        ) AS numbered WHERE n <= $1";
    let statement = client.prepare(sql).await.unwrap();
    assert_eq!(statement.params(), [Type::INT8]);
    assert!(statement.columns().iter().all(|column| *column.type_() == Type::INT8), "{:?}", statement.columns());
    let row = client.query_one(&statement, &[&1_i64]).await.unwrap();
    assert_eq!([0, 1, 2, 3].map(|column| row.get::<_, i64>(column)), [1, 2, 0, 3]);
    let row = client.query_one("SELECT arrow_cast(2, 'UInt64') AS two", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 2);
    let error = client.simple_query("SELECT arrow_cast('9223372036854775808', 'UInt64')").await.unwrap_err();
    assert_eq!(error_of(&error).0, "22003");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_beside_an_array_is_that_array() {
    let server = Server::filled().await;
    let client = server.connect().await;
    for condition in ["marks = '{1,-2}'", "'{}' <> marks", "tags > '{a}'"] {
        assert_eq!(one(&client, &format!("SELECT device FROM events WHERE {condition}")).await, "a", "{condition}");
    }
    let error = client.simple_query("SELECT 1 FROM events WHERE marks = '1'").await.unwrap_err();
    assert_eq!(error_of(&error).0, "22P02");
    server.stop().await;
}

/// What PostgreSQL has no type for.
#[tokio::test(flavor = "multi_thread")]
async fn structs_maps_and_lists_of_lists_are_json_in_text_and_binary() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT named_struct('n', big, 'amount', amount, 'tags', tags) AS s, map([device], [small]) AS m, \
        ARRAY[marks, NULL] AS l FROM events WHERE device = 'a'";
    let expected = [r#"{"n":"9007199254740993","amount":"12.34","tags":["x","y z",null]}"#, r#"{"a":-7}"#, "[[1,-2],null]"];
    let text = texts(&client, sql).await.concat();
    assert_eq!(text.iter().flatten().collect::<Vec<_>>(), expected);
    let row = client.query_one(sql, &[]).await.unwrap();
    for (column, expected) in expected.into_iter().enumerate() {
        assert_eq!(*row.columns()[column].type_(), Type::JSON, "{column}");
        assert_eq!(row.get::<_, Raw<'_>>(column).0, expected.as_bytes(), "{column}");
    }
    server.stop().await;
}

/// As drivers expect that decode JSON.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_json_and_what_is_cast_to_json_are_json() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT doc, '[1]'::jsonb AS list, ARRAY[doc] AS docs, doc::text AS text, doc -> 'k' AS k, doc #>> '{k,1}' AS k_1 \
        FROM events WHERE device = 'a'";
    let doc = r#"{"k":[1,2]}"#;
    let shown = texts(&client, sql).await.concat();
    assert_eq!(shown.iter().flatten().collect::<Vec<_>>(), [doc, "[1]", r#"{"{\"k\":[1,2]}"}"#, doc, "[1,2]", "2"]);
    let row = client.query_one(sql, &[]).await.unwrap();
    let types: Vec<&Type> = row.columns().iter().map(|column| column.type_()).collect();
    assert_eq!(types, [&Type::JSON, &Type::JSON, &Type::JSON_ARRAY, &Type::TEXT, &Type::JSON, &Type::TEXT]);
    let expected = json!({"k": [1, 2]});
    assert_eq!((row.get::<_, Json>(0), row.get::<_, Json>(1)), (expected.clone(), json!([1])));
    assert_eq!((row.get::<_, Vec<Json>>(2), row.get::<_, &str>(3)), (vec![expected.clone()], doc));
    let same = client.prepare("SELECT $1::json AS same").await.unwrap();
    assert_eq!((same.params(), same.columns()[0].type_()), (&[Type::JSON][..], &Type::JSON));
    assert_eq!(client.query_one(&same, &[&expected]).await.unwrap().get::<_, Json>(0), expected);
    let of_text = client.prepare("SELECT $1::text::json AS same").await.unwrap();
    assert_eq!((of_text.params(), of_text.columns()[0].type_()), (&[Type::TEXT][..], &Type::JSON));
    assert_eq!(client.query_one(&of_text, &[&doc]).await.unwrap().get::<_, Json>(0), expected);
    let column = "SELECT data_type, udt_name FROM information_schema.columns WHERE table_name = 'events' AND column_name = 'doc'";
    assert_eq!(texts(&client, column).await.concat().iter().flatten().collect::<Vec<_>>(), ["json", "json"]);
    let attribute = "SELECT format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a \
        JOIN pg_catalog.pg_class c ON c.oid = a.attrelid WHERE c.relname = 'events' AND a.attname = 'doc'";
    assert_eq!(one(&client, attribute).await, "json");
    server.stop().await;
}

/// The bytes of a value, of whatever type.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_of_the_types_of_what_they_are_compared_with() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let unit: Uuid = UNIT.parse().unwrap();
    let amount: Decimal = "12.34".parse().unwrap();
    let asked: [(&str, &(dyn ToSql + Sync), Type); 11] = [
        ("SELECT count(*) FROM events WHERE device = $1", &"a", Type::TEXT),
        ("SELECT count(*) FROM events WHERE unit = $1", &unit, Type::UUID),
        ("SELECT count(*) FROM events WHERE big = $1", &9_007_199_254_740_993i64, Type::INT8),
        ("SELECT count(*) FROM events WHERE amount = $1", &amount, Type::NUMERIC),
        ("SELECT count(*) FROM events WHERE ok = $1", &true, Type::BOOL),
        ("SELECT count(*) FROM events WHERE device = ANY($1)", &["a", "x"].as_slice(), Type::TEXT_ARRAY),
        ("SELECT count(*) FROM events WHERE small = ANY ($1)", &[-7i32, 8].as_slice(), Type::INT4_ARRAY),
        ("SELECT count(*) FROM events WHERE device = 'a' AND $1 = 'x'", &"x", Type::TEXT),
        ("SELECT count(*) FROM (SELECT id FROM events LIMIT $1) AS first", &1i64, Type::INT8),
        ("SELECT count(*) FROM (SELECT id FROM events LIMIT 1 OFFSET $1) AS second", &1i64, Type::INT8),
        ("SELECT count(*) FROM (SELECT id FROM events FETCH FIRST $1 ROWS ONLY) AS third", &1i64, Type::INT8),
    ];
    for (sql, value, of) in asked {
        let statement = client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(statement.params(), [of], "{sql}");
        assert_eq!(client.query_one(&statement, &[value]).await.unwrap().get::<_, i64>(0), 1, "{sql}");
    }
    // The client's own types come first.
    let typed =
        client.prepare_typed("SELECT $1 AS x, big + $2 AS y FROM events WHERE device = 'a'", &[Type::INT4, Type::INT2]).await.unwrap();
    let row = client.query_one(&typed, &[&5i32, &1i16]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i64>(1)), (5, 9_007_199_254_740_994));
    let untyped = client.query_one("SELECT $1 AS x", &[&"text"]).await.unwrap();
    assert_eq!(untyped.get::<_, &str>(0), "text");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_has_the_type_of_what_it_stands_beside() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let half: Decimal = "0.5".parse().unwrap();
    let asked: [(&str, &(dyn ToSql + Sync), Type); 8] = [
        ("coalesce(amount, $1) = 12.34", &half, Type::NUMERIC),
        ("nullif(big, $1) IS NULL", &9_007_199_254_740_993_i64, Type::INT8),
        ("greatest($1, small, 1) = 3", &3i64, Type::INT8),
        ("least(real, $1) = 0.5", &0.5f64, Type::FLOAT8),
        ("CASE WHEN ok THEN $1 ELSE amount END = 0.5", &half, Type::NUMERIC),
        ("CASE small WHEN $1 THEN 1 END = 1", &-7i32, Type::INT4),
        ("coalesce($1, day) = '2026-02-03'", &None::<String>, Type::DATE),
        ("coalesce($1, NULL) = 'x'", &"x", Type::TEXT),
    ];
    for (condition, value, of) in asked {
        let sql = format!("SELECT count(*) FROM events WHERE device = 'a' AND {condition}");
        let statement = client.prepare(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(statement.params(), std::slice::from_ref(&of), "{sql}");
        if of != Type::DATE {
            assert_eq!(client.query_one(&statement, &[value]).await.unwrap().get::<_, i64>(0), 1, "{sql}");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arithmetic_with_a_parameter_of_another_type_is_described_as_it_is_answered() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let half: Decimal = "1.5".parse().unwrap();
    let (by_real, by_decimal) = ("SELECT small * $1 AS x FROM events WHERE device = 'a'", "SELECT $1 + 1 AS x");
    let statement = client.prepare_typed(by_real, &[Type::FLOAT8]).await.unwrap();
    assert_eq!((statement.params(), statement.columns()[0].type_()), (&[Type::FLOAT8][..], &Type::FLOAT8));
    assert_eq!(client.query_one(&statement, &[&1.5f64]).await.unwrap().get::<_, f64>(0), -10.5);
    for (sql, expected) in [(by_real, "-10.5"), (by_decimal, "2.5")] {
        let statement = client.prepare_typed(sql, &[Type::NUMERIC]).await.unwrap();
        assert_eq!((statement.params(), statement.columns()[0].type_()), (&[Type::NUMERIC][..], &Type::NUMERIC), "{sql}");
        let found: Decimal = client.query_one(&statement, &[&half]).await.unwrap().get(0);
        assert_eq!(found, expected.parse().unwrap(), "{sql}");
    }
    // The event at 10:01 alone.
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_772_359_260);
    let sql = "SELECT count(*) FROM events WHERE ts < $1 + interval '1 minute'";
    let statement = client.prepare_typed(sql, &[Type::TIMESTAMPTZ]).await.unwrap();
    assert_eq!(client.query_one(&statement, &[&at]).await.unwrap().get::<_, i64>(0), 1);
    // So it is in the catalog.
    let sql = "SELECT relnatts * $1 AS x FROM pg_class WHERE relname = 'per_device'";
    let statement = client.prepare_typed(sql, &[Type::FLOAT8]).await.unwrap();
    assert_eq!(statement.columns()[0].type_(), &Type::FLOAT8);
    assert_eq!(client.query_one(&statement, &[&1.5f64]).await.unwrap().get::<_, f64>(0), 4.5);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_parameters_take_the_lookup_path() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let unit: Uuid = UNIT.parse().unwrap();
    let asked: [(&str, &[&(dyn ToSql + Sync)], &str); 6] = [
        ("EXPLAIN SELECT n FROM per_device WHERE device = $1", &[&"a"], "LookupExec: view=per_device keys=1"),
        ("EXPLAIN SELECT n FROM per_device WHERE device IN ($1, $2)", &[&"a", &"b"], "LookupExec: view=per_device keys=2"),
        ("EXPLAIN SELECT n FROM per_device WHERE device = ANY($1)", &[&["a", "b", "c"].as_slice()], "LookupExec: view=per_device keys=3"),
        (
            "EXPLAIN SELECT n FROM per_device WHERE device = ANY($1::text[])",
            &[&["a", "b"].as_slice()],
            "LookupExec: view=per_device keys=2",
        ),
        ("EXPLAIN SELECT n FROM per_unit WHERE unit = $1 AND big = $2", &[&unit, &1i64], "LookupExec: view=per_unit keys=1"),
        ("EXPLAIN SELECT n FROM per_device WHERE n = $1", &[&1i64], "ViewScanExec: view=per_device"),
    ];
    for (sql, params, expected) in asked {
        let rows = client.query(sql, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let plan: String = rows.iter().map(|row| row.get::<_, String>(1)).collect();
        assert!(plan.contains(expected), "{sql}: {plan}");
    }
    let found = client
        .query("SELECT device, n, amount FROM per_device WHERE device = ANY($1) ORDER BY device", &[&["a", "b", "c"].as_slice()])
        .await;
    let found: Vec<(String, i64, Decimal)> = found.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(found, [("a".into(), 1, "12.34".parse().unwrap()), ("b".into(), 1, "0.50".parse().unwrap())]);
    server.stop().await;
}

/// In brackets, a condition is planned by DataFusion.
#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_that_is_not_planned_answers_as_one_that_is() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let units: [Uuid; 2] = [UNIT.parse().unwrap(), Uuid::nil()];
    let (units, big) = (units.as_slice(), 9_007_199_254_740_993i64);
    let bigs = [big, 1, big];
    let (names, bigs) = (["b", "nobody", "a", "b"].as_slice(), bigs.as_slice());
    let asked: [(&str, &str, &[&(dyn ToSql + Sync)], usize); 5] = [
        ("SELECT v.device AS \"Name\", n FROM per_device v", "v.device = ANY($1)", &[&names], 2),
        ("SELECT * FROM per_device", "device IN ($1, $2::text)", &[&"a", &"b"], 2),
        ("SELECT amount x, n FROM per_device", "device = CAST('a' AS TEXT)", &[], 1),
        ("SELECT n, unit FROM per_unit", "unit = ANY($1) AND big = ANY($2::bigint[])", &[&units, &bigs], 1),
        ("SELECT n, big FROM per_unit AS u", "u.unit = $1 AND u.big IN (7, $2)", &[&units[0], &big], 1),
    ];
    for (head, condition, params, found) in asked {
        let mut answers = Vec::new();
        for sql in [format!("{head} WHERE {condition}"), format!("{head} WHERE ({condition})")] {
            let statement = client.prepare(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            let columns: Vec<_> = statement.columns().iter().map(|column| (column.name().to_owned(), column.type_().clone())).collect();
            let rows = client.query(&statement, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            let mut counts: Vec<i64> = rows.iter().map(|row| row.get("n")).collect();
            counts.sort_unstable();
            answers.push((columns, counts));
        }
        assert_eq!(answers[0].1.len(), found, "{condition}");
        assert_eq!(answers[0], answers[1], "{condition}");
    }
    server.stop().await;
}

/// As by drivers that send a UUID as a text.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_a_uuid_is_found_in_each_spelling_of_a_parameter() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let prepare = async |compared: &str, of: Type| {
        let sql = format!("SELECT n FROM per_unit WHERE unit {compared} AND big = 9007199254740993");
        client.prepare_typed(&sql, &[of]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    };
    let (equal, any) = (prepare("= $1", Type::TEXT).await, prepare("= ANY ($1)", Type::TEXT_ARRAY).await);
    let (digits, in_fours) = (UNIT.replace('-', ""), "0011-2233-4455-6677-8899-aabb-ccdd-eeff".to_owned());
    let in_braces = [format!("{{{UNIT}}}"), format!("{{{digits}}}")];
    for spelling in [UNIT.to_owned(), UNIT.to_uppercase(), digits, in_fours].iter().chain(&in_braces) {
        let listed = ["no uuid", spelling.as_str()];
        let listed = listed.as_slice();
        let asked: [(&Statement, &(dyn ToSql + Sync)); 2] = [(&equal, spelling), (&any, &listed)];
        for (statement, value) in asked {
            let rows = client.query(statement, &[value]).await.unwrap_or_else(|error| panic!("{spelling}: {error:?}"));
            assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [1], "{spelling} as {:?}", statement.params());
        }
    }
    server.stop().await;
}

/// As by drivers that write the type behind each parameter.
#[tokio::test(flavor = "multi_thread")]
async fn casts_to_types_of_postgresql_alone_are_answered() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let unit: Uuid = UNIT.parse().unwrap();
    let units = [unit, Uuid::nil()];
    let nothing = json!({});
    let asked: [(&str, &(dyn ToSql + Sync), Type); 5] = [
        ("SELECT count(*) FROM events WHERE unit = $1::uuid", &unit, Type::UUID),
        ("SELECT count(*) FROM events WHERE unit IN ($1::uuid)", &unit, Type::UUID),
        ("SELECT count(*) FROM events WHERE unit = ANY($1::uuid[])", &units.as_slice(), Type::UUID_ARRAY),
        ("SELECT count(*) FROM events WHERE device = $1::name", &"a", Type::TEXT),
        ("SELECT count(*) FROM events WHERE device = 'a' AND $1::jsonb = '{}'", &nothing, Type::JSON),
    ];
    for (sql, value, of) in asked {
        let statement = client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(statement.params(), [of], "{sql}");
        assert_eq!(client.query_one(&statement, &[value]).await.unwrap().get::<_, i64>(0), 1, "{sql}");
    }
    let row = client.query_one("SELECT unit, unit::text FROM per_unit WHERE unit = $1", &[&unit]).await.unwrap();
    assert_eq!((row.get::<_, Uuid>(0), row.get::<_, &str>(1)), (unit, UNIT));
    let as_text = client.prepare("SELECT unit::text AS unit FROM per_unit WHERE unit::text = $1 ORDER BY n").await.unwrap();
    assert_eq!((as_text.params(), as_text.columns()[0].type_()), (&[Type::TEXT][..], &Type::TEXT));
    assert_eq!(client.query_one(&as_text, &[&UNIT]).await.unwrap().get::<_, &str>(0), UNIT);
    let same = client.prepare("SELECT $1::uuid AS unit").await.unwrap();
    assert_eq!(same.columns()[0].type_(), &Type::UUID);
    assert_eq!(client.query_one(&same, &[&unit]).await.unwrap().get::<_, Uuid>(0), unit);
    for (sql, expected) in [
        ("SELECT $1::uuid[] AS units", vec![unit]),
        ("SELECT array_agg(unit) AS units FROM events WHERE unit = ANY($1)", vec![unit]),
        ("SELECT ARRAY[unit, unit] AS units FROM per_unit WHERE unit = ANY($1)", vec![unit, unit]),
    ] {
        let statement = client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(statement.columns()[0].type_(), &Type::UUID_ARRAY, "{sql}");
        let row = client.query_one(&statement, &[&[unit].as_slice()]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(row.get::<_, Vec<Uuid>>(0), expected, "{sql}");
    }
    // What is said to be a text.
    let of_text = async |sql: &str, value: &str| {
        let statement = client.prepare_typed(sql, &[Type::TEXT]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        client.query_one(&statement, &[&value]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get::<_, i64>(0)
    };
    let keyed = "SELECT n FROM per_unit WHERE unit = $1::uuid AND big = 9007199254740993";
    assert_eq!(of_text(keyed, &UNIT.to_uppercase()).await, 1);
    assert_eq!(of_text("SELECT count(*) FROM per_device WHERE device = ANY($1)", "{a,\"b\"}").await, 2);
    for (sql, expected) in [
        (format!("SELECT '{{{}}}'::uuid", UNIT.to_uppercase()), UNIT),
        (format!("SELECT uuid '{}' = '{UNIT}'", UNIT.replace('-', "")), "t"),
        (format!("SELECT unit::uuid FROM per_unit WHERE unit::uuid = '{}'", UNIT.to_uppercase()), UNIT),
        ("SELECT '{\"a\": [1]}'::json".to_owned(), "{\"a\": [1]}"),
        ("SELECT '{1,NULL,3}'::int[]".to_owned(), "{1,NULL,3}"),
        ("SELECT 'a'::name".to_owned(), "a"),
        ("SELECT 'per_device'::regclass::oid > 0".to_owned(), "t"),
    ] {
        assert_eq!(one(&client, &sql).await, expected, "{sql}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_prepared_before_a_run_answers_what_came_after() {
    let mut server = Server::filled().await;
    let client = server.connect().await;
    let statement = client.prepare("SELECT n FROM per_device WHERE device = $1").await.unwrap();
    let ask = async || client.query_one(&statement, &[&"a"]).await.unwrap().get::<_, i64>(0);
    assert_eq!(ask().await, 1);
    server.append(&[r#""device":"a""#]).await;
    assert_eq!(ask().await, 2);
    server.run("per_device").await;
    assert_eq!(ask().await, 2);
    server.append(&[r#""device":"a""#, r#""device":"a""#]).await;
    assert_eq!(ask().await, 4);
    server.run("per_device").await;
    assert_eq!(ask().await, 4);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_prepared_again_once_its_columns_are_others() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT * FROM per_device WHERE device = $1";
    let before = client.prepare(sql).await.unwrap();
    assert_eq!(client.query_one(&before, &[&"a"]).await.unwrap().len(), 3);
    server.change("per_device", "CREATE VIEW per_device AS SELECT count(*) AS n, device FROM events GROUP BY device").await;
    let error = client.query(&before, &[&"a"]).await.unwrap_err();
    let (state, message, _) = error_of(&error);
    assert_eq!((state.as_str(), message.as_str()), ("0A000", "cached plan must not change result type"));
    let row = client.query_one(&client.prepare(sql).await.unwrap(), &[&"a"]).await.unwrap();
    assert_eq!((row.len(), row.get::<_, i64>("n"), row.get::<_, &str>("device")), (2, 1, "a"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_stands_on_one_read_view() {
    let mut server = Server::filled().await;
    let mut client = server.connect().await;
    let other = server.connect().await;
    let sql = "SELECT n FROM per_device WHERE device = 'a'";
    let transaction = client.transaction().await.unwrap();
    assert_eq!(transaction.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
    server.append(&[r#""device":"a""#]).await;
    server.run("per_device").await;
    assert_eq!(transaction.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1, "what the transaction's first query read");
    assert_eq!(one(&other, sql).await, "2");
    transaction.commit().await.unwrap();
    assert_eq!(one(&client, sql).await, "2");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_of_is_a_setting() {
    let mut server = Server::filled().await;
    server.append(&[r#""device":"a""#]).await;
    let client = server.connect().await;
    let sql = "SELECT n FROM per_device WHERE device = 'a'";
    assert_eq!(one(&client, sql).await, "2");
    client.batch_execute("SET as_of = '2026-03-01T10:01:30Z'").await.unwrap();
    assert_eq!(one(&client, sql).await, "1");
    assert_eq!(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
    assert_eq!(one(&client, "SHOW as_of").await, "2026-03-01T10:01:30Z");
    client.batch_execute("RESET as_of").await.unwrap();
    assert_eq!(one(&client, sql).await, "2");
    client.batch_execute("BEGIN; SET LOCAL as_of = '2026-03-01T10:01:30Z'").await.unwrap();
    assert_eq!(one(&client, sql).await, "1");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(one(&client, sql).await, "2");
    let error = client.batch_execute("SET as_of = 'yesterday'").await.unwrap_err();
    assert_eq!(error_of(&error).0, "22023");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_in_the_parts_that_a_client_asks_for() {
    let mut server = Server::filled().await;
    let events: Vec<String> = (0..25).map(|n| format!(r#""device":"p{n}","big":{n}"#)).collect();
    server.append(&events.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut client = server.connect().await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT big FROM events WHERE big < 1000 ORDER BY big", &[]).await.unwrap();
    let mut parts = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 10).await.unwrap();
        parts.push(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>());
        if rows.is_empty() {
            break;
        }
    }
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5, 0]);
    assert_eq!(parts.concat(), (0..25).collect::<Vec<i64>>());
    drop(portal);
    transaction.commit().await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_gives_text_csv_and_binary() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let copied = async |sql: &str| -> Vec<u8> {
        let parts: Vec<bytes::Bytes> =
            client.copy_out(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).try_collect().await.unwrap();
        parts.concat()
    };
    let select = "(SELECT device, amount FROM per_device ORDER BY device NULLS FIRST)";
    assert_eq!(copied(&format!("COPY {select} TO STDOUT")).await, b"\\N\t\\N\na\t12.34\nb\t0.50\n");
    assert_eq!(copied(&format!("COPY {select} TO STDOUT WITH (FORMAT csv, HEADER)")).await, b"device,amount\n,\na,12.34\nb,0.50\n");
    assert_eq!(copied("COPY per_device (n) TO STDOUT CSV").await, b"1\n1\n1\n");

    let out = client.copy_out(&*format!("COPY {select} TO STDOUT (FORMAT binary)")).await.unwrap();
    let rows = tokio_postgres::binary_copy::BinaryCopyOutStream::new(out, &[Type::TEXT, Type::NUMERIC]);
    let rows: Vec<_> =
        rows.map(|row| row.map(|row| (row.get::<Option<String>>(0), row.get::<Option<Decimal>>(1)))).try_collect().await.unwrap();
    let decimal = |text: &str| Some(text.parse::<Decimal>().unwrap());
    assert_eq!(rows, [(None, None), (Some("a".into()), decimal("12.34")), (Some("b".into()), decimal("0.50"))]);
    // The connection goes on.
    assert_eq!(one(&client, "SELECT count(*) FROM events").await, "3");
    server.stop().await;
}
