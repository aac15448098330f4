//! The states of a layer as bytes, view by view, and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use engine::fresh::{FreshLayer, ViewVersion};
use engine::plan::ViewPlan;
use engine::states::{KeyCodec, StateRows, conform};
use types::{Error, Result};

use crate::message::LayerHead;

/// The plans and codecs of the view versions that a node serves.
pub type Plans = BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)>;

/// Fewer bytes are sent faster than they are compressed.
const MIN_COMPRESSED_BYTES: usize = 16 << 10;

/// One view's states: an Arrow IPC stream.
pub(crate) fn encode(rows: &StateRows) -> Result<Bytes> {
    let compression = (rows.memory_bytes() >= MIN_COMPRESSED_BYTES).then_some(CompressionType::LZ4_FRAME);
    let options = IpcWriteOptions::default().try_with_compression(compression)?;
    let mut content = Vec::new();
    let mut writer = StreamWriter::try_new_with_options(&mut content, &rows.batch().schema(), options)?;
    writer.write(rows.batch())?;
    writer.finish()?;
    drop(writer);
    Ok(content.into())
}

/// Returns a layer with the states of the views in `plans`.
///
/// Errors: `Corrupt` for bytes that are not states of these views; `Input` for states of a format that this release
/// does not know.
pub(crate) fn decode(head: &LayerHead, body: &Bytes, plans: &Plans) -> Result<FreshLayer> {
    let mut layer = FreshLayer {
        start: head.start.clone(),
        end: head.end.clone(),
        states: Default::default(),
        failures: Default::default(),
        max_event_time: head.max_event_time.clone(),
    };
    let mut from = 0_usize;
    for section in &head.sections {
        let end = from.saturating_add(section.bytes);
        if end > body.len() {
            return Err(Error::corrupt("a worker sent too few bytes").with("found", body.len()).with("expected", end));
        }
        let content = body.slice(from..end);
        from = end;
        let view = ViewVersion::new(section.view.clone(), section.version);
        let Some((plan, codec)) = plans.get(&view) else { continue };
        if !plan.reads_stamp(&section.stamp) {
            let message = "a worker sends states of a format that this release does not know: use one release for workers and nodes";
            return Err(Error::input(message).with("view", &section.view).with("found", &section.stamp).with("expected", &plan.stamp));
        }
        let rows = rows(content, plan, codec).map_err(|error| error.with("view", &section.view).with("version", section.version))?;
        layer.states.insert(view.clone(), Arc::new(rows));
        if let Some(failures) = &section.failures {
            layer.failures.insert(view, Arc::new(failures.clone()));
        }
    }
    Ok(layer)
}

fn rows(content: Bytes, plan: &ViewPlan, codec: &KeyCodec) -> Result<StateRows> {
    let batches = batches(content).map_err(|error| Error::corrupt("a worker sent states that cannot be read").caused_by(error))?;
    let batches = batches.iter().map(|batch| conform(plan.state_schema(), batch)).collect::<Result<Vec<_>>>()?;
    StateRows::sort(plan, codec, &batches)
}

fn batches(content: Bytes) -> Result<Vec<RecordBatch>, arrow::error::ArrowError> {
    let mut buffer = Buffer::from(content);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !buffer.is_empty() {
        match decoder.decode(&mut buffer)? {
            Some(batch) => batches.push(batch),
            None => break,
        }
    }
    decoder.finish()?;
    Ok(batches)
}

#[cfg(test)]
mod tests;
