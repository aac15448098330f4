//! Whether the services answer, for a process that may need none of them for a while.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::outage::{Attempts, Outage};
use types::{Error, Result};

use super::parts::{Parts, Stage};
use crate::installation::Installation;

/// How often a service is asked: often enough that an outage does not end between two requests.
const EVERY: Duration = Duration::from_secs(10);
/// A service that has not answered after this time is noted, again and again until it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether each service answered the last request. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct ServiceAnswers {
    catalog: Attempts,
    storage: Attempts,
    pub(super) log: Attempts,
}

impl Default for ServiceAnswers {
    fn default() -> Self {
        Self {
            catalog: Attempts::new("the catalog does not answer"),
            storage: Attempts::new("the object storage does not answer"),
            log: Attempts::new("the log does not answer"),
        }
    }
}

impl ServiceAnswers {
    pub(super) fn outages(&self) -> Vec<Outage> {
        [&self.catalog, &self.storage, &self.log].into_iter().filter_map(Attempts::outage).collect()
    }
}

/// Starts what asks the catalog and the storage, so that `/readyz` knows whether they answer.
pub(super) fn ask_services(parts: &mut Parts, installation: &Installation, answers: &ServiceAnswers) {
    let (catalog, answered) = (installation.catalog.clone(), answers.catalog.clone());
    let request = move || {
        let catalog = catalog.clone();
        async move { catalog.revision().await.map(drop) }
    };
    parts.start(Stage::Health, "catalog", |stop| async move {
        ask(answered, request, stop).await;
        Ok(())
    });
    let (storage, answered) = (installation.storage.clone(), answers.storage.clone());
    let request = move || {
        let storage = storage.clone();
        async move { storage.probe().await }
    };
    parts.start(Stage::Health, "storage", |stop| async move {
        ask(answered, request, stop).await;
        Ok(())
    });
}

/// Asks the object storage once: one that does not answer is logged by then, and not when a checkpoint needs it.
pub(super) fn probe_storage(installation: &Installation) {
    let storage = installation.storage.clone();
    tokio::spawn(async move {
        if let Err(error) = storage.probe().await {
            warn!(%error, "the object storage does not answer");
        }
    });
}

/// Asks a service every few seconds until `stop`, and notes its answers.
async fn ask<F: Future<Output = Result<()>>>(answers: Attempts, request: impl Fn() -> F, stop: CancellationToken) {
    let rounds = async {
        loop {
            // It is noted, and nothing else needs the answer.
            let _ = noted(&answers, request()).await;
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = rounds => {}
    }
}

/// Awaits an answer, and notes either the answer or that there is none yet.
pub(super) async fn noted<T>(answers: &Attempts, request: impl Future<Output = Result<T>>) -> Result<T> {
    noted_after(PATIENCE, answers, request).await
}

async fn noted_after<T>(patience: Duration, answers: &Attempts, request: impl Future<Output = Result<T>>) -> Result<T> {
    let mut request = pin!(request);
    loop {
        match tokio::time::timeout(patience, request.as_mut()).await {
            Ok(answer) => {
                answers.note(&answer);
                return answer;
            }
            Err(_) => answers.note(&Err::<(), _>(Error::unavailable(format!("no answer after {patience:?}")))),
        }
    }
}

#[cfg(test)]
mod tests;
