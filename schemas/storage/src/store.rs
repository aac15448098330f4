//! The handle to an object storage: a folder, a bucket, or memory.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use types::files::StoredObject;

use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use futures::TryStreamExt;
use futures::future::try_join_all;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutOptions, PutPayload};
use url::Url;
use uuid::Uuid;

use crate::known_file::{KnownFile, about, check_length, damaged, known_to_be_there, object_path};
use crate::local::{LocalFolder, PARTIAL_FOLDER};
use crate::watched::WatchedStore;
use types::files::ObjectName;
use types::outage::{Attempts, Outage};
use types::redact::{redacted_text, redacted_url};
use types::{Error, ErrorKind, Result};

mod owner;
#[cfg(test)]
mod refusing;
mod upload;

pub use upload::UploadWriter;

/// In buckets, objects larger than this are uploaded in parts.
pub(super) const MULTIPART_ABOVE_BYTES: usize = 16 * 1024 * 1024;

/// How often a put with an unknown outcome is retried.
const PUT_AGAIN: usize = 3;

/// The name of an object that is never stored.
const PROBE: &str = "status-probe";

/// A handle that is cheap to clone. All names are relative to the URL it was opened with.
#[derive(Debug, Clone)]
pub struct ObjectStorage {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) local: Option<LocalStore>,
    url: ObjectStoreUrl,
    pub(super) writes: Attempts,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub path: String,
    pub bytes: u64,
    pub modified: SystemTime,
}

/// Writes local files durably, next to `object_store`'s way to read them.
#[derive(Debug, Clone)]
pub(super) struct LocalStore {
    pub(super) folder: LocalFolder,
    files: Arc<LocalFileSystem>,
}

impl ObjectStorage {
    /// Opens `file:///folder` (created if missing), `s3://bucket/prefix`, `gs://..`, `az://..` and similar URLs, or
    /// `memory://`, which starts empty. Buckets take their options from the environment: `AWS_*`, `GOOGLE_*`, `AZURE_*`
    /// (such as AWS_ENDPOINT, AWS_ALLOW_HTTP).
    pub fn open(url: &str) -> Result<ObjectStorage> {
        let wrong = |why: String| Error::input(format!("storage url \"{}\": {}", redacted_url(url), redacted_text(&why)));
        let parsed = Url::parse(url)
            .map_err(|error| wrong(format!("{error}; expected file:///folder, s3://bucket/prefix or another object storage")))?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).map_err(|error| wrong(error.to_string()))?;
        let address = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(url.as_bytes()));
        match scheme {
            ObjectStoreScheme::Local => {
                let folder = parsed.to_file_path().map_err(|()| wrong("not an absolute folder".into()))?;
                let folder = LocalFolder::open(&folder)?;
                let files = Arc::new(LocalFileSystem::new_with_prefix(folder.root())?);
                Self::new(files.clone(), Some(LocalStore { folder, files }), &address)
            }
            // Each call opens a separate storage.
            ObjectStoreScheme::Memory => {
                Self::new(Arc::new(object_store::memory::InMemory::new()), None, &Uuid::new_v4().simple().to_string())
            }
            _ => {
                let options = cloud_options();
                check_endpoints(&options)?;
                let (store, _) = object_store::parse_url_opts(&parsed, options).map_err(|error| wrong(error.to_string()))?;
                Self::new(Arc::new(WatchedStore::new(Arc::new(PrefixStore::new(store, prefix)))), None, &address)
            }
        }
    }

    /// Returns a storage over a given store, for tests that wrap one to make it fail.
    pub fn over(store: Arc<dyn ObjectStore>) -> Result<ObjectStorage> {
        Self::new(store, None, &Uuid::new_v4().simple().to_string())
    }

    fn new(store: Arc<dyn ObjectStore>, local: Option<LocalStore>, address: &str) -> Result<ObjectStorage> {
        let url = ObjectStoreUrl::parse(format!("basestream://{address}"))?;
        Ok(ObjectStorage { store, local, url, writes: Attempts::new("the object storage takes no files") })
    }

    /// Stores an object under a new name. When this returns, the object survives a power loss.
    ///
    /// A name that is taken by the same content is fine (an earlier attempt whose reply was lost); with other content
    /// it is a conflict. Only objects over 16 MiB in buckets are not checked first: their names must be fresh.
    pub async fn put_new(&self, name: &ObjectName, content: Bytes) -> Result<StoredObject> {
        let stored = StoredObject { bytes: content.len() as i64, checksum: crc32fast::hash(&content) };
        let path = name.to_string();
        if self.local.is_none() && content.len() > MULTIPART_ABOVE_BYTES {
            let mut upload = self.upload_writer(name).await?;
            upload.write(content).await?;
            return upload.finish().await;
        }
        let outcome = self.create_or_recognise(&path, content, stored).await;
        self.writes.note(&outcome);
        outcome.map(|()| stored)
    }

    /// Returns what this process cannot do with the storage at the moment.
    pub fn outages(&self) -> Vec<Outage> {
        self.writes.outage().into_iter().collect()
    }

    /// Stores one object in one step, durably; a name that is taken by the same content is fine.
    pub(super) async fn create_or_recognise(&self, path: &str, content: Bytes, stored: StoredObject) -> Result<()> {
        match self.create(path, content).await {
            Err(error) if error.kind() == ErrorKind::Conflict => match self.get_checked(path, stored.bytes, stored.checksum).await {
                Ok(_) => self.sync_name(path).await,
                Err(_) => Err(error),
            },
            result => result,
        }
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<()> {
        if let Some(local) = &self.local {
            let (folder, target) = (local.folder.clone(), local.target(path)?);
            return tokio::task::spawn_blocking(move || folder.write_new(&target, &content)).await?;
        }
        let location = object_path(path)?;
        // `object_store` retries refused puts, but not a put whose connection broke, as it may have succeeded. Here a
        // retry is safe: if it did succeed, the conflict is with the same content, which is recognised.
        let delays = ExponentialBuilder::default().with_max_times(PUT_AGAIN).with_jitter();
        (|| async {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            self.store.put_opts(&location, PutPayload::from_bytes(content.clone()), options).await.map(drop)
        })
        .retry(delays)
        .when(|error| !is_answer(error))
        .notify(|error, _| tracing::debug!(%error, "retrying a put"))
        .await
        .map_err(|error| about(error, path))
    }

    async fn sync_name(&self, path: &str) -> Result<()> {
        let Some(local) = &self.local else { return Ok(()) };
        let (folder, target) = (local.folder.clone(), local.target(path)?);
        tokio::task::spawn_blocking(move || folder.sync_name(&target)).await?.map_err(|error| Error::from(error).with("file", path))
    }

    /// Returns a writer for an object that is too large for memory. The object appears when it is finished.
    pub(crate) async fn upload_writer(&self, name: &ObjectName) -> Result<UploadWriter> {
        UploadWriter::new(self.clone(), name.to_string()).await
    }

    /// Reads a whole object, unchecked.
    pub async fn get(&self, path: &str) -> Result<Bytes> {
        let got = self.store.get(&object_path(path)?).await.map_err(|error| about(error, path))?;
        got.bytes().await.map_err(|error| about(error, path))
    }

    /// Reads a whole object and checks it against the catalog's length and checksum.
    pub async fn get_checked(&self, path: &str, bytes: i64, checksum: u32) -> Result<Bytes> {
        let content = self.get(path).await.map_err(|error| known_to_be_there(error, path, bytes))?;
        check_content(path, &content, bytes, checksum)?;
        Ok(content)
    }

    /// Does so for several small files. From a folder they are read one after the other on one thread: handing each to
    /// a thread of its own would take longer than to read it.
    pub(crate) async fn get_each_checked(&self, files: &[KnownFile]) -> Result<Vec<Bytes>> {
        let Some(local) = &self.local else {
            let contents = files.iter().map(|file| self.get_checked(&file.path, file.bytes, file.checksum));
            return try_join_all(contents).await;
        };
        let (local, files) = (local.clone(), files.to_vec());
        tokio::task::spawn_blocking(move || files.iter().map(|file| local.read_checked(file)).collect()).await?
    }

    /// Reads the bytes `range` of an object; only their number is checked.
    pub(crate) async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let mut parts = self.get_ranges(path, std::slice::from_ref(&range)).await?;
        parts.pop().ok_or_else(|| Error::internal("the object storage answered no range").with("file", path))
    }

    /// Reads several ranges of an object in few requests, and returns them in the given order.
    pub async fn get_ranges(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let location = object_path(path)?;
        let parts = match self.store.get_ranges(&location, ranges).await {
            Ok(parts) => parts,
            Err(error) => return Err(self.explain_range_error(path, ranges, error).await),
        };
        for (part, range) in parts.iter().zip(ranges) {
            let asked = range.end.saturating_sub(range.start);
            if part.len() as u64 != asked {
                return Err(damaged(path, "the number of bytes in a range", part.len(), asked).with("at", range.start));
            }
        }
        Ok(parts)
    }

    /// A range past the end means damage (the object became shorter); everything else is the store's error.
    async fn explain_range_error(&self, path: &str, ranges: &[Range<u64>], error: object_store::Error) -> Error {
        let end = ranges.iter().map(|range| range.end).max().unwrap_or_default();
        match self.length(path).await {
            Ok(length) if length < end => damaged(path, "its length in bytes", length, format_args!("at least {end}")),
            _ => about(error, path),
        }
    }

    /// Returns the length of an object in bytes.
    pub async fn length(&self, path: &str) -> Result<u64> {
        let meta = self.store.head(&object_path(path)?).await.map_err(|error| about(error, path))?;
        Ok(meta.size)
    }

    /// Asks for an object that is never stored: a storage that says so has answered.
    pub async fn probe(&self) -> Result<()> {
        match self.length(PROBE).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes an object; a missing object is fine.
    pub async fn delete(&self, path: &str) -> Result<()> {
        match self.store.delete(&object_path(path)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(about(error, path)),
        }
        if let Some(local) = &self.local {
            let (folder, target) = (local.folder.clone(), local.target(path)?);
            tokio::task::spawn_blocking(move || folder.tidy_after_delete(&target)).await?;
        }
        Ok(())
    }

    /// Lists all objects in the folder `prefix` and below (`""`: all), sorted by name.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ListedObject>> {
        let folder = (!prefix.is_empty()).then(|| object_path(prefix)).transpose()?;
        let found: Vec<_> = self.store.list(folder.as_ref()).try_collect().await.map_err(|error| about(error, prefix))?;
        let mut listed: Vec<ListedObject> = found
            .into_iter()
            .filter(|meta| !meta.location.as_ref().starts_with(PARTIAL_FOLDER))
            .map(|meta| ListedObject { path: meta.location.to_string(), bytes: meta.size, modified: meta.last_modified.into() })
            .collect();
        listed.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listed)
    }

    /// Removes the unfinished files of crashed writers that are older than `age`; returns how many. In buckets, a
    /// life-cycle rule of the bucket must remove unfinished parts.
    pub async fn remove_partial_files(&self, now: SystemTime, age: Duration) -> Result<u64> {
        let Some(local) = &self.local else { return Ok(0) };
        let folder = local.folder.clone();
        tokio::task::spawn_blocking(move || folder.remove_partial_files(now, age)).await?
    }

    /// Returns the store itself, for reading. Its paths are our object names: the URL's prefix is already applied.
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        self.store.clone()
    }

    /// Returns the URL under which DataFusion's plans find this storage.
    pub(crate) fn object_store_url(&self) -> &ObjectStoreUrl {
        &self.url
    }

    /// Registers this storage for the plans that run in `runtime`.
    pub fn register(&self, runtime: &RuntimeEnv) {
        runtime.register_object_store(self.url.as_ref(), self.store.clone());
    }
}

impl LocalStore {
    /// Blocks.
    fn read_checked(&self, file: &KnownFile) -> Result<Bytes> {
        let path = &file.path;
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("the object storage has no such file").with("file", path),
            _ => Error::from(error).with("file", path),
        };
        let content = std::fs::read(self.target(path)?).map_err(|error| known_to_be_there(failed(error), path, file.bytes))?;
        check_content(path, &content, file.bytes, file.checksum)?;
        Ok(content.into())
    }

    pub(super) fn target(&self, path: &str) -> Result<PathBuf> {
        self.files.path_to_filesystem(&object_path(path)?).map_err(|error| about(error, path))
    }
}

/// Whether the store has decided about a put. What it forbids it forbids again, and who waits is to know at once.
fn is_answer(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(
        error,
        E::NotFound { .. } | E::AlreadyExists { .. } | E::Precondition { .. } | E::PermissionDenied { .. } | E::Unauthenticated { .. }
    )
}

fn check_content(path: &str, content: &[u8], bytes: i64, checksum: u32) -> Result<()> {
    check_length(path, content.len() as u64, bytes)?;
    let found = crc32fast::hash(content);
    if found == checksum {
        return Ok(());
    }
    Err(damaged(path, "its checksum", format_args!("{found:08x}"), format_args!("{checksum:08x}")))
}

/// `object_store` ignores options that it does not know.
fn cloud_options() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(key, _)| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| key.starts_with(prefix)))
        .collect()
}

/// Libraries log the endpoints they connect to, and none of these services accepts a password there.
fn check_endpoints(options: &[(String, String)]) -> Result<()> {
    let holds_credentials = |url: &str| Url::parse(url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some());
    match options.iter().find(|(name, value)| name.to_ascii_uppercase().contains("ENDPOINT") && holds_credentials(value)) {
        Some((name, _)) => Err(Error::input("an endpoint holds credentials")
            .with("variable", name)
            .with("expected", "scheme://host:port; set credentials in variables, such as AWS_ACCESS_KEY_ID")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
