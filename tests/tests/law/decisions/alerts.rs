//! The law for alerts: a record for each begin of a key and, with `resolve`, one for each end, at the times at which a
//! naive evaluation of the same looks finds them.
//!
//! A look is an append and the evaluation after it. Each ends with an event that is newer than all before it: once the
//! alerts were evaluated for its time, they have seen everything of the look. A key has at most one other event in a
//! look, so that it makes no difference what of a look they see first.

use std::collections::BTreeMap;
use std::time::Duration;

use basestream_tests::{Harness, records_of, until};
use batch::RunTime;
use catalog::DefinitionKind;
use committed::registry::{LiveView, Registry};
use engine::events::parse_timestamp;
use proptest::prelude::*;
use serde_json::Value;
use types::tiles::Micros;

use super::process::Process;
use super::{Appended, Journal, again, broken};
use crate::compare::same_json;
use crate::grammar::filter;
use crate::layers::{BASE, DAY, Row, STREAM, TEXTS, cases, row, run};

mod naive;

use naive::{Change, Naive, Window};

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;

/// Longer than the lease of an alert.
const TAKEN_OVER: Duration = Duration::from_secs(2);

/// Of values of all time, of counts in a window, and of silence. Their topics have the same names.
const ALERTS: [&str; 3] = ["much", "often", "silent"];

/// Aggregates, each with a condition that begins and ceases to hold.
const CONDITIONS: [(&str, &str); 9] = [
    ("count(*)", "c0 % 2 = 1"),
    ("count(*) FILTER (WHERE b)", "c0 % 2 = 1"),
    ("count(DISTINCT u)", "c0 IN (1, 3)"),
    ("sum(x)", "c0 > 0"),
    ("sum(d)", "c0 BETWEEN -300 AND 300"),
    ("first_value(x ORDER BY ts)", "c0 > 0"),
    ("last_value(u ORDER BY ts)", "c0 = '3'"),
    ("bool_and(b)", "c0 = true"),
    ("sequence_count('(?1).*(?2)', ts, x > 0, x <= 0)", "c0 % 2 = 1"),
];

const WINDOWS: [Window; 2] = [Window { name: "1m", length: MINUTE, hop: SECOND }, Window { name: "1h", length: HOUR, hop: MINUTE }];

/// What is applied.
#[derive(Debug, Clone)]
struct Watched {
    partitions: u32,
    checkpoint_interval: Duration,
    condition: (&'static str, &'static str),
    filter: &'static str,
    window: Window,
    /// The condition asks for at least this many events.
    often: usize,
    /// One for each alert.
    resolve: [bool; 3],
}

/// What happens before a look.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    /// The process dies, and another one goes on.
    Kill,
    /// Likewise, and the alerts of the other one are at work before its worker is.
    KillAndWait,
    /// It commits and ends.
    Restart,
    /// Batch runs, from all that was committed.
    Run,
}

#[derive(Debug, Clone)]
struct Look {
    before: Before,
    /// Since the look before.
    gap: Micros,
    /// By key, how much older than the newest event it is.
    events: BTreeMap<usize, (Micros, Row)>,
    newest: Row,
    /// What is no event, or none any more.
    others: Vec<Appended>,
    /// The process dies this many milliseconds after the append.
    killed_after: Option<u64>,
}

fn watched() -> impl Strategy<Value = Watched> {
    let interval = prop::sample::select(vec![100, 400, 3_600_000]).prop_map(Duration::from_millis);
    let condition = (prop::sample::select(CONDITIONS.to_vec()), filter());
    let often = (prop::sample::select(WINDOWS.to_vec()), 1usize..4);
    (1u32..4, interval, condition, often, any::<[bool; 3]>()).prop_map(
        |(partitions, checkpoint_interval, (condition, filter), (window, often), resolve)| Watched {
            partitions,
            checkpoint_interval,
            condition,
            filter,
            window,
            often,
            resolve,
        },
    )
}

fn look() -> impl Strategy<Value = Look> {
    let before = prop_oneof![5 => Just(Before::Nothing), 2 => Just(Before::Kill), 1 => Just(Before::Restart), 1 => Just(Before::Run)];
    // Rows of all time are not evaluated between two times that are less than a second apart.
    let gap = prop_oneof![3 => 2 * SECOND..200 * SECOND, 1 => 200 * SECOND..5_000 * SECOND];
    let age = prop_oneof![3 => 0..20 * SECOND, 2 => 0..3 * MINUTE, 1 => 0..2 * HOUR];
    let events = prop::collection::btree_map(0..TEXTS.len(), (age, row()), 0..TEXTS.len());
    let others = prop::collection::vec(prop_oneof![again(), broken()], 0..3);
    (before, gap, events, row(), others, prop::option::weighted(0.25, 0u64..600))
        .prop_map(|(before, gap, events, newest, others, killed_after)| Look { before, gap, events, newest, others, killed_after })
}

struct AlertCase {
    harness: Harness,
    watched: Watched,
    /// The view of the first alert.
    totals: LiveView,
    journal: Journal,
    naive: Naive,
    process: Option<Process>,
    /// The time of the last look.
    t: Option<Micros>,
    next_id: u16,
    trace: Vec<String>,
}

impl AlertCase {
    async fn new(watched: &Watched) -> AlertCase {
        let harness = Harness::new().await.unwrap();
        harness.log.create_topic("s", watched.partitions).await.unwrap();
        harness.define(&[(DefinitionKind::Stream, "s", STREAM)]).await.unwrap();
        let Watched { condition: (aggregate, condition), filter, window, often, .. } = watched;
        let name = window.name;
        let views = [
            ("totals", format!("CREATE VIEW totals AS SELECT k AS key0, {aggregate} AS c0 FROM s {filter} GROUP BY k")),
            ("recent", format!("CREATE VIEW recent WITH (windows = '{name}') AS SELECT k AS key0, count(*) AS c0 FROM s GROUP BY k")),
            ("seen", "CREATE VIEW seen AS SELECT k AS key0, max(ts) AS c0 FROM s GROUP BY k".to_owned()),
        ];
        let selects = [
            format!("SELECT key0, c0 FROM totals WHERE {condition}"),
            format!("SELECT key0, c0_{name} AS c0 FROM recent WHERE c0_{name} >= {often}"),
            "SELECT key0, c0 FROM seen WHERE as_of() - c0 > INTERVAL '1 minute'".to_owned(),
        ];
        for (view, sql) in &views {
            harness.define(&[(DefinitionKind::View, *view, sql.as_str())]).await.unwrap();
        }
        for ((alert, select), resolve) in ALERTS.iter().zip(&selects).zip(watched.resolve) {
            harness.log.create_topic(alert, 1).await.unwrap();
            let sql = format!("CREATE ALERT {alert} WITH (topic = '{alert}', resolve = {resolve}) AS {select}");
            harness.define(&[(DefinitionKind::Alert, *alert, sql.as_str())]).await.unwrap();
        }
        let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
        let totals = registry.served("totals").unwrap().clone();
        let process = Some(Process::start(&harness, watched.checkpoint_interval).await);
        let (journal, naive, trace) = Default::default();
        AlertCase { harness, watched: watched.clone(), totals, journal, naive, process, t: None, next_id: 0, trace }
    }

    async fn take(&mut self, look: &Look) {
        self.trace.push(format!("{look:?}"));
        match look.before {
            Before::Nothing => {}
            Before::Kill => self.restart_by_kill(Duration::ZERO).await,
            Before::KillAndWait => self.restart_by_kill(TAKEN_OVER).await,
            Before::Restart => {
                self.process.take().unwrap().finish().await;
                self.start().await;
            }
            Before::Run => {
                self.process.take().unwrap().finish().await;
                for view in ["totals", "recent", "seen"] {
                    self.harness.batch(view, RunTime::EventClock).await.unwrap();
                }
                self.start().await;
            }
        }
        let t = self.t.map_or(BASE - DAY, |before| before + look.gap);
        let mut appended = look.others.clone();
        // Alerts are evaluated from the first look on, which has one event, and so one time.
        let events = look.events.iter().filter(|_| self.t.is_some());
        let events: Vec<(Option<usize>, Micros, &Row)> = events.map(|(key, (age, row))| (Some(*key), t - age, row)).collect();
        for (k, ts, row) in events.into_iter().chain([(None, t, &look.newest)]) {
            appended.push(Appended::Event(Row { id: self.next_id, ts, k, ..row.clone() }));
            self.next_id += 1;
        }
        self.journal.append(&self.harness, &appended).await;
        if let Some(after) = look.killed_after {
            tokio::time::sleep(Duration::from_millis(after)).await;
            self.restart_by_kill(Duration::ZERO).await;
        }
        self.until_evaluated(t).await;
        let previous = self.t.replace(t).unwrap_or(t);
        let events = &self.journal.accepted;
        self.naive.look_at_totals(&self.totals, self.watched.condition.1, events, (previous, t)).await;
        self.naive.look_at_window(self.watched.window, self.watched.often, events, (previous, t));
        self.naive.look_at_silence(MINUTE, events, (previous, t));
    }

    /// The worker of the other process begins this much later than its alerts.
    async fn restart_by_kill(&mut self, later: Duration) {
        self.process.take().unwrap().kill().await;
        self.process = Some(Process::start_before_its_worker(&self.harness, self.watched.checkpoint_interval, later).await);
    }

    async fn start(&mut self) {
        self.process = Some(Process::start(&self.harness, self.watched.checkpoint_interval).await);
    }

    /// Also another process knows then for which time they were.
    async fn until_evaluated(&self, t: Micros) {
        until("the alerts to be evaluated", async || {
            assert!(!self.process.as_ref().unwrap().has_ended(), "the worker ended: {}", self.about());
            let runners = self.harness.catalog.alert_runners().await.unwrap();
            runners.iter().filter(|runner| runner.at == Some(t)).count() == ALERTS.len()
        })
        .await;
    }

    async fn finish(mut self) {
        self.process.take().unwrap().finish().await;
        let expected = [&self.naive.much, &self.naive.often, &self.naive.silent];
        for ((alert, expected), resolve) in ALERTS.iter().zip(expected).zip(self.watched.resolve) {
            let mut found = self.put_out(alert).await;
            for (key, changes) in expected {
                self.check(alert, &found.remove(key).unwrap_or_default(), changes, resolve);
            }
            assert!(found.is_empty(), "{alert} has other keys: {found:?}\n{}", self.about());
        }
    }

    /// The records of an alert by key, in their order.
    async fn put_out(&self, alert: &str) -> BTreeMap<Option<usize>, Vec<Value>> {
        let mut found: BTreeMap<Option<usize>, Vec<Value>> = BTreeMap::new();
        for (_, record) in records_of(&*self.harness.log, alert).await.unwrap() {
            let record: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            found.entry(naive::key_of(&record["key0"])).or_default().push(record);
        }
        found
    }

    /// Each change that is put out has one record, and no other record is there.
    fn check(&self, alert: &str, records: &[Value], changes: &[Change], resolve: bool) {
        let about = || format!("{alert} put out {records:#?}\nexpected, resolve = {resolve}: {changes:#?}\n{}", self.about());
        let expected: Vec<&Change> = changes.iter().filter(|change| change.began || resolve).collect();
        assert_eq!(records.len(), expected.len(), "{}", about());
        let mut began: Option<&Value> = None;
        for (record, change) in records.iter().zip(expected) {
            let time = |member: &str| parse_timestamp(record[member].as_str().unwrap()).unwrap();
            assert_eq!(record["_state"], if change.began { "began" } else { "resolved" }, "{record}\n{}", about());
            assert!(change.times.contains(&time("_at")), "{record}: expected {change:?}\n{}", about());
            assert!(change.value.as_ref().is_none_or(|value| same_json(&record["c0"], value, 0.0)), "{record}: {change:?}\n{}", about());
            match change.began {
                true => {
                    assert_eq!(time("_since"), time("_at"), "{}", about());
                    assert!(began.is_none_or(|before| before["_id"] != record["_id"]), "{}", about());
                    began = Some(record);
                }
                false => assert_eq!(began.map(|began| &began["_id"]), Some(&record["_id"]), "{}", about()),
            }
        }
    }

    fn about(&self) -> String {
        format!("{:?}\n{}", self.watched, self.trace.join("\n"))
    }
}

async fn holds(watched: &Watched, looks: &[Look]) {
    let mut case = AlertCase::new(watched).await;
    for look in looks {
        case.take(look).await;
    }
    case.finish().await;
}

proptest! {
    // Each look waits until the partitions are known to be complete: a quarter as many cases as of `layers`.
    #![proptest_config(ProptestConfig { cases: cases().div_ceil(4), max_shrink_iters: 20, ..ProptestConfig::default() })]
    #[test]
    fn an_alert_puts_out_each_begin_and_end_that_a_naive_evaluation_finds(
        watched in watched(),
        looks in prop::collection::vec(look(), 3..9),
    ) {
        run(holds(&watched, &looks));
    }
}

/// Two late events, each read when it is out of the window. At the time that is committed both would have been in it,
/// and the process that takes over reads on from there.
#[test]
fn an_alert_is_not_evaluated_for_a_time_before_that_of_its_last_look() {
    let row = Row { id: 0, ts: BASE, k: None, j: None, x: None, d: None, f: None, u: None, b: None };
    let look = |before, events: &[(usize, Micros)]| Look {
        before,
        gap: 70 * SECOND,
        events: events.iter().map(|(key, age)| (*key, (*age, row.clone()))).collect(),
        newest: row.clone(),
        others: Vec::new(),
        killed_after: None,
    };
    let looks = [
        look(Before::Nothing, &[]),
        look(Before::Restart, &[(1, 75 * SECOND)]),
        look(Before::Nothing, &[(1, 144 * SECOND)]),
        look(Before::KillAndWait, &[]),
    ];
    let watched = Watched {
        partitions: 1,
        checkpoint_interval: Duration::from_secs(3_600),
        condition: CONDITIONS[0],
        filter: "",
        window: WINDOWS[0],
        often: 2,
        resolve: [true; 3],
    };
    run(holds(&watched, &looks));
}
