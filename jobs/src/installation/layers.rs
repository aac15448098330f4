//! Builds the layers of an installation, as its settings say.

use std::sync::Arc;
use std::time::Duration;

use batch::{Batch, SessionFolder};
use catalog::CompactionRules;
use definitions::settings::{ClockKind, LogSettings, Settings};
use engine::fresh::Fresh;
use event_alerts::{Alerts, StalledAlerts};
use event_sinks::{SinkSettings, Sinks};
use serving::{HotFrom, HotKeySettings, Node, NodeSettings, ServingClock, ServingLimits, WantedViews};
use speed::{CheckpointWriters, ProcessIds, Speed};
use tokio::sync::watch;
use types::{Error, Result};

use super::Installation;
use super::wall_clock::clock;
use crate::collect::Collector;
use crate::compact::Compacting;
use crate::pin;
use crate::replay::FromLog;
use crate::scheduler::Scheduler;
use crate::trim::Trimming;

/// How often a serving node checks whether the catalog changed.
const NODE_POLL: Duration = Duration::from_millis(200);
/// Merging as many state rows takes a few milliseconds, for which the events of the next micro-batch wait.
const MERGED_BESIDE_ROWS: usize = 2_048;

impl Installation {
    /// Returns the speed layer's workers, as many as the settings say. With `fresh`, a node of this process sees their
    /// fresh layers.
    pub fn speed_workers(&self, fresh: Option<Fresh>) -> Vec<Speed> {
        let workers = self.settings.speed.workers.max(1);
        let name = |number: u32| if number == 0 { self.worker.clone() } else { format!("{}-{number}", self.worker) };
        let (ids, writers) = (ProcessIds::new(self.dedup(), workers as usize), CheckpointWriters::default());
        let fresh = || fresh.as_ref().map(Fresh::for_worker);
        (0..workers).map(|number| self.speed_of(&name(number), workers, (&ids, &writers), fresh())).collect()
    }

    /// Returns one worker of the speed layer, alone in its process. `worker` must be unique among the installation's
    /// workers.
    pub fn speed(&self, worker: &str, fresh: Option<Fresh>) -> Speed {
        self.speed_of(worker, 1, (&ProcessIds::new(self.dedup(), 1), &CheckpointWriters::default()), fresh)
    }

    /// Returns one of `workers` workers, which share the process's memory limits.
    fn speed_of(&self, worker: &str, workers: u32, (ids, writers): (&ProcessIds, &CheckpointWriters), fresh: Option<Fresh>) -> Speed {
        let speed = &self.settings.speed;
        let share = |bytes: u64| to_usize(bytes / u64::from(workers));
        let settings = speed::WorkerSettings {
            worker: worker.to_owned(),
            group: speed.group.clone(),
            checkpoint_interval: speed.checkpoint_interval,
            checkpoint_bytes: share(speed.checkpoint_bytes),
            merged_beside_rows: MERGED_BESIDE_ROWS,
            max_future: speed.max_future,
            partitions: self.settings.log.partitions,
            accept_gap: speed.accept_gap,
        };
        Speed {
            catalog: self.catalog.clone(),
            storage: self.storage.clone(),
            log: self.log.clone(),
            functions: self.functions.clone(),
            fresh,
            sinks: None,
            registration: None,
            ids: ids.clone(),
            writers: writers.clone(),
            settings,
            clock: clock(),
            progress: Default::default(),
        }
    }

    /// Returns what makes the records of sinks in a process with this node, which reads the workers' fresh layers; it
    /// may be opened later.
    pub fn sinks(&self, node: watch::Receiver<Option<Node>>) -> Arc<Sinks> {
        let speed = &self.settings.speed;
        let settings = SinkSettings { group: speed.group.clone(), partitions: self.settings.log.partitions, max_future: speed.max_future };
        Arc::new(Sinks::new(node, self.log.clone(), self.catalog.clone(), self.functions.clone(), settings))
    }

    /// Returns what runs alerts in a process with this node, which reads the workers' fresh layers, and takes note of
    /// those that are not evaluated.
    pub fn alerts(&self, node: Node, stalled: StalledAlerts) -> Alerts {
        let (group, partitions) = (self.settings.speed.group.clone(), self.settings.log.partitions);
        let (owner, lease) = (self.worker.clone(), event_alerts::LEASE);
        Alerts { node, log: self.log.clone(), group, partitions, owner, lease, clock: clock(), stalled }
    }

    /// Returns where and how ids are remembered for deduplication.
    pub fn dedup(&self) -> speed::DedupSettings {
        let folder = self.settings.local_dir().join("dedup");
        speed::DedupSettings { memory_bytes: to_usize(self.settings.speed.dedup_memory), folder }
    }

    /// Makes sure that runs can spill before the first of them has to.
    ///
    /// Errors: `Input` for a folder that cannot be made or written to. One on a full disk is none: room may come.
    pub(crate) async fn check_temp_dir(&self) -> Result<()> {
        let Some(folder) = self.settings.batch.temp_dir.clone() else { return Ok(()) };
        let tried = folder.clone();
        match tokio::task::spawn_blocking(move || SessionFolder::create(Some(&tried))).await? {
            Err(error) if !error.is_of_full_disk() => Err(Error::input("batch runs cannot spill there")
                .with("setting", "batch.temp_dir")
                .with("found", folder.display())
                .with("expected", "a folder in which this process can create files")
                .caused_by(error)),
            _ => Ok(()),
        }
    }

    /// Returns the batch layer.
    pub fn batch(&self) -> Batch {
        let settings = batch::RunSettings {
            memory_limit_bytes: to_usize(self.settings.batch.memory_limit),
            threads: self.settings.batch.threads as usize,
            temp_dir: self.settings.batch.temp_dir.clone(),
            lease: self.settings.batch.lease,
            report_every: batch::REPORT_EVERY,
            events_per_bucket: batch::EVENTS_PER_BUCKET,
            events_per_slice: self.settings.batch.slice_events.into(),
        };
        let (catalog, storage, functions) = (self.catalog.clone(), self.storage.clone(), self.functions.clone());
        Batch::new(catalog, storage, self.replay_log(), functions, settings, &*self.worker).with_copies(self.copies.clone())
    }

    fn replay_log(&self) -> Arc<dyn batch::ReplayLog> {
        let (storage, log, max_future) = (self.storage.clone(), self.log.clone(), self.settings.speed.max_future);
        Arc::new(FromLog::new(storage, log, max_future, self.dedup()))
    }

    /// Returns the scheduler, which runs batch when it is due.
    pub fn scheduler(&self) -> Scheduler {
        Scheduler {
            batch: self.batch(),
            clock: clock(),
            event_clock: self.settings.serving.clock == ClockKind::Event,
            max_concurrent_runs: self.settings.scheduler.max_concurrent_runs as usize,
            tried: Default::default(),
            due_check: Default::default(),
        }
    }

    /// Returns the collector, which deletes files that are no longer needed.
    pub fn collector(&self) -> Collector {
        Collector {
            catalog: self.catalog.clone(),
            storage: self.storage.clone(),
            functions: self.functions.clone(),
            clock: clock(),
            event_clock: self.settings.serving.clock == ClockKind::Event,
            pin_lease: self.settings.serving.lease.min(pin::LEASE),
        }
    }

    /// Returns what compacts the archive.
    pub fn compacting(&self) -> Compacting {
        let archive = &self.settings.archive;
        let target_bytes = i64::try_from(archive.target_bytes).unwrap_or(i64::MAX);
        let rules = CompactionRules { target_bytes, after: archive.compact_after };
        Compacting { batch: self.batch(), rules, clock: clock(), group_starts: Default::default() }
    }

    /// Returns what trims the log; `None` for a log that deletes by settings of its own.
    pub fn trimming(&self) -> Option<Trimming> {
        self.log.is_trimmed().then(|| Trimming {
            catalog: self.catalog.clone(),
            log: self.log.clone(),
            group: self.settings.speed.group.clone(),
            retention: self.settings.log.retention.unwrap_or(LogSettings::RETENTION),
            clock: clock(),
        })
    }

    /// Returns a serving node with the catalog's current state loaded. With `fresh` it also answers from this process's
    /// fresh layers.
    pub async fn node(&self, fresh: Option<Fresh>) -> Result<Node> {
        self.open_node(fresh, false, WantedViews::All).await
    }

    /// Like [`Installation::node`], but the node answers before its snapshots are copied.
    pub async fn node_at_once(&self, fresh: Option<Fresh>) -> Result<Node> {
        self.open_node(fresh, true, WantedViews::All).await
    }

    /// Like [`Installation::node`], but the node loads these views alone.
    pub async fn node_of(&self, views: WantedViews) -> Result<Node> {
        self.open_node(None, false, views).await
    }

    /// Like [`Installation::node_at_once`], but the node loads these views alone.
    pub async fn node_of_at_once(&self, views: WantedViews) -> Result<Node> {
        self.open_node(None, true, views).await
    }

    async fn open_node(&self, fresh: Option<Fresh>, at_once: bool, views: WantedViews) -> Result<Node> {
        let settings = NodeSettings {
            name: self.worker.clone(),
            views,
            clock: match self.settings.serving.clock {
                ClockKind::Wall => ServingClock::Wall,
                ClockKind::Event => ServingClock::Event,
            },
            at_once,
            cache: self.cache().await?,
            cache_bytes: self.settings.serving.cache_bytes,
            poll: NODE_POLL,
            lease: self.settings.serving.lease,
            memory_limit_bytes: to_usize(self.settings.serving.memory_limit),
            max_rebuilt_events: committed::lacking::MAX_REBUILT_EVENTS,
            query_timeout: self.settings.serving.query_timeout,
            limits: self.serving_limits(),
            hot_keys: hot_keys(&self.settings),
        };
        Node::open(self.catalog.clone(), self.storage.clone(), self.functions.clone(), fresh, settings, clock()).await
    }

    /// Returns what clients may take of this process.
    pub(crate) fn serving_limits(&self) -> ServingLimits {
        ServingLimits::from(&self.settings.serving.limits)
    }
}

fn hot_keys(settings: &Settings) -> HotKeySettings {
    let (speed, serving) = (&settings.speed, &settings.serving);
    HotKeySettings {
        events: HotFrom { share: speed.hot_key_share, per_second: f64::from(speed.hot_key_rate) },
        lookups: HotFrom { share: serving.hot_key_share, per_second: f64::from(serving.hot_key_rate) },
        row_cache_bytes: to_usize(serving.row_cache),
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
