use arrow::array::{Float64Array, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use proptest::prelude::*;

use super::super::tests::{lowered, merged};
use super::*;

const NUMBERS: [f64; 6] = [f64::NEG_INFINITY, -1.0, 0.5, 2.0, f64::INFINITY, f64::NAN];

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)]))
}

proptest! {
    /// Each number by its place in [`NUMBERS`], in which a NaN is the last.
    #[test]
    fn an_extreme_is_the_same_in_every_order(
        places in prop::collection::vec(prop::option::weighted(0.8, 0..NUMBERS.len()), 1..16),
        parts in prop::collection::vec(0..4u8, 16),
        order in prop::collection::vec(0..9u32, 4),
    ) {
        let values: Float64Array = places.iter().map(|place| place.map(|place| NUMBERS[place])).collect();
        let batch = RecordBatch::try_new(schema(), vec![Arc::new(values)]).unwrap();
        for (call, place) in [("min(x)", places.iter().flatten().min()), ("max(x)", places.iter().flatten().max())] {
            let found = merged(&lowered(call, &schema()), &batch, &parts, &order);
            // As texts: a NaN is not equal to itself.
            let expected = ScalarValue::Float64(place.map(|place| NUMBERS[*place]));
            prop_assert_eq!(found.to_string(), expected.to_string(), "{} of {:?}", call, places);
        }
    }
}
