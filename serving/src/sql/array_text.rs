//! Arrays as PostgreSQL writes them in a text: `{a,"b c",NULL}`.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use types::{Error, Reason, Result};

/// Parses the text of an array; its items are cast as texts are.
///
/// Errors: `Input` for a text that is not an array of one dimension, or has an item that is not a value of the type.
pub(super) fn array_value(text: &str, item_type: &DataType) -> Result<ScalarValue> {
    let item = |text: Option<String>| match text {
        Some(text) => ScalarValue::Utf8(Some(text)).cast_to(item_type),
        None => ScalarValue::try_new_null(item_type),
    };
    let items = items(text)?.into_iter().map(item).collect::<Result<Vec<_>, _>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&items, item_type)))
}

/// The items of an array's text.
///
/// Errors: `Input` for a text that is not an array of one dimension.
pub(super) fn items(text: &str) -> Result<Vec<Option<String>>> {
    array_items(text).ok_or_else(|| {
        let shown: String = text.chars().take(60).collect();
        let message = format!("malformed array literal: \"{shown}\": expected items between braces, such as {{a,b}}");
        Error::input(message).with_reason(Reason::InvalidText)
    })
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
    fn a_text_becomes_an_array_of_the_type() {
        let value = |text: &str| array_value(text, &DataType::Int64).map_err(|error| error.message().to_owned());
        let items = [ScalarValue::from(1i64), ScalarValue::Int64(None)];
        assert_eq!(value("{1,NULL}"), Ok(ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Int64))));
        assert!(value("1,2").unwrap_err().starts_with("malformed array literal: \"1,2\""));
        assert!(value("{x}").unwrap_err().contains("cannot cast string 'x' to value of BIGINT type"));
    }
}
