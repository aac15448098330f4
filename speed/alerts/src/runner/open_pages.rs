//! Reads the open keys of an alert page by page, the next page while one is used.

use catalog::{AlertVersion, Catalog, OpenKey};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use types::{Error, Result, threads};

pub(super) struct OpenPages {
    pages: mpsc::Receiver<Result<Vec<OpenKey>>>,
    size: u32,
    is_at_end: bool,
    _reading: AbortOnDropHandle<()>,
}

impl OpenPages {
    /// Reads pages of this many keys, the last of fewer.
    pub(super) fn read(catalog: Catalog, version: AlertVersion, size: u32) -> OpenPages {
        let (sender, pages) = mpsc::channel(1);
        let reading = threads::SPEED.spawn(async move {
            let mut after: Option<String> = None;
            loop {
                let page = catalog.open_keys(&version, after.as_deref(), size).await;
                let last = page.as_ref().ok().filter(|page| !is_last(page, size)).and_then(|page| page.last());
                after = last.map(|open| open.keys.clone());
                if sender.send(page).await.is_err() || after.is_none() {
                    return;
                }
            }
        });
        OpenPages { pages, size, is_at_end: false, _reading: AbortOnDropHandle::new(reading) }
    }

    /// The next keys; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<OpenKey>>> {
        if self.is_at_end {
            return Ok(None);
        }
        let page = self.pages.recv().await.ok_or_else(|| Error::internal("the open keys of an alert are not read to their end"))??;
        self.is_at_end = is_last(&page, self.size);
        Ok(Some(page))
    }
}

fn is_last(page: &[OpenKey], size: u32) -> bool {
    page.len() < size as usize
}

#[cfg(test)]
mod tests;
