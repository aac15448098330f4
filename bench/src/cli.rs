//! The options of benchmarks, as the command line names them.

use std::time::Duration;

use basestream_bench::purchases::Purchases;
use basestream_bench::{batch, lookup};
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
    #[arg(long, default_value_t = batch::Options::default().repeats)]
    repeats: usize,
    /// Seconds that one process may take
    #[arg(long, default_value_t = batch::Options::default().timeout.as_secs())]
    timeout: u64,
}

impl Batch {
    pub(crate) fn options(&self) -> batch::Options {
        batch::Options {
            purchases: Purchases::of(self.events, self.keys),
            repeats: self.repeats,
            timeout: Duration::from_secs(self.timeout),
            ..batch::Options::default()
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
    /// Of HTTP and of the peers
    #[arg(long, default_value_t = lookup::Options::default().clients)]
    clients: usize,
    /// Keys in one request where they are asked together
    #[arg(long, default_value_t = lookup::Options::default().batch)]
    batch: usize,
    /// Of each stretch of measuring
    #[arg(long, default_value_t = lookup::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = lookup::Options::default().repeats)]
    repeats: usize,
    /// Events per second that arrive; 0 leaves that half out
    #[arg(long, default_value_t = lookup::Options::default().rate)]
    rate: u64,
    /// Of the table over windows; 0 leaves it out
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
