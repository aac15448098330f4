//! A node's side of a stream: requests the layers of a worker's process.

use std::task::{Context, Poll};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, Ticket};
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status, Streaming};
use types::{Error, Result};

use crate::message::LayerRequest;
use crate::tls::{ClientTls, FeedConnection};

const CONNECTED_WITHIN: Duration = Duration::from_secs(3);
/// A worker that does not answer such a ping is lost.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
pub(crate) const ALIVE_WITHIN: Duration = Duration::from_secs(4);
/// What may be under way to a node that does not read.
const WINDOW_BYTES: u32 = 4 << 20;
/// A layer is one message.
const MOST_MESSAGE_BYTES: usize = 1 << 30;

/// What a node shows a worker, and knows it by. The default is neither.
#[derive(Clone, Default)]
pub struct Credentials {
    pub token: Option<String>,
    pub tls: Option<ClientTls>,
}

/// Begins a stream. `address` is `http://host:port` or `https://host:port`.
pub(crate) async fn begin(address: &str, credentials: &Credentials, wanted: &LayerRequest) -> Result<Streaming<FlightData>> {
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
    let channel = endpoint
        .connect_timeout(CONNECTED_WITHIN)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_WITHIN)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .connect_with_connector(Connector { tls })
        .await
        .map_err(unreached)?;
    let mut client = FlightServiceClient::new(channel).max_decoding_message_size(MOST_MESSAGE_BYTES);
    let mut request = Request::new(Ticket { ticket: serde_json::to_vec(wanted)?.into() });
    if let Some(token) = &credentials.token {
        let value = AsciiMetadataValue::try_from(format!("Bearer {token}"));
        request.metadata_mut().insert("authorization", value.map_err(|_| Error::input("serving.fresh_token is not a token"))?);
    }
    let response = tokio::time::timeout(CONNECTED_WITHIN, client.do_get(request)).await;
    let response = response.map_err(|_| Error::unavailable("a worker does not answer").with("address", address))?;
    Ok(response.map_err(|status| error_of(&status))?.into_inner())
}

/// Returns what a worker said in the place of a message.
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
