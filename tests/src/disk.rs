//! The disk of an installation, which a test lets run full and gives space again.

use std::sync::Arc;

use storage::ObjectStorage;
use types::Result;

use crate::Harness;
use crate::gate::{Gate, Way};
use crate::small_disk::SmallDisk;

#[derive(Debug)]
pub enum Disk {
    /// The log, the catalog, the storage and the nodes' copies are on it.
    Small(SmallDisk),
    /// Where nothing can be mounted, the storage alone takes no files.
    Storage(Arc<Gate>),
}

impl Disk {
    /// An installation on a disk that can run full: the one that this process sees, if it sees one.
    pub async fn with_harness() -> Result<(Disk, Harness)> {
        match SmallDisk::seen() {
            Some(disk) => {
                let folder = tempfile::tempdir_in(disk.path())?;
                Ok((Disk::Small(disk), Harness::in_folder(folder).await?))
            }
            None => {
                let mut harness = Harness::new().await?;
                let gate = Gate::before(Arc::new(object_store::memory::InMemory::new()), "", Way::Fine);
                harness.storage = ObjectStorage::over(gate.clone())?;
                Ok((Disk::Storage(gate), harness))
            }
        }
    }

    /// Whether what is written to the full disk fails at once. A storage that does not answer is asked again for many
    /// seconds.
    pub fn fails_at_once(&self) -> bool {
        matches!(self, Disk::Small(_))
    }

    pub fn fill(&mut self) -> Result<()> {
        match self {
            Disk::Small(disk) => disk.fill(0)?,
            Disk::Storage(gate) => gate.set(Way::Refused),
        }
        Ok(())
    }

    pub fn give_space(&mut self) -> Result<()> {
        match self {
            Disk::Small(disk) => disk.give_space()?,
            Disk::Storage(gate) => gate.set(Way::Fine),
        }
        Ok(())
    }
}
