//! Object storage: the files that hold archives, states and snapshots, in a folder or in a bucket.
//!
//! Files are written once, under fresh names, and are durable before a catalog transaction names them. Every byte that
//! is read back is checked against the catalog's checksum. Damage is an error of the kind `Corrupt` that names the
//! file, never a wrong answer.

mod archive;
mod check;
mod dead_letters;
mod known_file;
mod local;
mod parquet_file;
mod pieces;
mod scan;
mod snapshot;
mod states_object;
mod store;
mod verified;
mod watched;

pub use archive::{
    ArchiveFacts, ArchiveUpload, ArchiveVersions, OffsetRanges, archive_facts, archive_plan, only_rows_of, pruned_archive_plan,
    read_archive, read_archive_as, read_archive_since, read_archives_since, write_archive,
};
pub use check::check_file;
pub use dead_letters::{
    DeadLettersUpload, dead_letter_schema, dead_letters_decided_by, read_dead_letter_reasons, read_dead_letters, write_dead_letters,
};
pub use parquet_file::{ROW_GROUP_BYTES, field_id};
pub use scan::{BatchStream, read_file_as, scan_files};
pub use snapshot::{
    BucketFile, BucketWriter, ESTIMATED, JOIN_FORMAT, LeftOut, MANIFEST_FORMAT, Manifest, MaterialisedJoin, Tier, read_bucket, read_draft,
    read_manifest, write_draft, write_manifest,
};
pub use states_object::{Section, SegmentRange, StatesObject, write_states_object};
pub use store::ObjectStorage;
