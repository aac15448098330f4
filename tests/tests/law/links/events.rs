//! The events of two streams with the same columns, as values, JSON and Arrow.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::SchemaRef;
use proptest::prelude::*;
use types::tiles::Micros;

pub const STREAMS: [&str; 2] = [
    "CREATE STREAM a (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, j INT, u TEXT, w INT, x BIGINT, d DECIMAL(18,2), f DOUBLE, o BOOLEAN) \
     WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'k')",
    "CREATE STREAM b (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, j INT, u TEXT, w INT, x BIGINT, d DECIMAL(18,2), f DOUBLE, o BOOLEAN) \
     WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'k')",
];
pub const BASE: Micros = 1_772_366_400_000_000;
pub const HOUR: Micros = 3_600_000_000;
pub const DAY: Micros = 24 * HOUR;
const TEXTS: [&str; 6] = ["", "b", "B", "é\u{1F600}", "a \"quoted\" \\ one", "c"];

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: u16,
    pub ts: Micros,
    pub k: Option<&'static str>,
    pub j: Option<i32>,
    pub u: Option<&'static str>,
    pub w: Option<i32>,
    pub x: Option<i64>,
    /// In hundredths.
    pub d: Option<i64>,
    pub f: Option<f64>,
    pub o: Option<bool>,
}

/// An event and where it was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    pub stream: usize,
    pub partition: i32,
    pub offset: i64,
    pub event: Event,
}

pub fn event() -> impl Strategy<Value = Event> {
    let age = prop_oneof![
        0..120_000_000i64,
        0..2 * HOUR,
        0..100 * DAY,
        prop::sample::select(vec![0, 10_000_000, HOUR, HOUR + 1, DAY, DAY + 1, 7 * DAY, 30 * DAY, 31 * DAY])
    ];
    let text = |weight| prop::option::weighted(weight, prop::sample::select(TEXTS.to_vec()));
    // There are few join keys, so that most events match another.
    let keys = (text(0.9), prop::option::weighted(0.9, -2i32..3), prop::option::weighted(0.9, prop::sample::select(TEXTS[..4].to_vec())));
    let x = prop_oneof![6 => -3i64..4, 1 => -1_000i64..1_000, 1 => Just(4_000_000_000_000i64)];
    let numbers = (
        prop::option::weighted(0.9, 1i32..3),
        prop::option::weighted(0.5, x),
        prop::option::weighted(0.5, prop_oneof![8 => -100_000i64..100_000, 1 => Just(9_999_999_999_999_999i64)]),
        prop::option::weighted(0.8, prop_oneof![8 => -1e6f64..1e6, 1 => Just(0.0), 1 => Just(1e12)]),
    );
    (0u16..400, age, keys, numbers, prop::option::of(any::<bool>())).prop_map(|(id, age, (k, j, u), (w, x, d, f), o)| Event {
        id,
        ts: BASE - age,
        k,
        j,
        u,
        w,
        x,
        d,
        f,
        o,
    })
}

/// Formats hundredths, as in `-0.05`.
pub fn hundredths(value: i128) -> String {
    format!("{}{}.{:02}", if value < 0 { "-" } else { "" }, value.abs() / 100, value.abs() % 100)
}

/// The events of one stream as its table.
pub fn batch(stream: &str, events: &[&Placed], schema: SchemaRef) -> RecordBatch {
    let rows = || events.iter().map(|placed| &placed.event);
    let time = || Arc::new(TimestampMicrosecondArray::from_iter_values(rows().map(|row| row.ts)).with_timezone("UTC"));
    let decimals: Decimal128Array = rows().map(|row| row.d.map(i128::from)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows().map(|row| row.id.to_string()))),
        time(),
        Arc::new(rows().map(|row| row.k).collect::<StringArray>()),
        Arc::new(rows().map(|row| row.j).collect::<Int32Array>()),
        Arc::new(rows().map(|row| row.u).collect::<StringArray>()),
        Arc::new(rows().map(|row| row.w).collect::<Int32Array>()),
        Arc::new(rows().map(|row| row.x).collect::<Int64Array>()),
        Arc::new(decimals.with_precision_and_scale(18, 2).unwrap()),
        Arc::new(rows().map(|row| row.f).collect::<Float64Array>()),
        Arc::new(rows().map(|row| row.o).collect::<BooleanArray>()),
        time(),
        Arc::new(StringArray::from_iter_values(events.iter().map(|_| stream))),
        Arc::new(Int32Array::from_iter_values(events.iter().map(|placed| placed.partition))),
        Arc::new(Int64Array::from_iter_values(events.iter().map(|placed| placed.offset))),
    ];
    RecordBatch::try_new(schema, columns).unwrap()
}
