//! A storage whose buckets come when a test lets them, do not come, or come damaged.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// How a bucket is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Fine,
    /// Waits until the test sets another way.
    Held,
    Refused,
    /// One byte is another.
    Damaged,
    /// The storage has no such file.
    Missing,
}

pub(super) const WAYS: [Way; 4] = [Way::Fine, Way::Held, Way::Refused, Way::Damaged];

#[derive(Debug)]
pub(super) struct Gate {
    inner: Arc<dyn ObjectStore>,
    /// By the number of the bucket, of any run.
    ways: watch::Sender<BTreeMap<u32, Way>>,
    /// The name of the thread of each read.
    reads: Mutex<BTreeMap<u32, Vec<String>>>,
}

impl Gate {
    pub(super) fn before(inner: Arc<dyn ObjectStore>) -> Arc<Gate> {
        Arc::new(Gate { inner, ways: watch::Sender::new(BTreeMap::new()), reads: Mutex::default() })
    }

    pub(super) fn set(&self, bucket: u32, way: Way) {
        self.ways.send_modify(|ways| {
            ways.insert(bucket, way);
        });
    }

    /// How often a bucket was asked for.
    pub(super) fn reads(&self, bucket: u32) -> usize {
        self.threads(bucket).len()
    }

    /// The names of the threads that asked for it.
    pub(super) fn threads(&self, bucket: u32) -> Vec<String> {
        self.reads.lock().unwrap().get(&bucket).cloned().unwrap_or_default()
    }

    async fn way(&self, bucket: u32) -> Way {
        let mut ways = self.ways.subscribe();
        let is_decided = |ways: &BTreeMap<u32, Way>| ways.get(&bucket) != Some(&Way::Held);
        let decided = ways.wait_for(is_decided).await.unwrap();
        decided.get(&bucket).copied().unwrap_or(Way::Fine)
    }
}

/// `snapshots/<view>/<version>/<run>/<bucket>.parquet`
fn bucket_in(path: &Path) -> Option<u32> {
    let name = path.as_ref().strip_prefix("snapshots/")?.rsplit('/').next()?;
    name.strip_suffix(".parquet")?.parse().ok()
}

async fn damaged(result: GetResult) -> Result<GetResult> {
    let (meta, range, attributes) = (result.meta.clone(), result.range.clone(), result.attributes.clone());
    let mut content = result.bytes().await?.to_vec();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    let payload = GetResultPayload::Stream(stream::once(async move { Ok(Bytes::from(content)) }).boxed());
    Ok(GetResult { payload, meta, range, attributes })
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a gate before {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Gate {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(bucket) = bucket_in(location) else { return self.inner.get_opts(location, options).await };
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.reads.lock().unwrap().entry(bucket).or_default().push(thread);
        match self.way(bucket).await {
            Way::Refused => Err(Error::Generic { store: "gate", source: "refused".into() }),
            Way::Missing => Err(Error::NotFound { path: location.to_string(), source: "missing".into() }),
            Way::Damaged => damaged(self.inner.get_opts(location, options).await?).await,
            Way::Fine | Way::Held => self.inner.get_opts(location, options).await,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let mut all = Vec::new();
        for range in ranges {
            all.push(
                self.get_opts(location, GetOptions { range: Some(range.clone().into()), ..GetOptions::default() }).await?.bytes().await?,
            );
        }
        Ok(all)
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
