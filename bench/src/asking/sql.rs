//! Asks one question by SQL over HTTP.

use serde_json::{Value, json};
use types::{Error, Result};

/// The column `number` of the only row of a query; 0 where the answer has none, as the sum of no rows is NULL.
pub async fn sql_number(address: &str, query: &str) -> Result<u64> {
    let failed = |error: reqwest::Error| Error::unavailable("a query failed").with("sql", query).with("error", error);
    let request = reqwest::Client::new().post(format!("http://{address}/v1/sql")).json(&json!({ "query": query }));
    let answer: Value = request.send().await.map_err(failed)?.json().await.map_err(failed)?;
    let number = &answer["rows"][0]["number"];
    // Numbers that JSON would lose digits of are texts.
    let found = number.as_u64().or_else(|| number.as_str()?.parse().ok());
    Ok(found.unwrap_or_default())
}
