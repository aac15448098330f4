//! Arrays as PostgreSQL writes them in a text: `{a,"b c",NULL}`.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use types::value_texts::array_items;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_an_array_of_the_type() {
        let value = |text: &str| array_value(text, &DataType::Int64).map_err(|error| error.message().to_owned());
        let items = [ScalarValue::from(1i64), ScalarValue::Int64(None)];
        assert_eq!(value("{1,NULL}"), Ok(ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Int64))));
        assert!(value("1,2").unwrap_err().starts_with("malformed array literal: \"1,2\""));
        assert!(value("{x}").unwrap_err().contains("cannot cast string 'x' to value of BIGINT type"));
    }
}
