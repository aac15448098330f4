//! A lease that keeps every archive file during a verification.

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
const LEASE: Duration = Duration::from_secs(60);

/// Held while files are read.
pub struct Pin {
    catalog: Catalog,
    lease: KeepLease,
}

impl Pin {
    /// Pins all files from the first offset on.
    pub async fn take(catalog: &Catalog, now: Micros) -> Result<Pin> {
        let owner = Uuid::new_v4().to_string();
        let clock: Clock = Arc::new(|| Utc::now().timestamp_micros());
        let taken = catalog.acquire_lease(&format!("verify/{owner}"), &owner, LEASE, now, Some(Vector::new())).await?;
        let lease = taken.ok_or_else(|| Error::conflict("the catalog changed while its files were pinned: try again"))?;
        Ok(Pin { catalog: catalog.clone(), lease: KeepLease::start(catalog.clone(), lease, LEASE, clock) })
    }

    /// Releases the lease; if that fails, it expires.
    pub async fn release(self) {
        let lease = self.lease.stop().await;
        if let Err(error) = self.catalog.release_lease(&lease).await {
            tracing::warn!(lease = %lease.name, %error, "a pin was not released; it expires by itself");
        }
    }
}
