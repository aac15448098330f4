//! The owner of an output: it appends until another one takes the output over.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::output::{next_offset, set_owner};
use super::store::{Store, check_size, failed};
use super::writer::Writer;
use crate::log::check_before;
use crate::{LogOutput, NewRecord, OutputAppender, TakenOutput};
use types::Result;
use types::vector::Offset;

#[derive(Debug)]
struct OutputOwner {
    writer: Writer,
    output: LogOutput,
    /// The name under which it took the output over.
    owner: Uuid,
}

/// Gives an output a new owner.
pub(super) async fn take_over(store: &Store, writer: Writer, output: &LogOutput) -> Result<TakenOutput> {
    let owner = Uuid::new_v4();
    let mut write = store.write().await?;
    set_owner(&mut *write, output, owner).await?;
    let next = next_offset(&mut write, output).await?;
    write.commit().await.map_err(failed)?;
    Ok(TakenOutput { appender: Arc::new(OutputOwner { writer, output: output.clone(), owner }), next })
}

#[async_trait]
impl OutputAppender for OutputOwner {
    async fn append(&self, topic: &str, records: Vec<(Offset, NewRecord)>, next: Offset) -> Result<()> {
        records.iter().map(|(_, record)| record).try_for_each(check_size)?;
        check_before(next, &records)?;
        self.writer.append_output(topic, (self.output.clone(), self.owner), records, next).await
    }
}
