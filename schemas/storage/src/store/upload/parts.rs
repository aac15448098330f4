//! An object of a bucket in parts of one size, several on their way at once. It is visible once it is completed; what
//! is not completed has to be aborted.

use bytes::Bytes;
use object_store::{MultipartUpload, PutPayloadMut, Result};
use tokio::task::JoinSet;

pub(super) const PART_BYTES: usize = 8 * 1024 * 1024;
const PARTS_IN_FLIGHT: usize = 4;

#[derive(Debug)]
pub(super) struct PartsUpload {
    upload: Box<dyn MultipartUpload>,
    /// Less than a part.
    rest: PutPayloadMut,
    in_flight: JoinSet<Result<()>>,
}

impl PartsUpload {
    pub(super) fn new(upload: Box<dyn MultipartUpload>) -> Self {
        Self { upload, rest: PutPayloadMut::new(), in_flight: JoinSet::new() }
    }

    /// Appends content. Waits while as many parts are on their way as may be.
    pub(super) async fn put(&mut self, mut content: Bytes) -> Result<()> {
        while !content.is_empty() {
            let room = PART_BYTES - self.rest.content_length();
            self.rest.push(content.split_to(content.len().min(room)));
            if self.rest.content_length() == PART_BYTES {
                self.send_rest().await?;
            }
        }
        Ok(())
    }

    /// Makes the object visible.
    pub(super) async fn complete(&mut self) -> Result<()> {
        if !self.rest.is_empty() {
            self.send_rest().await?;
        }
        self.wait_until_in_flight(0).await?;
        self.upload.complete().await.map(drop)
    }

    pub(super) async fn abort(mut self) -> Result<()> {
        // A part that comes after the abort would stay.
        self.in_flight.shutdown().await;
        self.upload.abort().await
    }

    async fn send_rest(&mut self) -> Result<()> {
        self.wait_until_in_flight(PARTS_IN_FLIGHT - 1).await?;
        let part = std::mem::take(&mut self.rest).freeze();
        self.in_flight.spawn(self.upload.put_part(part));
        Ok(())
    }

    /// Waits until at most `most` parts are being uploaded.
    async fn wait_until_in_flight(&mut self, most: usize) -> Result<()> {
        while self.in_flight.len() > most {
            let Some(arrived) = self.in_flight.join_next().await else { break };
            arrived??;
        }
        Ok(())
    }
}
