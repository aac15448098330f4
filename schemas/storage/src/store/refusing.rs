//! A bucket in memory that refuses some requests.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult,
};

/// What a bucket refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Objects: it may be read, and not written.
    Puts,
    /// The beginning of an upload in parts.
    Parts,
}

#[derive(Debug)]
pub(super) struct RefusingStore {
    objects: InMemory,
    refused: Refused,
    puts: AtomicUsize,
}

impl RefusingStore {
    pub(super) fn new(refused: Refused) -> RefusingStore {
        RefusingStore { objects: InMemory::new(), refused, puts: AtomicUsize::new(0) }
    }

    /// How many puts it was asked for.
    pub(super) fn puts(&self) -> usize {
        self.puts.load(Ordering::SeqCst)
    }
}

impl fmt::Display for RefusingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} that refuses {:?}", self.objects, self.refused)
    }
}

#[async_trait]
impl ObjectStore for RefusingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        match self.refused {
            Refused::Puts => Err(object_store::Error::PermissionDenied { path: location.to_string(), source: "403 Forbidden".into() }),
            Refused::Parts => self.objects.put_opts(location, payload, options).await,
        }
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> object_store::Result<Box<dyn MultipartUpload>> {
        match self.refused {
            Refused::Puts => self.objects.put_multipart_opts(location, options).await,
            Refused::Parts => Err(object_store::Error::Generic { store: "faulty", source: "refused".into() }),
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, object_store::Result<Path>>) -> BoxStream<'static, object_store::Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
