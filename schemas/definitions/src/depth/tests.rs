use super::*;

fn refused(sql: &str) -> Option<String> {
    check_depth(sql).err().map(|error| error.to_string())
}

fn refused_to_parse(sql: &str) -> Option<String> {
    check_depth_to_parse(sql).err().map(|error| error.to_string())
}

#[test]
fn a_stretch_is_counted_to_its_comma_bracket_or_end() {
    let sum = |tokens: usize| format!("a{}", " + a".repeat(tokens / 2));
    let whole = sum(1_018);
    assert_eq!(refused(&format!("SELECT {whole} FROM t")), None);
    assert_eq!(refused(&format!("SELECT {whole}, {whole}, ({whole}), f({whole}) FROM t WHERE a IN ({whole}, {whole})")), None);
    assert_eq!(refused(&format!("SELECT {whole}; SELECT {whole}")), None);
    let error = refused(&format!("SELECT 1,\n {} FROM t", sum(1_026))).unwrap();
    assert!(error.contains("line 2, column 2050: found more than 1024 words and symbols in a row"), "{error}");
    assert!(refused(&format!("SELECT 1 FROM {}", vec!["t"; 600].join(", "))).is_some());
}

#[test]
fn long_flat_lists_are_let_through() {
    let list = vec!["'x'"; 50_000].join(", ");
    assert_eq!(refused(&format!("SELECT * FROM t WHERE a IN ({list})")), None);
    assert_eq!(refused(&format!("SELECT {list}")), None);
    let error = refused(&format!("SELECT {}", vec!["1"; MAX_TOKENS].join(","))).unwrap();
    assert!(error.contains("more than 200000 words and symbols"), "{error}");
}

/// The JDBC driver lists types by a CASE with an arm for each type that it knows.
#[test]
fn a_plain_arm_of_a_case_counts_as_one_word_where_it_is_only_parsed() {
    let select = |arm: &str, count: usize| refused_to_parse(&format!("SELECT CASE{} ELSE 1111 END FROM t", arm.repeat(count)));
    for arm in [" WHEN base.oid = 1184 THEN 93", " when typname = '_int8' then -5", " WHEN 'x' THEN 'y'"] {
        assert_eq!(select(arm, 1_000), None, "{arm}");
        assert!(select(arm, 1_030).is_some(), "{arm}");
    }
    let columns = |count: usize| {
        let column = format!("CASE{} END", " WHEN a = 1 THEN 2".repeat(1_000));
        refused_to_parse(&format!("SELECT {}", vec![column; count].join(", ")))
    };
    assert_eq!(columns(20), None);
    assert!(columns(40).unwrap().contains("more than 200000 words and symbols"), "all words are words of the text");
}

/// DataFusion's simplifier rewrites this to a condition for each arm, which repeats those of the arms before it.
#[test]
fn an_arm_of_a_case_that_is_planned_counts_by_its_words() {
    let compared = |arms: usize| refused(&format!("SELECT 1 FROM t WHERE CASE{} END = 1", " WHEN a=1 THEN 1".repeat(arms)));
    assert_eq!(compared(165), None);
    let error = compared(1_000).unwrap();
    assert!(error.contains("found more than 1024 words and symbols in a row"), "{error}");
    let stream = "CREATE VIEW v AS SELECT k, sum(CASE{} END) AS s FROM t GROUP BY k";
    let (_, problems) = crate::parse::parse_definitions(&[(None, stream.replace("{}", &" WHEN a = 1 THEN 1".repeat(1_000)))]);
    let error = problems.into_result().unwrap_err().to_string();
    assert!(error.contains("found more than 1024 words and symbols in a row"), "{error}");
}

/// Where a parser takes one of its words for a name, a chain or another CASE can be hidden in what looks like an arm.
#[test]
fn an_arm_that_nests_something_is_counted_by_its_words() {
    for repeated in [
        " WHEN a = 1 THEN a",
        " WHEN a = b THEN 1",
        " WHEN a + 1 THEN 1",
        " WHEN f(1) = 1 THEN 1",
        " WHEN a = 1 THEN 1 + ",
        " WHEN a = 1 THEN 1 AND",
        " WHEN a = 1 THEN - - 1",
        " WHEN \"a\" = 1 \"THEN\" 1",
        " \"WHEN\" a = 1 THEN 1",
        " + when = 1 THEN 1",
        " WHEN when THEN when",
    ] {
        assert!(refused_to_parse(&format!("SELECT CASE{} END", repeated.repeat(400))).is_some(), "{repeated}");
    }
    // An arm inside another CASE does not hide that one.
    let nested = |depth: usize| format!("SELECT {}1{}", "CASE WHEN a = 1 THEN 1 ELSE ".repeat(depth), " END".repeat(depth));
    assert!(refused_to_parse(&nested(400)).is_some());
    assert!(refused_to_parse(&format!("SELECT CASE WHEN a = 1 THEN 1 ELSE a{} END", " + when".repeat(600))).is_some());
}

#[test]
fn every_way_to_nest_is_counted() {
    let many = |text: &str| text.repeat(2_000);
    for sql in [
        format!("SELECT {}1{}", many("("), many(")")),
        format!("SELECT {}1", many("NOT ")),
        format!("SELECT {}1", many("- ")),
        format!("SELECT a{}", many(" AND a")),
        format!("SELECT a{}", many(" + where")),
        format!("SELECT a{}", many(" IS DISTINCT FROM a")),
        format!("SELECT a{}", many(" IS NULL")),
        format!("SELECT a{}", many("::INT")),
        format!("SELECT a{}", many("[1]")),
        format!("SELECT {}1{}", many("["), many("]")),
        format!("SELECT CAST(a AS {}INT{})", many("ARRAY<"), many(">")),
        format!("SELECT a::INT{}", many("[]")),
        format!("SELECT {}1{}", many("CASE WHEN "), many(" THEN 1 END")),
        format!("SELECT 1{}", many(" UNION ALL SELECT 1")),
        format!("SELECT * FROM t{}", many(", t")),
        format!("SELECT * FROM t{}", many(" JOIN t ON true")),
        format!("WITH a AS (SELECT 1){} SELECT 1", many(", a AS (SELECT * FROM a)")),
        format!("{}SELECT 1", many("EXPLAIN ")),
        format!("{}SELECT 1", many("EXPLAIN ANALYZE ")),
        format!("SELECT {}1{}", many("f("), many(")")),
        format!("SELECT {}", many("{a: ")),
    ] {
        assert!(refused(&sql).is_some(), "{}", &sql[..60]);
    }
}

/// Found by hand, with the fuzz target: 500 pairs are few words, and a type so deep that planning it overflows the
/// stack.
#[test]
fn a_type_of_arrays_of_arrays_is_counted_by_its_brackets() {
    assert_eq!(refused(&format!("SELECT NULL::INT{}, a{}", "[]".repeat(64), "[1]".repeat(64))), None);
    let error = refused(&format!("SELECT NULL::INT{}", "[]".repeat(65))).unwrap();
    assert!(error.contains("more than 64 brackets"), "{error}");
}

#[test]
fn what_is_no_sql_is_the_parsers_to_refuse() {
    assert_eq!(refused("SELECT 'open"), None);
    assert_eq!(refused(")))) ;;; ]]] }}}"), None);
}
