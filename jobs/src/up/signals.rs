//! Handles Ctrl-C and SIGTERM: the first one asks the process to shut down in order, the second one ends it at once.

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::Result;

/// The exit code of a process that was interrupted before it finished: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Returns a token that the first signal cancels. Must be called within a Tokio runtime.
pub(crate) fn stop_on_signals() -> Result<CancellationToken> {
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        let name = signals.next().await;
        info!(signal = name, "stop requested: draining; repeat the signal to exit immediately");
        token.cancel();
        let name = signals.next().await;
        warn!(signal = name, "exiting immediately; what is not checkpointed is read again from the log");
        std::process::exit(INTERRUPTED);
    });
    Ok(stop)
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}
