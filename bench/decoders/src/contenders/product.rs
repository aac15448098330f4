use std::sync::Arc;

use arrow::array::RecordBatch;

use crate::column_builders::Failed;
use crate::events::{Decoder, EventBatchBuilder};
use crate::records::{Records, value};

/// As the speed layer calls it, without raw records; decoder and builder are reused.
pub fn decoder(records: &Records) -> Result<impl FnMut(&Records) -> Result<RecordBatch, Failed> + 'static, Failed> {
    let decoder = Decoder::new(Arc::new(records.stream.clone())).map_err(|error| error.to_string())?;
    let mut builder = EventBatchBuilder::new(&records.stream);
    Ok(move |records: &Records| {
        for record in &records.records {
            let event = decoder.decode(Some(value(record))).map_err(|error| error.to_string())?;
            builder.append(&event, 0, record).map_err(|error| error.to_string())?;
        }
        builder.finish().map_err(|error| error.to_string())
    })
}
