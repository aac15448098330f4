//! Parameters over HTTP: listed, and set.

use std::sync::Arc;

use access::{Object, Principal, audit};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use committed::parameters::{ListedParameter, ParameterChange, Setting, listed, set};
use engine::events::format_timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use types::{Error, Result};

use super::App;
use super::apart::apart;
use super::input::{Body, Json, Name, parse};
use super::problem::HttpProblem;

/// `GET /v1/parameters`
pub(super) async fn parameters(State(app): State<App>) -> Result<Response, HttpProblem> {
    apart(async move {
        let read_view = app.node.read_view()?;
        let parameters: Vec<Value> = listed(&read_view.loaded.state)?.iter().map(parameter).collect();
        Ok(Json(json!({ "parameters": parameters })).into_response())
    })
    .await
}

/// `PUT /v1/parameters/{parameter}`
pub(super) async fn put(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(parameter): Name,
    body: Body,
) -> Result<Response, HttpProblem> {
    apart(async move {
        let value = value_of(&body)?;
        let setting = Setting { parameter: &parameter, value: &value, set_by: &principal.name, now: app.node.read_view()?.now };
        let outcome = set(app.node.catalog(), app.node.functions(), setting).await;
        audit(&principal.name, "set", &Object::Parameter(&parameter).to_string(), &outcome);
        let ParameterChange { before, after } = outcome?;
        let answer = json!({
            "parameter": after.parameter,
            "type": after.value_type,
            "value_before": before.value,
            "value": after.value,
            "version": after.version,
            "changed": before != after,
        });
        Ok(Json(answer).into_response())
    })
    .await
}

/// A number is read by its digits, never as a float.
fn value_of(body: &Body) -> Result<String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetRequest<'a> {
        #[serde(borrow)]
        value: &'a RawValue,
    }
    const EXPECTED: &str = "{\"value\": 30}: a number, a text, true or false";
    let request: SetRequest<'_> = parse(body, EXPECTED)?;
    let text = request.value.get();
    match serde_json::from_str::<Value>(text) {
        Ok(Value::String(text)) => Ok(text),
        Ok(Value::Number(_) | Value::Bool(_)) => Ok(text.to_owned()),
        _ => Err(Error::input(format!("the value is {text}: expected {EXPECTED}"))),
    }
}

fn parameter(listed: &ListedParameter) -> Value {
    let ListedParameter { definition, in_effect, used_by } = listed;
    json!({
        "parameter": in_effect.parameter,
        "type": in_effect.value_type,
        "value": in_effect.value,
        "version": in_effect.version,
        "since": format_timestamp(in_effect.set_at),
        "set_by": in_effect.set_by,
        "initial": definition.value,
        "description": definition.description,
        "used_by": used_by,
    })
}

#[cfg(test)]
mod tests;
