//! Parameters: listed with their values, and what they were before.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{Catalog, ParameterRecord};
use committed::parameters::{ListedParameter, listed};
use committed::registry::Registry;
use engine::events::format_timestamp;
use engine::functions::Functions;
use serde::Serialize;
use types::Result;

/// A parameter of the catalog, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownParameter {
    pub parameter: Arc<str>,
    #[serde(flatten)]
    pub in_effect: ShownValue,
    /// The value with which the files begin.
    pub initial: String,
    pub description: Option<String>,
    /// The sinks and alerts that use it.
    pub used_by: BTreeSet<Arc<str>>,
    /// The values before, the newest first, where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<ShownValue>>,
}

/// A value that a parameter has or had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownValue {
    pub version: u32,
    #[serde(rename = "type")]
    pub value_type: String,
    pub value: String,
    pub since: String,
    pub set_by: String,
}

impl From<&ParameterRecord> for ShownValue {
    fn from(record: &ParameterRecord) -> Self {
        ShownValue {
            version: record.version,
            value_type: record.value_type.clone(),
            value: record.value.clone(),
            since: format_timestamp(record.set_at),
            set_by: record.set_by.clone(),
        }
    }
}

/// Lists one parameter, or all, with up to `history` values that each had before.
///
/// Errors: `NotFound` for an unknown name, with the nearest.
pub async fn list(catalog: &Catalog, functions: &Functions, name: Option<&str>, history: u32) -> Result<Vec<ShownParameter>> {
    let state = catalog.state().await?;
    if let Some(name) = name {
        Registry::load(&state, functions).await?.parameters.get(name)?;
    }
    let mut shown = Vec::new();
    for ListedParameter { definition, in_effect, used_by } in listed(&state)? {
        if name.is_some_and(|name| name != &*in_effect.parameter) {
            continue;
        }
        let earlier = match history {
            0 => None,
            most => {
                let values = catalog.parameter_values(&in_effect.parameter, most.saturating_add(1)).await?;
                Some(values.iter().filter(|value| value.version < in_effect.version).map(ShownValue::from).collect())
            }
        };
        shown.push(ShownParameter {
            parameter: in_effect.parameter.clone(),
            in_effect: (&in_effect).into(),
            initial: definition.value,
            description: definition.description,
            used_by,
            history: earlier,
        });
    }
    Ok(shown)
}
