//! Reads all rows of the view, for peers that store final rows.

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use serving::Node;
use types::Result;

use crate::purchases::VIEW;
use crate::purchases::question::KEY;

/// The rows of one batch: the keys' texts, and all columns.
pub(super) struct Part {
    pub(super) keys: Vec<String>,
    pub(super) rows: RecordBatch,
}

/// Passes all rows to `take`, a batch at a time.
pub(super) async fn each(node: &Node, mut take: impl AsyncFnMut(Part) -> Result<()>) -> Result<()> {
    let mut response = node.query(&format!("SELECT * FROM {VIEW}"), Vec::new()).await?;
    while let Some(rows) = response.batches.try_next().await? {
        let keys = rows.column_by_name(KEY).map(|column| arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8)).transpose()?;
        let keys = keys.iter().flat_map(|keys| arrow::array::AsArray::as_string::<i32>(keys).iter().flatten().map(str::to_owned));
        take(Part { keys: keys.collect(), rows: rows.clone() }).await?;
    }
    Ok(())
}
