//! Acquires, renews and releases leases. Each operation is a commit.

use std::time::Duration;

use uuid::Uuid;

use super::{Catalog, lease};
use crate::{Add, Commit, Expect, LeaseRecord, NewLease, Remove};
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

impl Catalog {
    /// Takes the lease until `now + ttl` if it is free (absent, expired, or already `owner`'s); `None` if another
    /// process holds it.
    ///
    /// Every acquisition has a new, greater epoch, which fences off the owner's own earlier one as well.
    pub async fn acquire_lease(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        now: Micros,
        pin: Option<Vector>,
    ) -> Result<Option<LeaseRecord>> {
        self.acquire(new_lease(name, owner, (now, ttl), pin), now, false).await
    }

    /// Like [`Catalog::acquire_lease`], but does not wait for the lease of a process that is dead
    /// ([`Catalog::is_dead`]). For work of which each write, also one outside of the catalog, is refused once another
    /// has the lease: what the dead process wrote last may still be on its way, and a process that only seems dead goes
    /// on until its next write.
    pub async fn acquire_fenced_lease(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        now: Micros,
        pin: Option<Vector>,
    ) -> Result<Option<LeaseRecord>> {
        self.acquire(new_lease(name, owner, (now, ttl), pin), now, true).await
    }

    async fn acquire(&self, lease: NewLease, now: Micros, is_fenced: bool) -> Result<Option<LeaseRecord>> {
        // Read first: many processes that wait for one lease must not queue for the write lock.
        let found = self.lease(&lease.name).await?.filter(|held| held.owner != lease.owner && held.expires_at > now);
        let expect = match found {
            None => Expect::LeaseFree { name: lease.name.clone(), owner: lease.owner.clone(), now },
            // It must still be the lease that was left: of several processes that find it, one gets it.
            Some(left) if is_fenced && self.is_dead(&left.owner) => {
                tracing::info!(lease = %left.name, owner = %left.owner, "a lease is taken over from a process that is dead");
                held(&left, Micros::MIN)
            }
            Some(_) => return Ok(None),
        };
        let commit = Commit { id: Uuid::new_v4(), expect: vec![expect], add: vec![Add::NewLease(lease.clone())], ..Commit::default() };
        match self.commit(commit).await {
            Ok(revision) => Ok(Some(lease.with_epoch(revision))),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Extends a lease until `now + ttl`, with the pin of `lease` (which its holder may have moved). Conflict if it is
    /// lost: expired, or held by another process.
    pub async fn renew_lease(&self, lease: &LeaseRecord, ttl: Duration, now: Micros) -> Result<LeaseRecord> {
        let renewed = self.renew_leases(std::slice::from_ref(lease), ttl, now, Vec::new()).await?;
        renewed.into_iter().next().ok_or_else(|| Error::internal("a lease that was renewed is not there"))
    }

    /// Extends several leases in one commit, which also adds these records; none of them if one is lost. Without leases
    /// it does nothing.
    pub async fn renew_leases(&self, leases: &[LeaseRecord], ttl: Duration, now: Micros, mut add: Vec<Add>) -> Result<Vec<LeaseRecord>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let renewed = leases.iter().map(|lease| LeaseRecord { expires_at: expiry(now, ttl), ..lease.clone() });
        let renewed: Vec<LeaseRecord> = renewed.collect();
        let expect = leases.iter().map(|lease| held(lease, now)).collect();
        add.extend(renewed.iter().cloned().map(Add::Lease));
        self.commit(Commit { id: Uuid::new_v4(), expect, add, ..Commit::default() }).await?;
        Ok(renewed)
    }

    /// The leases whose names begin with `prefix`, expired ones as well.
    pub async fn leases(&self, prefix: &str) -> Result<Vec<LeaseRecord>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = lease::with_prefix(&mut session, prefix).await;
        session.finish(found).await
    }

    /// Releases a lease; does nothing if it is already lost.
    pub async fn release_lease(&self, lease: &LeaseRecord) -> Result<()> {
        // It may have expired, but it must still be the same lease.
        let expect = vec![held(lease, Micros::MIN)];
        let remove = vec![Remove::Lease { name: lease.name.clone(), owner: lease.owner.clone() }];
        match self.commit(Commit { id: Uuid::new_v4(), expect, remove, ..Commit::default() }).await {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the leases that last longer than `longest` from now on and whose owners are not alive: they died while the
    /// clock was ahead, and it was set back since. Returns how many there were. Where the catalog's database is reached
    /// over a network, none ends: the clock of another machine may be ahead.
    ///
    /// Errors: `Conflict` if another process ended one of them meanwhile.
    pub async fn end_leases_of_later_clock(&self, longest: Duration, now: Micros) -> Result<usize> {
        if self.engine.is_remote() {
            return Ok(0);
        }
        let latest = expiry(now, longest);
        let is_alive = |owner: &str| self.processes.as_ref().is_some_and(|processes| processes.is_alive(owner));
        let mut left = self.leases("").await?;
        left.retain(|lease| lease.expires_at > latest && !is_alive(&lease.owner));
        if left.is_empty() {
            return Ok(0);
        }
        let expect = left.iter().map(|lease| held(lease, now)).collect();
        let add = left.iter().map(|lease| Add::Lease(LeaseRecord { expires_at: now, ..lease.clone() })).collect();
        self.commit(Commit { id: Uuid::new_v4(), expect, add, ..Commit::default() }).await?;
        Ok(left.len())
    }

    async fn lease(&self, name: &str) -> Result<Option<LeaseRecord>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = lease::get(&mut session, name).await;
        session.finish(found).await
    }
}

fn new_lease(name: &str, owner: &str, (now, ttl): (Micros, Duration), pin: Option<Vector>) -> NewLease {
    NewLease { name: name.to_owned(), owner: owner.to_owned(), expires_at: expiry(now, ttl), pin }
}

fn held(lease: &LeaseRecord, now: Micros) -> Expect {
    Expect::Lease { name: lease.name.clone(), owner: lease.owner.clone(), epoch: lease.epoch, now }
}

fn expiry(now: Micros, ttl: Duration) -> Micros {
    now.saturating_add(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX))
}
