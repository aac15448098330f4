//! Object storage: the files that hold archives, states and snapshots, in a folder or in a bucket.
//!
//! Files are written once under fresh names, durable before a catalog transaction names them, and every byte that is
//! read back is held against the checksum the catalog keeps. Damage is an error of the kind `Corrupt` that names the
//! file, never a wrong answer.

pub mod archive;
pub mod check;
pub mod dead_letters;
mod known_file;
mod local;
pub mod parquet_file;
mod pieces;
pub mod scan;
pub mod snapshot;
pub mod states_object;
pub mod store;
pub mod verified;

pub use archive::{OffsetRanges, archive_plan, definition_version, read_archive, read_archive_as, write_archive, write_archive_as};
pub use check::check_file;
pub use dead_letters::{dead_letter_schema, read_dead_letters, write_dead_letters, write_dead_letters_as};
pub use known_file::KnownFile;
pub use parquet_file::{ParquetOptions, read_parquet, write_parquet};
pub use snapshot::{BucketFile, BucketWriter, Joined, Manifest, read_bucket, read_manifest, write_manifest};
pub use states_object::{Section, SectionMeta, SegmentRange, StatesObject, write_states_object};
pub use store::{ObjectStorage, UploadWriter};
