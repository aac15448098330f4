//! Creates a real installation in a folder, with applied definitions and generated events in its archive.
//!
//! The events do not pass through the log: at 22 million that takes longer than the measurement. The archive's own
//! writer writes them, and they are committed as checkpoints, as a worker does it, to partitions numbered after those
//! of the log. So the log is empty, and a worker that starts later begins at its start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use catalog::{CheckpointRange, CheckpointRecord, checkpoint_commit};
use definitions::StreamDefinition;
use definitions::settings::{FILE_NAME, Settings, Variables};
use engine::events::{event_schema, user_schema};
use engine::functions::Functions;
use futures::{StreamExt, TryStreamExt};
use jobs::Installation;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use storage::write_archive;
use types::files::FileRecord;
use types::vector::PartitionId;
use types::{Error, Result};
use uuid::Uuid;

use crate::events::Events;
use crate::rows;

/// The number of partitions of the log, unless a benchmark chooses another. As many follow that are in the archive
/// only.
const PARTITIONS: u64 = 4;
/// Events of one checkpoint: about what a worker collects in a quarter of `speed.checkpoint_bytes`.
const CHECKPOINT_EVENTS: u64 = 1_000_000;
/// The default paths of the catalog and the snapshots, and the suffix of the name of the catalog's copy.
const CATALOG: &str = "data/catalog.db";
const SNAPSHOTS: &str = "data/storage/snapshots";
const KEPT: &str = "kept";
/// The partitions of the archive are of no log.
const NO_LOG: BTreeMap<PartitionId, String> = BTreeMap::new();
/// The number of files that are written concurrently.
const AT_ONCE: usize = 2;

pub struct Installed {
    pub folder: PathBuf,
    /// The address at which `up` serves HTTP.
    pub http: String,
    /// The address at which it serves PostgreSQL clients.
    pub postgres: String,
    pub installation: Installation,
    /// Of the log.
    partitions: u64,
}

impl Installed {
    /// Creates a project with these events' streams and views in an empty folder, and applies its definitions.
    pub async fn create(folder: &Path, events: &impl Events) -> Result<Installed> {
        Installed::with_partitions(folder, events, PARTITIONS).await
    }

    /// The same with this many partitions in the log.
    pub async fn with_partitions(folder: &Path, events: &impl Events, partitions: u64) -> Result<Installed> {
        let http = format!("127.0.0.1:{}", basestream_tests::process::free_port()?);
        let postgres = format!("127.0.0.1:{}", basestream_tests::process::free_port()?);
        let serving = format!("http = \"{http}\"\npostgres = \"{postgres}\"\nclock = \"event\"\n");
        let config = format!("[log]\npartitions = {partitions}\n[serving]\n{serving}");
        for (path, text) in events.files().into_iter().chain([(FILE_NAME.to_owned(), config)]) {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
            std::fs::write(path, text)?;
        }
        let settings = Settings::load(&folder.join(FILE_NAME), &Variables::from_process())?;
        let installation = Installation::open(&settings, Functions::standard()).await?;
        installation.apply(&events.definitions()?, false).await?;
        Ok(Installed { folder: folder.to_path_buf(), http, postgres, installation, partitions })
    }

    pub fn config(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Closes the installation and keeps its current state, so that every run can begin from it.
    pub async fn close(self) -> Result<Pristine> {
        self.installation.close().await;
        let catalog = self.folder.join(CATALOG);
        std::fs::copy(&catalog, catalog.with_extension(KEPT))?;
        Ok(Pristine { config: self.config(), folder: self.folder })
    }

    /// Writes events into the archive, and commits them.
    pub async fn archive(&self, events: &impl Events) -> Result<()> {
        for (stream, count) in events.streams() {
            let definition = self.installation.stream(stream).await?;
            let parts = chunks(count).map(|numbers| self.checkpoint(events.clone(), stream, definition.clone(), numbers));
            let mut written = std::pin::pin!(futures::stream::iter(parts).buffered(AT_ONCE));
            while let Some((record, file)) = written.try_next().await? {
                self.installation.catalog.commit_with_retry(checkpoint_commit(record, vec![file], &NO_LOG)).await?;
            }
        }
        Ok(())
    }

    /// Archives a range of a stream's events as one checkpoint, and returns its id.
    pub async fn commit(&self, events: &impl Events, stream: &'static str, numbers: std::ops::Range<u64>) -> Result<Uuid> {
        let definition = self.installation.stream(stream).await?;
        let (record, file) = self.checkpoint(events.clone(), stream, definition, numbers).await?;
        let id = record.id;
        self.installation.catalog.commit_with_retry(checkpoint_commit(record, vec![file], &NO_LOG)).await?;
        Ok(id)
    }

    /// Writes a range of events to an archive file; returns the checkpoint that commits it.
    async fn checkpoint(
        &self,
        events: impl Events,
        stream: &'static str,
        definition: Arc<StreamDefinition>,
        numbers: std::ops::Range<u64>,
    ) -> Result<(CheckpointRecord, FileRecord)> {
        let id = Uuid::now_v7();
        let newest = events.time(stream, numbers.end - 1);
        let partitions = self.partitions;
        let of_partition = |partition: u64| -> Vec<u64> { numbers.clone().filter(|number| number % partitions == partition).collect() };
        let parts: Vec<(i32, Vec<u64>)> = (0..partitions).map(|of| ((partitions + of) as i32, of_partition(of))).collect();
        let range = |(partition, numbers): &(i32, Vec<u64>)| {
            let start = numbers.first().map(|number| (number / partitions) as i64)?;
            Some(CheckpointRange {
                clock: Some(newest),
                max_event_time: Some(newest),
                complete_to: Some(newest),
                ..CheckpointRange::of_events(PartitionId::new(stream, *partition), start, start + numbers.len() as i64)
            })
        };
        let ranges = parts.iter().filter_map(range).collect();
        let made = tokio::task::spawn_blocking(move || {
            let schema = event_schema(&definition);
            let filled = parts.iter().filter(|(_, numbers)| !numbers.is_empty());
            let batch = |(partition, numbers): &(i32, Vec<u64>)| {
                rows::archived(&events, stream, &schema, *partition, numbers, (numbers[0] / partitions) as i64)
            };
            filled.map(batch).collect::<Result<Vec<_>>>()
        });
        let file = write_archive(&self.installation.storage, &stream.into(), id, 1, made.await??).await?;
        let record = CheckpointRecord::new(id, "bench", jobs::now(), ranges);
        Ok((record, file))
    }
}

/// A closed installation, without any snapshot.
pub struct Pristine {
    pub config: PathBuf,
    folder: PathBuf,
}

impl Pristine {
    /// Discards all runs since, so that the next run is a first one.
    pub fn restore(&self) -> Result<()> {
        let catalog = self.folder.join(CATALOG);
        for gone in [catalog.clone(), catalog.with_extension("db-wal"), catalog.with_extension("db-shm")] {
            ignoring_absence(std::fs::remove_file(gone))?;
        }
        ignoring_absence(std::fs::remove_dir_all(self.folder.join(SNAPSHOTS)))?;
        std::fs::copy(catalog.with_extension(KEPT), &catalog)?;
        Ok(())
    }

    pub async fn open(&self) -> Result<Installation> {
        let settings = Settings::load(&self.config, &Variables::from_process())?;
        Installation::open(&settings, Functions::standard()).await
    }
}

fn ignoring_absence(outcome: std::io::Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes events as plain Parquet files, `<stream>-<number>.parquet` in a folder.
pub async fn plain_parquet(events: &impl Events, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let definitions = events.definitions()?;
    for (stream, count) in events.streams() {
        let definition = definitions.streams.iter().find(|definition| &*definition.name == stream);
        let schema = user_schema(definition.ok_or_else(|| Error::internal("a stream is not defined").with("stream", stream))?);
        let parts = chunks(count).enumerate().map(|(part, numbers)| {
            let path = folder.join(format!("{stream}-{part:04}.parquet"));
            let (events, schema) = (events.clone(), schema.clone());
            tokio::task::spawn_blocking(move || write_plain(&events, stream, &schema, numbers, &path))
        });
        let mut written = std::pin::pin!(futures::stream::iter(parts).buffer_unordered(AT_ONCE));
        while let Some(outcome) = written.try_next().await? {
            outcome?;
        }
    }
    Ok(())
}

/// All of a stream's plain Parquet files in a folder.
pub fn plain_files(stream: &str, folder: &Path) -> String {
    format!("{}/{stream}-*.parquet", folder.display())
}

fn write_plain(events: &impl Events, stream: &str, schema: &SchemaRef, numbers: std::ops::Range<u64>, path: &Path) -> Result<()> {
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    // Row groups of DuckDB's default size, compressed like the archive.
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(level)).set_max_row_group_row_count(Some(122_880)).build();
    let file = std::fs::File::create(path)?;
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties))?;
    writer.write(&rows::plain(events, stream, schema, &numbers.collect::<Vec<u64>>())?)?;
    writer.close()?;
    Ok(())
}

/// Splits the events into ranges, one per checkpoint.
fn chunks(events: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..events.div_ceil(CHECKPOINT_EVENTS)).map(move |chunk| chunk * CHECKPOINT_EVENTS..((chunk + 1) * CHECKPOINT_EVENTS).min(events))
}
