use proptest::prelude::*;

use super::*;

fn parameter(name: &str, version: u32, value_type: ParameterType, value: &str) -> Parameter {
    Parameter { name: name.into(), version, value_type, value: value_type.value(value).unwrap() }
}

fn known() -> Parameters {
    let decimal = ParameterType::Decimal { precision: 18, scale: 2 };
    [
        parameter("most", 3, ParameterType::BigInt, "-20"),
        parameter("share", 1, ParameterType::Double, "0.1"),
        parameter("limit", 2, decimal, "12.5"),
        parameter("word", 1, ParameterType::Text, "it's"),
        parameter("on", 1, ParameterType::Boolean, "TRUE"),
        parameter("silence", 7, ParameterType::Interval, "30 minutes"),
    ]
    .into_iter()
    .collect()
}

fn query(select: &str) -> ast::Query {
    match Parser::parse_sql(&SqlDialect, select).unwrap().pop() {
        Some(ast::Statement::Query(query)) => *query,
        other => panic!("{other:?}"),
    }
}

fn with_values(select: &str) -> Result<(String, UsedParameters), String> {
    let mut query = query(select);
    let used = put_in(&mut query, &known()).map_err(|(error, span)| format!("{:?} {error}", span.map(|span| span.start.column)))?;
    Ok((query.to_string(), used))
}

#[test]
fn a_value_stands_where_its_name_was() {
    let (text, used) = with_values(
        "WITH a AS (SELECT x FROM s WHERE x > param('most')) SELECT x * PARAM('share') AS y, param('word') AS w \
        FROM a WHERE param('on') AND x < abs(param('limit')) AND now() - t > param('silence')",
    )
    .unwrap();
    let expected = "WITH a AS (SELECT x FROM s WHERE x > -20) SELECT x * CAST('0.1' AS DOUBLE) AS y, 'it''s' AS w \
        FROM a WHERE true AND x < abs(CAST('12.50' AS DECIMAL(18,2))) AND now() - t > INTERVAL '30 minutes'";
    assert_eq!(text, expected);
    assert_eq!(used_text(&used), "limit@2,most@3,on@1,share@1,silence@7,word@1");
    assert_eq!(with_values("SELECT x FROM s").unwrap(), ("SELECT x FROM s".to_owned(), UsedParameters::new()));
}

#[test]
fn a_name_that_is_unknown_or_no_name_is_refused_at_its_place() {
    for (select, found) in [
        ("SELECT param('mots') AS x FROM s", "there is no parameter \"mots\": did you mean \"most\"? expected one of limit, most"),
        ("SELECT param(most) AS x FROM s", "found param(most): expected the name of a parameter in quotes, param('max_hourly')"),
        ("SELECT param() AS x FROM s", "found param(): expected the name"),
        ("SELECT param('most', 1) AS x FROM s", "found param('most', 1): expected the name"),
        ("SELECT param('most') OVER () AS x FROM s", "found param('most') OVER (): expected the name"),
    ] {
        let error = with_values(select).unwrap_err();
        assert!(error.starts_with("Some(8) ") && error.contains(found), "{select}: {error}");
    }
    let error = Parameters::default().get("most").unwrap_err();
    assert_eq!(error.message(), "there is no parameter \"most\": no parameter is defined yet; CREATE PARAMETER most = 20 makes one");
}

#[test]
fn names_are_found_without_their_values() {
    let found = names_in("SELECT param('b') AS x FROM s WHERE x IN (SELECT Param('a')) AND y > \"param\"('c')");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(names_in("SELECT parameter('b') AS x FROM s").is_empty() && names_in("no SQL").is_empty());
}

#[test]
fn a_value_of_another_type_is_not_set() {
    let mut parameters = known();
    let error = parameters.set("most", "many", 4).unwrap_err();
    assert_eq!(error.message(), "the parameter \"most\": the value 'many' is TEXT: expected BIGINT");
    assert_eq!(parameters, known());
    parameters.set("most", " 30", 4).unwrap();
    assert_eq!(parameters.get("most").unwrap(), &parameter("most", 4, ParameterType::BigInt, "30"));
}

proptest! {
    /// Whatever is in a text, it is one value.
    #[test]
    fn a_text_is_a_value_and_no_sql(text in "\\PC{0,20}|[' a-z;-]{0,20}") {
        let parameters: Parameters = [parameter("word", 1, ParameterType::Text, &text)].into_iter().collect();
        let mut query = query("SELECT param('word') AS w");
        put_in(&mut query, &parameters).unwrap();
        let ast::SetExpr::Select(select) = *query.body else { panic!() };
        let [ast::SelectItem::ExprWithAlias { expr: Expr::Value(value), .. }] = select.projection.as_slice() else { panic!() };
        prop_assert_eq!(&value.value, &Value::SingleQuotedString(text));
    }
}
