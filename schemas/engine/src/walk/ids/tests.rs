use std::sync::Arc;

use arrow::array::{Int64Array, StringArray};

use super::*;

#[test]
fn equal_values_have_one_number_and_null_differs_from_nothing() {
    let mut numbers = Numbers::default();
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b"), Some(""), Some("a")]));
    let one = numbers.ids_of(&texts).unwrap();
    let again = numbers.ids_of(&texts).unwrap();
    assert_eq!((one.get(0), one.get(0)), (one.get(4), again.get(0)));
    assert!(one.differs(0, &again, 2) && one.differs(3, &again, 0) && !one.differs(0, &again, 4));
    assert!(one.is_null(1) && !one.is_null(3) && !one.differs(1, &again, 0) && !one.differs(0, &again, 1));
    let many: ArrayRef = Arc::new(Int64Array::from_iter_values((0..10_000).chain(0..10_000)));
    let ids = numbers.ids_of(&many).unwrap();
    assert!((0..10_000).all(|at| ids.get(at) == ids.get(at + 10_000)));
    assert_eq!(numbers.len(), 1 + 3 + 10_000);
}
