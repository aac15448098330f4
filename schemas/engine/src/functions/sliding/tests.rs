use std::sync::Arc;

use arrow::array::Float64Array;
use proptest::prelude::*;

use super::*;

/// Sums of these are exact in any order.
const NUMBERS: [Option<f64>; 7] = [None, Some(1.0), Some(-2.0), Some(0.5), Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(f64::NAN)];

fn column(values: &[Option<f64>]) -> [ArrayRef; 1] {
    [Arc::new(Float64Array::from(values.to_vec()))]
}

/// Sums up the values of a window.
fn naive(aggregate: DoublesInWindow, values: &[Option<f64>]) -> Option<f64> {
    let present: Vec<f64> = values.iter().flatten().copied().collect();
    let sum: f64 = present.iter().sum();
    let value = match aggregate {
        DoublesInWindow::Sum => sum,
        DoublesInWindow::Average => sum / present.len() as f64,
    };
    (!present.is_empty()).then_some(value)
}

proptest! {
    #[test]
    fn a_window_has_the_value_of_its_rows_alone(
        places in prop::collection::vec(0..NUMBERS.len(), 1..32),
        moves in prop::collection::vec((0..5usize, 0..5usize), 1..16),
    ) {
        let values: Vec<Option<f64>> = places.iter().map(|place| NUMBERS[*place]).collect();
        for aggregate in [DoublesInWindow::Sum, DoublesInWindow::Average] {
            let (mut window, mut begin, mut end) = (SlidingWindow::new(aggregate), 0, 0);
            for (enter, leave) in &moves {
                let next_end = values.len().min(end + enter);
                window.update_batch(&column(&values[end..next_end])).unwrap();
                end = next_end;
                let next_begin = end.min(begin + leave);
                window.retract_batch(&column(&values[begin..next_begin])).unwrap();
                begin = next_begin;
                let expected = ScalarValue::Float64(naive(aggregate, &values[begin..end]));
                // As texts: a NaN is not equal to itself.
                prop_assert_eq!(window.evaluate().unwrap().to_string(), expected.to_string(), "{:?}", &values[begin..end]);
            }
        }
    }
}

#[test]
fn a_large_number_leaves_the_digits_of_small_ones() {
    let mut window = SlidingWindow::new(DoublesInWindow::Sum);
    window.update_batch(&column(&[Some(1e17), Some(0.5)])).unwrap();
    window.retract_batch(&column(&[Some(1e17)])).unwrap();
    window.update_batch(&column(&[Some(0.25)])).unwrap();
    assert_eq!(window.evaluate().unwrap(), ScalarValue::Float64(Some(0.75)));
}

#[test]
fn what_did_not_enter_does_not_leave() {
    let mut window = SlidingWindow::new(DoublesInWindow::Sum);
    assert!(window.retract_batch(&column(&[None])).is_err());
}
