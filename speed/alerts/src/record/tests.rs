use arrow::array::{Float32Array, Float64Array};
use engine::keys::parse_key;
use proptest::prelude::*;
use serde_json::json;

use super::*;

proptest! {
    /// Were it another one, an alert that is open would begin again after a restart.
    #[test]
    fn a_key_that_is_a_float_is_read_back_as_it_was_written(
        float in any::<f64>().prop_filter("others are texts", |float| float.is_finite())
    ) {
        let (keys, text) = (json!({ "x": float }).to_string(), json!(float).to_string());
        prop_assert_eq!(&json!(parsed_keys(&keys).unwrap()).to_string(), &keys);
        prop_assert_eq!(record_key(&keys).unwrap(), text);
    }
}

#[test]
fn a_key_that_is_nan_or_infinite_is_a_text_that_is_read_back_as_it_was() {
    let floats = [Some(1.5), None, Some(f64::NAN), Some(-f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)];
    let reals: Float32Array = floats.iter().map(|float| float.map(|float| float as f32)).collect();
    let columns = [
        ("x", Arc::new(Float64Array::from(floats.to_vec())) as ArrayRef, true),
        ("a", Arc::new(StringArray::from(vec!["\"NaN\""; floats.len()])) as ArrayRef, true),
        ("r", Arc::new(reals) as ArrayRef, true),
    ];
    let found = json_of_keys(&RecordBatch::try_from_iter_with_nullable(columns).unwrap()).unwrap();
    let expected = ["1.5", "null", "\"NaN\"", "\"-NaN\"", "\"Infinity\"", "\"-Infinity\""];
    assert_eq!(found, expected.map(|float| format!(r#"{{"x":{float},"a":"\"NaN\"","r":{float}}}"#)));
    for (json, float) in found.iter().zip(floats).skip(2) {
        let keys = parsed_keys(json).unwrap();
        let read = |name: &str, data_type| parse_key(keys[name].as_str().unwrap(), &data_type, false).unwrap().to_array().unwrap();
        let double = read("x", DataType::Float64).as_primitive::<Float64Type>().value(0);
        let real = read("r", DataType::Float32).as_primitive::<Float32Type>().value(0);
        assert_eq!(double.to_bits(), float.unwrap().to_bits(), "{json}");
        assert_eq!(real.to_bits(), (float.unwrap() as f32).to_bits(), "{json}");
    }
}
