//! Makes the same records with Flink SQL on Kafka: own aggregates by OVER windows, a verdict, and one record for each
//! event in another topic; of a backlog, and of events that arrive at a rate.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use types::Result;

use super::at_rate::{AtRate, Timing, send_and_read};
use super::backlog::{Backlog, read_backlog};
use super::definitions::joined_as_in_flink;
use super::project::{SinkProject, records_of};
use super::tail::{Origin, Tail};
use super::values::{self, Aggregated, ValueColumns};
use super::{Options, WARM_UP};
use crate::Programs;
use crate::child::Used;
use crate::flink::{Flink, Reported};
use crate::measured_process::MeasuredProcess;
use crate::payments::{MOST_EVENTS, PARTITIONS, Payments, Source, Topic};

const SOURCE: &str = "kafka";
const TIMEOUT: Duration = Duration::from_secs(900);
const INTERVAL: &str = "BASESTREAM__SPEED__CHECKPOINT_INTERVAL";
const OWN_COLUMNS: ValueColumns = ValueColumns { events: "v0_events_1h", amount: "v0_amount_1h" };
const FLINK_COLUMNS: ValueColumns = ValueColumns { events: "events_1h", amount: "amount_1h" };

/// Who makes the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scorer {
    Basestream {
        checkpoint_s: u64,
    },
    /// In transactions that its checkpoints commit.
    FlinkExactlyOnce {
        checkpoint_s: u64,
    },
    /// Without checkpoints and transactions.
    Flink,
}

/// What each measured, in turns.
pub(super) struct MeasuredPeers {
    pub(super) backlogs: Vec<(Scorer, Vec<Backlog>)>,
    pub(super) at_rates: Vec<(Scorer, AtRate)>,
}

/// What was measured, or why it was left out.
pub(super) enum PeerOutcome {
    Measured(MeasuredPeers),
    LeftOut(&'static str),
}

impl Scorer {
    pub(super) fn checkpoint_s(self) -> Option<u64> {
        match self {
            Scorer::Basestream { checkpoint_s } | Scorer::FlinkExactlyOnce { checkpoint_s } => Some(checkpoint_s),
            Scorer::Flink => None,
        }
    }

    /// Exactly-once programs with each of the intervals.
    fn exactly_once(intervals: &[u64]) -> Vec<Scorer> {
        let pair = |checkpoint_s: &u64| {
            let checkpoint_s = *checkpoint_s;
            [Scorer::Basestream { checkpoint_s }, Scorer::FlinkExactlyOnce { checkpoint_s }]
        };
        intervals.iter().flat_map(pair).collect()
    }
}

struct PeerSite<'a> {
    options: &'a Options,
    programs: &'a Programs,
    folder: &'a Path,
    source: Source,
    flink: Flink,
}

/// Checks that each has one record for every event, with what is known of its account; Flink, which drops no
/// duplicates, for every record.
pub(super) async fn beside(options: &Options, programs: &Programs, folder: &Path) -> Result<PeerOutcome> {
    let Some(flink) = Flink::installed() else {
        return Ok(PeerOutcome::LeftOut("Flink is not installed (bench/peers/setup)"));
    };
    let Some(source) = Source::named(SOURCE)? else {
        return Ok(PeerOutcome::LeftOut("Kafka is not running (tests/services/up)"));
    };
    let site = PeerSite { options, programs, folder, source, flink };
    let backlogs = if options.peer_events > 0 { site.backlogs().await? } else { Vec::new() };
    let mut at_rates = Vec::new();
    for rate in &options.peer_rates {
        for scorer in Scorer::exactly_once(&options.checkpoints) {
            at_rates.push((scorer, site.at_rate(scorer, *rate).await?));
        }
    }
    Ok(PeerOutcome::Measured(MeasuredPeers { backlogs, at_rates }))
}

impl PeerSite<'_> {
    async fn backlogs(&self) -> Result<Vec<(Scorer, Vec<Backlog>)>> {
        let payments = Payments { records: self.options.peer_events, accounts: self.options.keys };
        let topic = self.source.fill(self.folder, payments).await?;
        let scorers = Scorer::exactly_once(&self.options.checkpoints).into_iter().chain([Scorer::Flink]);
        let mut backlogs: Vec<(Scorer, Vec<Backlog>)> = scorers.map(|scorer| (scorer, Vec::new())).collect();
        for turn in 0..self.options.repeats.max(1) {
            for (nth, (scorer, measured)) in backlogs.iter_mut().enumerate() {
                let records = records_of(&topic, &format!("{turn}-{nth}"));
                measured.push(match scorer {
                    Scorer::Basestream { checkpoint_s } => self.own_backlog(&topic, records, *checkpoint_s).await?,
                    Scorer::FlinkExactlyOnce { .. } | Scorer::Flink => {
                        self.backlog_of_flink(&topic, records, scorer.checkpoint_s()).await?
                    }
                });
            }
        }
        topic.delete().await?;
        Ok(backlogs)
    }

    async fn own_backlog(&self, topic: &Topic, records: Topic, checkpoint_s: u64) -> Result<Backlog> {
        let folder = self.folder.join("own");
        let site = SinkProject::over(&folder, topic.clone(), records, &joined_as_in_flink()).await?;
        let interval = format!("{checkpoint_s}s");
        let backlog = read_backlog(self.programs, &folder, &site, &[(INTERVAL, OsStr::new(&interval))]).await?;
        values::check(&site.records, topic.payments, Aggregated::Accepted, OWN_COLUMNS).await?;
        std::fs::remove_dir_all(&folder)?;
        site.records.delete().await?;
        Ok(backlog)
    }

    async fn backlog_of_flink(&self, topic: &Topic, records: Topic, checkpoint_s: Option<u64>) -> Result<Backlog> {
        let folder = self.folder.join("flink");
        records.open().await?.create_topic(&records.name, PARTITIONS).await?;
        let job = json!({ "kind": "decide", "into": records.name, "checkpoint_s": checkpoint_s, "state": self.options.flink_state });
        let Reported { seconds, processor_s, peak_bytes } = self.flink.run(&folder, topic, &job, TIMEOUT)?;
        values::check(&records, topic.payments, Aggregated::Dated, FLINK_COLUMNS).await?;
        std::fs::remove_dir_all(&folder)?;
        records.delete().await?;
        let events = topic.payments.records;
        let used = Used { processor_s, peak_bytes: peak_bytes as u64, ..Used::default() };
        Ok(Backlog { events, per_second: events as f64 / seconds, used, seconds })
    }

    async fn at_rate(&self, scorer: Scorer, rate: u64) -> Result<AtRate> {
        let timing = self.timing(scorer.checkpoint_s().unwrap_or_default());
        let payments = Payments { records: MOST_EVENTS, accounts: self.options.keys };
        let topic = self.source.empty(self.folder, payments).await?;
        let records = records_of(&topic, "scored");
        let measured = match scorer {
            Scorer::Basestream { checkpoint_s } => self.own_at_rate(&topic, &records, (rate, timing), checkpoint_s).await?,
            Scorer::FlinkExactlyOnce { .. } | Scorer::Flink => {
                self.flink_at_rate(&topic, &records, (rate, timing), scorer.checkpoint_s()).await?
            }
        };
        records.delete().await?;
        topic.delete().await?;
        Ok(measured)
    }

    async fn own_at_rate(&self, topic: &Topic, records: &Topic, load: (u64, Timing), checkpoint_s: u64) -> Result<AtRate> {
        let folder = self.folder.join("own");
        let site = SinkProject::over(&folder, topic.clone(), records.clone(), &joined_as_in_flink()).await?;
        let (config, interval) = (site.project.config(), format!("{checkpoint_s}s"));
        let variables = [(INTERVAL, OsStr::new(&interval))];
        let process = MeasuredProcess::up_with(self.programs, &config, &folder, &site.project.http, &variables).await?;
        let tail = Tail::begin(records, Origin::Header).await?;
        let (measured, payments) = send_and_read(topic, tail, load, |payments| payments.truth().events, || process.used()).await?;
        process.stop().await?;
        values::check(records, payments, Aggregated::Accepted, OWN_COLUMNS).await?;
        std::fs::remove_dir_all(&folder)?;
        Ok(measured)
    }

    async fn flink_at_rate(&self, topic: &Topic, records: &Topic, load: (u64, Timing), checkpoint_s: Option<u64>) -> Result<AtRate> {
        let folder = self.folder.join("flink");
        records.open().await?.create_topic(&records.name, PARTITIONS).await?;
        let state = &self.options.flink_state;
        let job = json!({ "kind": "decide_arriving", "into": records.name, "checkpoint_s": checkpoint_s, "state": state });
        let job = self.flink.start(&folder, topic, &job).await?;
        let tail = Tail::begin(records, Origin::Columns).await?;
        let (measured, payments) = send_and_read(topic, tail, load, |payments| payments.records, || job.used()).await?;
        job.stop().await?;
        values::check(records, payments, Aggregated::Arrived, FLINK_COLUMNS).await?;
        std::fs::remove_dir_all(&folder)?;
        Ok(measured)
    }

    /// Each stretch has at least two checkpoints.
    fn timing(&self, checkpoint_s: u64) -> Timing {
        let two_checkpoints = Duration::from_secs(2 * checkpoint_s);
        let stretch = Duration::from_secs_f64(self.options.seconds);
        Timing {
            warm_up: stretch.mul_f64(WARM_UP).max(two_checkpoints),
            stretch: stretch.max(two_checkpoints),
            repeats: self.options.repeats,
        }
    }
}
