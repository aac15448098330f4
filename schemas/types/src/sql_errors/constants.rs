//! The constants of a plan as SQL. Errors and names of columns have them as DataFusion prints them.

/// Replaces the constants in a text: `Int64(3)` becomes `3`, `Utf8("x")` becomes `'x'`.
pub fn constants_as_sql(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('(') {
        let before = rest[..open].trim_end_matches(|c: char| c.is_ascii_alphanumeric()).len();
        let (word, after) = (&rest[before..open], &rest[open + 1..]);
        match quoted(word, after).or_else(|| plain(word, after)) {
            Some((sql, after)) => {
                written.push_str(&rest[..before]);
                written.push_str(&sql);
                rest = after;
            }
            None => {
                written.push_str(&rest[..=open]);
                rest = after;
            }
        }
    }
    written.push_str(rest);
    written
}

/// A constant that is printed in quotes, and the text after it.
fn quoted<'t>(word: &str, after: &'t str) -> Option<(String, &'t str)> {
    let (value, after) = after.strip_prefix('"')?.split_once("\")")?;
    let sql = match word {
        "Utf8" | "Utf8View" | "LargeUtf8" => format!("'{}'", value.replace('\'', "''")),
        "Date32" => format!("DATE '{value}'"),
        "IntervalMonthDayNano" | "IntervalDayTime" => format!("INTERVAL '{}'", interval(value)?),
        _ => return None,
    };
    Some((sql, after))
}

/// A number, a truth value or NULL, and the text after it.
fn plain<'t>(word: &str, after: &'t str) -> Option<(String, &'t str)> {
    let parts = match word {
        "Utf8" | "Utf8View" | "LargeUtf8" | "Boolean" | "Float32" | "Float64" => 1,
        "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64" => 1,
        // With precision and scale; a type has these alone.
        "Decimal128" | "Decimal256" => 3,
        _ => return None,
    };
    let (inside, after) = after.split_once(')')?;
    let value = inside.split(',').next()?;
    let is_of_type = match word {
        "Utf8" | "Utf8View" | "LargeUtf8" => false,
        "Boolean" => value == "true" || value == "false",
        _ => value.parse::<f64>().is_ok(),
    };
    let is_constant = inside.split(',').count() == parts && (value == "NULL" || is_of_type);
    is_constant.then(|| (value.to_owned(), after))
}

/// `IntervalMonthDayNano { months: 0, days: 1, nanoseconds: 0 }` becomes `1 days`.
fn interval(value: &str) -> Option<String> {
    const SECOND: i64 = 1_000_000_000;
    let (_, parts) = value.split_once("{ ")?;
    let mut units = Vec::new();
    for part in parts.trim_end_matches(" }").split(", ") {
        let (unit, number) = part.split_once(": ")?;
        match (unit, number.parse::<i64>().ok()?) {
            (_, 0) => {}
            ("nanoseconds", number) if number % SECOND == 0 => units.push(format!("{} seconds", number / SECOND)),
            (unit, number) => units.push(format!("{number} {unit}")),
        }
    }
    Some(if units.is_empty() { "0 seconds".to_owned() } else { units.join(" ") })
}

#[cfg(test)]
mod tests;
