//! The command-line options of the benchmarks.

use std::path::PathBuf;
use std::time::Duration;

use basestream_bench::purchases::{AGGREGATES, Purchases, SMALL_AGGREGATES};
use basestream_bench::{
    batch, compaction, cost, flight, freshness, history, hot, ingest, isolation, lookup, lookups_during_run, scan, sinks, soak, start,
};
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
    /// Incremental runs in the series, each after a thousandth more events
    #[arg(long, default_value_t = history::Options::default().runs)]
    runs: u64,
    /// Lookups in each stretch
    #[arg(long, default_value_t = history::Options::default().lookups)]
    lookups: u64,
}

impl History {
    pub(crate) fn options(&self) -> history::Options {
        let default = history::Options::default();
        let purchases = Purchases { strategy: default.purchases.strategy, ..Purchases::with_size(self.events, self.keys) };
        let graph = history::links::graph(self.links_scale);
        history::Options { purchases, graph, repeats: self.repeats, runs: self.runs, lookups: self.lookups }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Lookup {
    #[command(flatten)]
    pub(crate) common: Common,
    /// views:windows:keys, for each installation that is measured
    #[arg(long = "case", value_delimiter = ',', default_values_t = lookup::Options::default().cases)]
    cases: Vec<lookup::Case>,
    #[arg(long, default_value_t = lookup::Options::default().events_per_key)]
    events_per_key: u64,
    /// Clients over HTTP and of the peers
    #[arg(long, default_value_t = lookup::Options::default().clients)]
    clients: usize,
    /// Keys in a request for many keys
    #[arg(long, default_value_t = lookup::Options::default().batch)]
    batch: usize,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = lookup::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = lookup::Options::default().repeats)]
    repeats: usize,
    /// Events per second that arrive; 0: measure only idle
    #[arg(long, default_value_t = lookup::Options::default().rate)]
    rate: u64,
    /// Events of the table by window; 0: without this table
    #[arg(long, default_value_t = lookup::Options::default().window_events)]
    window_events: u64,
    #[arg(long, default_value_t = lookup::Options::default().window_keys)]
    window_keys: u64,
    /// A running PostgreSQL (just services up postgres)
    #[arg(long, env = "BASESTREAM_TEST_POSTGRES", hide_env_values = true)]
    postgres: Option<String>,
}

impl Lookup {
    pub(crate) fn options(&self) -> lookup::Options {
        lookup::Options {
            cases: self.cases.clone(),
            events_per_key: self.events_per_key,
            clients: self.clients,
            batch: self.batch,
            seconds: self.seconds,
            repeats: self.repeats,
            rate: self.rate,
            window_events: self.window_events,
            window_keys: self.window_keys,
            postgres: self.postgres.clone(),
            ..lookup::Options::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Ingest {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, default_value_t = ingest::Options::default().events)]
    events: u64,
    #[arg(long, value_delimiter = ',', default_values_t = ingest::Options::default().keys)]
    keys: Vec<u64>,
    #[arg(long, value_delimiter = ',', default_values_t = ingest::Options::default().aggregates)]
    aggregates: Vec<usize>,
    /// embedded, kafka (if `BASESTREAM_TEST_KAFKA` is set: just services up)
    #[arg(long, value_delimiter = ',', default_values_t = ingest::Options::default().sources)]
    source: Vec<String>,
    #[arg(long, default_value_t = ingest::Options::default().repeats)]
    repeats: usize,
    /// Numbers of events for the table by number of events, from the first source; 0: without this table
    #[arg(long, value_delimiter = ',', default_values_t = ingest::Options::default().sizes)]
    sizes: Vec<u64>,
    /// Seconds that one process may take
    #[arg(long, default_value_t = ingest::Options::default().timeout.as_secs())]
    timeout: u64,
}

impl Ingest {
    pub(crate) fn options(&self) -> ingest::Options {
        ingest::Options {
            events: self.events,
            keys: self.keys.clone(),
            aggregates: self.aggregates.clone(),
            sources: self.source.clone(),
            repeats: self.repeats,
            sizes: self.sizes.iter().copied().filter(|size| *size > 0).collect(),
            timeout: Duration::from_secs(self.timeout),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Flight {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, default_value_t = flight::Options::default().rows)]
    rows: u64,
    /// With the key
    #[arg(long, default_value_t = flight::Options::default().columns)]
    columns: usize,
    /// Reads of each way
    #[arg(long, default_value_t = flight::Options::default().repeats)]
    repeats: usize,
    /// A running PostgreSQL (just services up postgres)
    #[arg(long, env = "BASESTREAM_TEST_POSTGRES", hide_env_values = true)]
    postgres: Option<String>,
}

impl Flight {
    pub(crate) fn options(&self) -> flight::Options {
        flight::Options { rows: self.rows, columns: self.columns, repeats: self.repeats, postgres: self.postgres.clone() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Freshness {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Events per second that arrive meanwhile
    #[arg(long, value_delimiter = ',', default_values_t = freshness::Options::default().rates)]
    rates: Vec<u64>,
    #[arg(long, default_value_t = freshness::Options::default().keys)]
    keys: u64,
    /// embedded, kafka (if `BASESTREAM_TEST_KAFKA` is set: just services up)
    #[arg(long, value_delimiter = ',', default_values_t = freshness::Options::default().sources)]
    source: Vec<String>,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = freshness::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = freshness::Options::default().repeats)]
    repeats: usize,
    /// Probes per second
    #[arg(long, default_value_t = freshness::Options::default().probes)]
    probes: f64,
}

impl Freshness {
    pub(crate) fn options(&self) -> freshness::Options {
        freshness::Options {
            rates: self.rates.clone(),
            keys: self.keys,
            sources: self.source.clone(),
            seconds: self.seconds,
            repeats: self.repeats,
            probes: self.probes,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct FreshnessApart {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Events per second that arrive meanwhile
    #[arg(long, value_delimiter = ',', default_values_t = freshness::apart::Options::default().rates)]
    rates: Vec<u64>,
    #[arg(long, default_value_t = freshness::apart::Options::default().keys)]
    keys: u64,
    /// Nodes that follow the worker, each a process
    #[arg(long, default_value_t = freshness::apart::Options::default().nodes)]
    nodes: u64,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = freshness::apart::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = freshness::apart::Options::default().repeats)]
    repeats: usize,
    /// Probes per second and node
    #[arg(long, default_value_t = freshness::apart::Options::default().probes)]
    probes: f64,
}

impl FreshnessApart {
    pub(crate) fn options(&self) -> freshness::apart::Options {
        freshness::apart::Options {
            rates: self.rates.clone(),
            keys: self.keys,
            nodes: self.nodes,
            seconds: self.seconds,
            repeats: self.repeats,
            probes: self.probes,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Hot {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Events of the hot key, each of another visitor
    #[arg(long, default_value_t = hot::Options::default().hot_events)]
    hot_events: u64,
    /// Events of all other keys
    #[arg(long, default_value_t = hot::Options::default().other_events)]
    other_events: u64,
    #[arg(long, default_value_t = hot::Options::default().keys)]
    keys: u64,
    /// Numbers of clients that ask the hot key
    #[arg(long, value_delimiter = ',', default_values_t = hot::Options::default().clients)]
    clients: Vec<usize>,
    /// Events per second that arrive for the hot key, in the last measurement of it
    #[arg(long, default_value_t = hot::Options::default().rate)]
    rate: u64,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = hot::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = hot::Options::default().repeats)]
    repeats: usize,
}

impl Hot {
    pub(crate) fn options(&self) -> hot::Options {
        hot::Options {
            hot_events: self.hot_events,
            other_events: self.other_events,
            keys: self.keys,
            clients: self.clients.clone(),
            rate: self.rate,
            seconds: self.seconds,
            repeats: self.repeats,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Isolation {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, default_value_t = isolation::Options::default().purchases.events)]
    events: u64,
    #[arg(long, default_value_t = isolation::Options::default().purchases.accounts)]
    keys: u64,
    /// Clients that scan the whole view, one query after the other
    #[arg(long, default_value_t = isolation::Options::default().scanners)]
    scanners: usize,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = isolation::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = isolation::Options::default().repeats)]
    repeats: usize,
}

impl Isolation {
    pub(crate) fn options(&self) -> isolation::Options {
        isolation::Options {
            purchases: Purchases::with_size(self.events, self.keys),
            scanners: self.scanners,
            seconds: self.seconds,
            repeats: self.repeats,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LookupsDuringRun {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, default_value_t = lookups_during_run::Options::default().purchases.events)]
    events: u64,
    #[arg(long, default_value_t = lookups_during_run::Options::default().purchases.accounts)]
    keys: u64,
    /// Clients that look keys up
    #[arg(long, default_value_t = lookups_during_run::Options::default().clients)]
    clients: usize,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = lookups_during_run::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = lookups_during_run::Options::default().repeats)]
    repeats: usize,
}

impl LookupsDuringRun {
    pub(crate) fn options(&self) -> lookups_during_run::Options {
        lookups_during_run::Options {
            purchases: Purchases::with_size(self.events, self.keys),
            clients: self.clients,
            seconds: self.seconds,
            repeats: self.repeats,
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
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, default_value_t = scan::Options::default().purchases.events)]
    events: u64,
    #[arg(long, default_value_t = scan::Options::default().purchases.accounts)]
    keys: u64,
    /// Repeats of each query
    #[arg(long, default_value_t = scan::Options::default().repeats)]
    repeats: usize,
}

impl Scan {
    pub(crate) fn options(&self) -> scan::Options {
        scan::Options { purchases: Purchases::with_size(self.events, self.keys), repeats: self.repeats, ..scan::Options::default() }
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
}

impl Start {
    pub(crate) fn options(&self) -> start::Options {
        start::Options {
            keys: self.keys.clone(),
            events_per_key: self.events_per_key,
            checkpoints: self.checkpoints,
            checkpoint_events: self.checkpoint_events,
            repeats: self.repeats,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Sinks {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Events per second that arrive while latencies are measured
    #[arg(long, value_delimiter = ',', default_values_t = sinks::Options::default().rates)]
    rates: Vec<u64>,
    /// Events of the backlog; 0: not measured
    #[arg(long, default_value_t = sinks::Options::default().events)]
    events: u64,
    /// Events per second that are scored over HTTP; 0: not measured
    #[arg(long, default_value_t = sinks::Options::default().scored)]
    scored: u64,
    #[arg(long, default_value_t = sinks::Options::default().keys)]
    keys: u64,
    /// Views that the sink joins: by account, by merchant, linked accounts
    #[arg(long, default_value_t = sinks::Options::default().views)]
    views: usize,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = sinks::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = sinks::Options::default().repeats)]
    repeats: usize,
}

impl Sinks {
    pub(crate) fn options(&self) -> sinks::Options {
        sinks::Options {
            rates: self.rates.clone(),
            events: self.events,
            scored: self.scored,
            keys: self.keys,
            views: self.views,
            seconds: self.seconds,
            repeats: self.repeats,
        }
    }
}
