use super::*;

/// The keywords that are found, and their columns in the text.
fn found(sql: &str) -> Vec<(String, usize)> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().unwrap();
    keywords_as_names(&tokens).into_iter().map(|keyword| (keyword.name, keyword.place.column)).collect()
}

#[test]
fn keywords_in_the_places_of_names_are_found() {
    let cases: [(&str, &[(&str, usize)]); 9] = [
        ("SELECT n, end FROM a", &[("end", 11)]),
        ("SELECT n, Offset FROM a", &[("offset", 11)]),
        ("SELECT n, offset, count(*) AS c FROM a GROUP BY n, offset", &[("offset", 11)]),
        ("SELECT n, view, offset FROM a", &[("view", 11), ("offset", 17)]),
        ("SELECT view, limit FROM a WHERE limit > 3", &[("limit", 14)]),
        ("SELECT id, from, to FROM mails", &[("from", 12)]),
        ("SELECT from, to FROM mails", &[("from", 8)]),
        ("SELECT struct FROM a", &[("struct", 8)]),
        ("SELECT a FROM t WHERE exists = 1", &[("exists", 23)]),
    ];
    for (sql, expected) in cases {
        let expected: Vec<(String, usize)> = expected.iter().map(|(name, column)| ((*name).to_owned(), *column)).collect();
        assert_eq!(found(sql), expected, "{sql}");
    }
}

#[test]
fn what_quotes_do_not_mend_is_no_keyword_as_a_name() {
    for sql in [
        "SELECT n, \"offset\" FROM a",
        "SELECT n, FROM a",
        "SELECT n, FROM a WHERE (",
        "SELECT sum(n FROM a",
        "SELECT FROM a WHERE",
        "SELECT FROM",
        "SELECT DISTINCT FROM a",
        "SELECT n FROM a WHERE n IN (SELECT)",
        "SELECT n FROM a GROUP n",
        "SELECT n FROM a LIMIT 5 WHERE n = 1",
        "SELECT n FROM a WHERE GROUP BY n",
        "SELECT count(* FROM a",
    ] {
        assert!(found(sql).is_empty(), "{sql}");
    }
    let long = format!("SELECT n, end, {} FROM a", vec!["1"; LONGEST].join(", "));
    assert!(found(&long).is_empty(), "it takes too long");
}

#[test]
fn an_interval_of_a_word_is_a_name() {
    let found = |sql: &str| {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(sql).unwrap();
        let error = interval_refusal(sql, &parser.parse_statement().unwrap())?;
        assert_eq!(error.message(), "the SQL is not understood: \"interval\" is a keyword");
        assert_eq!(error.fact("help"), Some("to name a column, write it in double quotes: \"interval\""));
        error.fact("column").map(str::to_owned)
    };
    for (sql, column) in [
        ("SELECT interval FROM a", "8"),
        ("SELECT n, Interval FROM a", "11"),
        ("SELECT n FROM a ORDER BY interval DESC", "26"),
        ("SELECT n FROM (SELECT INTERVAL '1 day' AS n, interval FROM a)", "46"),
    ] {
        assert_eq!(found(sql).as_deref(), Some(column), "{sql}");
    }
    for sql in ["SELECT INTERVAL '1 day'", "SELECT INTERVAL 1 DAY", "SELECT n AS interval FROM a", "SELECT \"interval\" FROM a"] {
        assert_eq!(found(sql), None, "{sql}");
    }
}

#[test]
fn an_error_names_all_keywords_and_how_they_are_written() {
    let error = refusal("SELECT n,\n view, offset FROM a").unwrap();
    assert_eq!(error.message(), "the SQL is not understood: \"view\", \"offset\" are keywords");
    assert_eq!((error.fact("line"), error.fact("column")), (Some("2"), Some("2")));
    assert_eq!(error.fact("help"), Some("to name a column, write it in double quotes: \"view\", \"offset\""));
    assert!(refusal("SELECT n FROM a").is_none());
}
