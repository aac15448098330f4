//! Arrays as PostgreSQL writes them in a text: `{a,"b c",NULL}`.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use engine::keys::parse_key;
use types::sql_types::sql_name;
use types::value_texts::array_items;
use types::{Error, Reason, Result};

/// Parses the text of an array; its items are cast as texts are.
///
/// Errors: `Input` for a text that is not an array of one dimension, or has an item that is not a value of the type.
pub(super) fn array_value(text: &str, item_type: &DataType) -> Result<ScalarValue> {
    let item = |text: Option<String>| match text {
        // A cast would round it.
        Some(text) if matches!(item_type, DataType::Decimal128(..)) => {
            parse_key(&text, item_type, false).ok_or_else(|| no_decimal(&text, item_type))
        }
        Some(text) => Ok(ScalarValue::Utf8(Some(text)).cast_to(item_type)?),
        None => Ok(ScalarValue::try_new_null(item_type)?),
    };
    let items = items(text)?.into_iter().map(item).collect::<Result<Vec<_>>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&items, item_type)))
}

fn no_decimal(item: &str, item_type: &DataType) -> Error {
    let shown: String = item.chars().take(60).collect();
    let message = format!("found '{shown}' in an array of {}: expected a number of no more digits", sql_name(item_type));
    Error::input(message).with_reason(Reason::InvalidText)
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

    #[test]
    fn decimals_of_an_array_are_not_rounded() {
        let decimal = DataType::Decimal128(18, 2);
        let value = |text: &str| array_value(text, &decimal).map_err(|error| error.message().to_owned());
        let items = [1, 150].map(|value| ScalarValue::Decimal128(Some(value), 18, 2));
        assert_eq!(value("{0.0100,15e-1}"), Ok(ScalarValue::List(ScalarValue::new_list_nullable(&items, &decimal))));
        assert_eq!(value("{0.004}").unwrap_err(), "found '0.004' in an array of DECIMAL(18,2): expected a number of no more digits");
        assert!(value("{x}").is_err());
    }
}
