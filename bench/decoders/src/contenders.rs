//! Every decoder with its best setting, from records to columns. The last two do not check all that they read, as a
//! product must.

use arrow::array::RecordBatch;

use crate::column_builders::Failed;
use crate::records::Records;

mod arrow_json;
mod product;
mod simd;
mod sonic;
mod typed;

pub struct Contender {
    pub name: &'static str,
    pub decode: Box<dyn FnMut(&Records) -> Result<RecordBatch, Failed>>,
}

/// The product first.
pub fn all(records: &Records) -> Result<Vec<Contender>, Failed> {
    Ok(vec![
        contender("basestream (and 5 columns of position)", product::decoder(records)?),
        contender("arrow-json, Decoder", arrow_json::decode),
        contender("serde_json, typed", typed::serde_json),
        contender("simd-json, tape", simd::tape),
        contender("simd-json, typed", typed::simd_json),
        contender("sonic-rs, typed", typed::sonic),
        contender("sonic-rs, to_object_iter", sonic::members),
        contender("sonic-rs, get_many (rest unread)", sonic::get_many),
        contender("sonic-rs, typed, UTF-8 unchecked", typed::sonic_unchecked),
    ])
}

fn contender(name: &'static str, decode: impl FnMut(&Records) -> Result<RecordBatch, Failed> + 'static) -> Contender {
    Contender { name, decode: Box::new(decode) }
}
