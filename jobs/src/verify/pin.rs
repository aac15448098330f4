//! A lease that keeps every archive file while a verification reads it.

use std::time::Duration;

use batch::KeepLease;
use catalog::Catalog;
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result};
use uuid::Uuid;

use crate::installation::clock;

/// Renewed while it is held: a process that dies without release keeps files from being collected for no longer than this.
const LEASE: Duration = Duration::from_secs(60);

/// Held while files are read.
pub struct Pin {
    catalog: Catalog,
    lease: KeepLease,
}

impl Pin {
    /// Pins everything from the first offset on.
    pub async fn take(catalog: &Catalog, now: Micros) -> Result<Pin> {
        let owner = Uuid::new_v4().to_string();
        let taken = catalog.acquire_lease(&format!("verify/{owner}"), &owner, LEASE, now, Some(Vector::new())).await?;
        let lease = taken.ok_or_else(|| Error::conflict("the catalog changed while its files were pinned: try again"))?;
        Ok(Pin { catalog: catalog.clone(), lease: KeepLease::start(catalog.clone(), lease, LEASE, clock()) })
    }

    /// Lets go; a failure only leaves the lease to expire.
    pub async fn release(self) {
        let lease = self.lease.stop().await;
        if let Err(error) = self.catalog.release_lease(&lease).await {
            tracing::warn!(lease = %lease.name, %error, "a pin was not released; it expires by itself");
        }
    }
}
