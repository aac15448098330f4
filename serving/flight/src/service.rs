//! Implements Flight's RPCs. A failed call leaves the connection open.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Command, CommandPreparedStatementQuery, DoPutPreparedStatementResult};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use serving::Node;
use tokio::sync::Semaphore;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Extensions, Request, Response, Status, Streaming};
use types::{Error, Result};

use crate::answering::{self, Messages, UnderWay};
use crate::cancel::Queries;
use crate::login::{AUTHORIZATION, FlightCaller, bearer};
use crate::messages::{encode, schema_bytes, wire_schema};
use crate::statements::{as_of, begin, describe, refuse_transaction};
use crate::status::{count, status, unsupported};
use crate::tickets::{AskedQuery, command, name};
use crate::{actions, metadata, parameters};

/// The most answers to queries under way; more are refused, because each keeps some messages in memory. Listings of
/// tables and the like do not count.
pub(crate) const MAX_ANSWERS: usize = 500;

type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service(Arc<dyn FlightCalls>);

impl Service {
    pub(crate) fn new(node: Node) -> Self {
        Self(Arc::new(NodeCalls { node, queries: Queries::default(), places: Arc::new(Semaphore::new(MAX_ANSWERS)) }))
    }
}

/// The RPCs that a node answers, under Flight's names. [`FlightService`] holds them as a trait object: the compiler
/// would have to prove each future of its methods `Send` through all that a node holds, which takes half a minute.
trait FlightCalls: Send + Sync {
    fn get_flight_info(&self, request: Request<FlightDescriptor>) -> BoxFuture<'_, Result<FlightInfo, Status>>;

    fn get_schema(&self, request: Request<FlightDescriptor>) -> BoxFuture<'_, Result<SchemaResult, Status>>;

    fn do_get(&self, request: Request<Ticket>) -> BoxFuture<'_, Result<Messages, Status>>;

    /// Binds the parameters of a prepared statement: the handle that comes back has them.
    fn do_put(&self, request: Request<Streaming<FlightData>>) -> BoxFuture<'_, Result<PutResult, Status>>;

    fn do_action(&self, request: Request<Action>) -> BoxFuture<'_, Result<Option<Bytes>, Status>>;
}

/// What a node answers.
struct NodeCalls {
    node: Node,
    queries: Queries,
    places: Arc<Semaphore>,
}

/// What a descriptor names.
enum Requested {
    Rows(AskedQuery),
    /// What there is, with its columns.
    Listing(SchemaRef, Command),
}

impl FlightCalls for NodeCalls {
    fn get_flight_info(&self, request: Request<FlightDescriptor>) -> BoxFuture<'_, Result<FlightInfo, Status>> {
        Box::pin(async move {
            let (_, node) = self.caller(&request)?;
            let requested = requested(request.metadata(), &request.get_ref().cmd)?;
            let schema = columns(&node, &requested).await.map_err(status)?;
            let ticket = match &requested {
                Requested::Rows(query) => query.ticket().map_err(status)?,
                Requested::Listing(_, command) => Ticket::new(command.clone().into_any().encode_to_vec()),
            };
            let info = FlightInfo::new().try_with_schema(&schema).map_err(|error| status(error.into()))?;
            // Without a location: a client redeems the ticket at the node that gave it.
            Ok(info.with_endpoint(FlightEndpoint::new().with_ticket(ticket)).with_descriptor(request.into_inner()))
        })
    }

    fn get_schema(&self, request: Request<FlightDescriptor>) -> BoxFuture<'_, Result<SchemaResult, Status>> {
        Box::pin(async move {
            let (_, node) = self.caller(&request)?;
            let requested = requested(request.metadata(), &request.get_ref().cmd)?;
            let schema = columns(&node, &requested).await.map_err(status)?;
            Ok(SchemaResult { schema: schema_bytes(&schema).map_err(status)? })
        })
    }

    fn do_get(&self, request: Request<Ticket>) -> BoxFuture<'_, Result<Messages, Status>> {
        Box::pin(async move {
            let (caller, node) = self.caller(&request)?;
            let query = match command(&request.get_ref().ticket).map_err(status)? {
                Command::TicketStatementQuery(ticket) => AskedQuery::read(&ticket.statement_handle),
                Command::CommandPreparedStatementQuery(statement) => prepared(&statement),
                command => return self.listing(command, &node).await,
            };
            let query = query.map_err(status)?;
            let place = self.places.clone().try_acquire_owned();
            let place = place.map_err(|_| status(Error::limit(format!("found {MAX_ANSWERS} answers under way: try again later"))))?;
            let running = self.queries.begin(&query.id, &caller.principal.name);
            let begun = tokio::select! {
                biased;
                () = running.cancelled.cancelled() => Err(answering::was_cancelled()),
                begun = begin(&node, &query) => begun,
            };
            let begun = begun.map_err(status)?;
            answering::send(begun, UnderWay { caller, running, place }).map_err(status)
        })
    }

    fn do_put(&self, request: Request<Streaming<FlightData>>) -> BoxFuture<'_, Result<PutResult, Status>> {
        Box::pin(async move {
            self.caller(&request)?;
            let mut messages = request.into_inner();
            let missing = || status(Error::input("found no descriptor in the first message: expected a command"));
            let first = messages.message().await?.ok_or_else(missing)?;
            let descriptor = first.flight_descriptor.clone().ok_or_else(missing)?;
            let statement = match command(&descriptor.cmd).map_err(status)? {
                Command::CommandPreparedStatementQuery(statement) => statement,
                command => return Err(unsupported(name(&command))),
            };
            let mut query = prepared(&statement).map_err(status)?;
            query.params = parameters::bound(stream::iter([Ok(first)]).chain(messages)).await.map_err(status)?;
            let bound = DoPutPreparedStatementResult { prepared_statement_handle: Some(query.handle().map_err(status)?) };
            Ok(PutResult { app_metadata: bound.encode_to_vec().into() })
        })
    }

    fn do_action(&self, request: Request<Action>) -> BoxFuture<'_, Result<Option<Bytes>, Status>> {
        Box::pin(async move {
            let (caller, node) = self.caller(&request)?;
            let as_of = as_of(request.metadata()).map_err(status)?;
            actions::answer(request.into_inner(), (&node, &caller), as_of, &self.queries).await
        })
    }
}

impl NodeCalls {
    /// Who calls, and the node with its rights.
    fn caller<T>(&self, request: &Request<T>) -> Result<(FlightCaller, Node), Status> {
        let caller = caller_in(request.extensions())?;
        let node = self.node.acting_for(caller.principal.clone());
        Ok((caller, node))
    }

    async fn listing(&self, command: Command, node: &Node) -> Result<Messages, Status> {
        let Some(schema) = metadata::schema(&command) else { return Err(unsupported(name(&command))) };
        let rows: RecordBatch = metadata::rows(command, node).await.map_err(status)?;
        Ok(Box::pin(encode(schema, stream::iter([Ok(rows)])).map(|message| message.map_err(Status::from))))
    }
}

/// Who calls, as its connection found out.
fn caller_in(extensions: &Extensions) -> Result<FlightCaller, Status> {
    extensions.get::<FlightCaller>().cloned().ok_or_else(|| status(Error::internal("a call came without a caller")))
}

fn requested(metadata: &MetadataMap, cmd: &[u8]) -> Result<Requested, Status> {
    let query = match command(cmd).map_err(status)? {
        Command::CommandStatementQuery(statement) => refuse_transaction(statement.transaction_id.as_ref())
            .and_then(|()| as_of(metadata))
            .map(|as_of| AskedQuery::new(statement.query, as_of)),
        Command::CommandPreparedStatementQuery(statement) => prepared(&statement),
        command => match metadata::schema(&command) {
            Some(schema) => return Ok(Requested::Listing(schema, command)),
            None => return Err(unsupported(name(&command))),
        },
    };
    query.map(Requested::Rows).map_err(status)
}

fn prepared(statement: &CommandPreparedStatementQuery) -> Result<AskedQuery> {
    AskedQuery::read(&statement.prepared_statement_handle)
}

async fn columns(node: &Node, requested: &Requested) -> Result<SchemaRef> {
    match requested {
        Requested::Rows(query) => Ok(wire_schema(&describe(node, query).await?.schema)),
        Requested::Listing(schema, _) => Ok(schema.clone()),
    }
}

/// Counts what a call fails with.
async fn counted<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<Response<T>, Status> {
    answer.await.map(Response::new).inspect_err(count)
}

fn one<T: Send + 'static>(item: Option<T>) -> Items<T> {
    Box::pin(stream::iter(item.map(Ok)))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Items<HandshakeResponse>;
    type ListFlightsStream = Items<FlightInfo>;
    type DoGetStream = Messages;
    type DoPutStream = Items<PutResult>;
    type DoActionStream = Items<arrow_flight::Result>;
    type ListActionsStream = Items<ActionType>;
    type DoExchangeStream = Items<FlightData>;

    /// A login by user and password: the answer names the bearer for what follows.
    async fn handshake(&self, request: Request<Streaming<HandshakeRequest>>) -> Result<Response<Self::HandshakeStream>, Status> {
        let answer = counted(async {
            caller_in(request.extensions())?;
            Ok(one(Some(HandshakeResponse::default())))
        });
        let mut answer: Response<Self::HandshakeStream> = answer.await?;
        let authorization = request.metadata().get(AUTHORIZATION).map(|value| value.as_bytes());
        if let Some(Ok(bearer)) = authorization.and_then(bearer).map(MetadataValue::try_from) {
            answer.metadata_mut().insert(AUTHORIZATION, bearer);
        }
        Ok(answer)
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        counted(async { Err(unsupported("ListFlights")) }).await
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        counted(self.0.get_flight_info(request)).await
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        counted(async { Err(unsupported("PollFlightInfo")) }).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        counted(self.0.get_schema(request)).await
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        counted(self.0.do_get(request)).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        counted(async { Ok(one(Some(self.0.do_put(request).await?))) }).await
    }

    async fn do_exchange(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        counted(async { Err(unsupported("DoExchange")) }).await
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        counted(async { Ok(one(self.0.do_action(request).await?.map(|body| arrow_flight::Result { body }))) }).await
    }

    async fn list_actions(&self, request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        counted(async {
            caller_in(request.extensions())?;
            let all: Self::ListActionsStream = Box::pin(stream::iter(actions::all().map(Ok)));
            Ok(all)
        })
        .await
    }
}
