use super::*;

fn refusal(text: &str) -> String {
    Pattern::parse("sequence_match", text, 3).unwrap_err().to_string()
}

#[test]
fn each_form_is_read() {
    let one = |mask| PatternPart::One { mask, distance: None };
    let time = |comparison, seconds: i64| Distance { comparison, micros: seconds * MICROS };
    let parts = |text: &str| Pattern::parse("sequence_match", text, 3).unwrap().parts;
    assert_eq!(parts("(?1).*(?3).(?2)"), [one(1), PatternPart::AnyNumber, one(4), one(0), one(2)]);
    assert_eq!(parts("(?1)(?t<=600)(?2)"), [one(1), PatternPart::Time(time(TimeComparison::LessOrEqual, 600)), one(2)]);
    for (text, comparison) in
        [("<", TimeComparison::Less), (">=", TimeComparison::GreaterOrEqual), (">", TimeComparison::Greater), ("==", TimeComparison::Equal)]
    {
        assert_eq!(parts(&format!("(?1)(?t{text}0).")), [one(1), PatternPart::Time(time(comparison, 0)), one(0)]);
        assert_eq!(parts(&format!("(?1)(?2t{text}9)")), [one(1), PatternPart::One { mask: 2, distance: Some(time(comparison, 9)) }]);
    }
}

#[test]
fn a_pattern_that_is_not_one_is_refused_with_its_place() {
    for (text, expected) in [
        ("(?1)x(?2)", "has 'x(?2)' at character 5: expected (?1) to (?3), (?t<=600), '.' or '.*'"),
        ("\u{e9}(?1)", "at character 1: expected (?1)"),
        ("(?1)\u{e9}", "at character 5: expected (?1)"),
        ("(?1)(?4)", "has '4)' at character 7: expected a condition from 1 to 3, or a time such as t<=600"),
        ("(?0)", "has '0)' at character 3: expected a condition"),
        ("(?)", "has ')' at character 3: expected a condition"),
        ("(?99999999999999999999)", "at character 3: expected a condition"),
        ("(?1", "has its end at character 4: expected ')'"),
        ("(?1)(?t=5)(?2)", "has '=5)(?2)' at character 8: expected one of <=, <, >=, > and =="),
        ("(?1)(?t<=)(?2)", "has ')(?2)' at character 10: expected whole seconds, at most 9223372036854"),
        ("(?1)(?t<=9223372036855)", "at character 10: expected whole seconds"),
        ("(?1)(?t<=1.5)(?2)", "has '.5)(?2)' at character 11: expected ')'"),
        ("(?1)(?t<=1)(?t>=0)(?2)", "has '(?t>=0)(?2)' at character 12: expected an event between two times"),
        ("(?1t<=5)", "at character 1: expected it directly after an event"),
        ("(?1).*(?2t<=5)", "at character 7: expected it directly after an event, such as (?1)(?2t<=5)"),
        ("", "has no event at character 1: expected a pattern with at least one of (?1) to (?3)"),
        (".*", "has no event at character 3"),
        (&".".repeat(257), "has more parts at character 258: expected at most 256 parts"),
    ] {
        let error = refusal(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.contains(&format!("the pattern '{text}' of sequence_match")), "{error}");
    }
    assert!(Pattern::parse("sequence_match", &".".repeat(256), 3).is_ok());
}
