//! Reasons as they are counted: without the parts that differ from record to record.

/// Values that are informative by themselves and are kept.
const INFORMATIVE: [&str; 7] = ["nothing", "null", "no value", "an empty value", "invalid JSON", "invalid UTF-8", "a line of more"];

/// Returns the reason without the value that was found: `column ts ($.created): found .., expected TIMESTAMPTZ`. The
/// expected part is kept.
pub(crate) fn class(reason: &str) -> String {
    let parts = reason.split_once("found ").and_then(|(before, rest)| Some((before, rest.rsplit_once(", expected ")?)));
    match parts {
        Some((before, (found, expected))) => {
            let kept = INFORMATIVE.into_iter().find(|value| found.starts_with(value)).unwrap_or("..");
            format!("{before}found {kept}, expected {expected}")
        }
        None => {
            let (found, expected) = reason.split_at(reason.find("expected").unwrap_or(reason.len()));
            without_numbers(found) + expected
        }
    }
}

fn without_numbers(reason: &str) -> String {
    let mut text = String::new();
    let mut in_number = false;
    for character in reason.chars() {
        match character {
            '0'..='9' if in_number => {}
            '0'..='9' => text.push_str(".."),
            other => text.push(other),
        }
        in_number = character.is_ascii_digit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_what_was_found_are_one() {
        let classes = [
            (r#"column ts ($.created): found "ne, ver", expected TIMESTAMPTZ"#, "column ts ($.created): found .., expected TIMESTAMPTZ"),
            ("column a ($.a): found nothing, expected TEXT NOT NULL", "column a ($.a): found nothing, expected TEXT NOT NULL"),
            (
                "record: found invalid JSON (eof at 17): {\"a\", expected one JSON object",
                "record: found invalid JSON, expected one JSON object",
            ),
            (
                "the event time is 8123 s after the partition's clock: expected at most 600 s",
                "the event time is .. s after the partition's clock: expected at most 600 s",
            ),
            (
                "event time: found 2027-01-01T00:00:00Z with the partition's clock at 2026-11-28T10:56:12.158848Z, \
                 expected at most 10m after the clock (speed.max_future)",
                "event time: found .., expected at most 10m after the clock (speed.max_future)",
            ),
        ];
        for (reason, expected) in classes {
            assert_eq!(class(reason), expected);
        }
    }
}
