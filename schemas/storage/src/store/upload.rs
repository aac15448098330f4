//! Writes objects that are too large for memory: streamed, counted and checksummed, visible only when finished.
//!
//! `object_store`'s `BufWriter` covers only part of this. It overwrites when it puts a small object, while ours must be
//! new or have the same content ([`ObjectStorage::put_new`]). One capacity is both its limit for a single request and
//! its part size. If dropped halfway, it does not abort its parts, and a bucket bills them until they are aborted. It
//! does not fsync a folder's files before their name exists. `WriteMultipart` does not abort the upload whose last part
//! fails.

use std::fs::File;

use bytes::{Bytes, BytesMut};
use crc32fast::Hasher;
use object_store::ObjectStoreExt;

use crate::known_file::{about, object_path};
use crate::local::PartialFile;
use crate::store::{MULTIPART_ABOVE_BYTES, ObjectStorage};
use types::files::StoredObject;
use types::{Error, Result};

mod parts;

use parts::PartsUpload;

/// An object being uploaded. If dropped without [`UploadWriter::finish`], it leaves nothing visible.
#[derive(Debug)]
pub struct UploadWriter {
    storage: ObjectStorage,
    path: String,
    bytes: i64,
    checksum: Hasher,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Local(Option<(File, PartialFile)>),
    /// So far small enough for one request.
    Buffered(BytesMut),
    Parts(Option<PartsUpload>),
}

impl UploadWriter {
    pub(super) async fn new(storage: ObjectStorage, path: String) -> Result<Self> {
        let target = match &storage.local {
            Some(local) => {
                let folder = local.folder.clone();
                Target::Local(Some(tokio::task::spawn_blocking(move || folder.create_partial()).await??))
            }
            None => Target::Buffered(BytesMut::new()),
        };
        Ok(Self { storage, path, bytes: 0, checksum: Hasher::new(), target })
    }

    /// Returns the name of the object.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Appends content. After an error the upload cannot be finished.
    pub async fn write(&mut self, content: Bytes) -> Result<()> {
        let written = self.append(content).await;
        // A success shows only that the storage takes a part of the object.
        if written.is_err() {
            self.storage.writes.note(&written);
        }
        written
    }

    async fn append(&mut self, content: Bytes) -> Result<()> {
        self.checksum.update(&content);
        self.bytes += content.len() as i64;
        match &mut self.target {
            Target::Local(slot) => {
                let opened = slot.take().ok_or_else(|| broken(&self.path))?;
                *slot = Some(append_to_file(opened, content, &self.path).await?);
                Ok(())
            }
            Target::Buffered(buffer) if buffer.len() + content.len() <= MULTIPART_ABOVE_BYTES => {
                buffer.extend_from_slice(&content);
                Ok(())
            }
            Target::Buffered(buffer) => {
                let begun = std::mem::take(buffer).freeze();
                // What an upload lacks that does not begin must not look finished.
                self.target = Target::Parts(None);
                let upload = self.storage.store.put_multipart(&object_path(&self.path)?).await.map_err(|error| about(error, &self.path))?;
                self.target = Target::Parts(Some(PartsUpload::new(upload)));
                self.write_parts(begun).await?;
                self.write_parts(content).await
            }
            Target::Parts(_) => self.write_parts(content).await,
        }
    }

    async fn write_parts(&mut self, content: Bytes) -> Result<()> {
        let Target::Parts(Some(parts)) = &mut self.target else { return Err(broken(&self.path)) };
        if let Err(error) = parts.put(content).await {
            self.give_up().await;
            return Err(about(error, &self.path));
        }
        Ok(())
    }

    /// Makes the object visible under its name, durably.
    pub async fn finish(self) -> Result<StoredObject> {
        let attempts = self.storage.writes.clone();
        let stored = self.publish().await;
        attempts.note(&stored);
        stored
    }

    async fn publish(mut self) -> Result<StoredObject> {
        let stored = StoredObject { bytes: self.bytes, checksum: self.checksum.clone().finalize() };
        match &mut self.target {
            Target::Local(slot) => {
                let (file, partial) = slot.take().ok_or_else(|| broken(&self.path))?;
                let local = self.storage.local.as_ref().ok_or_else(|| broken(&self.path))?;
                let (folder, target) = (local.folder.clone(), local.target(&self.path)?);
                tokio::task::spawn_blocking(move || folder.publish(&file, partial, &target)).await??;
            }
            Target::Buffered(buffer) => {
                let content = std::mem::take(buffer).freeze();
                self.storage.create_or_recognise(&self.path, content, stored).await?;
            }
            Target::Parts(slot) => {
                let parts = slot.as_mut().ok_or_else(|| broken(&self.path))?;
                if let Err(error) = parts.complete().await {
                    self.give_up().await;
                    return Err(about(error, &self.path));
                }
                // Nothing is left to abort.
                *slot = None;
            }
        }
        Ok(stored)
    }

    /// Discards what was written, and waits until that is done.
    #[cfg(test)]
    pub(crate) async fn abort(mut self) {
        self.give_up().await;
    }

    async fn give_up(&mut self) {
        match &mut self.target {
            Target::Local(slot) => *slot = None,
            Target::Buffered(buffer) => buffer.clear(),
            Target::Parts(slot) => {
                if let Some(parts) = slot.take() {
                    abort_parts(parts, self.path.clone()).await;
                }
            }
        }
    }
}

impl Drop for UploadWriter {
    /// Parts of a bucket's object cost money until they are aborted, and are not visible.
    fn drop(&mut self) {
        if let Target::Parts(slot) = &mut self.target
            && let Some(parts) = slot.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(abort_parts(parts, self.path.clone()));
        }
    }
}

async fn abort_parts(parts: PartsUpload, path: String) {
    if let Err(error) = parts.abort().await {
        tracing::warn!(file = %path, %error, "an unfinished upload was not aborted");
    }
}

async fn append_to_file(opened: (File, PartialFile), content: Bytes, path: &str) -> Result<(File, PartialFile)> {
    let written = tokio::task::spawn_blocking(move || {
        use std::io::Write;
        let (mut file, partial) = opened;
        file.write_all(&content).map(|()| (file, partial))
    });
    written.await?.map_err(|error| Error::from(error).with("file", path))
}

fn broken(path: &str) -> Error {
    Error::internal("an upload was used after it failed").with("file", path)
}

#[cfg(test)]
mod tests;
