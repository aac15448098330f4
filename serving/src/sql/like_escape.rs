//! `LIKE .. ESCAPE '/'` with any character. DataFusion knows only the backslash, so patterns are rewritten to use it.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::cast::as_string_array;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::sql::sqlparser::ast::{CastKind, DataType as SqlType, Expr, Value};

use super::literals::{call, literal, text_of};

const LIKE_PATTERN: &str = "like_pattern";

/// Rewrites a LIKE or ILIKE with another escape character to one with the backslash. `None` for any other expression. A
/// pattern that is not constant is rewritten by [`like_pattern`].
pub fn without_escape(expr: &Expr) -> Option<Expr> {
    let (Expr::Like { any: false, pattern, escape_char, .. } | Expr::ILike { any: false, pattern, escape_char, .. }) = expr else {
        return None;
    };
    let text = match &escape_char.as_ref()?.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text,
        _ => return None,
    };
    let mut chars = text.chars();
    // Without one, no character is special but the two of LIKE.
    let escape = chars.next();
    if escape == Some('\\') || chars.next().is_some() {
        return None;
    }
    let spelled = match text_of(pattern) {
        Some(pattern) => literal(Some(with_backslashes(pattern, escape))),
        None => {
            let (kind, data_type) = (CastKind::Cast, SqlType::Text);
            let pattern = Expr::Cast { kind, expr: pattern.clone(), data_type, array: false, format: None };
            call(LIKE_PATTERN, vec![pattern, literal(Some(text.clone()))])
        }
    };
    let mut like = expr.clone();
    if let Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } = &mut like {
        (**pattern, *escape_char) = (spelled, None);
    }
    Some(like)
}

/// The function that rewrites a pattern (its first argument) with an escape character (its second) to use the
/// backslash.
pub fn like_pattern() -> ScalarUDF {
    let spelled = |args: &[ColumnarValue]| -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let [patterns, escapes] = arrays.as_slice() else { return exec_err!("{LIKE_PATTERN} takes two texts") };
        let rows = as_string_array(patterns)?.iter().zip(as_string_array(escapes)?.iter());
        let spelled = rows.map(|(pattern, escape)| Some(with_backslashes(pattern?, escape?.chars().next())));
        let spelled: ArrayRef = Arc::new(spelled.collect::<StringArray>());
        match args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&spelled, 0)?)),
            false => Ok(ColumnarValue::Array(spelled)),
        }
    };
    create_udf(LIKE_PATTERN, vec![DataType::Utf8, DataType::Utf8], DataType::Utf8, Volatility::Immutable, Arc::new(spelled))
}

fn with_backslashes(pattern: &str, escape: Option<char>) -> String {
    let (mut spelled, mut chars) = (String::with_capacity(pattern.len()), pattern.chars());
    while let Some(char) = chars.next() {
        let literal = if Some(char) == escape { chars.next().unwrap_or(char) } else { char };
        if Some(char) == escape || char == '\\' {
            spelled.push('\\');
        }
        spelled.push(literal);
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_spelled_with_backslashes() {
        for (pattern, escape, expected) in [
            ("a/%b", Some('/'), "a\\%b"),
            ("a//b%", Some('/'), "a\\/b%"),
            ("a\\b/_", Some('/'), "a\\\\b\\_"),
            ("/\\", Some('/'), "\\\\"),
            ("é%%é", Some('%'), "é\\%é"),
            ("a\\%", None, "a\\\\%"),
            ("a/", Some('/'), "a\\/"),
        ] {
            assert_eq!(with_backslashes(pattern, escape), expected, "{pattern}");
        }
    }
}
