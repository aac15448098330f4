//! Values as PostgreSQL writes them as text, on its protocol and in SQL: real numbers, intervals and the items of
//! arrays, which are read too.

use std::fmt::{self, Display, Formatter, Write};

/// A DOUBLE: the shortest digits that read back as the same number, with an exponent where PostgreSQL writes one.
#[derive(Debug, Clone, Copy)]
pub struct DoubleText(pub f64);

impl Display for DoubleText {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write_number(out, self.0, &format!("{:e}", self.0), 15)
    }
}

/// The same of a REAL.
#[derive(Debug, Clone, Copy)]
pub struct RealText(pub f32);

impl Display for RealText {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write_number(out, f64::from(self.0), &format!("{:e}", self.0), 6)
    }
}

/// `scientific` is the number as `1.5e-7`, `digits` how many there may be before the point without an exponent.
fn write_number(out: &mut Formatter<'_>, value: f64, scientific: &str, digits: i32) -> fmt::Result {
    if value.is_nan() {
        return out.write_str("NaN");
    }
    if value.is_infinite() {
        return out.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..digits).contains(&exponent) {
        let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
        let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
        let whole = (exponent + 1).max(0) as usize;
        let zeros = "0".repeat((-exponent - 1).max(0) as usize);
        let padded = format!("{zeros}{digits:0<whole$}");
        let (before, after) = if exponent < 0 { ("0", padded.as_str()) } else { padded.split_at(whole) };
        let point = if after.is_empty() { "" } else { "." };
        return write!(out, "{sign}{before}{point}{after}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// `1 year 2 mons -3 days +04:05:06.7`: what follows a negative part has its sign.
#[derive(Debug, Clone, Copy)]
pub struct IntervalText {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

impl Display for IntervalText {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { months, days, micros } = *self;
        let (mut is_first, mut after_negative) = (true, false);
        for (count, name) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
            if count != 0 {
                let space = if is_first { "" } else { " " };
                let (plus, many) = (if after_negative && count > 0 { "+" } else { "" }, if count == 1 { "" } else { "s" });
                write!(out, "{space}{plus}{count} {name}{many}")?;
                (is_first, after_negative) = (false, count < 0);
            }
        }
        if micros == 0 && !is_first {
            return Ok(());
        }
        let sign = match (micros < 0, after_negative) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        let (space, seconds) = (if is_first { "" } else { " " }, (micros / 1_000_000).unsigned_abs());
        write!(out, "{space}{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
        write!(out, "{}", FractionText(micros % 1_000_000))
    }
}

/// Microseconds within a second after its point, or nothing.
#[derive(Debug, Clone, Copy)]
pub struct FractionText(pub i64);

impl Display for FractionText {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return Ok(());
        }
        let digits = format!("{:06}", self.0.abs());
        write!(out, ".{}", digits.trim_end_matches('0'))
    }
}

/// An item of an array that is not NULL, in quotes where it needs them.
#[derive(Debug, Clone, Copy)]
pub struct ArrayItemText<'a>(pub &'a str);

impl Display for ArrayItemText<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let special = |c: char| matches!(c, '{' | '}' | ',' | '"' | '\\' | '\u{b}') || c.is_ascii_whitespace();
        if !self.0.is_empty() && !self.0.eq_ignore_ascii_case("null") && !self.0.contains(special) {
            return out.write_str(self.0);
        }
        out.write_char('"')?;
        for c in self.0.chars() {
            if matches!(c, '"' | '\\') {
                out.write_char('\\')?;
            }
            out.write_char(c)?;
        }
        out.write_char('"')
    }
}

/// The items of `{a,"b c",NULL}`; `None` for a text that is not an array of one dimension.
pub fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inside = text.trim_matches(|c| is_space(&c)).strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    let mut chars = inside.chars().peekable();
    if inside.chars().all(|c| is_space(&c)) {
        return Some(items);
    }
    loop {
        while chars.next_if(is_space).is_some() {}
        let mut item = String::new();
        let is_quoted = chars.next_if_eq(&'"').is_some();
        if is_quoted {
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => item.push(chars.next()?),
                    other => item.push(other),
                }
            }
            while chars.next_if(is_space).is_some() {}
        } else {
            while let Some(next) = chars.next_if(|c| *c != ',') {
                match next {
                    '{' | '}' | '"' => return None,
                    '\\' => item.push(chars.next()?),
                    other => item.push(other),
                }
            }
            item.truncate(item.trim_end_matches(|c| is_space(&c)).len());
            if item.is_empty() {
                return None;
            }
        }
        let is_null = !is_quoted && item.eq_ignore_ascii_case("null");
        items.push((!is_null).then_some(item));
        match chars.next() {
            None => return Some(items),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

/// Whether PostgreSQL skips this character around the items of an array.
fn is_space(c: &char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_postgresql_reads_them() {
        let some = |items: &[&str]| Some(items.iter().map(|item| Some((*item).to_owned())).collect::<Vec<_>>());
        assert_eq!(array_items("{a,b}"), some(&["a", "b"]));
        assert_eq!(array_items(" { a b , \"c,\\\"d\" } "), some(&["a b", "c,\"d"]));
        assert_eq!(array_items("{}"), some(&[]));
        assert_eq!(array_items("{null,\"null\"}"), Some(vec![None, Some("null".to_owned())]));
        for text in ["a", "{a", "{a,}", "{{a},{b}}", "{a\"b}", "{\"a\"b}"] {
            assert_eq!(array_items(text), None, "{text}");
        }
    }

    #[test]
    fn values_are_written_as_postgresql_writes_them() {
        for (value, expected) in [
            (1e10, "10000000000"),
            (0.5, "0.5"),
            (-1.25, "-1.25"),
            (1e15, "1e+15"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(DoubleText(value).to_string(), expected);
        }
        assert_eq!((RealText(1e6).to_string(), RealText(0.1).to_string()), ("1e+06".to_owned(), "0.1".to_owned()));
        for (months, days, micros, expected) in [
            (0, 1, 0, "1 day"),
            (14, -3, 14_706_700_000, "1 year 2 mons -3 days +04:05:06.7"),
            (0, 0, -1_500_000, "-00:00:01.5"),
            (0, 0, 0, "00:00:00"),
        ] {
            assert_eq!(IntervalText { months, days, micros }.to_string(), expected);
        }
        for (item, expected) in [("a", "a"), ("", "\"\""), ("null", "\"null\""), ("a b", "\"a b\""), ("\"\\", r#""\"\\""#)] {
            assert_eq!(ArrayItemText(item).to_string(), expected);
        }
    }
}
