//! A query: what its columns and parameters are, and the beginning of its answer.

use std::future::Future;

use arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use definitions::durations::format_duration;
use futures::StreamExt;
use serving::{Described, Node, QueryResponse, SearchPath, SessionSettings, invalid_as_of, out_of_time, parse_as_of};
use tonic::metadata::MetadataMap;
use types::tiles::Micros;
use types::{Error, Reason, Result};

use crate::parameters;
use crate::tickets::AskedQuery;

/// Names the time of the queries of a call whose text names none: RFC 3339 with a zone.
pub const AS_OF: &str = "basestream-as-of";

/// An answer that has begun.
pub(crate) struct Begun {
    pub(crate) response: QueryResponse,
    pub(crate) first: Option<RecordBatch>,
}

/// The time that a call asks for.
pub(crate) fn as_of(metadata: &MetadataMap) -> Result<Option<Micros>> {
    let Some(value) = metadata.get(AS_OF) else { return Ok(None) };
    let text = value.to_str().map_err(|_| invalid_as_of(&format!("the header {AS_OF} is not text")))?;
    if text.trim().is_empty() { Ok(None) } else { parse_as_of(text).map(Some) }
}

/// The columns of a query's answer, and its parameters.
pub(crate) async fn describe(node: &Node, query: &AskedQuery) -> Result<Described> {
    let given = parameters::types(&parameters::values(&query.params)?);
    in_time(node, node.describe(node.read_view()?, &query.sql, &given, SearchPath::default())).await
}

/// Plans a query and waits for its first rows: what fails until then is answered without any.
pub(crate) async fn begin(node: &Node, query: &AskedQuery) -> Result<Begun> {
    metrics::counter!("basestream_serving_flight_queries_total").increment(1);
    let params = parameters::values(&query.params)?;
    let settings = SessionSettings { as_of: query.as_of, ..SessionSettings::default() };
    in_time(node, async {
        let params = with_types(node, query, params).await?;
        let mut response = node.query_typed(None, &query.sql, params, settings).await?;
        let first = response.batches.next().await.transpose()?;
        Ok(Begun { response, first })
    })
    .await
}

/// Gives a NULL without a type the type with which the query is described: the answer has the columns that the
/// description says.
async fn with_types(node: &Node, query: &AskedQuery, mut params: Vec<ScalarValue>) -> Result<Vec<ScalarValue>> {
    if !params.contains(&ScalarValue::Null) {
        return Ok(params);
    }
    let given = parameters::types(&params);
    let described = node.describe(node.read_view()?, &query.sql, &given, SearchPath::default()).await?;
    for (param, data_type) in params.iter_mut().zip(&described.params) {
        if *param == ScalarValue::Null {
            *param = ScalarValue::try_new_null(data_type)?;
        }
    }
    Ok(params)
}

async fn in_time<T>(node: &Node, work: impl Future<Output = Result<T>>) -> Result<T> {
    let limit = node.query_timeout();
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let limit = format_duration(limit);
        Err(out_of_time(&format!("{limit}, the setting serving.query_timeout: select less, or raise the setting")))
    })
}

/// Each query is answered from one catalog state.
pub(crate) fn refuse_transaction(id: Option<&bytes::Bytes>) -> Result<()> {
    match id.is_some_and(|id| !id.is_empty()) {
        true => {
            let message = "not supported: transactions, each query is answered from one state by itself";
            Err(Error::input(message).with_reason(Reason::NotSupported))
        }
        false => Ok(()),
    }
}
