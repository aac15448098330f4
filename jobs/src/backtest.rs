//! `backtest`: the rows of a backtest in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use batch::{Backtest, BacktestClock, Known};
use committed::registry::Registry;
use definitions::settings::ClockKind;
use parquet::arrow::ArrowWriter;
use serde::Serialize;
use types::tiles::Micros;
use types::{Error, Result};

use crate::installation::Installation;
use crate::outputs::live_sink;
use crate::pin::pinned;

/// Which events of a sink's stream are scored, and where the rows go.
#[derive(Debug)]
pub struct Asked {
    pub sink: String,
    /// The first event time that is scored.
    pub from: Micros,
    /// The first event time that is not.
    pub to: Micros,
    pub known: Known,
    /// A file of Parquet, CSV or JSON lines, by its extension.
    pub out: PathBuf,
    /// Whether a file that exists is replaced.
    pub force: bool,
}

/// What a backtest did.
#[derive(Debug, Serialize)]
pub struct Report {
    pub sink: String,
    pub version: u32,
    /// Events in the range for which WHERE holds.
    pub rows: u64,
    pub file: PathBuf,
}

/// Scores the events and writes their rows. The file appears when it is whole. `on_read` is called with the number of
/// events read.
///
/// Errors: `Input` for a file that exists or has another extension, or a sink that cannot be backtested; `NotFound` for a
/// sink that does not exist.
pub async fn backtest(installation: &Installation, asked: &Asked, on_read: &(dyn Fn(u64) + Sync)) -> Result<Report> {
    if asked.from >= asked.to {
        return Err(Error::input("the range is empty: expected --from before --to"));
    }
    let format = Format::of(&asked.out)?;
    if asked.out.exists() && !asked.force {
        return Err(Error::input(format!("{} exists already", asked.out.display())).with("help", "--force replaces it"));
    }
    pinned(&installation.catalog, "backtest", async {
        let state = installation.catalog.state().await?;
        let name = live_sink(&state, &asked.sink)?.name;
        let registry = Registry::load(&state, &installation.functions).await?;
        let sink = registry.sinks.iter().find(|sink| *sink.name == *name);
        let sink = sink.ok_or_else(|| Error::internal("a live sink is not loaded"))?;
        let clock = match installation.settings.serving.clock {
            ClockKind::Wall => BacktestClock::Wall,
            ClockKind::Event => BacktestClock::Event,
        };
        let backtest = Backtest { registry: &registry, sink, from: asked.from, to: asked.to, known: asked.known, clock };
        let mut file = ScoredFile::create(&asked.out, format, &backtest.output()?)?;
        let scored = installation.batch().backtest(&state, &backtest, &mut |rows| file.write(rows), on_read).await;
        let rows = match scored {
            Ok(rows) => rows,
            Err(error) => {
                file.discard();
                return Err(error);
            }
        };
        file.finish()?;
        Ok(Report { sink: asked.sink.clone(), version: sink.version, rows, file: asked.out.clone() })
    })
    .await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    Csv,
    JsonLines,
}

impl Format {
    fn of(path: &Path) -> Result<Format> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Format::Parquet),
            Some("csv") => Ok(Format::Csv),
            Some("ndjson" | "jsonl") => Ok(Format::JsonLines),
            _ => Err(Error::input(format!("{} does not say how it is written", path.display()))
                .with("expected", "a name that ends in .parquet, .csv, .ndjson or .jsonl")),
        }
    }
}

/// A file that has another name until it is whole.
struct ScoredFile {
    path: PathBuf,
    part: PathBuf,
    writer: Writer,
}

enum Writer {
    Parquet(Box<ArrowWriter<File>>),
    Csv(Box<csv::Writer<File>>),
    JsonLines(BufWriter<File>),
}

impl ScoredFile {
    fn create(path: &Path, format: Format, schema: &SchemaRef) -> Result<ScoredFile> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(|error| Error::from(error).with("file", part.display()))?;
        let writer = match format {
            Format::Parquet => Writer::Parquet(Box::new(ArrowWriter::try_new(file, schema.clone(), None).map_err(unwritable)?)),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(file);
                writer.write_record(schema.fields().iter().map(|field| field.name())).map_err(unwritable)?;
                Writer::Csv(Box::new(writer))
            }
            Format::JsonLines => Writer::JsonLines(BufWriter::new(file)),
        };
        Ok(ScoredFile { path: path.to_owned(), part, writer })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match &mut self.writer {
            Writer::Parquet(writer) => writer.write(rows).map_err(unwritable)?,
            Writer::Csv(writer) => {
                for row in serving::json::rows(rows)? {
                    let row: serde_json::Value = serde_json::from_str(row.get()).map_err(unwritable)?;
                    writer.write_record(rows.schema_ref().fields().iter().map(|field| cell(&row[field.name()]))).map_err(unwritable)?;
                }
            }
            Writer::JsonLines(writer) => {
                for row in serving::json::rows(rows)? {
                    serde_json::to_writer(&mut *writer, &row).map_err(unwritable)?;
                    writer.write_all(b"\n")?;
                }
            }
        }
        Ok(())
    }

    /// On an error nothing is left behind.
    fn finish(self) -> Result<()> {
        let written = match self.writer {
            Writer::Parquet(writer) => writer.into_inner().map_err(unwritable),
            Writer::Csv(writer) => writer.into_inner().map_err(unwritable),
            Writer::JsonLines(writer) => writer.into_inner().map_err(unwritable),
        };
        let renamed = written.and_then(|file| {
            file.sync_all()?;
            std::fs::rename(&self.part, &self.path)?;
            Ok(())
        });
        renamed.map_err(|error| {
            let _ = std::fs::remove_file(&self.part);
            error.with("file", self.path.display())
        })
    }

    fn discard(self) {
        drop(self.writer);
        let _ = std::fs::remove_file(&self.part);
    }
}

/// A value as a cell of CSV: NULL is empty, a text stands without quotes of JSON.
fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("the rows cannot be written: {error}"))
}

#[cfg(test)]
mod tests;
