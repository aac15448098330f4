//! The options of benchmarks of questions.

use basestream_bench::purchases::Purchases;
use basestream_bench::{flight, hot, isolation, links_lookup, lookup, lookups_during_run, scan};
use clap::Args;

use crate::Common;

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
    /// Events per second that arrive, half of them of the hot key, in the last measurement of it
    #[arg(long, default_value_t = hot::Options::default().rate)]
    rate: u64,
    /// Events of a backlog that the speed layer takes, half of them of one key; 0: not measured
    #[arg(long, default_value_t = hot::Options::default().backlog)]
    backlog: u64,
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
            backlog: self.backlog,
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
pub(crate) struct LinksLookup {
    #[command(flatten)]
    pub(crate) common: Common,
    #[arg(long, value_delimiter = ',', default_values_t = links_lookup::Options::default().degrees)]
    degrees: Vec<u64>,
    #[arg(long, default_value_t = links_lookup::Options::default().devices)]
    devices: u64,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = links_lookup::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = links_lookup::Options::default().repeats)]
    repeats: usize,
    /// Events per second that arrive; 0: measure only idle
    #[arg(long, default_value_t = links_lookup::Options::default().rate)]
    rate: u64,
}

impl LinksLookup {
    pub(crate) fn options(&self) -> links_lookup::Options {
        links_lookup::Options {
            degrees: self.degrees.clone(),
            devices: self.devices,
            seconds: self.seconds,
            repeats: self.repeats,
            rate: self.rate,
            ..links_lookup::Options::default()
        }
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
    /// Calls per second for three keys of every view while events arrive, in cases of several views; 0 skips it
    #[arg(long, default_value_t = lookup::Options::default().together)]
    together: u64,
    /// Events of the table by window; 0: without this table
    #[arg(long, default_value_t = lookup::Options::default().window_events)]
    window_events: u64,
    #[arg(long, default_value_t = lookup::Options::default().window_keys)]
    window_keys: u64,
    /// Views of the project in which one is asked, beside a project of one view; 0: without this table
    #[arg(long, default_value_t = lookup::Options::default().many_views)]
    many_views: usize,
    /// Keys of each of them
    #[arg(long, default_value_t = lookup::Options::default().many_views_keys)]
    many_views_keys: u64,
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
            together: self.together,
            window_events: self.window_events,
            window_keys: self.window_keys,
            many_views: self.many_views,
            many_views_keys: self.many_views_keys,
            postgres: self.postgres.clone(),
            ..lookup::Options::default()
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
