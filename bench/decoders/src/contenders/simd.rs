use arrow::array::RecordBatch;
use simd_json::{Buffers, Node, StaticNode};

use crate::column_builders::{Columns, Failed};
use crate::records::{Records, value};

/// Tape and buffers are reused; each record is copied, because it is parsed in place.
pub fn tape(records: &Records) -> Result<RecordBatch, Failed> {
    let mut columns = Columns::for_records(records);
    let (mut copy, mut buffers) = (Vec::new(), Buffers::new(4_096));
    for record in &records.records {
        copy.clear();
        copy.extend_from_slice(value(record));
        let tape = simd_json::to_tape_with_buffers(&mut copy, &mut buffers).map_err(|error| error.to_string())?;
        let mut expected = 0;
        let Some((Node::Object { .. }, members)) = tape.0.split_first() else { return Err("no object".into()) };
        for member in members.chunks_exact(2) {
            let Node::String(name) = member[0] else { return Err("a nested value".into()) };
            let Some(at) = columns.place(name, &mut expected) else { continue };
            match member[1] {
                Node::String(text) => columns.text(at, text)?,
                Node::Static(StaticNode::F64(number)) => columns.float(at, number)?,
                Node::Static(StaticNode::I64(number)) => columns.float(at, number as f64)?,
                Node::Static(StaticNode::U64(number)) => columns.float(at, number as f64)?,
                _ => return Err(format!("{name} is something else")),
            }
        }
    }
    columns.finish()
}
