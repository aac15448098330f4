//! The catalog that a storage belongs to. Its identity is an object beside the files that it names, with a checksum: a
//! damaged one is no other catalog.

use bytes::Bytes;
use types::files::{CATALOG_IDENTITY, StoredObject};
use types::{ErrorKind, Result};

use crate::store::ObjectStorage;

impl ObjectStorage {
    /// Returns the identity of the catalog that the storage belongs to. `None` if none has taken it, or if what says so
    /// is damaged.
    pub async fn owner(&self) -> Result<Option<String>> {
        match self.get(CATALOG_IDENTITY).await {
            Ok(content) => Ok(identity_in(&content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets a storage without an owner belong to the catalog of this identity.
    ///
    /// Errors: `Conflict` if another catalog took it meanwhile.
    pub async fn take_for(&self, identity: &str) -> Result<()> {
        if self.owner().await?.is_none() {
            self.delete(CATALOG_IDENTITY).await?;
        }
        let content = Bytes::from(format!("{identity} {:08x}\n", crc32fast::hash(identity.as_bytes())));
        let stored = StoredObject { bytes: content.len() as i64, checksum: crc32fast::hash(&content) };
        self.create_or_recognise(CATALOG_IDENTITY, content, stored).await
    }
}

fn identity_in(content: &[u8]) -> Option<String> {
    let (identity, checksum) = std::str::from_utf8(content).ok()?.trim_end().split_once(' ')?;
    let is_intact = u32::from_str_radix(checksum, 16) == Ok(crc32fast::hash(identity.as_bytes()));
    is_intact.then(|| identity.to_owned())
}
