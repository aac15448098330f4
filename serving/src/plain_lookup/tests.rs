use datafusion::sql::parser::DFParser;

use super::*;

fn read(sql: &str) -> Option<PlainLookup> {
    PlainLookup::from_statement(DFParser::parse_sql(sql).ok()?.front()?)
}

fn text(text: &str) -> Constant {
    Constant { value: ConstantValue::Text(text.into()), cast: None }
}

fn cast(value: ConstantValue, to: DataType) -> Constant {
    Constant { value, cast: Some(to) }
}

#[test]
fn nothing_but_the_plainest_form_is_read() {
    for sql in [
        "SELECT * FROM v WHERE k = 'a'",
        "select v.a, \"B\" from v where v.k = $1 and \"L\" = 7",
        "SELECT a -- of v\n FROM v WHERE k='it''s'",
        "SELECT key, day FROM orders WHERE name = 'a'",
        "SELECT \"from\", \"all\" FROM v WHERE \"interval\" = 'a'",
        "SELECT a FROM v WHERE k = 'a';",
        "SELECT a b, c AS \"D\" FROM v w WHERE w.k = -1",
        "SELECT a FROM v AS \"W\" WHERE \"W\".k IN ('a', $1, NULL)",
        "SELECT a FROM v WHERE k = ANY ($1) AND l = ANY($2::bigint[])",
        "SELECT a FROM v WHERE k = $1::text AND l = CAST('7' AS BIGINT) AND m = DATE '2026-05-01'",
    ] {
        assert!(read(sql).is_some(), "{sql}");
    }
    for sql in [
        "",
        "SELECT a FROM v",
        "SELECT DISTINCT a FROM v WHERE k = 'a'",
        "SELECT ALL a FROM v WHERE k = 'a'",
        "SELECT count(*) FROM v WHERE k = 'a'",
        "SELECT a + 1 FROM v WHERE k = 'a'",
        "SELECT a::text FROM v WHERE k = 'a'",
        "SELECT w.a FROM v WHERE k = 'a'",
        "SELECT v.a FROM v w WHERE k = 'a'",
        "SELECT v.* FROM v WHERE k = 'a'",
        "SELECT * EXCLUDE (a) FROM v WHERE k = 'a'",
        "SELECT *, a FROM v WHERE k = 'a'",
        "SELECT current_user FROM v WHERE k = 'a'",
        "SELECT all FROM v WHERE k = 'a'",
        "SELECT distinct FROM v WHERE k = 'a'",
        "FROM v SELECT a WHERE k = 'a'",
        "SELECT a FROM v AS w (a) WHERE k = 'a'",
        "SELECT a FROM v, w WHERE k = 'a'",
        "SELECT a FROM v JOIN w ON true WHERE k = 'a'",
        "SELECT a FROM (SELECT * FROM v) v WHERE k = 'a'",
        "SELECT a FROM v(1) WHERE k = 'a'",
        "SELECT a FROM v TABLESAMPLE (10) WHERE k = 'a'",
        "SELECT a FROM public.v WHERE k = 'a'",
        "SELECT a FROM v WHERE w.k = 'a'",
        "SELECT a FROM v WHERE k = 'a' OR l = 'b'",
        "SELECT a FROM v WHERE k = 'a' AND",
        "SELECT a FROM v WHERE k = 'a' GROUP BY a",
        "SELECT a FROM v WHERE k = 'a' HAVING a > 1",
        "SELECT a FROM v WHERE k = 'a' QUALIFY a > 1",
        "SELECT a FROM v WHERE k = 'a' ORDER BY a",
        "SELECT a FROM v WHERE k = 'a' LIMIT 1",
        "SELECT a FROM v WHERE k = 'a' OFFSET 1",
        "SELECT a FROM v WHERE k = 'a' FETCH FIRST 1 ROW ONLY",
        "SELECT a FROM v WHERE k = 'a' FOR UPDATE",
        "SELECT a FROM v WHERE k = 'a' UNION ALL SELECT 1",
        "WITH v AS (SELECT 1) SELECT a FROM v WHERE k = 'a'",
        "SELECT a FROM v WHERE k = 'a'::char(1)",
        "SELECT a FROM v WHERE k = TRY_CAST('1' AS BIGINT)",
        "SELECT a FROM v WHERE k = 'a'::text::text",
        "SELECT a FROM v WHERE k = $1::varchar(3)",
        "SELECT a FROM v WHERE (k = 'a')",
        "SELECT a FROM v WHERE k > 'a'",
        "SELECT a FROM v WHERE k = 7.5",
        "SELECT a FROM v WHERE k = -'a'",
        "SELECT a FROM v WHERE k = -$1",
        "SELECT a FROM v WHERE k = l",
        "SELECT a FROM v WHERE NULL = 'a'",
        "SELECT a FROM v WHERE 'a' = k",
        "SELECT a FROM v WHERE k NOT IN ('a')",
        "SELECT a FROM v WHERE k IN (SELECT l FROM w)",
        "SELECT a FROM v WHERE k IN ('a', l)",
        "SELECT a FROM v WHERE k = ANY (ARRAY['a'])",
        "SELECT a FROM v WHERE k = ANY ($1::text)",
        "SELECT a FROM v WHERE k <> ANY ($1)",
        "SELECT a FROM v WHERE k = ALL ($1)",
        "EXPLAIN SELECT a FROM v WHERE k = 'a'",
        "SELECT a FROM v WHERE k = 'a",
    ] {
        assert_eq!(read(sql), None, "{sql}");
    }
}

#[test]
fn names_are_those_that_datafusion_reads() {
    let asked = |name: &str, shown_as: &str| AskedColumn { name: name.into(), shown_as: shown_as.into() };
    let lookup = read("SELECT V.A, \"B\" AS C, d AS \"D\" FROM Velocity AS V WHERE V.\"K\" = 'A'").unwrap();
    assert_eq!(lookup.view, "velocity");
    assert_eq!(lookup.columns.unwrap(), [asked("a", "a"), asked("B", "c"), asked("d", "D")]);
    assert_eq!(lookup.keys, [("K".to_owned(), AskedValues::OneOf(vec![text("A")]))]);
    assert_eq!(read("SELECT * FROM \"V\" WHERE k = 'a'").unwrap().columns, None);
}

#[test]
fn constants_and_their_casts_are_read() {
    let values = |condition: &str| read(&format!("SELECT a FROM v WHERE k {condition}")).unwrap().keys.pop().unwrap().1;
    let parameter = |number: usize| Constant { value: ConstantValue::Parameter(number), cast: None };
    let null = Constant { value: ConstantValue::Null, cast: None };
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let of_text = |text: &str| ConstantValue::Text(text.into());
    for (condition, expected) in [
        ("IN ('a', $2, NULL)", vec![text("a"), parameter(2), null]),
        ("= -7", vec![Constant { value: ConstantValue::Integer(-7), cast: None }]),
        ("= $1::text", vec![cast(ConstantValue::Parameter(1), DataType::Utf8)]),
        ("= CAST('x' AS VARCHAR)", vec![cast(of_text("x"), DataType::Utf8)]),
        ("= 7::smallint", vec![cast(ConstantValue::Integer(7), DataType::Int16)]),
        ("= '7'::int", vec![cast(of_text("7"), DataType::Int32)]),
        ("= '7'::int8", vec![cast(of_text("7"), DataType::Int64)]),
        ("= DATE '2026-05-01'", vec![cast(of_text("2026-05-01"), DataType::Date32)]),
        ("= 'x'::timestamptz", vec![cast(of_text("x"), time.clone())]),
        ("= TIMESTAMP WITH TIME ZONE 'x'", vec![cast(of_text("x"), time)]),
    ] {
        assert_eq!(values(condition), AskedValues::OneOf(expected), "{condition}");
    }
    assert_eq!(values("= ANY ($1)"), AskedValues::ItemOf { parameter: 1, cast: None });
    assert_eq!(values("= ANY ($3::text[])"), AskedValues::ItemOf { parameter: 3, cast: Some(DataType::Utf8) });
}
