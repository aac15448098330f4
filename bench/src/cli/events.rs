//! The options of benchmarks of events: how many are read, and how soon they count.

use std::time::Duration;

use basestream_bench::{alerts, freshness, ingest, sinks};
use clap::Args;

use crate::Common;

#[derive(Debug, Args)]
pub(crate) struct Alerts {
    #[command(flatten)]
    pub(crate) common: Common,
    /// All devices; 0: silence is not measured
    #[arg(long, default_value_t = alerts::Options::default().keys)]
    keys: u64,
    /// Events per second
    #[arg(long, default_value_t = alerts::Options::default().rate)]
    rate: u64,
    /// Seconds without an event after which a device is silent
    #[arg(long, default_value_t = alerts::Options::default().silence)]
    silence: u64,
    /// Devices per second that fall silent
    #[arg(long, default_value_t = alerts::Options::default().falling)]
    falling: u64,
    /// How long devices fall silent, and rings are completed
    #[arg(long, default_value_t = alerts::Options::default().seconds)]
    seconds: f64,
    /// Users of the graph of a linked view; 0: an alert over it is not measured
    #[arg(long, default_value_t = alerts::Options::default().ring_nodes)]
    ring_nodes: u64,
    /// Events per second beside that graph
    #[arg(long, default_value_t = alerts::Options::default().ring_rate)]
    ring_rate: u64,
    /// How many of them complete a ring
    #[arg(long, default_value_t = alerts::Options::default().rings)]
    rings: u64,
}

impl Alerts {
    pub(crate) fn options(&self) -> alerts::Options {
        alerts::Options {
            keys: self.keys,
            rate: self.rate,
            silence: self.silence,
            falling: self.falling,
            seconds: self.seconds,
            ring_nodes: self.ring_nodes,
            ring_rate: self.ring_rate,
            rings: self.rings,
        }
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
    /// Archived events over which new views are built, on the embedded log; 0 skips it
    #[arg(long, default_value_t = freshness::Options::default().building_events)]
    building_events: u64,
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
            building_events: self.building_events,
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
pub(crate) struct Sinks {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Events per second that arrive while latencies are measured; 0: not measured
    #[arg(long, value_delimiter = ',', default_values_t = sinks::Options::default().rates)]
    rates: Vec<u64>,
    /// Events of the backlog; 0: not measured
    #[arg(long, default_value_t = sinks::Options::default().events)]
    events: u64,
    /// embedded, kafka (if `BASESTREAM_TEST_KAFKA` is set: just services up)
    #[arg(long, value_delimiter = ',', default_values_t = sinks::Options::default().sources)]
    source: Vec<String>,
    /// Events per second that arrive on Kafka while latencies are measured beside Flink SQL; 0: not measured
    #[arg(long, value_delimiter = ',', default_values_t = sinks::Options::default().peer_rates)]
    peer_rates: Vec<u64>,
    /// Events of a backlog on Kafka that Flink SQL reads too; 0: not measured
    #[arg(long, default_value_t = sinks::Options::default().peer_events)]
    peer_events: u64,
    /// Seconds between checkpoints, of basestream and of Flink's exactly-once sink
    #[arg(long, value_delimiter = ',', default_values_t = sinks::Options::default().checkpoints)]
    checkpoints: Vec<u64>,
    /// Where Flink keeps its state if it writes checkpoints: rocksdb (incremental checkpoints) or hashmap
    #[arg(long, default_value_t = sinks::Options::default().flink_state)]
    flink_state: String,
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
        let measured = |rates: &[u64]| rates.iter().copied().filter(|rate| *rate > 0).collect::<Vec<u64>>();
        sinks::Options {
            rates: measured(&self.rates),
            events: self.events,
            sources: self.source.clone(),
            peer_rates: measured(&self.peer_rates),
            peer_events: self.peer_events,
            checkpoints: self.checkpoints.clone(),
            flink_state: self.flink_state.clone(),
            scored: self.scored,
            keys: self.keys,
            views: self.views,
            seconds: self.seconds,
            repeats: self.repeats,
        }
    }
}
