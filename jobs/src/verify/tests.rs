use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::AsArray;
use async_trait::async_trait;
use event_log::{Consumer, Fetched, Log, NewRecord, PartitionBounds, Subscription, TopicPartition};
use futures::TryStreamExt;
use types::record::Record;
use types::vector::Offset;

use super::*;

pub(crate) mod world;

use world::World;

pub(crate) const NOW: Micros = 1_767_225_600_000_000;
const HOUR: Micros = 3_600_000_000;
const DAY: Micros = 24 * HOUR;

pub(crate) const VIEW: &str = "CREATE VIEW velocity WITH (windows = '1h, 7d', every = '1h') AS \
    SELECT device, count(*) AS n, sum(amount) AS amount, avg(score) AS score, stddev(score) AS spread, approx_distinct(id) AS ids, \
    approx_median(score) AS median, array_agg(amount ORDER BY ts) AS list, last_n(amount, 2) AS recent, top_k(amount, 2) AS top, \
    max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen, count(*) FILTER (WHERE within(ts, '3d', '1d')) AS before, \
    sum(amount) / count(*) AS mean FROM payments WHERE amount > 0 GROUP BY device";

/// An answer that was prepared earlier.
struct Fixed(Mutex<ServedAnswer>);

impl Served for Fixed {
    fn answer<'a>(&'a self, _: &'a str, _: &'a SchemaRef) -> BoxFuture<'a, Result<ServedAnswer>> {
        Box::pin(async move { Ok(self.0.lock().unwrap().clone()) })
    }
}

fn event(id: u32, ts: Micros, device: &str, amount: &str, score: f64) -> String {
    format!(r#"{{"id":"e{id}","ts":{ts},"device":{device},"amount":{amount},"score":{score}}}"#)
}

/// Late, tied, filtered, duplicate and broken events in two partitions and four checkpoints.
pub(crate) async fn filled(views: &[&str]) -> World {
    let mut world = World::new(views).await;
    let mut number = 0;
    for round in 0..4 {
        for partition in 0..2 {
            let mut values = Vec::new();
            for i in 0..40i64 {
                number += 1;
                let device = ["\"a\"", "\"b\"", "null", "\"c\""][(i as usize + partition) % 4];
                let back = [i * 60_000_000, i * HOUR, i * DAY, 7 * DAY, HOUR, HOUR + 1, -1][(i as usize + round) % 7];
                let amount = if i % 11 == 0 { "null".to_owned() } else { format!("{}.{:02}", i - 3, i) };
                values.push(event(number, NOW - back, device, &amount, 0.1 * i as f64));
            }
            values.push(values[3].clone());
            values.push("{broken".to_owned());
            world.checkpoint(partition as i32, &values).await;
        }
    }
    world
}

#[tokio::test]
async fn what_states_answer_is_what_plain_sql_answers() {
    let world = filled(&[VIEW]).await;
    for t in [NOW, NOW + 1, NOW + 30 * 60_000_000 + 17, NOW + 6 * DAY] {
        let answer = world.states_answer("velocity", t).await.unwrap();
        let report = verify_view(&world.verifier, "velocity", &Fixed(Mutex::new(answer)), NOW).await.unwrap();
        assert!(report.is_equal(), "{report:#?}");
        assert!(report.rows >= 3 && report.columns == 23, "{report:#?}");
        assert_eq!(report.approximate, ["median_1h", "median_7d", "top_1h", "top_7d"]);
    }
    assert!(world.verifier.catalog.state().await.unwrap().leases.is_empty());
}

#[tokio::test]
async fn a_verification_counts_the_events_that_it_reads() {
    let world = filled(&[VIEW]).await;
    let answer = world.states_answer("velocity", NOW).await.unwrap();
    let read = EventsScanned::default();
    assert_eq!(read.count(), 0);
    let report = verify_view_counting(&world.verifier, "velocity", &Fixed(Mutex::new(answer)), NOW, &read).await.unwrap();
    assert!(report.is_equal() && report.unread.is_empty() && !report.nothing_committed, "{report:#?}");
    // Those of files with events of its windows.
    assert!(read.count() > 200, "{} events", read.count());
}

/// A node answers a view that was just changed from the version before.
#[tokio::test]
async fn an_answer_of_another_version_is_not_compared() {
    let world = filled(&["CREATE VIEW few AS SELECT device, count(*) AS n FROM payments GROUP BY device"]).await;
    let right = world.states_answer("few", NOW).await.unwrap();
    let verify = async |version| {
        let served = Fixed(Mutex::new(ServedAnswer { version, ..right.clone() }));
        verify_view(&world.verifier, "few", &served, NOW).await.map(|report| report.is_equal()).map_err(|error| error.kind())
    };
    assert_eq!([verify(None).await, verify(Some(1)).await], [Ok(true), Ok(true)]);
    assert_eq!(verify(Some(2)).await, Err(ErrorKind::Conflict));
}

#[tokio::test]
async fn values_past_a_limit_are_equal_where_both_sides_say_so() {
    let view = "CREATE VIEW few WITH (windows = '1h, 7d', max_state_bytes = '400B') AS \
        SELECT device, count(*) AS n, count(DISTINCT id) AS ids, array_agg(amount ORDER BY ts) AS list, median(score) + count(*) AS median, \
        sum(CASE WHEN amount > 0 THEN 4000000000000000000 ELSE 1 END) AS much FROM payments GROUP BY device";
    let world = filled(&[view]).await;
    let right = world.states_answer("few", NOW).await.unwrap();
    let verify = async |answer: ServedAnswer| verify_view(&world.verifier, "few", &Fixed(Mutex::new(answer)), NOW).await.unwrap();
    let report = verify(right.clone()).await;
    assert!(report.is_equal(), "{report:#?}");
    assert!(report.past > 8 && report.past < 4 * 2 * report.rows, "{report:#?}");
    let silent = verify(ServedAnswer { failed: Vec::new(), ..right.clone() }).await;
    assert_eq!((silent.difference_count > 0, silent.past), (true, 0), "{silent:#?}");
    let mut loud = right;
    loud.failed[0].cells.push((0, "n_1h".into()));
    let loud = verify(loud).await;
    assert_eq!((loud.difference_count, loud.past), (1, report.past), "{loud:#?}");
}

#[tokio::test]
async fn values_that_recur_may_be_past_a_limit_and_are_counted_once() {
    for (limit, may_be_past) in [("400B", true), ("1MiB", false)] {
        let view = format!(
            "CREATE VIEW few WITH (windows = '7d', max_state_bytes = '{limit}') AS \
            SELECT device, count(DISTINCT device) AS devices FROM payments GROUP BY device"
        );
        let world = filled(&[view.as_str()]).await;
        let state = world::state_of(&world).await;
        let expected = Expected::new(&world.verifier, &state, "few").unwrap();
        let plain = expected.ask(Moment { t: NOW, as_of: false }).unwrap();
        let rows: Vec<RecordBatch> = expected.rows(&plain, &state.vector()).await.unwrap().try_collect().await.unwrap();
        let says_so = |batch: &RecordBatch| batch.column_by_name(plain::MAY_BE_PAST).unwrap().as_boolean().true_count() > 0;
        assert_eq!(rows.iter().any(says_so), may_be_past, "{limit}");
        let answer = world.states_answer("few", NOW).await.unwrap();
        let report = verify_view(&world.verifier, "few", &Fixed(Mutex::new(answer)), NOW).await.unwrap();
        assert!(report.is_equal() && report.past == 0, "{report:#?}");
    }
}

#[tokio::test]
async fn a_value_and_its_cast_may_be_collected_in_one_view() {
    let view = "CREATE VIEW few WITH (windows = '7d', max_state_bytes = '400B') AS \
        SELECT device, count(DISTINCT amount) AS amounts, median(score) AS median, \
        string_agg(DISTINCT CAST(amount AS TEXT), ',' ORDER BY CAST(amount AS TEXT)) AS texts, \
        percentile_cont(0.25) WITHIN GROUP (ORDER BY CAST(score AS DOUBLE)) AS quarter FROM payments GROUP BY device";
    let world = filled(&[view]).await;
    let answer = world.states_answer("few", NOW).await.unwrap();
    let report = verify_view(&world.verifier, "few", &Fixed(Mutex::new(answer)), NOW).await.unwrap();
    assert!(report.is_equal() && report.past > 0, "{report:#?}");
}

/// Events of the same time in several partitions have one order, on both sides.
#[tokio::test]
async fn sequences_are_what_plain_sql_answers() {
    let view = "CREATE VIEW sequences WITH (windows = '1h, 7d, 30d', max_state_bytes = '640B') AS SELECT device, \
        sequence_match('(?1)(?t<=120)(?2)', ts, amount > 5, amount < 3) AS found, \
        sequence_count('(?1)(?2t<=3600)', ts, amount > 5, score > 0.5) AS pairs, \
        sequence_count('(?1)(?2)', ts, amount > 5, amount <= 5) FILTER (WHERE score < 3) AS turns, \
        window_funnel('2h', 'strict_order', ts, score < 1, score < 2, score < 3) AS steps, \
        window_funnel('2d', ts, amount > 0, amount > 10, amount > 20) AS far, \
        retention(score < 1, amount > 30, amount IS NULL) AS kept, session_count(ts, '2m') AS sessions, session_count(ts, '1h') AS visits, \
        longest_gap(ts) AS pause FROM payments GROUP BY device";
    let world = filled(&[view]).await;
    for t in [NOW, NOW + 30 * 60_000_000 + 17, NOW + 6 * DAY] {
        let answer = world.states_answer("sequences", t).await.unwrap();
        let report = verify_view(&world.verifier, "sequences", &Fixed(Mutex::new(answer)), NOW).await.unwrap();
        assert!(report.is_equal(), "{report:#?}");
        assert!(report.rows >= 3 && report.past > 0 && report.approximate.is_empty(), "{report:#?}");
    }
}

/// An answer that was prepared earlier, and the schema that it was asked for.
struct SchemaRecorder(ServedAnswer, Mutex<Option<SchemaRef>>);

impl Served for SchemaRecorder {
    fn answer<'a>(&'a self, _: &'a str, schema: &'a SchemaRef) -> BoxFuture<'a, Result<ServedAnswer>> {
        Box::pin(async move {
            *self.1.lock().unwrap() = Some(schema.clone());
            Ok(self.0.clone())
        })
    }
}

#[tokio::test]
async fn the_served_side_is_asked_for_the_types_of_the_rows() {
    let world = filled(&[VIEW]).await;
    let served = SchemaRecorder(world.states_answer("velocity", NOW).await.unwrap(), Mutex::default());
    assert!(verify_view(&world.verifier, "velocity", &served, NOW).await.unwrap().is_equal());
    let types =
        |schema: &SchemaRef| schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect::<Vec<_>>();
    let schema = served.1.lock().unwrap().take().unwrap();
    assert_eq!(types(&schema), types(&served.0.rows[0].schema()), "JSON is read by these types");
}

#[tokio::test]
async fn a_view_without_keys_over_a_staging_view_is_verified() {
    let clean = "CREATE VIEW clean AS SELECT *, amount * 2 AS double FROM payments WHERE amount > 10";
    let total = "CREATE VIEW total WITH (windows = '1h, 30d', every = '1h') AS \
        SELECT count(*) AS n, sum(double) AS s, first_value(id ORDER BY ts DESC) AS newest, as_of() - max(ts) AS quiet FROM clean";
    let world = filled(&[clean, total]).await;
    for t in [NOW, NOW + 20 * DAY, NOW + 400 * DAY] {
        let answer = world.states_answer("total", t).await.unwrap();
        let report = verify_view(&world.verifier, "total", &Fixed(Mutex::new(answer)), NOW).await.unwrap();
        assert!(report.is_equal() && report.rows == 1, "{report:#?}");
    }
}

#[tokio::test]
async fn events_on_which_a_view_fails_are_on_neither_side_and_in_the_ledger() {
    // In each partition and checkpoint one amount is 7.10.
    let shares = "SELECT device, count(*) AS n, sum(amount / (amount - 7.10)) AS s FROM payments GROUP BY device";
    let whole = "SELECT device, count(*) AS n FROM payments WHERE amount <> 7.10 AND amount / (amount - 7.10) > 1 GROUP BY device";
    let guarded = "SELECT device, sum(amount / (amount - 7.10)) FILTER (WHERE amount <> 7.10) AS s, \
        last_n(id, 2 ORDER BY 1 / (amount - 7.10)) FILTER (WHERE amount <> 7.10) AS ids FROM payments GROUP BY device";
    let texts = "SELECT device, sum(CAST(substr(id, 2) AS BIGINT)) AS s FROM payments WHERE id LIKE 'e1%' AND CAST(substr(id, 3) AS BIGINT) > 4 \
        GROUP BY device";
    let views = [("shares", shares), ("whole", whole), ("guarded", guarded), ("texts", texts)];
    let views = views.map(|(name, select)| format!("CREATE VIEW {name} AS {select}"));
    let world = filled(&views.each_ref().map(String::as_str)).await;
    let state = world::state_of(&world).await;
    let registry = committed::registry::Registry::load(&state, &world.verifier.functions).await.unwrap();
    for (view, failed) in [("shares", 8), ("whole", 0), ("guarded", 0), ("texts", 1)] {
        let answer = world.states_answer(view, NOW).await.unwrap();
        let report = verify_view(&world.verifier, view, &Fixed(Mutex::new(answer)), NOW).await.unwrap();
        assert!(report.is_equal() && report.rows > 0, "{report:#?}");
        assert_eq!(report.failed, failed, "{view}");
        let line = crate::ledger::view(&world.verifier, &state, registry.served(view).unwrap(), NOW).await.unwrap();
        assert!(line.balanced, "{line:#?}");
        assert_eq!((line.archived, line.failed), (320, failed as i64), "{view}");
    }
}

/// Forms that planning and rewriting could interpret differently.
const SHAPES: [&str; 32] = [
    "WITH (windows = '1h, 7d', every = '1h') AS SELECT count(*) AS n, upper(device) AS who FROM payments GROUP BY 2",
    "WITH (windows = '1h, 7d', every = '1h') AS SELECT device AS \"Device\", score AS s, count(DISTINCT amount) AS n FROM payments GROUP BY device, score",
    "WITH (windows = '90s, 10m, 1h', every = '1h', precision = '1min') AS SELECT device, count(*) AS n FROM payments GROUP BY device",
    "AS SELECT device, count(*) FILTER (WHERE within(ts, 'all', '1d')) AS old, sum(amount) FILTER (WHERE within(ts, '7d', '1h') AND (score > 1 OR amount < 5)) AS s FROM payments GROUP BY device",
    "AS SELECT device FROM payments GROUP BY device",
    "WITH (windows = '3d', every = '1h') AS SELECT device, CASE WHEN count(*) > 3 THEN sum(amount) ELSE -1 END AS big, coalesce(sum(amount), 0) AS s FROM payments GROUP BY device",
    "WITH (windows = '1h, 3d', every = '1h') AS SELECT device, 10 / count(amount) AS q, (count(amount)) AS c, count(*) + 0 AS d FROM payments WHERE amount IS NOT NULL GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT both.device AS device, sum(x) AS s FROM (SELECT device, amount AS x FROM payments UNION ALL SELECT upper(device), -amount FROM payments WHERE score > 1) AS both GROUP BY both.device",
    "WITH (windows = '1h, 30d', every = '1h') AS WITH a (d, x, t) AS (SELECT device, amount, ts FROM payments), b AS (SELECT * FROM a WHERE x > 3) \
     SELECT d, max(x) AS x, max(t) FILTER (WHERE within(t, '3d')) AS t FROM b GROUP BY d",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, string_agg(id, ',' ORDER BY score) AS ids, array_agg(DISTINCT score ORDER BY score) AS scores FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, string_agg(id, ',' ORDER BY score) AS up, string_agg(id, ';' ORDER BY amount DESC) AS down FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, first_value(id ORDER BY score) AS f, last_value(amount ORDER BY ts) AS l, last_n(id, 3 ORDER BY score DESC) AS n FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, median(score) AS m, percentile_cont(0.9) WITHIN GROUP (ORDER BY score) AS p FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, corr(score, amount) AS c, regr_slope(score, amount) AS r, covar_pop(score, score) AS v, var_pop(score) AS w FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, bool_and(amount > 3) AS a, bool_or(score > 2) AS o, min(ts) AS first, max(id) AS last FROM payments GROUP BY device",
    "WITH (windows = '1h', every = '1h') AS SELECT device, poisson_sf(count(*) FILTER (WHERE within(ts, '1h')), CAST(count(*) FILTER (WHERE within(ts, '7d')) AS DOUBLE) / 168) AS p FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT count(*) AS n, sum(score) AS s, zscore(max(score), avg(score), stddev(score)) AS z FROM payments",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT date_trunc('day', ts) AS day, count(*) AS n FROM payments GROUP BY day",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, as_of() AS t, as_of() - max(ts) AS quiet FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, count(DISTINCT id) FILTER (WHERE amount > 5) AS n, sum(DISTINCT amount) AS s, avg(amount) AS a FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, 1 AS one, concat(device, '!') AS loud, count(*) AS n FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, sum(amount) FILTER (WHERE within(ts, '3d')) / sum(amount) AS share FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT p.device, sum(p.amount) AS s FROM payments AS p WHERE p.device IS DISTINCT FROM 'a' GROUP BY p.device",
    "WITH (windows = '2h, 7d', every = '1h') AS SELECT device, count(*) FILTER (WHERE within(ts, '7d', '2h')) AS n, count(*) AS all_n FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, score > 1 AS high, count(*) AS n FROM payments GROUP BY device, score > 1",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, top_k(amount, 3) AS t, approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY score) AS p FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, sum(coalesce(amount, 0)) FILTER (WHERE coalesce(score, 0) > 1) AS s, nvl(max(amount), 0) AS m FROM payments GROUP BY device",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT coalesce(device, 'none') AS d, array_agg(id ORDER BY coalesce(amount, 0)) AS ids FROM payments WHERE coalesce(amount, 1) > 0 GROUP BY coalesce(device, 'none')",
    "AS SELECT round(amount, 1) AS r, count(*) AS n, sum(round(amount, 1)) AS s, max(round(amount, 1)) AS m FROM payments GROUP BY round(amount, 1)",
    "AS SELECT device, avg(extract(epoch FROM ts - TIMESTAMPTZ '2020-01-01T00:00:00.25Z')) AS mean FROM payments GROUP BY device",
    "AS SELECT extract(epoch FROM ts - TIMESTAMPTZ '2020-01-01T00:00:00.25Z') AS since, count(*) AS n FROM payments GROUP BY 1",
    "WITH (windows = '1h, 30d', every = '1h') AS SELECT device, sum(CASE WHEN amount > 5 THEN amount ELSE 0 END) AS s, count(CASE WHEN score > 1 THEN 1 END) AS c FROM payments GROUP BY device",
];

#[tokio::test]
async fn every_shape_of_select_is_read_alike_by_layers_and_plain_sql() {
    let mut wrong = Vec::new();
    for shape in SHAPES {
        let world = filled(&[&format!("CREATE VIEW v {shape}")]).await;
        for t in [NOW, NOW + 90 * 60_000_000 + 17, NOW + 5 * DAY] {
            let verified = async {
                let answer = world.states_answer("v", t).await?;
                verify_view(&world.verifier, "v", &Fixed(Mutex::new(answer)), NOW).await
            };
            match verified.await {
                Ok(report) if report.is_equal() && (report.rows > 0 || t > NOW) => {}
                Ok(report) => wrong.push(format!("{shape}: {report:#?}")),
                Err(error) => wrong.push(format!("{shape}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong: {}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn every_kind_of_wrong_answer_is_found() {
    let world = filled(&[VIEW]).await;
    let right = world.states_answer("velocity", NOW).await.unwrap();
    let rows = &right.rows[0];
    let verify = |rows: Vec<RecordBatch>, t: Micros| {
        let served = Fixed(Mutex::new(ServedAnswer { rows, t, ..right.clone() }));
        let verifier = &world.verifier;
        async move { verify_view(verifier, "velocity", &served, NOW).await.unwrap() }
    };
    let lost = verify(vec![rows.slice(0, rows.num_rows() - 1)], NOW).await;
    assert_eq!((lost.difference_count, lost.differences[0].served.as_str()), (1, "no row"));
    let twice = verify(vec![rows.clone(), rows.slice(0, 1)], NOW).await;
    assert!(twice.differences.iter().any(|difference| difference.served == "several rows"), "{twice:#?}");
    let later = verify(vec![rows.clone()], NOW + DAY).await;
    assert!(later.differences.iter().any(|difference| difference.column == "n_1h"), "{later:#?}");
    let fewer = verify(vec![rows.project(&[0, 1, 2]).unwrap()], NOW).await;
    assert_eq!(fewer.difference_count, 20);
    let mut columns = rows.columns().to_vec();
    columns[1] = arrow::compute::kernels::numeric::add(&columns[1], &arrow::array::Int64Array::new_scalar(1)).unwrap();
    let wrong = verify(vec![RecordBatch::try_new(rows.schema(), columns).unwrap()], NOW).await;
    assert_eq!(wrong.difference_count, wrong.rows);
    assert_eq!(wrong.differences[0].column, "n_1h");
}

/// A read-only log.
#[derive(Debug)]
struct Records(Vec<Vec<Record>>);

#[async_trait]
impl Log for Records {
    async fn create_topic(&self, _: &str, _: u32) -> Result<u32> {
        Err(Error::internal("not asked for"))
    }
    async fn bounds(&self, _: &str) -> Result<Vec<PartitionBounds>> {
        let bounds = |(partition, records): (usize, &Vec<Record>)| PartitionBounds {
            partition: partition as i32,
            begin: records.first().map(|record| record.offset).unwrap_or_default(),
            end: records.last().map(|record| record.offset.next()).unwrap_or_default(),
        };
        Ok(self.0.iter().enumerate().map(bounds).collect())
    }
    async fn identity(&self, _: &str) -> Result<String> {
        Ok("l".into())
    }
    async fn append(&self, _: &str, _: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        Err(Error::internal("not asked for"))
    }
    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        let records: Vec<Record> =
            self.0[source.partition as usize].iter().filter(|r| r.offset >= from).take(max_records.min(7)).cloned().collect();
        let position = records.last().map_or(from, |record| record.offset.next());
        Ok(Fetched { source: source.clone(), records, at_end: position == from, position, fetched_at: 0 })
    }
    async fn subscribe(&self, _: Subscription) -> Result<Consumer> {
        Err(Error::internal("not asked for"))
    }
}

/// A log that is trimmed after it was first asked for its bounds.
#[derive(Debug)]
struct TrimmedMeanwhile {
    before: Records,
    after: Records,
    was_asked: AtomicBool,
}

#[async_trait]
impl Log for TrimmedMeanwhile {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        self.after.create_topic(topic, partitions).await
    }
    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        let log = if self.was_asked.swap(true, Ordering::Relaxed) { &self.after } else { &self.before };
        log.bounds(topic).await
    }
    async fn identity(&self, topic: &str) -> Result<String> {
        self.after.identity(topic).await
    }
    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        self.after.append(topic, records).await
    }
    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        match self.after.0[source.partition as usize].first() {
            Some(first) if from < first.offset => Err(Error::not_found("the offset expired from the log")),
            _ => self.after.read(source, from, max_records).await,
        }
    }
    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer> {
        self.after.subscribe(subscription).await
    }
}

/// A log that deletes a record once a later one has its key.
#[derive(Debug)]
struct CompactedLog(Records);

#[async_trait]
impl Log for CompactedLog {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        self.0.create_topic(topic, partitions).await
    }
    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        self.0.bounds(topic).await
    }
    async fn identity(&self, topic: &str) -> Result<String> {
        self.0.identity(topic).await
    }
    async fn is_compacted(&self, _: &str) -> Result<bool> {
        Ok(true)
    }
    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        self.0.append(topic, records).await
    }
    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        self.0.read(source, from, max_records).await
    }
    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer> {
        self.0.subscribe(subscription).await
    }
}

#[tokio::test]
async fn every_record_of_the_log_is_accounted_for() {
    let world = filled(&[]).await;
    let reports = verify_log(&world.verifier, &Records(world.log.clone()), &[], NOW).await.unwrap();
    assert_eq!(reports.len(), 2);
    for report in reports {
        assert!(report.is_equal(), "{report:#?}");
        assert_eq!((report.records, report.archived, report.dead_lettered, report.duplicates), (168, 160, 4, 4));
    }
}

#[tokio::test]
async fn a_log_that_begins_later_is_compared_from_there() {
    let world = filled(&[]).await;
    let mut records = world.log.clone();
    records[1].drain(..50);
    let reports = verify_log(&world.verifier, &Records(records), &["payments".into()], NOW).await.unwrap();
    assert!(reports.iter().all(LogReport::is_equal), "{reports:#?}");
    assert_eq!((reports[1].start, reports[1].records), (Offset(50), 118));
}

#[tokio::test]
async fn records_that_expire_before_they_are_read_are_left_out() {
    let world = filled(&[]).await;
    let mut left = world.log.clone();
    left[1].drain(..50);
    let log = TrimmedMeanwhile { before: Records(world.log.clone()), after: Records(left), was_asked: AtomicBool::new(false) };
    let reports = verify_log(&world.verifier, &log, &[], NOW).await.unwrap();
    assert!(reports.iter().all(LogReport::is_equal), "{reports:#?}");
    assert_eq!((reports[0].records, reports[1].start, reports[1].records), (168, Offset(50), 118));
}

#[tokio::test]
async fn a_record_that_was_changed_lost_or_invented_is_named() {
    let world = filled(&[]).await;
    let mut records = world.log.clone();
    records[0][5].value = Some("{}".into());
    records[0][41].value = Some("{also broken".into());
    // A duplicate by its offset, but its id was never archived.
    records[0][40].value = Some(event(9999, NOW, "null", "1", 0.0).into());
    records[0].remove(7);
    let reports = verify_log(&world.verifier, &Records(records), &[], NOW).await.unwrap();
    assert_eq!(reports[0].different.first, [Offset(5), Offset(41)]);
    assert_eq!(reports[0].missing.first, [Offset(40)]);
    assert_eq!(reports[0].extra.first, [Offset(7)]);
    assert!(reports[1].is_equal());
}

/// Only what is before its end may be gone, and what it still has is compared.
#[tokio::test]
async fn a_compacted_log_may_lack_archived_records_before_its_end() {
    let world = filled(&[]).await;
    let mut records = world.log.clone();
    records[0].truncate(160);
    records[0].drain(1..101);
    records[0][5].value = Some("{}".into());
    let reports = verify_log(&world.verifier, &CompactedLog(Records(records)), &[], NOW).await.unwrap();
    let report = &reports[0];
    assert_eq!((report.extra.count, report.missing.count, report.different.count), (7, 0, 1), "{report:#?}");
    // Two of the hundred were duplicates, and are stored nowhere.
    assert_eq!((report.records, report.compacted), (60, 98), "{report:#?}");
    assert!(reports[1].is_equal() && reports[1].compacted == 0, "{:#?}", reports[1]);
}

/// Of another log, or of a topic that was deleted, there was nothing to compare.
#[tokio::test]
async fn a_log_without_a_partition_that_is_committed_is_an_error() {
    let world = filled(&[]).await;
    let error = verify_log(&world.verifier, &Records(world.log[..1].to_vec()), &[], NOW).await.unwrap_err();
    assert_eq!(error.kind(), types::ErrorKind::Unavailable);
    assert!(error.to_string().contains("payments/1"), "{error}");
}

#[tokio::test]
async fn a_log_shorter_than_what_is_committed_shows_as_extra() {
    let world = filled(&[]).await;
    let mut records = world.log.clone();
    records[0].truncate(160);
    let reports = verify_log(&world.verifier, &Records(records), &[], NOW).await.unwrap();
    // One of the last eight is a duplicate and is stored nowhere.
    assert_eq!((reports[0].extra.count, reports[0].missing.count), (7, 0), "{reports:#?}");
}
