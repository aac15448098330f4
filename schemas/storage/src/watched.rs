//! Reports a bucket that does not answer, while the library below still tries again: it does so for minutes, in
//! silence.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};
use tracing::{info, warn};

/// A request without an answer after this time is reported.
const PATIENCE: Duration = Duration::from_millis(1_500);
const _: () = assert!(PATIENCE.as_millis() < 2_000, "a bucket that does not answer is warned of within two seconds");
/// What is sent may take this long in addition.
const SLOWEST_BYTES_PER_SECOND: usize = 256 << 10;

/// A store whose requests are watched.
#[derive(Debug)]
pub(crate) struct WatchedStore {
    inner: Arc<dyn ObjectStore>,
    patience: Duration,
    silence: Silence,
}

/// Whether it was reported that the store does not answer. It is reported once, until the store answers again.
#[derive(Debug, Default)]
struct Silence(AtomicBool);

impl Silence {
    fn begin(&self, why: fmt::Arguments<'_>) {
        if !self.0.swap(true, Ordering::Relaxed) {
            warn!("the object storage does not answer: {why}; trying again");
        }
    }

    fn end(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            info!("the object storage answers again");
        }
    }
}

impl WatchedStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> WatchedStore {
        WatchedStore { inner, patience: PATIENCE, silence: Silence::default() }
    }

    /// Awaits a request whose body has `bytes` bytes, and warns if the answer is late.
    async fn watch<T: Send>(&self, what: &str, bytes: usize, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let patience = self.patience + Duration::from_secs((bytes / SLOWEST_BYTES_PER_SECOND) as u64);
        let mut request = std::pin::pin!(request);
        let answer = match tokio::time::timeout(patience, request.as_mut()).await {
            Ok(answer) => answer,
            Err(_) => {
                self.silence.begin(format_args!("{what} has no answer after {patience:?}"));
                request.await
            }
        };
        match &answer {
            // All others are answers of the store: that there is no such object, or no permission.
            Err(error @ Error::Generic { .. }) => self.silence.begin(format_args!("{error}")),
            _ => self.silence.end(),
        }
        answer
    }
}

impl fmt::Display for WatchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for WatchedStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let what = if options.head { "HEAD" } else { "GET" };
        self.watch(what, 0, self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        self.watch("GET", usize::try_from(bytes).unwrap_or(usize::MAX), self.inner.get_ranges(location, ranges)).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.watch("PUT", payload.content_length(), self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.watch("an upload", 0, self.inner.put_multipart_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.watch("LIST", 0, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.watch("COPY", 0, self.inner.copy_opts(from, to, options)).await
    }
}

#[cfg(test)]
mod tests;
