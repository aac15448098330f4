//! `up`, `speed`, `serve`, `scheduler`: what runs until it is told to stop.

use clap::Args;
use schemas::Result;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{Context, Done};

#[derive(Debug, Args)]
#[command(after_help = "Runs until Ctrl-C or SIGTERM, finishes what is under way, and exits 0. Several may run on the same URLs.")]
pub(super) struct LayerArgs {}

pub(super) async fn speed(context: &Context, _: LayerArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let stop = stop_on_signal()?;
    info!(worker = %installation.worker, log = %installation.settings.log.url, "speed layer runs");
    installation.speed(&installation.worker, None).run(stop).await?;
    Ok(Done::Success)
}

pub(super) async fn scheduler(context: &Context, _: LayerArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let stop = stop_on_signal()?;
    info!(worker = %installation.worker, "scheduler runs");
    let collecting =
        tokio::spawn(crate::collect::run(installation.catalog.clone(), installation.storage.clone(), crate::clock(), stop.clone()));
    installation.scheduler().run(stop).await?;
    collecting.await?;
    Ok(Done::Success)
}

/// Cancelled by Ctrl-C or SIGTERM; a second one ends the process at once.
fn stop_on_signal() -> Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        info!("stopping: what is under way is finished first");
        token.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(stop)
}
