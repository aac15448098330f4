//! Decides which leases are forgotten: those of processes that died. Each start of a process, and each command, has
//! leases of its own names, which nobody takes over.

use std::time::Duration;

use uuid::Uuid;

use super::publish::DEAD_LETTER_REPLAYS;
use crate::{CatalogState, Commit, Expect, LeaseRecord, Remove};
use types::tiles::Micros;

/// How long a lease stays after it has expired: the clocks of two processes may differ.
const STAYS_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// At most this many are forgotten at a time.
const MOST: usize = 1_000;

/// Returns the commit that forgets leases which expired long before `now`; `None` if there are none. Those of replays
/// of dead letters stay: they say where one that died began.
///
/// It is refused if one of them is held again meanwhile.
pub fn forget_leases_commit(state: &CatalogState, id: Uuid, now: Micros) -> Option<Commit> {
    let before = now.saturating_sub(STAYS_FOR.as_micros() as Micros);
    let is_old = |lease: &&LeaseRecord| lease.expires_at < before && !lease.name.starts_with(DEAD_LETTER_REPLAYS);
    let old: Vec<&LeaseRecord> = state.leases.iter().filter(is_old).take(MOST).collect();
    if old.is_empty() {
        return None;
    }
    let is_free = |lease: &&LeaseRecord| Expect::LeaseFree { name: lease.name.clone(), owner: String::new(), now };
    let remove = |lease: &&LeaseRecord| Remove::Lease { name: lease.name.clone(), owner: lease.owner.clone() };
    Some(Commit { id, expect: old.iter().map(is_free).collect(), remove: old.iter().map(remove).collect(), ..Commit::default() })
}
