//! Counts the dead letters by reason.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use catalog::CatalogState;
use futures::TryStreamExt;
use storage::{ObjectStorage, read_dead_letters};
use types::Result;
use types::files::FileKind;

use crate::reason;

/// One reason, with an example of a record that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterReason {
    pub stream: String,
    pub reason: String,
    pub count: i64,
    pub example: String,
}

/// Reads every dead letter; returns the most frequent reasons first. Reasons that differ only in the value found count
/// as one.
pub async fn reasons(storage: &ObjectStorage, state: &CatalogState) -> Result<Vec<DeadLetterReason>> {
    let mut found: BTreeMap<(String, String), DeadLetterReason> = BTreeMap::new();
    for file in state.readable(FileKind::DeadLetters) {
        let mut batches = read_dead_letters(storage, file).await?;
        while let Some(batch) = batches.try_next().await? {
            let column = |name: &str| batch.column_by_name(name);
            let (Some(source), Some(reason), Some(value)) = (column("source"), column("reason"), column("value")) else { continue };
            let (source, reason, value) = (source.as_string::<i32>(), reason.as_string::<i32>(), value.as_binary::<i32>());
            for row in 0..batch.num_rows() {
                let (stream, class) = (source.value(row).to_owned(), reason::class(reason.value(row)));
                let known = found.entry((stream.clone(), class)).or_insert_with(|| DeadLetterReason {
                    stream,
                    reason: reason.value(row).to_owned(),
                    count: 0,
                    example: String::from_utf8_lossy(value.value(row)).into_owned(),
                });
                known.count += 1;
            }
        }
    }
    let mut reasons: Vec<DeadLetterReason> = found.into_values().collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    Ok(reasons)
}
