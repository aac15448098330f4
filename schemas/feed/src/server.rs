//! A worker's side: streams of the changes that the workers of this process make to their layers.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use access::tls::ServerTls;
use access::{Action, Authenticator, Object, allow, allow_some_view, next_connection};
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action as FlightAction, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, Result as FlightResult, SchemaResult, Ticket,
};
use bytes::Bytes;
use engine::fresh::{Fresh, FreshLayer, LayerChange, LayerSubscription, SubscriptionChange, ViewVersion};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, info};
use types::tiles::{Clock, Micros};
use types::{Error, ErrorKind, Result, threads};

use crate::deciding::{self, WorkerDecisions};
use crate::encoding::Encodings;
use crate::message::{FORMAT, Head, LayerHead, LayerRequest, check_format, message};
use crate::tls::{ALPN, FeedConnection};

/// This many nodes may follow a process.
const MOST_SUBSCRIBERS: usize = 256;
/// This many connections may be open, so that files remain for checkpoints.
const MOST_CONNECTIONS: usize = 2 * MOST_SUBSCRIBERS;
/// The workers may listen for this many events at a time.
const MOST_LISTENERS: usize = 4_096;
/// The streams of a connection: one for the layers, one for each event that waits for its record at a node (1,024), and
/// one for each that it asks about although no client waits any more (512). As many may be reset before this process
/// has handled them; by default a connection is closed after 20.
const MOST_STREAMS: u32 = 1_600;
/// This many TLS handshakes may be in progress.
const MOST_HANDSHAKES: usize = 64;
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// A connection on which not even the preface of HTTP/2 arrives is closed after this time.
const PREFACE_WITHIN: Duration = Duration::from_secs(10);
/// A node that does not answer such a ping is gone.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
const ALIVE_WITHIN: Duration = Duration::from_secs(4);
/// How often the token of a node is checked while nothing is sent to it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The layers and decisions that a process offers, and to whom.
#[derive(Clone)]
pub struct Offer {
    pub fresh: Fresh,
    /// The decisions of its workers about single events, if they make the records of sinks.
    pub decisions: Option<Arc<dyn WorkerDecisions>>,
    pub authenticator: Authenticator,
    /// The certificate with which connections are encrypted. Its protocol is `h2`.
    pub tls: Option<ServerTls>,
    pub clock: Clock,
    /// Notified when a node has seen a greater epoch of a partition than its owner in this process has.
    pub overtaken: Arc<Notify>,
}

/// A listening socket.
#[derive(Debug)]
pub struct FeedListener {
    listener: TcpListener,
    pub address: SocketAddr,
}

/// Listens at `address` (port 0: any free one).
///
/// Errors: `Unavailable` when it cannot be listened on.
pub async fn listen(address: SocketAddr) -> Result<FeedListener> {
    let cannot = |error: std::io::Error| Error::unavailable("cannot listen for nodes").with("address", address).caused_by(error);
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok(FeedListener { listener, address })
}

impl Offer {
    /// The protocol, for [`access::tls::ServerTls::load`].
    pub const ALPN: &'static [&'static str] = &[ALPN];
}

/// Serves nodes until `stop`. The caller awaits the task. It runs on the threads of longer queries, because workers
/// take precedence.
pub fn serve(offer: Offer, bound: FeedListener, stop: CancellationToken) -> JoinHandle<Result<()>> {
    info!(address = %bound.address, tls = offer.tls.is_some(), "offering fresh layers");
    let incoming = connections(bound.listener, offer.tls.clone(), MOST_CONNECTIONS);
    let service = Service {
        offer,
        encodings: Encodings::default(),
        subscribers: Arc::default(),
        listeners: Arc::new(Semaphore::new(MOST_LISTENERS)),
        stop: stop.clone(),
    };
    threads::QUERIES.spawn(async move {
        Server::builder()
            .max_concurrent_streams(MOST_STREAMS)
            .http2_max_pending_accept_reset_streams(Some(MOST_STREAMS as usize))
            .http2_keepalive_interval(Some(ALIVE_EVERY))
            .http2_keepalive_timeout(Some(ALIVE_WITHIN))
            .add_service(FlightServiceServer::new(service).max_encoding_message_size(usize::MAX))
            .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
            .await
            .map_err(|error| Error::unavailable("fresh layers cannot be offered any more").caused_by(error))
    })
}

/// Accepts connections, at most this many at a time. Connections that fail, and those without a place, are skipped.
fn connections(listener: TcpListener, tls: Option<ServerTls>, most: usize) -> impl Stream<Item = Result<FeedConnection, Error>> {
    let places = Arc::new(Semaphore::new(most));
    let accepted = stream::unfold((listener, places), |(listener, places)| async move {
        loop {
            let stream = next_connection(&listener, "feed").await;
            match places.clone().try_acquire_owned() {
                Ok(place) => return Some(((stream, place), (listener, places))),
                Err(_) => debug!("a connection of a node is closed: there are as many as may be"),
            }
        }
    });
    let opened = accepted.map(move |(stream, place)| open(stream, place, tls.clone())).buffer_unordered(MOST_HANDSHAKES);
    opened.filter_map(|opened| async move { opened.map(Ok) })
}

async fn open(stream: TcpStream, place: OwnedSemaphorePermit, tls: Option<ServerTls>) -> Option<FeedConnection> {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return Some(FeedConnection::accepted(stream, place, PREFACE_WITHIN)) };
    match tokio::time::timeout(HANDSHAKE_WITHIN, TlsAcceptor::from(tls.config()).accept(stream)).await {
        Ok(Ok(stream)) => Some(FeedConnection::accepted(stream, place, PREFACE_WITHIN)),
        Ok(Err(error)) => {
            debug!(%error, "a connection of a node is not encrypted");
            None
        }
        Err(_) => None,
    }
}

struct Service {
    offer: Offer,
    encodings: Encodings,
    subscribers: Arc<AtomicUsize>,
    listeners: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Service {
    async fn begin(&self, request: Request<Ticket>) -> Result<BoxStream<'static, Result<FlightData, Status>>> {
        let authorization = authorization(request.metadata());
        let principal = self.offer.authenticator.caller(authorization.as_deref()).await?;
        let wanted: LayerRequest = serde_json::from_slice(&request.get_ref().ticket)
            .map_err(|error| Error::input("the ticket is not understood: expected what a node of this release sends").caused_by(error))?;
        check_format(wanted.format)?;
        // Who asks for no view learns how far all streams are too, and can have workers claim their partitions again.
        allow_some_view(&principal)?;
        for view in &wanted.views {
            allow(&principal, Action::Read, Object::View(&view.name))?;
        }
        let permit = SubscriberPermit::take(&self.subscribers)?;
        if self.offer.fresh.is_behind(&wanted.seen) {
            self.offer.overtaken.notify_one();
        }
        debug!(principal = %principal.name, views = wanted.views.len(), "a node follows");
        let LayerSubscription { snapshot, changes } = self.offer.fresh.subscribe();
        let sending = Sending {
            fresh: self.offer.fresh.clone(),
            encodings: self.encodings.clone(),
            views: wanted.views,
            clock: self.offer.clock.clone(),
        };
        let (claims, complete_to, layers) = (snapshot.claims, snapshot.complete_to, snapshot.layers);
        let head = Head::Snapshot { format: FORMAT, claims, complete_to, layers: layers.len() };
        let snapshot = sending.clone();
        let first = stream::once(async move { message(&head, Bytes::new()) });
        let layers = stream::iter(layers).map(move |(owner, layer)| snapshot.layer(owner, &layer, Vec::new(), Duration::ZERO));
        let later = stream::unfold(changes, |mut changes| async move { Some((changes.recv().await?, changes)) });
        let later = later.map(move |change| sending.change(change));
        let stop = self.stop.clone();
        let ended = stream::once(async { Err(Error::limit("the node did not keep up with the worker: it has to begin again")) });
        let authenticator = self.offer.authenticator.clone();
        let allowed = move || authenticator.check_still_valid(&principal);
        let counted = while_allowed(first.chain(layers).chain(later).chain(ended), allowed).map(move |sent| {
            let _permit = &permit;
            sent.inspect(sent_one).map_err(|error| status(&error))
        });
        Ok(counted.take_until(stop.cancelled_owned()).boxed())
    }

    /// A record may have columns of any view and stream, so a caller that asks for one needs the right to read all of
    /// them.
    async fn begin_exchange(&self, request: Request<Streaming<FlightData>>) -> Result<BoxStream<'static, Result<FlightData, Status>>> {
        let authorization = authorization(request.metadata());
        let principal = self.offer.authenticator.caller(authorization.as_deref()).await?;
        allow(&principal, Action::Read, Object::Process)?;
        let decisions = self.offer.decisions.clone();
        let decisions = decisions.ok_or_else(|| Error::unavailable("the workers of this process make no records of sinks"))?;
        let full = || Error::unavailable(format!("{MOST_LISTENERS} events are listened for already"));
        let permit = self.listeners.clone().try_acquire_owned().map_err(|_| full())?;
        let said = deciding::begin(decisions, request.into_inner()).await?;
        let authenticator = self.offer.authenticator.clone();
        let said = said.map(move |said| {
            let _permit = &permit;
            // The node may have lost its right since it began.
            authenticator.check_still_valid(&principal).and(said).map_err(|error| status(&error))
        });
        Ok(said.take_until(self.stop.clone().cancelled_owned()).boxed())
    }
}

fn authorization(metadata: &MetadataMap) -> Option<Vec<u8>> {
    metadata.get("authorization").map(|value| value.as_bytes().to_vec())
}

/// Passes messages on as long as their receiver has the right to them; then an error, and nothing more.
fn while_allowed(
    messages: impl Stream<Item = Result<FlightData>> + Send + 'static,
    allowed: impl Fn() -> Result<()> + Send + 'static,
) -> impl Stream<Item = Result<FlightData>> + Send + 'static {
    stream::unfold(Some((Box::pin(messages), allowed)), |state| async move {
        let (mut messages, allowed) = state?;
        loop {
            let next = tokio::time::timeout(LOOK_EVERY, messages.next()).await;
            if let Err(error) = allowed() {
                return Some((Err(error), None));
            }
            if let Ok(next) = next {
                return next.map(|message| (message, Some((messages, allowed))));
            }
        }
    })
}

/// Composes the messages for one subscriber.
#[derive(Clone)]
struct Sending {
    fresh: Fresh,
    encodings: Encodings,
    views: Vec<ViewVersion>,
    clock: Clock,
}

impl Sending {
    fn change(&self, SubscriptionChange { owner, change, at }: SubscriptionChange<engine::states::StateRows>) -> Result<FlightData> {
        let head = match change {
            LayerChange::Published { layer, complete_to } => {
                return self.layer(owner, &layer, complete_to, Instant::now().saturating_duration_since(at));
            }
            LayerChange::Compacted(merged) => Head::Compacted { owner, start: merged.start.clone(), end: merged.end.clone() },
            LayerChange::TakenOver(claims) => Head::TakenOver { owner, claims },
            LayerChange::Completed(complete_to) => Head::Completed { owner, complete_to },
            LayerChange::Withdrawn { committed, partitions } => Head::Withdrawn { owner, committed, partitions },
        };
        message(&head, Bytes::new())
    }

    fn layer(&self, owner: u64, layer: &Arc<FreshLayer>, complete_to: Vec<engine::fresh::Complete>, age: Duration) -> Result<FlightData> {
        let (sections, body) = self.encodings.sections(&self.fresh, layer, &self.views)?;
        let head = LayerHead {
            owner,
            start: layer.start.clone(),
            end: layer.end.clone(),
            max_event_time: layer.max_event_time.clone(),
            complete_to,
            sections,
            published_at: (self.clock)().saturating_sub(Micros::try_from(age.as_micros()).unwrap_or_default()),
        };
        message(&Head::Layer(head), body)
    }
}

fn sent_one(sent: &FlightData) {
    let bytes = sent.app_metadata.len() + sent.data_body.len();
    metrics::counter!("basestream_speed_feed_bytes_total").increment(bytes as u64);
    if !sent.data_body.is_empty() {
        metrics::counter!("basestream_speed_feed_layers_total").increment(1);
    }
}

fn status(error: &Error) -> Status {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Unauthenticated => Status::unauthenticated(text),
        ErrorKind::Forbidden => Status::permission_denied(text),
        ErrorKind::Input => Status::invalid_argument(text),
        ErrorKind::Limit => {
            metrics::counter!("basestream_speed_feed_cut_off_total").increment(1);
            Status::resource_exhausted(text)
        }
        _ => Status::unavailable(text),
    }
}

/// The place of one subscriber, which becomes free when its stream ends.
struct SubscriberPermit(Arc<AtomicUsize>);

impl SubscriberPermit {
    fn take(subscribers: &Arc<AtomicUsize>) -> Result<SubscriberPermit> {
        let taken = subscribers.fetch_add(1, Ordering::Relaxed) + 1;
        let permit = SubscriberPermit(subscribers.clone());
        if taken > MOST_SUBSCRIBERS {
            return Err(Error::unavailable(format!("{MOST_SUBSCRIBERS} nodes follow this process already")));
        }
        metrics::gauge!("basestream_speed_feed_subscribers").set(taken as f64);
        Ok(permit)
    }
}

impl Drop for SubscriberPermit {
    fn drop(&mut self) {
        let left = self.0.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
        metrics::gauge!("basestream_speed_feed_subscribers").set(left as f64);
    }
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The answer to Flight calls that a worker does not implement.
fn unimplemented<T>() -> Result<T, Box<Status>> {
    Err(Box::new(Status::unimplemented("a worker answers DoGet and DoExchange alone, as nodes ask them")))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Messages<HandshakeResponse>;
    type ListFlightsStream = Messages<FlightInfo>;
    type DoGetStream = Messages<FlightData>;
    type DoPutStream = Messages<PutResult>;
    type DoExchangeStream = Messages<FlightData>;
    type DoActionStream = Messages<FlightResult>;
    type ListActionsStream = Messages<ActionType>;

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        match self.begin(request).await {
            Ok(stream) => Ok(Response::new(stream)),
            Err(error) => {
                debug!(%error, "a node is refused");
                Err(status(&error))
            }
        }
    }

    async fn handshake(&self, _request: Request<Streaming<HandshakeRequest>>) -> Result<Response<Self::HandshakeStream>, Status> {
        unimplemented().map_err(|status| *status)
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        unimplemented().map_err(|status| *status)
    }

    async fn get_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        unimplemented().map_err(|status| *status)
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        unimplemented().map_err(|status| *status)
    }

    async fn get_schema(&self, _request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        unimplemented().map_err(|status| *status)
    }

    async fn do_put(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        unimplemented().map_err(|status| *status)
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        match self.begin_exchange(request).await {
            Ok(stream) => Ok(Response::new(stream)),
            Err(error) => {
                debug!(%error, "a node that asks about an event is refused");
                Err(status(&error))
            }
        }
    }

    async fn do_action(&self, _request: Request<FlightAction>) -> Result<Response<Self::DoActionStream>, Status> {
        unimplemented().map_err(|status| *status)
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        unimplemented().map_err(|status| *status)
    }
}

#[cfg(test)]
mod tests;
