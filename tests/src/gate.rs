//! A storage that holds or refuses what is written to one of its folders, or holds what is read of it, while a test
//! wants it to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// What becomes of a file in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Fine,
    /// It is not read before the gate is set to something else.
    Unread,
    /// It is not written before the gate is set to something else.
    Held,
    /// There is no room for it.
    Refused,
}

#[derive(Debug)]
pub struct Gate {
    inner: Arc<dyn ObjectStore>,
    folder: &'static str,
    way: watch::Sender<Way>,
    reads: AtomicUsize,
    read_bytes: AtomicU64,
}

impl Gate {
    pub fn before(inner: Arc<dyn ObjectStore>, folder: &'static str, way: Way) -> Arc<Gate> {
        let (reads, read_bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Gate { inner, folder, way: watch::Sender::new(way), reads, read_bytes })
    }

    /// How often files in the folder were read or asked for, in parts or whole, since this was asked before.
    pub fn take_reads(&self) -> usize {
        self.reads.swap(0, Ordering::SeqCst)
    }

    /// How many bytes of them.
    pub fn take_read_bytes(&self) -> u64 {
        self.read_bytes.swap(0, Ordering::SeqCst)
    }

    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    async fn pass(&self, location: &Path) -> Result<()> {
        if !location.as_ref().starts_with(self.folder) {
            return Ok(());
        }
        let mut way = self.way.subscribe();
        let decided = *way.wait_for(|way| *way != Way::Held).await.expect("the gate holds the sender");
        match decided {
            Way::Refused => Err(Error::Generic { store: "gate", source: "No space left on device (os error 28)".into() }),
            Way::Fine | Way::Unread | Way::Held => Ok(()),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a gate before {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Gate {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.pass(location).await?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.pass(location).await?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (is_counted, is_head) = (location.as_ref().starts_with(self.folder), options.head);
        if is_counted {
            self.reads.fetch_add(1, Ordering::SeqCst);
            drop(self.way.subscribe().wait_for(|way| *way != Way::Unread).await.expect("the gate holds the sender"));
        }
        let result = self.inner.get_opts(location, options).await?;
        if is_counted && !is_head {
            self.read_bytes.fetch_add(result.range.end - result.range.start, Ordering::SeqCst);
        }
        Ok(result)
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
