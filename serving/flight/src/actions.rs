//! Actions: prepared statements, of which the server keeps nothing, and queries cancelled.

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any,
    ProstMessageExt,
};
use arrow_flight::{Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo};
use bytes::Bytes;
use prost::Message;
use serving::Node;
use tonic::Status;
use types::tiles::Micros;
use types::{Error, Result};

use crate::cancel::Queries;
use crate::login::FlightCaller;
use crate::messages::{schema_bytes, wire_schema};
use crate::status::{status, unsupported};
use crate::tickets::AskedQuery;
use crate::{parameters, statements};

const CREATE_PREPARED_STATEMENT: &str = "CreatePreparedStatement";
const CLOSE_PREPARED_STATEMENT: &str = "ClosePreparedStatement";
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";
const CANCEL_QUERY: &str = "CancelQuery";

const ALL: [(&str, &str); 4] = [
    (CREATE_PREPARED_STATEMENT, "describes a query; its handle carries it"),
    (CLOSE_PREPARED_STATEMENT, "does nothing: the server keeps no statement"),
    (CANCEL_FLIGHT_INFO, "cancels what runs on this node for the tickets of a FlightInfo"),
    (CANCEL_QUERY, "the same, as older clients ask"),
];

pub(crate) fn all() -> impl Iterator<Item = ActionType> {
    ALL.into_iter().map(|(name, description)| ActionType { r#type: name.to_owned(), description: description.to_owned() })
}

/// Answers an action of a caller, for whom the node acts.
pub(crate) async fn answer(
    action: Action,
    (node, caller): (&Node, &FlightCaller),
    as_of: Option<Micros>,
    queries: &Queries,
) -> Result<Option<Bytes>, Status> {
    let by = &caller.principal.name;
    match action.r#type.as_str() {
        CREATE_PREPARED_STATEMENT => prepare(&action.body, node, as_of).await.map(Some).map_err(status),
        CLOSE_PREPARED_STATEMENT => Ok(None),
        CANCEL_FLIGHT_INFO => {
            let asked = CancelFlightInfoRequest::decode(&*action.body).map_err(not_understood).map_err(status)?;
            let found = queries.cancel(&asked.info.unwrap_or_default(), by);
            Ok(Some(CancelFlightInfoResult::new(found).encode_to_vec().into()))
        }
        CANCEL_QUERY => {
            let asked: ActionCancelQueryRequest = unpacked(&action.body).map_err(status)?;
            let info = FlightInfo::decode(&*asked.info).map_err(not_understood).map_err(status)?;
            // The words of both are the same, and their numbers.
            let result = match queries.cancel(&info, by) {
                CancelStatus::Cancelled => CancelStatus::Cancelled,
                _ => CancelStatus::NotCancellable,
            };
            Ok(Some(ActionCancelQueryResult { result: result as i32 }.as_any().encode_to_vec().into()))
        }
        other => Err(unsupported(&format!("the action {other}"))),
    }
}

async fn prepare(body: &[u8], node: &Node, as_of: Option<Micros>) -> Result<Bytes> {
    let asked: ActionCreatePreparedStatementRequest = unpacked(body)?;
    statements::refuse_transaction(asked.transaction_id.as_ref())?;
    let query = AskedQuery::new(parameters::numbered(&asked.query), as_of);
    let described = statements::describe(node, &query).await?;
    let made = ActionCreatePreparedStatementResult {
        prepared_statement_handle: query.handle()?,
        dataset_schema: schema_bytes(&wire_schema(&described.schema))?,
        parameter_schema: schema_bytes(&parameters::schema(&described.params))?,
    };
    Ok(made.as_any().encode_to_vec().into())
}

fn unpacked<M: ProstMessageExt>(body: &[u8]) -> Result<M> {
    let any = Any::decode(body).map_err(not_understood)?;
    any.unpack().map_err(not_understood)?.ok_or_else(|| Error::input(format!("found {}, expected {}", any.type_url, M::type_url())))
}

fn not_understood(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::input("the body of the action is not understood").caused_by(error)
}
