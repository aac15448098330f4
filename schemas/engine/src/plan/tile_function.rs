//! A scalar function for plans that returns the start of the tile that holds an event time.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use types::sql_types::timestamp_type;
use types::tiles::{Floors, Level, Micros, finest_kept};

/// Returns the function from event time to the start of the tile at one level.
pub(super) fn tile_of(level: Level) -> ScalarUDF {
    named(format!("tile_{level}"), vec![(level, None)])
}

/// Returns the function from event time to the start of the finest tile that is kept.
fn kept_tile_of(floors: &[(Level, Option<Micros>)]) -> ScalarUDF {
    named("kept_tile".to_owned(), floors.to_vec())
}

fn named(name: String, floors: Floors) -> ScalarUDF {
    ScalarUDF::from(TileOf { floors, name, signature: Signature::exact(vec![timestamp_type()], Volatility::Immutable) })
}

pub(crate) fn is_tile_function(function: &ScalarUDF) -> bool {
    (function.inner().as_ref() as &dyn Any).is::<TileOf>()
}

/// Returns the plan with each event assigned to the finest tile that is kept for it, instead of the finest of all.
pub(super) fn kept_tiles(plan: &LogicalPlan, floors: &[(Level, Option<Micros>)]) -> Result<LogicalPlan> {
    let kept = Arc::new(kept_tile_of(floors));
    let rewritten = plan.clone().transform_down(|node| {
        node.map_expressions(|expr| {
            expr.transform_down(|expr| match expr {
                Expr::ScalarFunction(mut call) if is_tile_function(&call.func) => {
                    call.func = kept.clone();
                    Ok(Transformed::yes(Expr::ScalarFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })?;
    Ok(rewritten.data)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TileOf {
    floors: Floors,
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
        let tiles: TimestampMicrosecondArray = times.unary(|time| finest_kept(&self.floors, time).floor(time));
        Ok(ColumnarValue::Array(Arc::new(tiles.with_timezone("UTC")) as ArrayRef))
    }
}
