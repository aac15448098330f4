//! Rows of keys of several views over HTTP, all from one read view.

use std::fmt;
use std::sync::Arc;

use access::Principal;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use types::Result;

use super::App;
use super::apart::apart;
use super::input::{Body, json_bytes, parse, position};
use super::problem::HttpProblem;
use super::views::write_member;
use crate::json::write_rows;
use crate::lookup::{Keys, ViewKeys, ViewsResponse};
use crate::sql::parse_as_of;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(deserialize_with = "in_their_order")]
    views: Vec<ViewKeys>,
    #[serde(default)]
    as_of: Option<String>,
    /// The answer counts everything before this position, or waits until it does.
    #[serde(default)]
    after: Option<String>,
}

const EXPECTED: &str = r#"{"views": {"<view>": [{"<key>": value, ..}, ..], ..}, "as_of": null, "after": null}"#;

/// `POST /v1/rows`
pub(super) async fn rows(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    body: Body,
) -> Result<Response, HttpProblem> {
    apart(answer(app, principal, body)).await
}

async fn answer(app: App, principal: Arc<Principal>, body: Body) -> Result<Response, HttpProblem> {
    let asked: Asked = parse(&body, EXPECTED)?;
    let as_of = asked.as_of.as_deref().map(parse_as_of).transpose()?;
    let after = asked.after.as_deref().map(position).transpose()?;
    let response = app.node.acting_for(principal).lookup_views(asked.views, as_of, after.as_ref()).await?;
    Ok(json_bytes(written(&response)?))
}

fn written(response: &ViewsResponse) -> Result<Vec<u8>> {
    let mut out = b"{\"views\":{".to_vec();
    for (nth, of_view) in response.views.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, &*of_view.view)?;
        out.extend_from_slice(b":{\"rows\":");
        write_rows(&mut out, &of_view.rows)?;
        write_member(&mut out, b",\"found\":", &of_view.found)?;
        out.push(b'}');
    }
    out.push(b'}');
    write_member(&mut out, b",\"meta\":", &response.meta)?;
    out.push(b'}');
    Ok(out)
}

/// Reads views in the order in which they are written. One that is written twice is there twice, and is refused later.
fn in_their_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ViewKeys>, D::Error> {
    struct Views;
    impl<'de> Visitor<'de> for Views {
        type Value = Vec<ViewKeys>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object that has an array of keys for each view")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut views: M) -> Result<Self::Value, M::Error> {
            let mut asked = Vec::new();
            while let Some((view, keys)) = views.next_entry::<String, Vec<Map<String, Value>>>()? {
                asked.push(ViewKeys { view: view.into(), keys: Keys::Json(keys) });
            }
            Ok(asked)
        }
    }
    deserializer.deserialize_map(Views)
}

#[cfg(test)]
mod tests;
