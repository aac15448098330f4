//! Values of single keys and columns that could not be computed. All other values are answered. A lookup lists them;
//! SQL fails, unless the request says to list them too.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use committed::registry::LiveView;
use engine::states::{FailedRows, FailedValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use types::{Error, Result};

use crate::json;

/// At most this many are listed in an answer.
const MOST_LISTED: usize = 100_000;

/// A value that could not be computed. In its row it is NULL.
#[derive(Debug, Clone, Serialize)]
pub struct ValueError {
    pub view: Arc<str>,
    /// The row's key, as a JSON object.
    pub key: Box<RawValue>,
    pub column: String,
    /// What is wrong, and what to do.
    pub error: Arc<str>,
}

impl PartialEq for ValueError {
    fn eq(&self, other: &Self) -> bool {
        let parts = |error: &Self| (error.view.clone(), error.key.get().to_owned(), error.column.clone(), error.error.clone());
        parts(self) == parts(other)
    }
}

/// What an answer does with values that could not be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnValueError {
    /// The first of them ends it.
    #[default]
    Fail,
    /// They are NULL, and listed.
    List,
}

/// Those of one answer.
#[derive(Debug, Default)]
pub(crate) struct ValueErrors {
    on_error: OnValueError,
    listed: Mutex<Vec<ValueError>>,
}

impl ValueErrors {
    pub(crate) fn new(on_error: OnValueError) -> Self {
        Self { on_error, listed: Mutex::default() }
    }

    /// Takes the values of some rows that could not be computed.
    ///
    /// Errors: `Limit` for the first of them if they are not listed, and past as many as are listed.
    pub(crate) fn take(&self, view: &LiveView, failed: &FailedRows) -> Result<()> {
        let errors = failed.values.iter().map(|value| value_error(view, failed, value));
        let errors = errors.collect::<Result<Vec<_>>>()?;
        let Some(first) = errors.first() else { return Ok(()) };
        metrics::counter!("basestream_serving_value_errors_total", "view" => view.name.to_string()).increment(errors.len() as u64);
        if self.on_error == OnValueError::Fail {
            let ValueError { view, key, column, error } = first;
            return Err(Error::limit(format!("the column \"{column}\" of \"{view}\" has no value for the key {key}: {error}"))
                .with("help", "leave the column out, choose other keys, or look the key up: its other columns are answered"));
        }
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.len() + errors.len() > MOST_LISTED {
            return Err(Error::limit(format!(
                "more than {MOST_LISTED} values could not be computed: expected a query of fewer keys or columns"
            )));
        }
        listed.extend(errors);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn listed(&self) -> Vec<ValueError> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn value_error(view: &LiveView, failed: &FailedRows, value: &FailedValue) -> Result<ValueError> {
    let plan = &view.plan;
    let key = match failed.keys.is_empty() {
        true => RawValue::from_string("{}".to_owned())?,
        false => {
            let keys = RecordBatch::try_new(Arc::new(Schema::new(plan.answer_keys().to_vec())), failed.keys.clone())?;
            json::RowWriter::new(keys.schema_ref()).row(&keys, value.row)?
        }
    };
    Ok(ValueError { view: view.name.clone(), key, column: plan.columns[value.column].field.name().clone(), error: value.why.clone() })
}
