//! Builds a table from a list of records, one column per line of code.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use types::Result;
use types::tiles::Micros;

/// Columns of the same rows, each with its name.
#[derive(Default)]
pub(super) struct NamedColumns(Vec<(&'static str, ArrayRef)>);

impl NamedColumns {
    pub(super) fn text<'a, R, T: Display>(self, name: &'static str, rows: &'a [R], of: impl Fn(&'a R) -> Option<T>) -> Self {
        let texts: StringArray = rows.iter().map(|row| of(row).map(|text| text.to_string())).collect();
        self.with(name, Arc::new(texts))
    }

    pub(super) fn integer<'a, R>(self, name: &'static str, rows: &'a [R], of: impl Fn(&'a R) -> Option<i64>) -> Self {
        self.with(name, Arc::new(rows.iter().map(of).collect::<Int64Array>()))
    }

    pub(super) fn double<'a, R>(self, name: &'static str, rows: &'a [R], of: impl Fn(&'a R) -> Option<f64>) -> Self {
        self.with(name, Arc::new(rows.iter().map(of).collect::<Float64Array>()))
    }

    pub(super) fn truth<'a, R>(self, name: &'static str, rows: &'a [R], of: impl Fn(&'a R) -> Option<bool>) -> Self {
        self.with(name, Arc::new(rows.iter().map(of).collect::<BooleanArray>()))
    }

    pub(super) fn time<'a, R>(self, name: &'static str, rows: &'a [R], of: impl Fn(&'a R) -> Option<Micros>) -> Self {
        self.with(name, Arc::new(rows.iter().map(of).collect::<TimestampMicrosecondArray>().with_timezone("UTC")))
    }

    pub(super) fn batch(self) -> Result<RecordBatch> {
        Ok(RecordBatch::try_from_iter_with_nullable(self.0.into_iter().map(|(name, column)| (name, column, true)))?)
    }

    fn with(mut self, name: &'static str, column: ArrayRef) -> Self {
        self.0.push((name, column));
        self
    }
}

/// The name of an enum's variant as the catalog writes it.
pub(super) fn lower(variant: &impl Debug) -> String {
    format!("{variant:?}").to_lowercase()
}
