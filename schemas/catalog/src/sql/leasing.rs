//! Leases as verbs: take one, keep it, let it go. Each is a commit.

use std::time::Duration;

use uuid::Uuid;

use super::{Catalog, lease};
use crate::{Add, Commit, Expect, LeaseRecord, Remove};
use types::tiles::Micros;
use types::vector::Vector;
use types::{ErrorKind, Result};

impl Catalog {
    /// Takes the lease until `now + ttl` when it is free (absent, expired, or `owner`'s own); `None` when another holds it.
    ///
    /// Every acquisition has a new, greater epoch: also the owner's own earlier one is fenced off.
    pub async fn acquire_lease(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        now: Micros,
        pin: Option<Vector>,
    ) -> Result<Option<LeaseRecord>> {
        // A look first: many who wait for one lease must not queue for the write lock.
        if self.lease(name).await?.is_some_and(|held| held.owner != owner && held.expires_at > now) {
            return Ok(None);
        }
        let record = LeaseRecord { name: name.to_owned(), owner: owner.to_owned(), epoch: 0, expires_at: expiry(now, ttl), pin };
        let free = Expect::LeaseFree { name: name.to_owned(), owner: owner.to_owned(), now };
        let commit = Commit { id: Uuid::new_v4(), expect: vec![free], add: vec![Add::Lease(record.clone())], ..Commit::default() };
        match self.commit(commit).await {
            Ok(revision) => Ok(Some(LeaseRecord { epoch: revision, ..record })),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a lease until `now + ttl`, with the pin of `lease` (which its holder may have moved). A conflict when it is
    /// lost: expired, or another's.
    pub async fn renew_lease(&self, lease: &LeaseRecord, ttl: Duration, now: Micros) -> Result<LeaseRecord> {
        let renewed = LeaseRecord { expires_at: expiry(now, ttl), ..lease.clone() };
        let expect = vec![held(lease, now)];
        self.commit(Commit { id: Uuid::new_v4(), expect, add: vec![Add::Lease(renewed.clone())], ..Commit::default() }).await?;
        Ok(renewed)
    }

    /// Lets go of a lease; nothing happens when it is already lost.
    pub async fn release_lease(&self, lease: &LeaseRecord) -> Result<()> {
        // Whether it has expired does not matter, whether it is still this one does.
        let expect = vec![held(lease, Micros::MIN)];
        let remove = vec![Remove::Lease { name: lease.name.clone(), owner: lease.owner.clone() }];
        match self.commit(Commit { id: Uuid::new_v4(), expect, remove, ..Commit::default() }).await {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()),
        }
    }

    async fn lease(&self, name: &str) -> Result<Option<LeaseRecord>> {
        let mut session = self.engine.read().await?;
        let found = lease::get(&mut session, name).await;
        session.finish(found).await
    }
}

fn held(lease: &LeaseRecord, now: Micros) -> Expect {
    Expect::Lease { name: lease.name.clone(), owner: lease.owner.clone(), epoch: lease.epoch, now }
}

fn expiry(now: Micros, ttl: Duration) -> Micros {
    now.saturating_add(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX))
}
