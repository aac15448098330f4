use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int64Array, ListArray, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::nullif;
use arrow::datatypes::{Field, Int32Type, Schema};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::states::testing::planned;

const KINDS: usize = 9;
const BOOLEAN: usize = 0;
const DICTIONARY: usize = 7;
const LIST: usize = 8;
const TEXTS: [&str; 3] = ["", "a", "ab"];

/// One of three values (two for booleans), and whether it is NULL. The values beneath NULLs differ as well.
type Cell = (u8, bool);

fn cell() -> impl Strategy<Value = Cell> {
    (0u8..3, prop::bool::weighted(0.2))
}

/// Arbitrary cells; the same cell throughout; NULL throughout.
fn cells() -> impl Strategy<Value = Vec<Cell>> {
    prop_oneof![
        vec(cell(), 0..40),
        (cell(), 0usize..40).prop_map(|(cell, count)| vec![cell; count]),
        vec(0u8..3, 0..40).prop_map(|values| values.into_iter().map(|value| (value, true)).collect::<Vec<Cell>>()),
    ]
}

fn array(kind: usize, cells: &[Cell]) -> ArrayRef {
    let values = cells.iter().map(|(value, _)| *value);
    let array: ArrayRef = match kind {
        BOOLEAN => Arc::new(BooleanArray::from(values.map(|value| value == 1).collect::<Vec<bool>>())),
        1 => Arc::new(StringArray::from_iter_values(values.map(|value| TEXTS[usize::from(value)]))),
        2 => Arc::new(Int64Array::from_iter_values(values.map(|value| [0, -1, i64::MAX][usize::from(value)]))),
        3 => Arc::new(Float64Array::from_iter_values(values.map(|value| [-0.0, 0.0, f64::NAN][usize::from(value)]))),
        4 => Arc::new(Decimal128Array::from_iter_values(values.map(i128::from)).with_precision_and_scale(18, 2).unwrap()),
        5 => Arc::new(TimestampMicrosecondArray::from_iter_values(values.map(i64::from)).with_timezone("UTC")),
        6 => Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.map(|value| Some([value; 16])), 16).unwrap()),
        DICTIONARY => Arc::new(values.map(|value| TEXTS[usize::from(value)]).collect::<DictionaryArray<Int32Type>>()),
        LIST => {
            let lists = values.map(|value| Some(vec![Some(i32::from(value)); usize::from(value)]));
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
        }
        other => panic!("unknown kind {other}"),
    };
    let nulls: Vec<bool> = cells.iter().map(|(_, null)| *null).collect();
    if nulls.contains(&true) { nullif(&array, &BooleanArray::from(nulls)).unwrap() } else { array }
}

/// A column that is a slice of another: its kind and its cells.
fn column() -> impl Strategy<Value = (usize, Vec<Cell>, ArrayRef)> {
    (0..KINDS, vec(cell(), 0..9), cells(), vec(cell(), 0..9)).prop_map(|(kind, before, cells, after)| {
        let whole = array(kind, &[&before[..], &cells[..], &after[..]].concat());
        let column = whole.slice(before.len(), cells.len());
        (kind, cells, column)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn rows_of_a_column_are_what_the_kernel_takes((_, cells, column) in column(), rows in vec(any::<Index>(), 0..60)) {
        let rows = rows.iter().filter(|_| !cells.is_empty()).map(|row| row.index(cells.len()) as u32);
        let rows = UInt32Array::from_iter_values(rows);
        let found = taken_column(&column, &rows).unwrap();
        let expected = take(&column, &rows, None).unwrap();
        prop_assert_eq!(found.data_type(), expected.data_type());
        prop_assert_eq!(&found, &expected);
    }

    #[test]
    fn a_column_is_constant_where_it_is_of_one_value_or_null_throughout((kind, cells, column) in column()) {
        let value = |value: u8| if kind == BOOLEAN { value % 2 } else { value };
        let shown: Vec<Option<u8>> = cells.iter().map(|(of, null)| (!null).then_some(value(*of))).collect();
        let is_one = shown.windows(2).all(|two| two[0] == two[1]);
        prop_assert_eq!(is_constant(&column), is_one && kind != LIST);
    }

    /// No key is a dictionary.
    #[test]
    fn canonical_keys_are_those_that_are_decoded((_, cells, column) in column().prop_filter("a key", |column| column.0 != DICTIONARY)) {
        let codec = KeyCodec::new(&[Arc::new(Field::new("x", column.data_type().clone(), true))]).unwrap();
        let columns = [column];
        let keys = codec.encode(&columns, cells.len()).unwrap();
        prop_assert_eq!(codec.canonical(&columns).into_owned(), codec.decode(keys.iter().flatten()).unwrap());
    }
}

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

#[test]
fn rows_of_the_format_before_are_read() {
    let plan = planned("CREATE VIEW v AS SELECT k, sum(x) AS total, count(DISTINCT x) AS different FROM s GROUP BY k");
    assert!(plan.reads_stamp("datafusion 55; count/1(Int64); sum/1(Int64); count/1(List<Int64>)"), "{}", plan.stamp);
    assert_eq!(
        plan.stamp,
        "datafusion 55; count/1(Int64); sum/1(Decimal128(38, 0)); count/1(List<Int64>, Boolean); states up to 1048576 bytes"
    );
    let fields = plan.state_schema().fields();
    let before = Schema::new(vec![
        fields[0].as_ref().clone(),
        fields[1].as_ref().clone(),
        fields[2].as_ref().clone(),
        fields[3].as_ref().clone(),
        fields[4].as_ref().clone().with_data_type(DataType::Int64),
        fields[5].as_ref().clone(),
    ]);
    let values = ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>([Some([Some(4), Some(5)])]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["a"])),
        Arc::new(UInt8Array::from(vec![7])),
        Arc::new(TimestampMicrosecondArray::from(vec![0]).with_timezone("UTC")),
        Arc::new(Int64Array::from(vec![2])),
        Arc::new(Int64Array::from(vec![9])),
        Arc::new(values),
    ];
    let stored = RecordBatch::try_new(Arc::new(before), columns).unwrap();
    let read = conform(plan.state_schema(), &stored).unwrap();
    assert_eq!(read.column(4).data_type(), &DataType::Decimal128(38, 0));
    assert_eq!(read.column(5), stored.column(5));
    assert!(read.column(6).is_null(0), "nothing was marked before");
    assert_eq!(conform(plan.state_schema(), &read).unwrap(), read);
    assert!(conform(plan.state_schema(), &stored.project(&[0, 1, 2, 3, 4]).unwrap()).is_err());
}

#[test]
fn rows_of_another_type_are_damage_and_the_error_keeps_its_source() {
    let plan = planned("CREATE VIEW v AS SELECT k, sum(x) AS total, count(DISTINCT x) AS different FROM s GROUP BY k");
    let mut columns = RecordBatch::new_empty(plan.state_schema().clone()).columns().to_vec();
    columns[5] = columns[3].clone();
    let named = columns.into_iter().enumerate().map(|(index, column)| (index.to_string(), column));
    let error = conform(plan.state_schema(), &RecordBatch::try_from_iter(named).unwrap()).unwrap_err();
    let is_of_arrow = std::error::Error::source(&error).is_some_and(|source| source.is::<ArrowError>());
    assert!(error.kind() == ErrorKind::Corrupt && is_of_arrow, "{error}");
}

#[test]
fn a_view_of_bounded_states_keeps_its_format() {
    let plan = planned("CREATE VIEW v AS SELECT k, count(*) AS n, max(x) AS most, avg(x) AS mean FROM s GROUP BY k");
    assert_eq!(plan.stamp, "datafusion 55; count/1(Int64); max/1(Int64); avg/1(UInt64, Float64)");
    assert!(plan.states.iter().all(|state| !state.is_judged && state.limit_bytes.is_none()));
}

/// The search that makes it worth its cost does not wait for it.
#[test]
fn the_index_of_many_rows_is_built_on_another_thread() {
    let rows = 2 * BUILT_AT_ONCE;
    let keys: Vec<[u8; 4]> = (0..rows as u32).map(u32::to_be_bytes).collect();
    let batch = RecordBatch::try_from_iter([("x", Arc::new(Int64Array::from_iter_values(0..rows as i64)) as ArrayRef)]).unwrap();
    let sorted = StateRows::from_sorted(batch, BinaryArray::from_iter_values(&keys));
    let finds_all = || (0..rows).step_by(2).all(|row| sorted.find(&keys[row]) == (row..row + 1));
    assert!(finds_all());
    let began = Instant::now();
    while sorted.index_bytes() == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "timed out: there is no index");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(finds_all());
    assert!(sorted.find(b"none").is_empty());
}
