//! A snapshot, which a batch run publishes: tiers of hash buckets of keys, each bucket a sorted Parquet file, and a
//! manifest that names them.
//!
//! ```text
//! base      a recomputation from the archive, or what was merged since
//! delta     the checkpoints of some later runs, merged
//! delta     the checkpoints of the newest run
//! ```
//!
//! The states of a key are in one bucket of each tier. Together they are the snapshot's, as in an LSM tree.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::known_file::KnownFile;
use crate::parquet_file::{ParquetOptions, ParquetUpload, newer_release};
use crate::scan::{BatchStream, read_file};
use crate::store::ObjectStorage;
use types::columns::TILE;
use types::failures::Failures;
use types::files::{FileRecord, ObjectName, StoredObject};
use types::tiles::EdgesFrom;
use types::tiles::{Floors, Micros};
use types::vector::Vector;
use types::{Error, Result};

/// Incremented when an older release could misread what we write; fields that it may ignore do not count. Format 2 adds
/// the event times before which events of links are left out ([`Manifest::edges_from`]), format 3 deltas
/// ([`Manifest::deltas`]).
pub const MANIFEST_FORMAT: u32 = 3;

/// See [`MaterialisedJoin::format`]. Since 2 `approx_distinct` over no pair is 0, and was NULL before. Since 3 the
/// seconds between two times have their fraction, and `array_agg(..)[n]` is an element of the array. Since 4 casts,
/// roundings and the seconds of a time are PostgreSQL's.
pub const JOIN_FORMAT: u32 = 4;

/// The column after the view's own in a joined file: whether the row is an estimate.
pub const ESTIMATED: &str = "__estimated";

const ROW_GROUP_ROWS: usize = 64 * 1024;

/// Describes a snapshot and names its files. Stored as JSON; unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub view: Arc<str>,
    /// The view's definition version.
    pub version: u32,
    #[serde(with = "uuid_text")]
    pub run: Uuid,
    /// The snapshot holds the archived events before this vector.
    pub cut: Vector,
    /// Names the format of the states.
    pub stamp: String,
    #[serde(flatten)]
    pub base: Tier,
    /// What incremental runs added to the base, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deltas: Vec<Tier>,
    /// For each level, the least tile start that is kept; `None` keeps all. Tiers that were written earlier may have
    /// older tiles.
    pub floors: Floors,
    /// For edges with a last-seen time: the event times before which no event is kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub edges_from: EdgesFrom,
    /// Where `edges_from` is later than what was left out of the base when it was recomputed: up to where and as of
    /// when that was. `None`: at the snapshot's cut and its join's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// The greatest event time of all events in the snapshot.
    pub max_event_time: Option<Micros>,
    pub made_at: Micros,
    /// When its states were last recomputed from the archive; before format 3 always [`Manifest::made_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recomputed_at: Option<Micros>,
    /// How many of the view's gaps before the cut the run knew: a later one may be of events that the states count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gaps: u64,
    /// Archived events that the snapshot covers, including those that WHERE excluded.
    pub events: i64,
    /// Events of links that were left out when tiers were merged, because no window reaches them any more. What a run
    /// leaves out when it recomputes from the archive is not counted here ([`Manifest::left_out`]).
    pub expired: i64,
    /// State rows in all files.
    pub rows: i64,
    /// The events that are not in the states, because the view fails on them. Events that are too old for the view's
    /// windows may not have been read.
    #[serde(default, skip_serializing_if = "Failures::is_empty")]
    pub failures: Failures,
    /// The materialised join of a linked view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<MaterialisedJoin>,
}

/// Sorted state rows, spread over hash buckets of their keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// The number of hash buckets that keys are spread over (`engine::states::bucket_of`).
    pub bucket_count: u32,
    /// In bucket order; a bucket without rows has no file.
    pub files: Vec<BucketFile>,
    /// The time as of which tiles that no window needs were dropped, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned_at: Option<Micros>,
}

/// What a recomputation left out: the events of links before this cut that no window reaches at this time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    pub cut: Vector,
    pub t: Micros,
}

/// A linked view's rows as of a snapshot's cut: the result of a scan of the view at `t`, over the snapshot's edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MaterialisedJoin {
    /// Incremented when walks return other results than before: rows of another format are not carried over.
    pub format: u32,
    pub t: Micros,
    /// In bucket order. A key is in the same bucket as its near edges.
    pub files: Vec<BucketFile>,
    pub rows: i64,
    /// How many of these rows were carried over from the previous snapshot: no edge that they depend on changed.
    pub carried: i64,
    /// True if some rows are estimates: nodes had more neighbours than a walk follows.
    pub estimated: bool,
}

/// One bucket's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketFile {
    pub bucket: u32,
    pub path: String,
    pub bytes: i64,
    pub crc32: u32,
    pub rows: i64,
}

/// Stores a manifest next to its buckets. Durable when it returns.
pub async fn write_manifest(storage: &ObjectStorage, manifest: &Manifest) -> Result<FileRecord> {
    manifest.check()?;
    let name = manifest.name();
    let stored = storage.put_new(&name, serde_json::to_vec_pretty(manifest)?.into()).await?;
    Ok(name.record(stored, manifest.rows, None))
}

/// Reads a manifest and checks it against the catalog's record.
pub async fn read_manifest(storage: &ObjectStorage, file: &FileRecord) -> Result<Manifest> {
    let content = storage.get_checked(&file.path, file.bytes, file.checksum).await?;
    Manifest::parse(&content).map_err(|error| error.with("file", &file.path))
}

/// Stores the manifest of what a run has of its snapshot after a slice. Durable when it returns; the result is its path
/// and what it is recognised by.
pub async fn write_draft(storage: &ObjectStorage, manifest: &Manifest, slice: u32) -> Result<(String, StoredObject)> {
    manifest.check()?;
    let name = ObjectName::Draft { view: manifest.view.clone(), version: manifest.version, run: manifest.run, slice };
    let stored = storage.put_new(&name, serde_json::to_vec(manifest)?.into()).await?;
    Ok((name.to_string(), stored))
}

/// Reads it again.
pub async fn read_draft(storage: &ObjectStorage, path: &str, stored: StoredObject) -> Result<Manifest> {
    let content = storage.get_checked(path, stored.bytes, stored.checksum).await?;
    Manifest::parse(&content).map_err(|error| error.with("file", path))
}

/// Reads the rows of a bucket, checked, in the order in which they were written.
pub async fn read_bucket(storage: &ObjectStorage, file: &BucketFile) -> Result<BatchStream> {
    read_file(storage, file.into(), None).await
}

impl Manifest {
    /// Returns the first format that can represent the manifest.
    pub fn format_of(edges_from: &EdgesFrom, deltas: &[Tier]) -> u32 {
        match (deltas.is_empty(), is_default(edges_from)) {
            (true, true) => 1,
            (true, false) => 2,
            (false, _) => 3,
        }
    }

    /// Returns the base and the deltas, oldest first.
    pub fn tiers(&self) -> impl Iterator<Item = &Tier> {
        std::iter::once(&self.base).chain(&self.deltas)
    }

    /// Returns the number of parts in which all keys are read: as many as the tier with the most buckets has.
    pub fn parts(&self) -> u32 {
        self.tiers().map(|tier| tier.bucket_count).max().unwrap_or(1)
    }

    /// Returns the files of state rows.
    pub fn state_files(&self) -> impl Iterator<Item = &BucketFile> {
        self.tiers().flat_map(|tier| &tier.files)
    }

    pub fn name(&self) -> ObjectName {
        ObjectName::Manifest { view: self.view.clone(), version: self.version, run: self.run }
    }

    fn parse(content: &[u8]) -> Result<Manifest> {
        // Parsed first: a newer release's manifest may not parse as ours.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let found: Format = serde_json::from_slice(content)?;
        if found.format > MANIFEST_FORMAT {
            return Err(newer_release(found.format, MANIFEST_FORMAT));
        }
        let manifest: Manifest = serde_json::from_slice(content)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<()> {
        self.tiers().try_for_each(Tier::check)
    }
}

impl Default for Tier {
    /// One bucket, without rows.
    fn default() -> Self {
        Self { bucket_count: 1, files: Vec::new(), pruned_at: None }
    }
}

impl Tier {
    /// Returns the file of a bucket; `None` if the bucket has no rows.
    pub fn file_of(&self, bucket: u32) -> Option<&BucketFile> {
        let place = self.files.binary_search_by_key(&bucket, |file| file.bucket).ok()?;
        self.files.get(place)
    }

    pub fn rows(&self) -> i64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    pub fn bytes(&self) -> i64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Checks that each bucket occurs at most once, in order, and within the count.
    fn check(&self) -> Result<()> {
        let in_order = self.files.windows(2).all(|pair| pair[0].bucket < pair[1].bucket);
        let within = self.files.last().is_none_or(|file| file.bucket < self.bucket_count);
        if self.bucket_count > 0 && in_order && within {
            return Ok(());
        }
        let found: Vec<u32> = self.files.iter().map(|file| file.bucket).collect();
        Err(Error::corrupt("a snapshot's manifest does not name each bucket at most once, in order")
            .with("found", format_args!("{found:?}"))
            .with("expected", format_args!("numbers below {}", self.bucket_count)))
    }
}

/// Writes one bucket's file from a stream of sorted batches; nothing is visible before it is finished.
pub struct BucketWriter {
    name: ObjectName,
    bucket: u32,
    upload: ParquetUpload,
}

impl BucketWriter {
    /// Begins a file with `metadata` under `basestream.<key>`.
    pub async fn begin(
        storage: &ObjectStorage,
        name: ObjectName,
        bucket: u32,
        schema: SchemaRef,
        metadata: Vec<(String, String)>,
    ) -> Result<Self> {
        let opaque_columns = measures(&schema);
        let options = ParquetOptions { row_group_rows: ROW_GROUP_ROWS, metadata, opaque_columns, ..ParquetOptions::default() };
        let upload = ParquetUpload::begin(storage, &name, schema, &options).await?;
        Ok(Self { name, bucket, upload })
    }

    pub async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.upload.push(batch).await
    }

    /// Makes the file visible and durable; returns its entry in the manifest and its record for the catalog.
    pub async fn finish(self) -> Result<(BucketFile, FileRecord)> {
        let (stored, rows) = self.upload.finish().await?;
        let entry = BucketFile { bucket: self.bucket, path: self.name.to_string(), bytes: stored.bytes, crc32: stored.checksum, rows };
        Ok((entry, self.name.record(stored, rows, None)))
    }
}

/// Returns the states that are amounts or times: they hardly repeat, and a bucket is always read whole.
fn measures(schema: &SchemaRef) -> Vec<String> {
    let states = schema.fields().iter().skip_while(|field| field.name() != TILE).skip(1);
    let measured = states.filter(|field| {
        let of_type = field.data_type();
        of_type.is_floating() || of_type.is_temporal() || of_type.is_decimal()
    });
    measured.map(|field| field.name().clone()).collect()
}

impl From<&BucketFile> for KnownFile {
    fn from(file: &BucketFile) -> Self {
        KnownFile { path: file.path.clone(), bytes: file.bytes, checksum: file.crc32 }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A UUID as its usual text.
mod uuid_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
        Uuid::try_parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
