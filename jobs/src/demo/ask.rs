//! Queries the running node as any client would: over HTTP.

use serde_json::{Map, Value, json};
use types::{Error, Result};

/// A row of an answer.
pub type JsonRow = Map<String, Value>;

/// A client of one node.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    pub url: String,
}

impl Client {
    /// Creates a client of the node at this URL.
    pub fn new(url: String) -> Client {
        Client { http: reqwest::Client::new(), url }
    }

    /// `POST /v1/sql`
    pub async fn sql(&self, query: &str) -> Result<Vec<JsonRow>> {
        let request = self.http.post(format!("{}/v1/sql", self.url)).json(&json!({ "query": query }));
        let rows = self.answer(request, "rows").await.map_err(|error| error.with("query", query))?;
        list(rows).map_err(|error| error.with("query", query))
    }

    /// Returns the first paths behind a linked view's row: `_paths` of `GET /v1/views/{view}/row`
    pub async fn paths(&self, view: &str, key: &str, value: &str, most: usize) -> Result<Vec<JsonRow>> {
        let asked = [(key, value), ("_paths", &most.to_string())];
        let request = self.http.get(format!("{}/v1/views/{view}/row", self.url)).query(&asked);
        let paths = self.answer(request, "paths").await.map_err(|error| error.with("view", view))?;
        list(paths).map_err(|error| error.with("view", view))
    }

    /// Returns the first number of a query's first row; 0 if there is none.
    pub async fn number(&self, query: &str) -> Result<i64> {
        let rows = self.sql(query).await?;
        Ok(rows.first().and_then(|row| row.values().next()).map_or(0, whole))
    }

    /// `GET /v1/views/{view}/row`
    pub async fn row(&self, view: &str, key: &str, value: &str) -> Result<JsonRow> {
        let request = self.http.get(format!("{}/v1/views/{view}/row", self.url)).query(&[(key, value)]);
        match self.answer(request, "row").await.map_err(|error| error.with("view", view))? {
            Value::Object(row) => Ok(row),
            _ => Ok(JsonRow::new()),
        }
    }

    async fn answer(&self, request: reqwest::RequestBuilder, member: &str) -> Result<Value> {
        let failed = |error: reqwest::Error| Error::unavailable("the node did not answer").with("url", &self.url).caused_by(error);
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let body: Value = response.json().await.map_err(failed)?;
        if !status.is_success() {
            return Err(Error::internal("the node answered with an error").with("status", status).with("found", body));
        }
        Ok(body.get(member).cloned().unwrap_or_default())
    }
}

fn list(rows: Value) -> Result<Vec<JsonRow>> {
    let Value::Array(rows) = rows else { return Err(Error::internal("the rows of an answer are not a list")) };
    Ok(rows
        .into_iter()
        .filter_map(|row| match row {
            Value::Object(row) => Some(row),
            _ => None,
        })
        .collect())
}

/// Formats a value for display. Decimals and big integers already arrive as strings.
pub fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.iter().map(|item| text(Some(item))).collect::<Vec<_>>().join(", "),
        Some(Value::Object(members)) => members.values().map(|item| text(Some(item))).collect::<Vec<_>>().join(" x "),
        Some(other) => other.to_string(),
    }
}

/// Returns a whole number that arrives as a number or as a string.
pub fn whole(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

/// Returns an amount in cents from its text: `12.30` is 1230. A NULL sum is 0.
pub fn cents(value: Option<&Value>) -> i64 {
    text(value).replace('.', "").parse().unwrap_or_default()
}
