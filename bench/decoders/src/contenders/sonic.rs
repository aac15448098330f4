use arrow::array::RecordBatch;
use sonic_rs::PointerTree;

use crate::column_builders::{Columns, Failed};
use crate::records::{Records, value};

pub fn members(records: &Records) -> Result<RecordBatch, Failed> {
    let mut columns = Columns::for_records(records);
    for record in &records.records {
        let mut expected = 0;
        for member in sonic_rs::to_object_iter(value(record)) {
            let (name, value) = member.map_err(|error| error.to_string())?;
            if let Some(at) = columns.place(&name, &mut expected) {
                columns.raw(at, value.as_raw_str())?;
            }
        }
    }
    columns.finish()
}

pub fn get_many(records: &Records) -> Result<RecordBatch, Failed> {
    let mut columns = Columns::for_records(records);
    let mut tree = PointerTree::new();
    for column in &records.stream.columns {
        tree.add_path(&[column.name.as_str()]);
    }
    for record in &records.records {
        let values = sonic_rs::get_many(value(record), &tree).map_err(|error| error.to_string())?;
        for (at, value) in values.iter().enumerate() {
            let value = value.as_ref().ok_or("a member is missing")?;
            columns.raw(at, value.as_raw_str())?;
        }
    }
    columns.finish()
}
