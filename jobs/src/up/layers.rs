//! Fresh layers between processes: offering those of this process's workers, and following those of others.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use definitions::settings::{FreshKind, Settings};
use engine::fresh::Fresh;
use event_sinks::Sinks;
use feed::{ClientCertificate, ClientTls, Credentials, FeedListener, Offer};
use serving::http::Protection;
use serving::{FollowSettings, Node};
use speed::Registration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

use super::listeners::allowed_address;
use super::parts::{Parts, Stage};
use super::protection;
use crate::installation::{Installation, clock};

/// Of the memory for queries, what the layers of one process of workers may take beside it: one part in this many.
const MEMORY_SHARE: u64 = 4;

/// An address at which layers will be offered.
pub(super) struct Offering {
    bound: FeedListener,
    protection: Protection,
    /// Where nodes reach it.
    address: String,
}

/// Binds the address, if the settings name one.
pub(super) async fn bind(installation: &Installation) -> Result<Option<Offering>> {
    let setting = "speed.flight";
    let Some(address) = &installation.settings.speed.flight else { return Ok(None) };
    let address = allowed_address(setting, address, installation).await?;
    let protection = protection::open_for(installation, Offer::ALPN).await?;
    let bound = feed::listen(address).await.map_err(|error| error.with("setting", setting))?;
    let address = advertised(&installation.settings, bound.address, protection.tls.is_some())?;
    Ok(Some(Offering { bound, protection, address }))
}

/// Where nodes of other machines reach what is bound at `bound`.
fn advertised(settings: &Settings, bound: SocketAddr, is_encrypted: bool) -> Result<String> {
    let scheme = if is_encrypted { "https" } else { "http" };
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    match &settings.speed.flight_advertise {
        Some(text) if text.rsplit_once(':').is_some_and(|(_, port)| is_port(port)) => Ok(format!("{scheme}://{text}")),
        Some(host) => Ok(format!("{scheme}://{host}:{}", bound.port())),
        None if bound.ip().is_unspecified() => {
            let message = format!("speed.flight = \"{bound}\" is every address of this machine, and none that others know it by");
            Err(Error::input(message)
                .with("setting", "speed.flight_advertise")
                .with("found", "nothing")
                .with("expected", "a host, as nodes know it"))
        }
        None => Ok(format!("{scheme}://{bound}")),
    }
}

/// Offers the layers in `fresh`, and what `sinks` make of single events, and registers this process, if the settings
/// name an address. It ends after the speed layer: nodes get all of it.
pub(super) async fn offer(
    parts: &mut Parts,
    installation: &Installation,
    offering: Option<Offering>,
    (fresh, sinks): (&Fresh, &Arc<Sinks>),
) -> Result<Option<Registration>> {
    let Some(Offering { bound, protection, address }) = offering else { return Ok(None) };
    let registration = Registration::begin(&installation.catalog, &installation.worker, &address, clock()).await?;
    let overtaken: Arc<Notify> = registration.overtaken();
    protection::follow(parts, Stage::Node, installation, &protection);
    let Protection { authenticator, tls, .. } = protection;
    let offer = Offer { fresh: fresh.clone(), decisions: Some(sinks.clone()), authenticator, tls, clock: clock(), overtaken };
    let task = feed::serve(offer, bound, parts.token(Stage::Node));
    parts.start(Stage::Node, "feed", |_| async move { task.await? });
    let (kept, fresh) = (registration.clone(), fresh.clone());
    parts.start(Stage::Node, "registration", |stop| async move { kept.keep(&fresh, stop).await });
    Ok(Some(registration))
}

/// Follows the workers of other processes, if the settings say so: [`following`] as a part. Nobody is answered before
/// this: the node is not ready until then.
pub(super) fn follow(parts: &mut Parts, installation: &Installation, node: &Node) {
    if follows_workers(&installation.settings) {
        node.await_workers();
    }
    let (installation, node) = (installation.clone(), node.clone());
    parts.start(Stage::Node, "workers", |stop| async move {
        following(&installation, &node, stop).await;
        Ok(())
    });
}

/// Follows them until `stop`, or only waits for it if the settings say that what is committed suffices: a part that
/// ends by itself ends the process.
pub(super) fn following(installation: &Installation, node: &Node, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
    let settings = &installation.settings;
    let memory_bytes = usize::try_from(settings.serving.memory_limit / MEMORY_SHARE).unwrap_or(usize::MAX);
    let own = settings.speed.flight.is_some().then(|| installation.worker.clone());
    let (workers, node) = (FollowSettings { own, credentials: credentials(settings), memory_bytes }, node.clone());
    let is_wanted = follows_workers(settings);
    async move {
        match is_wanted {
            true => node.follow_workers(workers, stop).await,
            false => stop.cancelled().await,
        }
    }
}

fn follows_workers(settings: &Settings) -> bool {
    settings.serving.fresh != FreshKind::Committed
}

/// What this process shows workers, and knows them by: its own certificate, where it has no other.
fn credentials(settings: &Settings) -> Credentials {
    let serving = &settings.serving;
    let ca = serving.fresh_ca.clone().or_else(|| serving.tls.cert.clone());
    let identity = serving.tls.cert.clone().zip(serving.tls.key.clone()).map(|(cert, key)| ClientCertificate { cert, key });
    Credentials { token: serving.fresh_token.as_ref().map(|token| token.as_str().to_owned()), tls: ca.map(|ca| ClientTls { ca, identity }) }
}

#[cfg(test)]
mod tests;
