use proptest::prelude::*;
use serde_json::json;

use super::*;

proptest! {
    /// Were it another one, an alert that is open would begin again after a restart.
    #[test]
    fn a_key_that_is_a_float_is_read_back_as_it_was_written(
        float in any::<f64>().prop_filter("JSON has no others", |float| float.is_finite())
    ) {
        let (keys, text) = (json!({ "x": float }).to_string(), json!(float).to_string());
        prop_assert_eq!(&json!(parsed_keys(&keys).unwrap()).to_string(), &keys);
        prop_assert_eq!(record_key(&keys).unwrap(), text);
    }
}
