//! The start of the tile that holds an event time, as a scalar function inside plans.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::definitions::timestamp_type;
use crate::tiles::Level;

/// The function from event time to tile start at one level.
pub(super) fn tile_of(level: Level) -> ScalarUDF {
    ScalarUDF::from(TileOf {
        level,
        name: format!("tile_{level}"),
        signature: Signature::exact(vec![timestamp_type()], Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TileOf {
    level: Level,
    name: String,
    signature: Signature,
}

impl ScalarUDFImpl for TileOf {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(timestamp_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let times = args.args[0].to_array(args.number_rows)?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let tiles: TimestampMicrosecondArray = times.unary(|time| self.level.floor(time));
        Ok(ColumnarValue::Array(Arc::new(tiles.with_timezone("UTC")) as ArrayRef))
    }
}
