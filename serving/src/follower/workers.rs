//! Workers of other processes: follows each that the catalog lists, so that answers count what they have not committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::{CatalogState, WorkerRecord};
use committed::registry::Registry;
use feed::{Credentials, Following, Plans};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::threads;
use types::tiles::Micros;

use super::Follower;

/// How often to look whether a registration ran out, which changes nothing in the catalog.
const LOOK: Duration = Duration::from_secs(1);

/// How a node follows the workers of other processes.
#[derive(Debug, Clone, Default)]
pub struct FollowSettings {
    /// The registration of this process, if it has one: its own workers share their layers with the node.
    pub own: Option<String>,
    pub credentials: Credentials,
    /// What the layers of one process may take in memory.
    pub memory_bytes: usize,
}

struct Followed {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Follower {
    /// Until `stop`. A node without a list of layers follows nobody.
    pub(crate) async fn follow_workers(&self, settings: FollowSettings, stop: CancellationToken) {
        let Some(fresh) = self.0.fresh.clone() else { return stop.cancelled().await };
        let (plans, wanted) = watch::channel(Arc::default());
        let links = self.0.links.clone();
        let following = Following {
            fresh,
            credentials: settings.credentials.clone(),
            plans: wanted,
            memory_bytes: settings.memory_bytes,
            clock: self.0.wall.clone(),
            links,
        };
        let mut planned: Option<Arc<Registry>> = None;
        let mut followed: BTreeMap<String, Followed> = BTreeMap::new();
        let mut moved = self.0.moved.subscribe();
        loop {
            if let Some(loaded) = self.loaded() {
                if planned.as_ref().is_none_or(|planned| !Arc::ptr_eq(planned, &loaded.registry)) {
                    plans.send_replace(Arc::new(self.plans(&loaded.registry)));
                    planned = Some(loaded.registry.clone());
                }
                let listed = listed_workers(&loaded.state, settings.own.as_deref(), (self.0.wall)());
                follow_listed(&mut followed, &following, &listed);
                self.0.awaited_workers.list(listed.keys().copied());
            }
            tokio::select! {
                () = stop.cancelled() => break,
                _ = moved.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        for Followed { stop, task } in followed.into_values() {
            stop.cancel();
            let _ = task.await;
        }
    }

    /// The views that this node loads.
    fn plans(&self, registry: &Registry) -> Plans {
        let wanted = registry.views.iter().filter(|live| self.0.settings.views.contains(live));
        wanted.map(|live| (live.view_version(), (live.plan.clone(), live.codec.clone()))).collect()
    }
}

/// The addresses of the workers of other processes whose registration has not run out, by name.
fn listed_workers<'s>(state: &'s CatalogState, own: Option<&str>, now: Micros) -> BTreeMap<&'s str, &'s str> {
    let is_listed = |worker: &&WorkerRecord| worker.expires_at > now && own != Some(worker.name.as_str());
    state.workers.iter().filter(is_listed).map(|worker| (worker.name.as_str(), worker.address.as_str())).collect()
}

/// Follows the workers that are listed, and lets the others go.
fn follow_listed(followed: &mut BTreeMap<String, Followed>, following: &Following, listed: &BTreeMap<&str, &str>) {
    // One that is reached is followed to its end, whatever became of its registration.
    followed.retain(|worker, follower| {
        let stays = listed.contains_key(worker.as_str()) || following.links.is_followed(worker);
        if !stays {
            follower.stop.cancel();
        }
        stays
    });
    for (worker, address) in listed {
        followed.entry((*worker).to_owned()).or_insert_with(|| begin(following, worker, address));
    }
}

/// On the threads of the speed layer: what another process's workers have is as urgent as what this one's have.
fn begin(following: &Following, worker: &str, address: &str) -> Followed {
    let (following, worker, address, stop) = (following.clone(), worker.to_owned(), address.to_owned(), CancellationToken::new());
    let stopping = stop.clone();
    let task = threads::SPEED.spawn(async move { following.follow(&worker, &address, stopping).await });
    Followed { stop, task }
}

#[cfg(test)]
mod tests;
