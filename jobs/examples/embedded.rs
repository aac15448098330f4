//! basestream as a library: a stream and a view in code, an aggregate of one's own, batch and speed in this process,
//! one answer.
//!
//! ```text
//! cargo run --example embedded
//! ```

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use definitions::parse::parse_definitions;
use definitions::settings::Settings;
use engine::functions::Functions;
use jobs::Installation;
use jobs::ingest::{IngestOptions, Input};
use serving::Keys;
use tokio_util::sync::CancellationToken;
use types::vector::PartitionId;
use types::{Error, Result};

const DEFINITIONS: &str = "
CREATE STREAM readings (
  reading_id TEXT NOT NULL,
  read_at    TIMESTAMPTZ NOT NULL,
  sensor     TEXT NOT NULL,
  celsius    DOUBLE NOT NULL
) WITH (topic = 'readings', format = 'json', event_time = 'read_at', id = 'reading_id', key = 'sensor');

CREATE VIEW sensor_health WITH (windows = '1h, 1d') AS
SELECT sensor, count(*) AS readings, avg(celsius) AS mean, spread(celsius) AS spread
FROM readings GROUP BY sensor;
";

const READINGS: &str = r#"{"reading_id":"r1","read_at":"2026-03-01T09:15:00Z","sensor":"roof","celsius":3.5}
{"reading_id":"r2","read_at":"2026-03-01T11:40:00Z","sensor":"roof","celsius":9.0}
{"reading_id":"r3","read_at":"2026-03-01T11:41:00Z","sensor":"cellar","celsius":12.25}
{"reading_id":"r4","read_at":"2026-03-01T11:55:00Z","sensor":"roof","celsius":7.5}
"#;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let functions = Functions::standard().with_aggregate(AggregateUDF::new_from_impl(Spread::new()));
    let mut settings = Settings::defaults(folder.path());
    settings.serving.clock = definitions::settings::ClockKind::Event;
    settings.speed.checkpoint_interval = Duration::from_millis(200);
    let installation = Installation::open(&settings, functions).await?;

    // Definitions: as text here, or from files with `jobs::check::check_project`.
    let (definitions, mistakes) = parse_definitions(&[(None, DEFINITIONS.to_owned())]);
    mistakes.into_result()?;
    installation.apply(&definitions, false).await?;

    // The speed layer takes what comes in, and commits it.
    let stop = CancellationToken::new();
    let speed = installation.speed("embedded", None);
    let working = tokio::spawn({
        let stop = stop.clone();
        async move { speed.run(stop).await }
    });
    let file = folder.path().join("readings.jsonl");
    std::fs::write(&file, READINGS)?;
    let summary = installation.ingest("readings", &Input::File(file), &IngestOptions::default(), |_| {}).await?;
    println!("{} readings are in the log", summary.records);
    wait_until_committed(&installation, "readings").await?;
    stop.cancel();
    working.await??;

    // The batch layer recomputes from the archive; both layers keep the state of `spread` with the same function.
    let run = installation.run_view("sensor_health", &|_| {}).await?;
    println!("batch read {} events and wrote {} rows", run.events_read, run.rows_written);

    let node = installation.node(None).await?;
    let answer = node.lookup("sensor_health", Keys::Text(vec![vec![("sensor".into(), "roof".into())]]), None).await?;
    for row in serving::json::rows(&answer.rows)? {
        println!("{row}");
    }
    Ok(())
}

/// Waits until everything in a stream's log is committed.
async fn wait_until_committed(installation: &Installation, stream: &str) -> Result<()> {
    for _ in 0..300 {
        let vector = installation.catalog.state().await?.vector();
        let ends = installation.log.bounds(&installation.stream(stream).await?.topic).await?;
        if ends.iter().all(|end| vector.get(&PartitionId::new(stream, end.partition)) >= end.end) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Error::unavailable("the speed layer did not commit in 15 s"))
}

/// `spread(x)`: the greatest x minus the least. Its state is both of them, so that states of any parts of the events
/// merge.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Spread {
    signature: Signature,
}

impl Spread {
    fn new() -> Self {
        Self { signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Spread {
    fn name(&self) -> &str {
        "spread"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, _: StateFieldsArgs) -> DataFusionResult<Vec<FieldRef>> {
        Ok(["least", "greatest"].map(|name| Arc::new(Field::new(name, DataType::Float64, true))).into())
    }

    fn accumulator(&self, _: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(Box::new(Extremes::default()))
    }
}

#[derive(Debug, Default)]
struct Extremes {
    least: Option<f64>,
    greatest: Option<f64>,
}

impl Extremes {
    fn add(&mut self, values: &ArrayRef) -> DataFusionResult<()> {
        let values = values
            .as_any()
            .downcast_ref::<arrow::array::PrimitiveArray<Float64Type>>()
            .ok_or_else(|| DataFusionError::Internal(format!("spread() got {}", values.data_type())))?;
        for value in values.iter().flatten() {
            self.least = Some(self.least.map_or(value, |least| least.min(value)));
            self.greatest = Some(self.greatest.map_or(value, |greatest| greatest.max(value)));
        }
        Ok(())
    }
}

impl Accumulator for Extremes {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        states.iter().try_for_each(|state| self.add(state))
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Float64(self.least), ScalarValue::Float64(self.greatest)])
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        Ok(ScalarValue::Float64(self.least.zip(self.greatest).map(|(least, greatest)| greatest - least)))
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}
