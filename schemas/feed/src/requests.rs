//! A node's side of a connection: its requests to a worker's process.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, Ticket};
use futures::Stream;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use types::{Error, Result};

use crate::message::LayerRequest;
use crate::tls::{ClientTls, FeedConnection};

const CONNECTED_WITHIN: Duration = Duration::from_secs(3);
/// A worker that does not answer such a ping is lost.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
pub(crate) const ALIVE_WITHIN: Duration = Duration::from_secs(4);
/// How many bytes may be under way to a node that does not read them.
const WINDOW_BYTES: u32 = 4 << 20;
/// The same for all streams of a connection: a layer that is not read yet leaves room for messages about events.
const CONNECTION_WINDOW_BYTES: u32 = WINDOW_BYTES + (1 << 20);
/// A layer is one message.
const MOST_MESSAGE_BYTES: usize = 1 << 30;

/// The credentials that a node presents to a worker, and those by which it verifies the worker. By default there are
/// none.
#[derive(Clone, Default)]
pub struct Credentials {
    pub token: Option<String>,
    pub tls: Option<ClientTls>,
}

/// A connection to a worker's process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct WorkerConnection {
    client: FlightServiceClient<Channel>,
    authorization: Option<AsciiMetadataValue>,
    address: Arc<str>,
}

impl WorkerConnection {
    /// Connects. `address` is `http://host:port` or `https://host:port`.
    pub(crate) async fn open(address: &str, credentials: &Credentials) -> Result<WorkerConnection> {
        let client = FlightServiceClient::new(connect(address, credentials).await?).max_decoding_message_size(MOST_MESSAGE_BYTES);
        let authorization = credentials.token.as_deref().map(authorization).transpose()?;
        Ok(WorkerConnection { client, authorization, address: address.into() })
    }

    /// Begins a stream of layers.
    pub(crate) async fn follow(&self, wanted: &LayerRequest) -> Result<Streaming<FlightData>> {
        let request = self.authorized(Ticket { ticket: serde_json::to_vec(wanted)?.into() });
        self.answer(self.client.clone().do_get(request)).await
    }

    /// Begins an exchange of messages.
    pub(crate) async fn exchange(&self, sent: impl Stream<Item = FlightData> + Send + 'static) -> Result<Streaming<FlightData>> {
        let request = self.authorized(sent);
        self.answer(self.client.clone().do_exchange(request)).await
    }

    fn authorized<T>(&self, content: T) -> Request<T> {
        let mut request = Request::new(content);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    async fn answer(
        &self,
        call: impl Future<Output = Result<Response<Streaming<FlightData>>, Status>> + Send,
    ) -> Result<Streaming<FlightData>> {
        let response = tokio::time::timeout(CONNECTED_WITHIN, call).await;
        let response = response.map_err(|_| Error::unavailable("a worker does not answer").with("address", &self.address))?;
        Ok(response.map_err(|status| error_of(&status))?.into_inner())
    }
}

fn authorization(token: &str) -> Result<AsciiMetadataValue> {
    let value = AsciiMetadataValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| Error::input("serving.fresh_token is not a token"))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn connect(address: &str, credentials: &Credentials) -> Result<Channel> {
    let (scheme, host_and_port) =
        address.split_once("://").ok_or_else(|| Error::corrupt("a worker's address has no scheme").with("found", address))?;
    let tls = match (scheme, &credentials.tls) {
        ("http", _) => None,
        (_, Some(tls)) => Some(tls.clone()),
        (_, None) => {
            let message = "the worker encrypts its connections, and nothing says whose certificates count: set serving.fresh_ca";
            return Err(Error::input(message).with("address", address));
        }
    };
    let unreached =
        |error: tonic::transport::Error| Error::unavailable("a worker cannot be reached").with("address", address).caused_by(error);
    // The connector encrypts.
    let endpoint = Endpoint::from_shared(format!("http://{host_and_port}")).map_err(unreached)?;
    endpoint
        .connect_timeout(CONNECTED_WITHIN)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_WITHIN)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .connect_with_connector(Connector { tls })
        .await
        .map_err(unreached)
}

/// Returns the next message of a stream, which must not end here.
pub(crate) async fn next(stream: &mut Streaming<FlightData>) -> Result<FlightData> {
    let message = stream.message().await.map_err(|status| error_of(&status))?;
    message.ok_or_else(|| Error::unavailable("a worker ended its stream"))
}

/// Returns the error that a worker sent instead of a message.
pub(crate) fn error_of(status: &Status) -> Error {
    let text = status.message();
    match status.code() {
        Code::Unauthenticated => Error::unauthenticated(text),
        Code::PermissionDenied => Error::forbidden(text),
        Code::InvalidArgument => Error::input(text),
        Code::ResourceExhausted => Error::limit(text),
        _ => Error::unavailable(format!("a worker's stream ended: {text}")),
    }
}

#[derive(Clone)]
struct Connector {
    tls: Option<ClientTls>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<FeedConnection>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.tls.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
            let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or_default())).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(match tls {
                Some(tls) => tls.connect(&host, stream).await?,
                None => FeedConnection::new(stream),
            }))
        })
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("token", &self.token.is_some()).field("tls", &self.tls).finish()
    }
}
