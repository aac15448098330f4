//! A lease that keeps every archive file while a verification reads it.

use std::time::Duration;

use schemas::Result;
use schemas::catalog::{Add, Catalog, Commit, Expect, LeaseRecord, Remove};
use schemas::tiles::Micros;
use schemas::vector::Vector;
use uuid::Uuid;

/// A process that dies without release keeps files from being collected for no longer than this.
const LEASE: Duration = Duration::from_secs(3600);

/// Held while files are read.
#[derive(Debug)]
pub struct Pin {
    catalog: Catalog,
    name: String,
    owner: String,
}

impl Pin {
    /// Pins everything from the first offset on.
    pub async fn take(catalog: &Catalog, now: Micros) -> Result<Pin> {
        let owner = Uuid::new_v4().to_string();
        let name = format!("verify/{owner}");
        let lease = LeaseRecord {
            name: name.clone(),
            owner: owner.clone(),
            epoch: 1,
            expires_at: now.saturating_add(LEASE.as_micros() as Micros),
            pin: Some(Vector::new()),
        };
        let free = Expect::LeaseFree { name: name.clone(), owner: owner.clone(), now };
        catalog
            .commit_with_retry(Commit { id: Uuid::new_v4(), expect: vec![free], add: vec![Add::Lease(lease)], ..Commit::default() })
            .await?;
        Ok(Pin { catalog: catalog.clone(), name, owner })
    }

    /// Lets go; a failure only leaves the lease to expire.
    pub async fn release(self) {
        let remove = vec![Remove::Lease { name: self.name.clone(), owner: self.owner }];
        if let Err(error) = self.catalog.commit_with_retry(Commit { id: Uuid::new_v4(), remove, ..Commit::default() }).await {
            tracing::warn!(lease = %self.name, %error, "a pin was not released; it expires by itself");
        }
    }
}
