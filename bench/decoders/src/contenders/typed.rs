//! Decodes into structs that serde derives for exactly these records. A product whose streams are defined at run time
//! cannot have them.

use std::borrow::Cow;

use arrow::array::RecordBatch;
use serde::Deserialize;
use serde::de::Error;
use serde_json::value::RawValue;
use simd_json::Buffers;
use sonic_rs::LazyValue;

use crate::column_builders::{Columns, Failed};
use crate::records::{Records, value};

/// A record of a stream, with its amount as `N`.
macro_rules! record {
    ($record:ident: $($text:ident)* | $amount:ident | $($more:ident)*) => {
        #[derive(Deserialize)]
        struct $record<'a, N> {
            $(#[serde(borrow)] $text: Cow<'a, str>,)*
            $amount: N,
            $(#[serde(borrow)] $more: Cow<'a, str>,)*
        }

        impl<N: Amount> $record<'_, N> {
            fn append(&self, columns: &mut Columns) -> Result<(), Failed> {
                let mut at = 0;
                let mut next = || {
                    at += 1;
                    at - 1
                };
                $(columns.text(next(), &self.$text)?;)*
                self.$amount.append(next(), columns)?;
                $(columns.text(next(), &self.$more)?;)*
                Ok(())
            }
        }
    };
}

record!(Payment: event_id ts account_id | amount | currency status channel country card_country merchant_id device_id);
record!(Purchase: event_id ts account_id merchant_id | amount |);

trait Amount {
    fn append(&self, at: usize, columns: &mut Columns) -> Result<(), Failed>;
}

impl Amount for &RawValue {
    fn append(&self, at: usize, columns: &mut Columns) -> Result<(), Failed> {
        columns.number(at, self.get())
    }
}

impl Amount for LazyValue<'_> {
    fn append(&self, at: usize, columns: &mut Columns) -> Result<(), Failed> {
        columns.number(at, self.as_raw_str())
    }
}

impl Amount for f64 {
    fn append(&self, at: usize, columns: &mut Columns) -> Result<(), Failed> {
        columns.float(at, *self)
    }
}

macro_rules! each {
    ($records:expr, $number:ty, $read:expr) => {{
        let records: &Records = $records;
        let mut columns = Columns::for_records(records);
        for record in &records.records {
            match &*records.stream.name {
                "payments" => {
                    let read: Payment<'_, $number> = $read(value(record)).map_err(|error| error.to_string())?;
                    read.append(&mut columns)?;
                }
                _ => {
                    let read: Purchase<'_, $number> = $read(value(record)).map_err(|error| error.to_string())?;
                    read.append(&mut columns)?;
                }
            }
        }
        columns.finish()
    }};
}

pub fn serde_json(records: &Records) -> Result<RecordBatch, Failed> {
    // `from_slice` does not check the UTF-8 of what it skips.
    each!(records, &RawValue, |json| std::str::from_utf8(json).map_err(::serde_json::Error::custom).and_then(::serde_json::from_str))
}

pub fn sonic(records: &Records) -> Result<RecordBatch, Failed> {
    each!(records, LazyValue<'_>, sonic_rs::from_slice)
}

/// Shows what checking UTF-8 costs.
#[allow(unsafe_code)]
pub fn sonic_unchecked(records: &Records) -> Result<RecordBatch, Failed> {
    // Sound only here, because these records were made from texts.
    each!(records, LazyValue<'_>, |json| unsafe { sonic_rs::from_slice_unchecked(json) })
}

pub fn simd_json(records: &Records) -> Result<RecordBatch, Failed> {
    let (mut copy, mut buffers) = (Vec::new(), Buffers::new(4_096));
    let mut columns = Columns::for_records(records);
    for record in &records.records {
        copy.clear();
        copy.extend_from_slice(value(record));
        match &*records.stream.name {
            "payments" => {
                let read: Payment<'_, f64> =
                    simd_json::serde::from_slice_with_buffers(&mut copy, &mut buffers).map_err(|error| error.to_string())?;
                read.append(&mut columns)?;
            }
            _ => {
                let read: Purchase<'_, f64> =
                    simd_json::serde::from_slice_with_buffers(&mut copy, &mut buffers).map_err(|error| error.to_string())?;
                read.append(&mut columns)?;
            }
        }
    }
    columns.finish()
}
