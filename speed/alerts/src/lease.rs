//! The right to run an alert: a lease of the catalog. A process renews all of its leases in one commit, which also
//! reports what their runners do, and reads those of other processes in one query. So the number of commits does not
//! grow with the number of alerts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{Add, AlertRunner, AlertVersion, Catalog, Expect, LeaseRecord};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use types::tiles::{Clock, Micros, micros};
use types::{Error, ErrorKind, Result, threads};

use crate::decide::{ALERT_LEASE, alert_lease};

/// The leases of one process.
pub(crate) struct AlertLeases {
    catalog: Catalog,
    owner: String,
    ttl: Duration,
    clock: Clock,
    known: Mutex<LeaseTable>,
}

#[derive(Default)]
struct LeaseTable {
    held: BTreeMap<String, LeaseEntry>,
    /// Those that other processes hold, or held.
    of_others: BTreeMap<String, LeaseRecord>,
}

struct LeaseEntry {
    lease: LeaseRecord,
    at: Micros,
    /// When its runner last made progress. A runner without progress loses its lease, and another process takes over.
    moved: Micros,
    /// What its runner reports.
    runner: AlertRunner,
    /// Whether this should be committed at once.
    has_news: bool,
}

impl AlertLeases {
    pub(crate) fn new(catalog: Catalog, owner: String, ttl: Duration, clock: Clock) -> Arc<AlertLeases> {
        Arc::new(AlertLeases { catalog, owner, ttl, clock, known: Mutex::default() })
    }

    /// Renews the leases that are held, and reads those of others, until `stop`, on threads that no work keeps busy.
    pub(crate) fn keep(self: &Arc<Self>, stop: CancellationToken) -> AbortOnDropHandle<()> {
        let leases = self.clone();
        AbortOnDropHandle::new(threads::LEASES.spawn(async move { leases.keep_until(&stop).await }))
    }

    async fn keep_until(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.refresh().await {
                debug!(%error, "the leases of alerts cannot be renewed; trying again");
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.ttl / 6) => {}
            }
        }
    }

    async fn refresh(&self) -> Result<()> {
        let leases = self.catalog.leases(ALERT_LEASE).await?;
        let of_others = leases.into_iter().filter(|lease| lease.owner != self.owner).map(|lease| (lease.name.clone(), lease));
        self.known().of_others = of_others.collect();
        let due = self.due();
        match self.renew(&due).await {
            // At least one lease is lost: renew them one by one.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                for one in due {
                    match self.renew(std::slice::from_ref(&one)).await {
                        Err(error) if error.kind() == ErrorKind::Conflict => self.forget(&one.0.name, one.0.epoch),
                        renewed => renewed?,
                    }
                }
                Ok(())
            }
            renewed => renewed,
        }
    }

    /// The leases with news, and those that are past a third of their time and whose runners have made progress since
    /// the last renewal. Marks their news as sent: each renewal sends all that is known of a runner.
    fn due(&self) -> Vec<(LeaseRecord, AlertRunner)> {
        let third = micros(self.ttl) / 3;
        let now = (self.clock)();
        let is_due = |held: &LeaseEntry| held.has_news || now - held.at >= third && held.moved >= held.at;
        let mut known = self.known();
        let due = known.held.values_mut().filter(|held| is_due(held));
        due.map(|held| (held.lease.clone(), take_news(held))).collect()
    }

    async fn renew(&self, due: &[(LeaseRecord, AlertRunner)]) -> Result<()> {
        let leases: Vec<LeaseRecord> = due.iter().map(|(lease, _)| lease.clone()).collect();
        let says = due.iter().map(|(_, runner)| Add::AlertRunner(runner.clone())).collect();
        self.note(self.catalog.renew_leases(&leases, self.ttl, (self.clock)(), says).await?);
        Ok(())
    }

    fn note(&self, renewed: Vec<LeaseRecord>) {
        let mut known = self.known();
        for lease in renewed {
            if let Some(held) = known.held.get_mut(&lease.name).filter(|held| held.lease.epoch == lease.epoch) {
                held.at = lease.expires_at - micros(self.ttl);
                held.lease = lease;
            }
        }
    }

    fn forget(&self, name: &str, epoch: i64) {
        let mut known = self.known();
        if known.held.get(name).is_some_and(|held| held.lease.epoch == epoch) {
            known.held.remove(name);
        }
    }

    /// Whether another process is known to run an alert under this lease.
    fn is_held_by_another(&self, name: &str, now: Micros) -> bool {
        let of_other = self.known().of_others.get(name).cloned();
        of_other.is_some_and(|lease| lease.expires_at > now && !self.catalog.is_dead(&lease.owner))
    }

    fn known(&self) -> MutexGuard<'_, LeaseTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that this process holds.
pub(crate) struct HeldLease {
    leases: Arc<AlertLeases>,
    name: String,
    epoch: i64,
}

impl HeldLease {
    /// `None` while another process holds it. Otherwise also returns the time of the alert's last round.
    pub(crate) async fn acquire(leases: &Arc<AlertLeases>, alert: &AlertVersion) -> Result<Option<(HeldLease, Option<Micros>)>> {
        let AlertVersion { name: alert, version } = alert;
        let (name, now) = (alert_lease(alert), (leases.clock)());
        if leases.is_held_by_another(&name, now) {
            return Ok(None);
        }
        let runners = leases.catalog.alert_runners().await?;
        let at = runners.into_iter().find(|runner| runner.alert == *alert && runner.version == *version).and_then(|runner| runner.at);
        // Each commit of a runner expects its lease, and the log takes the output from the last that took it over.
        let lease = leases.catalog.acquire_fenced_lease(&name, &leases.owner, leases.ttl, now, None).await?;
        let Some(lease) = lease else { return Ok(None) };
        let held = HeldLease { leases: leases.clone(), name: name.clone(), epoch: lease.epoch };
        let (alert, owner) = (alert.clone(), leases.owner.clone());
        let runner = AlertRunner { alert, version: *version, owner, evaluated_at: None, at, waits: None };
        leases.known().held.insert(name, LeaseEntry { lease, at: now, moved: now, runner, has_news: true });
        Ok(Some((held, at)))
    }

    /// Notes that its runner makes progress.
    ///
    /// Errors: `Conflict` if it is lost.
    pub(crate) fn note_progress(&self) -> Result<()> {
        let now = (self.leases.clock)();
        let mut known = self.leases.known();
        match known.held.get_mut(&self.name).filter(|held| held.lease.epoch == self.epoch && held.lease.expires_at > now) {
            Some(held) => {
                held.moved = now;
                Ok(())
            }
            None => Err(Error::conflict("the lease of an alert is lost").with("lease", &self.name)),
        }
    }

    /// Notes that the alert was evaluated for this time.
    pub(crate) fn note_evaluated(&self, at: Micros) {
        let now = (self.leases.clock)();
        self.update(|held| {
            held.has_news |= held.runner.waits.is_some() || held.runner.evaluated_at.is_none();
            (held.runner.evaluated_at, held.runner.at, held.runner.waits) = (Some(now), Some(at), None);
        });
    }

    /// What its runner reports once the alert was evaluated for this time; `None` if the lease is lost.
    pub(crate) fn runner_evaluated(&self, at: Micros) -> Option<AlertRunner> {
        let now = (self.leases.clock)();
        let known = self.leases.known();
        let held = known.held.get(&self.name).filter(|held| held.lease.epoch == self.epoch)?;
        Some(AlertRunner { evaluated_at: Some(now), at: Some(at), waits: None, ..held.runner.clone() })
    }

    /// Notes why the alert is not evaluated. Returns whether that is news.
    pub(crate) fn note_waiting(&self, why: &str) -> bool {
        let mut is_news = false;
        self.update(|held| {
            is_news = held.runner.waits.as_deref() != Some(why);
            held.has_news |= is_news;
            held.runner.waits = Some(why.to_owned());
        });
        is_news
    }

    fn update(&self, change: impl FnOnce(&mut LeaseEntry)) {
        let mut known = self.leases.known();
        if let Some(held) = known.held.get_mut(&self.name).filter(|held| held.lease.epoch == self.epoch) {
            change(held);
        }
    }

    /// What a commit under it expects.
    pub(crate) fn expect(&self) -> Expect {
        Expect::Lease { name: self.name.clone(), owner: self.leases.owner.clone(), epoch: self.epoch, now: (self.leases.clock)() }
    }

    /// As it was renewed last; `None` if it is lost.
    pub(crate) fn record(&self) -> Option<LeaseRecord> {
        let known = self.leases.known();
        known.held.get(&self.name).filter(|held| held.lease.epoch == self.epoch).map(|held| held.lease.clone())
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self.record() {
            Some(lease) => self.leases.catalog.release_lease(&lease).await,
            None => Ok(()),
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.leases.forget(&self.name, self.epoch);
    }
}

fn take_news(held: &mut LeaseEntry) -> AlertRunner {
    held.has_news = false;
    held.runner.clone()
}

#[cfg(test)]
mod tests;
