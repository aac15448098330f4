use arrow::array::{Float32Array, Float64Array};
use arrow::datatypes::Field;

use super::*;
use crate::states::KeyCodec;

#[test]
fn both_zeros_are_one_key() {
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.0), Some(-0.0), None, Some(1.5)]));
    let reals: ArrayRef = Arc::new(Float32Array::from(vec![Some(-0.0), Some(0.0), None, Some(1.5)]));
    for zeros in [doubles, reals] {
        let codec = KeyCodec::new(&[Arc::new(Field::new("x", zeros.data_type().clone(), true))]).unwrap();
        let keys = codec.encode(std::slice::from_ref(&zeros), 4).unwrap();
        assert_eq!(keys.value(0), keys.value(1), "{}", zeros.data_type());
        assert!(keys.value(0) != keys.value(2) && keys.value(0) != keys.value(3));
        let shown = codec.decode(std::iter::once(keys.value(0))).unwrap().swap_remove(0);
        assert_eq!(arrow::util::display::array_value_to_string(&shown, 0).unwrap(), "0.0");
    }
}
