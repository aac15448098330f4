//! Which keys of an alert began or ceased to satisfy its condition, from one read view to the next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use catalog::AlertTransition;
use committed::registry::LiveView;
use engine::alerts::{AlertPlan, Failed, Open, Transition, Watch};
use serving::{LoadedView, ReadView, ServingClock, keys_since, rows_of_keys, rows_of_part};
use tracing::warn;
use types::Result;
use types::tiles::{Micros, Span};
use types::vector::Vector;

use crate::AlertVersion;
use crate::outbox::Outbox;
use crate::record::{id, is_put_out, json, keys_json, record_key};

/// Keys that are looked at together.
const CHUNK: usize = 4_096;
/// A key that is due is looked at for the times at which it is due, one after another: so often in one round, and then for
/// the time of the round.
const ROUNDS: usize = 4;

pub(crate) type Key = Arc<[u8]>;

/// The keys of one alert, over one version of its view.
pub(crate) struct Evaluation {
    alert: AlertVersion,
    resolve: bool,
    plan: Arc<AlertPlan>,
    watch: Watch<Key>,
    /// The position of the last read view; `None` before the first one.
    position: Option<Vector>,
    /// The time of the last round.
    at: Micros,
}

impl Evaluation {
    /// Goes on with what is open. It looks at no position before `from`, and at no time before `at`.
    pub(crate) fn new(
        (alert, resolve): (AlertVersion, bool),
        plan: Arc<AlertPlan>,
        repeat: Option<Duration>,
        open: BTreeMap<Key, Open>,
        at: Micros,
    ) -> Self {
        Self { alert, resolve, plan, watch: Watch::new(repeat, open), position: None, at }
    }

    pub(crate) fn open(&self) -> usize {
        self.watch.open().len()
    }

    /// Looks at the keys that have changed since the last read view and at those that are due. The first time, and where it
    /// is not known which keys have changed, at all keys.
    pub(crate) async fn round(&mut self, read_view: &ReadView, outbox: &mut Outbox<'_>) -> Result<()> {
        let loaded = read_view.view(&self.plan.view.view)?;
        let Some(t) = time_of(read_view, &loaded.live).filter(|t| *t >= self.at && loaded.keeps(*t)) else { return Ok(()) };
        let position = read_view.vector.of_streams(&loaded.live.streams());
        if self.position.as_ref().is_some_and(|last| !position.covers(last)) {
            return Ok(());
        }
        let round = Round { read_view, loaded, position: &position, t };
        let changed = match &self.position {
            Some(last) => keys_since(read_view, loaded, last),
            None => None,
        };
        for _ in 0..ROUNDS {
            let due = self.due(t, |at| if loaded.keeps(at) { at } else { t });
            if due.is_empty() {
                break;
            }
            self.look_at_all(&round, &due, outbox).await?;
        }
        let late: Vec<(Key, Micros)> = self.due(t, |_| t);
        self.look_at_all(&round, &late, outbox).await?;
        match changed {
            Some(keys) => self.look_at_all(&round, &keys.into_iter().map(|key| (key, t)).collect::<Vec<_>>(), outbox).await?,
            None => self.look_at_every_key(&round, outbox).await?,
        }
        (self.position, self.at) = (Some(position), t);
        Ok(())
    }

    /// Takes out the keys that are due, each with the time for which it is looked at.
    fn due(&mut self, until: Micros, time: impl Fn(Micros) -> Micros) -> Vec<(Key, Micros)> {
        let mut due = Vec::new();
        while let Some((at, keys)) = self.watch.due(until) {
            let at = time(at);
            due.extend(keys.into_iter().map(|key| (key, at)));
        }
        due
    }

    async fn look_at_every_key(&mut self, round: &Round<'_>, outbox: &mut Outbox<'_>) -> Result<()> {
        // Keys that are open and have no row any more have ceased.
        let mut without_row: BTreeSet<Key> = self.watch.open().keys().cloned().collect();
        for part in 0..round.parts() {
            let found = rows_of_part(round.read_view, round.loaded, part, round.t, &self.plan.wanted)?;
            for from in (0..found.keys.len()).step_by(CHUNK) {
                let count = CHUNK.min(found.keys.len() - from);
                let keys: Vec<&Key> = found.keys[from..from + count].iter().collect();
                for key in &keys {
                    without_row.remove(*key);
                }
                let rows = Rows { rows: found.rows.slice(from, count), times: vec![round.t; count], found: vec![true; count] };
                let made = self.look(round, &keys, &rows)?;
                put(outbox, made, round).await?;
            }
        }
        let without_row: Vec<(Key, Micros)> = without_row.into_iter().map(|key| (key, round.t)).collect();
        self.look_at_all(round, &without_row, outbox).await
    }

    async fn look_at_all(&mut self, round: &Round<'_>, keys: &[(Key, Micros)], outbox: &mut Outbox<'_>) -> Result<()> {
        for keys in keys.chunks(CHUNK) {
            let mut made = Vec::new();
            for (t, keys) in of_equal_spans(&self.plan, keys) {
                let encoded: Vec<&[u8]> = keys.iter().map(|(key, _)| &**key).collect();
                let (rows, found) = rows_of_keys(round.read_view, round.loaded, &encoded, t, &self.plan.wanted)?;
                let rows = Rows { rows, times: keys.iter().map(|(_, time)| *time).collect(), found };
                made.extend(self.look(round, &keys.iter().map(|(key, _)| key).collect::<Vec<_>>(), &rows)?);
            }
            put(outbox, made, round).await?;
        }
        Ok(())
    }

    /// Looks at one row of each key, at its time, and returns what happened.
    fn look(&mut self, round: &Round<'_>, keys: &[&Key], of: &Rows) -> Result<Vec<AlertTransition>> {
        let held = self.plan.held(&of.rows, &of.times)?;
        let next = self.plan.next_change(&of.rows, &of.times)?;
        self.note_failures(&held.failed);
        let mut happened: Vec<(u32, Transition<Key>)> = Vec::new();
        for (row, key) in keys.iter().enumerate() {
            let (at, found) = (of.times[row], of.found[row]);
            let next = next[row].into_iter().chain(self.plan.next_edge(at)).min().filter(|_| found);
            let transition = self.watch.look(key, at, found && held.holds[row], next);
            happened.extend(transition.map(|transition| (row as u32, transition)));
        }
        match happened.is_empty() {
            true => Ok(Vec::new()),
            false => self.transitions(&round.loaded.live, of, happened),
        }
    }

    /// The same with their records.
    fn transitions(&self, view: &LiveView, of: &Rows, happened: Vec<(u32, Transition<Key>)>) -> Result<Vec<AlertTransition>> {
        let rows: Vec<u32> = happened.iter().map(|(row, _)| *row).collect();
        let records = self.plan.records(&of.rows, &of.times, &rows)?;
        self.note_failures(&records.failed);
        let place: HashMap<u32, usize> = records.rows.iter().enumerate().map(|(place, row)| (*row, place)).collect();
        let failed: HashMap<u32, &str> = records.failed.iter().map(|failed| (failed.row, &*failed.reason)).collect();
        let keys: Vec<Key> = happened.iter().map(|(_, transition)| transition.key.clone()).collect();
        let mut transitions = Vec::with_capacity(happened.len());
        for ((row, happened), keys) in happened.into_iter().zip(keys_json(view, &keys)?) {
            let (alert, version) = self.alert.clone();
            let mut transition = AlertTransition {
                id: id((&alert, version), &keys, happened.since),
                alert,
                version,
                seq: 0,
                kind: happened.kind,
                record_key: Some(record_key(&keys)?),
                keys,
                since: happened.since,
                at: happened.at,
                record: None,
            };
            if is_put_out(happened.kind, self.resolve) {
                let columns = match place.get(&row) {
                    Some(place) => Ok((&records.columns, *place)),
                    None => Err(failed.get(&row).copied().unwrap_or_default()),
                };
                transition.record = Some(json(&transition, columns)?);
            }
            transitions.push(transition);
        }
        Ok(transitions)
    }

    fn note_failures(&self, failed: &[Failed]) {
        let Some(first) = failed.first() else { return };
        warn!(alert = %self.alert.0, rows = failed.len(), reason = first.reason, "an alert fails on rows");
        let alert = self.alert.0.to_string();
        metrics::counter!("basestream_speed_alert_failed_rows_total", "alert" => alert).increment(failed.len() as u64);
    }
}

async fn put(outbox: &mut Outbox<'_>, made: Vec<AlertTransition>, round: &Round<'_>) -> Result<()> {
    match made.is_empty() {
        true => outbox.held.keep().await?,
        false => outbox.put(made, round.position, round.t).await?,
    }
    // A chunk takes some milliseconds.
    tokio::task::yield_now().await;
    Ok(())
}

/// What one round reads.
struct Round<'a> {
    read_view: &'a ReadView,
    loaded: &'a LoadedView,
    position: &'a Vector,
    t: Micros,
}

impl Round<'_> {
    fn parts(&self) -> u32 {
        serving::scan_parts(&serving::StateSource::Layers { read_view: self.read_view, view: self.loaded })
    }
}

/// One row for each of some keys, the time for which it is looked at, and whether it exists.
struct Rows {
    rows: RecordBatch,
    times: Vec<Micros>,
    found: Vec<bool>,
}

/// The time of an alert: the one before which every event of the log is counted, or the newest event time.
fn time_of(read_view: &ReadView, view: &LiveView) -> Option<Micros> {
    match read_view.clock {
        ServingClock::Wall => read_view.complete_to_of(view).map(|time| time.min(read_view.now)),
        ServingClock::Event => read_view.max_event_time(view),
    }
}

/// Keys whose windows have the same edges, with one of their times: their rows are the same at all of them.
fn of_equal_spans(plan: &AlertPlan, keys: &[(Key, Micros)]) -> Vec<(Micros, Vec<(Key, Micros)>)> {
    let mut groups: Vec<(Micros, Vec<(Key, Micros)>)> = Vec::new();
    let mut known: HashMap<Vec<Span>, usize> = HashMap::new();
    for (key, t) in keys {
        let spans = plan.view.ranges.iter().map(|range| range.at(*t)).collect();
        let group = *known.entry(spans).or_insert(groups.len());
        if group == groups.len() {
            groups.push((*t, Vec::new()));
        }
        groups[group].1.push((key.clone(), *t));
    }
    groups
}
