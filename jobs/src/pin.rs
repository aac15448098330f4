//! A lease that keeps every file of the archive while a command reads them. It is taken before the catalog is read:
//! what that state names stays until the lease is released.

use std::sync::Arc;
use std::time::Duration;

use batch::KeepLease;
use catalog::Catalog;
use chrono::Utc;
use types::tiles::{Clock, Micros};
use types::vector::Vector;
use types::{Error, Result};
use uuid::Uuid;

/// Renewed while it is held. If a process dies without releasing it, files are kept from collection for at most this
/// long.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// Held while files are read.
pub struct Pin {
    catalog: Catalog,
    lease: KeepLease,
}

impl Pin {
    /// Pins all files from the first offset on. `reader` names the command in the catalog.
    pub async fn take(catalog: &Catalog, reader: &str, now: Micros) -> Result<Pin> {
        let owner = Uuid::new_v4().to_string();
        let clock: Clock = Arc::new(wall);
        let taken = catalog.acquire_lease(&format!("{reader}/{owner}"), &owner, LEASE, now, Some(Vector::new())).await?;
        let lease = taken.ok_or_else(|| Error::conflict("the catalog changed while its files were pinned: try again"))?;
        Ok(Pin { catalog: catalog.clone(), lease: KeepLease::start(catalog.clone(), lease, LEASE, clock) })
    }

    /// Releases the lease; if that fails, it expires. Returns false if it was lost: files may be gone that were still
    /// to be read.
    pub async fn release(self) -> bool {
        let lease = self.lease.stop().await;
        let is_held = lease.expires_at > wall();
        if let Err(error) = self.catalog.release_lease(&lease).await {
            tracing::warn!(lease = %lease.name, %error, "a pin was not released; it expires by itself");
        }
        is_held
    }
}

/// Does `work`, which reads the catalog and then files that it names, under a pin.
///
/// Errors: those of `work`; `Conflict` if the pin was lost meanwhile.
pub async fn pinned<T>(catalog: &Catalog, reader: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let pin = Pin::take(catalog, reader, wall()).await?;
    let outcome = work.await;
    let is_held = pin.release().await;
    read_under(is_held, outcome?)
}

fn wall() -> Micros {
    Utc::now().timestamp_micros()
}

/// Returns what was read, if the pin was held until the end.
fn read_under<T>(is_held: bool, read: T) -> Result<T> {
    if is_held {
        return Ok(read);
    }
    let lost = Error::conflict("the lease that keeps files was lost while they were read: some may have been deleted");
    Err(lost.with("help", "try again when the catalog answers"))
}

#[cfg(test)]
mod tests;
