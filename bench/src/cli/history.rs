//! The options of benchmarks of runs, and of what history costs.

use std::path::PathBuf;
use std::time::Duration;

use basestream_bench::purchases::{AGGREGATES, Purchases, SMALL_AGGREGATES};
use basestream_bench::{batch, compaction, cost, history, links_batch, run_memory, soak, start};
use clap::Args;

use crate::Common;

#[derive(Debug, Args)]
pub(crate) struct Batch {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, default_value_t = batch::Options::default().purchases.events)]
    events: u64,
    #[arg(long, default_value_t = batch::Options::default().purchases.accounts)]
    keys: u64,
    /// Aggregate the newest time instead of distinct merchants, so that every state is one number
    #[arg(long)]
    without_distinct: bool,
    #[arg(long, default_value_t = batch::Options::default().repeats)]
    repeats: usize,
    /// Seconds that one process may take
    #[arg(long, default_value_t = batch::Options::default().timeout.as_secs())]
    timeout: u64,
}

impl Batch {
    pub(crate) fn options(&self) -> batch::Options {
        let aggregates = if self.without_distinct { SMALL_AGGREGATES } else { AGGREGATES };
        batch::Options {
            purchases: Purchases { aggregates, ..Purchases::with_size(self.events, self.keys) },
            repeats: self.repeats,
            timeout: Duration::from_secs(self.timeout),
            ..batch::Options::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Compaction {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Checkpoints whose files are compacted
    #[arg(long, default_value_t = compaction::Options::default().checkpoints)]
    checkpoints: u64,
    /// Events of each
    #[arg(long, default_value_t = compaction::Options::default().events_of_one)]
    events_of_one: u64,
    #[arg(long, default_value_t = compaction::Options::default().keys)]
    keys: u64,
    /// Days of the synthetic catalog
    #[arg(long, default_value_t = compaction::Options::default().days)]
    days: u64,
    #[arg(long, default_value_t = compaction::Options::default().workers)]
    workers: u64,
    /// Bytes of the archive file of each of its checkpoints
    #[arg(long, default_value_t = compaction::Options::default().checkpoint_bytes)]
    checkpoint_bytes: i64,
    /// Commits to it, and to an empty one
    #[arg(long, default_value_t = compaction::Options::default().commits)]
    commits: usize,
}

impl Compaction {
    pub(crate) fn options(&self) -> compaction::Options {
        compaction::Options {
            checkpoints: self.checkpoints,
            events_of_one: self.events_of_one,
            keys: self.keys,
            days: self.days,
            workers: self.workers,
            checkpoint_bytes: self.checkpoint_bytes,
            commits: self.commits,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Cost {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, value_delimiter = ',', default_values_t = cost::Options::default().events)]
    events: Vec<u64>,
    /// Numbers of keys: the first with every number of events, the others with the last one only
    #[arg(long, value_delimiter = ',', default_values_t = cost::Options::default().keys)]
    keys: Vec<u64>,
    /// Seconds that one process may take
    #[arg(long, default_value_t = cost::Options::default().timeout.as_secs())]
    timeout: u64,
}

impl Cost {
    pub(crate) fn options(&self) -> cost::Options {
        cost::Options { events: self.events.clone(), keys: self.keys.clone(), timeout: Duration::from_secs(self.timeout) }
    }
}

#[derive(Debug, Args)]
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) common: Common,
    /// All events: those of the first run, and those that the others find
    #[arg(long, default_value_t = history::Options::default().purchases.events)]
    events: u64,
    #[arg(long, default_value_t = history::Options::default().purchases.accounts)]
    keys: u64,
    #[arg(long, default_value_t = history::Options::default().repeats)]
    repeats: usize,
    /// Factor for 200 thousand accounts and 2 million logins of the linked view
    #[arg(long, default_value_t = 1.0)]
    links_scale: f64,
    /// Incremental runs in the series, each after a thousandth more events; 0 skips it
    #[arg(long, default_value_t = history::Options::default().runs)]
    runs: u64,
    /// Lookups in each stretch
    #[arg(long, default_value_t = history::Options::default().lookups)]
    lookups: u64,
    /// Events of five views that recompute together; 0 skips them
    #[arg(long, default_value_t = history::Options::default().together_events)]
    together_events: u64,
}

impl History {
    pub(crate) fn options(&self) -> history::Options {
        let default = history::Options::default();
        let purchases = Purchases { strategy: default.purchases.strategy, ..Purchases::with_size(self.events, self.keys) };
        let graph = history::links::graph(self.links_scale);
        let (repeats, runs, lookups, together_events) = (self.repeats, self.runs, self.lookups, self.together_events);
        history::Options { purchases, graph, repeats, runs, lookups, together_events }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LinksBatch {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Factor for 2 million accounts, 20 million logins, 1 million users and 500 thousand devices
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// How many devices each user logs in from; 0: from any device each time
    #[arg(long, default_value_t = 0)]
    devices_per_user: u64,
    #[arg(long, default_value_t = links_batch::Options::default().repeats)]
    repeats: usize,
    /// Seconds that one process may take
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

impl LinksBatch {
    pub(crate) fn options(&self) -> links_batch::Options {
        let mut options = links_batch::Options { repeats: self.repeats, ..links_batch::Options::default() };
        options.graph = links_batch::graph(self.scale);
        options.graph.devices_per_user = self.devices_per_user;
        options.timeout = Duration::from_secs(self.timeout);
        options
    }
}

#[derive(Debug, Args)]
pub(crate) struct Soak {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Events per second
    #[arg(long, default_value_t = soak::Options::default().rate)]
    rate: u64,
    #[arg(long, default_value_t = soak::Options::default().keys)]
    keys: u64,
    #[arg(long, default_value_t = soak::Options::default().minutes)]
    minutes: f64,
    /// Minutes at the start that the figures leave out
    #[arg(long, default_value_t = soak::Options::default().warm_up_minutes)]
    warm_up: f64,
    /// Also plot everything over time, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Soak {
    pub(crate) fn options(&self) -> soak::Options {
        let (rate, keys, minutes) = (self.rate, self.keys, self.minutes);
        soak::Options { rate, keys, minutes, warm_up_minutes: self.warm_up, plot: self.plot.clone(), ..soak::Options::default() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, value_delimiter = ',', default_values_t = start::Options::default().keys)]
    keys: Vec<u64>,
    /// Events per key in the snapshot
    #[arg(long, default_value_t = start::Options::default().events_per_key)]
    events_per_key: u64,
    /// Checkpoints after the snapshot
    #[arg(long, default_value_t = start::Options::default().checkpoints)]
    checkpoints: u64,
    /// Events of each checkpoint
    #[arg(long, default_value_t = start::Options::default().checkpoint_events)]
    checkpoint_events: u64,
    #[arg(long, default_value_t = start::Options::default().repeats)]
    repeats: usize,
    /// Checkpoints in the catalog of a process that is asked to end
    #[arg(long, default_value_t = start::Options::default().stop_checkpoints)]
    stop_checkpoints: u64,
    /// Checkpoints over which a process is started again; 0 skips it
    #[arg(long, default_value_t = start::Options::default().restart_checkpoints)]
    restart_checkpoints: u64,
    /// Events of each of them
    #[arg(long, default_value_t = start::Options::default().restart_events)]
    restart_events: u64,
    /// Partitions of their topic
    #[arg(long, default_value_t = start::Options::default().restart_partitions)]
    restart_partitions: u64,
}

impl Start {
    pub(crate) fn options(&self) -> start::Options {
        start::Options {
            keys: self.keys.clone(),
            events_per_key: self.events_per_key,
            checkpoints: self.checkpoints,
            checkpoint_events: self.checkpoint_events,
            repeats: self.repeats,
            stop_checkpoints: self.stop_checkpoints,
            restart_checkpoints: self.restart_checkpoints,
            restart_events: self.restart_events,
            restart_partitions: self.restart_partitions,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunMemory {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, default_value_t = run_memory::Options::default().events)]
    events: u64,
    /// Keys of the second of the two runs of each aggregate
    #[arg(long, default_value_t = run_memory::Options::default().keys)]
    keys: u64,
    /// The limit of a run, in MiB
    #[arg(long, default_value_t = run_memory::Options::default().limit_bytes >> 20)]
    limit: u64,
    /// Only these aggregates
    #[arg(long, value_delimiter = ';', default_values_t = run_memory::Options::default().aggregates)]
    aggregates: Vec<String>,
}

impl RunMemory {
    pub(crate) fn options(&self) -> run_memory::Options {
        run_memory::Options {
            events: self.events,
            keys: self.keys,
            limit_bytes: self.limit << 20,
            aggregates: self.aggregates.clone(),
            ..run_memory::Options::default()
        }
    }
}
