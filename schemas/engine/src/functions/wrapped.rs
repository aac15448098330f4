//! Functions of DataFusion that are called in another way.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// How a function is called instead.
pub(super) trait FunctionCall: Debug + PartialEq + Eq + Hash + Send + Sync + 'static {
    fn call(&self, inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue>;

    /// Checks the arguments when a call is planned.
    fn check(&self, _: &ReturnFieldArgs<'_>) -> Result<()> {
        Ok(())
    }

    /// The name of a call's column, where DataFusion's function has another one.
    fn column_name(&self, _: &[Expr]) -> Option<String> {
        None
    }

    /// The field of the result, where DataFusion's function has another one.
    fn field(&self, _: &ScalarUDF, _: &ReturnFieldArgs<'_>) -> Option<FieldRef> {
        None
    }
}

/// A function under its name and aliases in DataFusion.
///
/// It forwards what the functions that are wrapped define; the other methods of the trait have their defaults there
/// too. Only `placement` is left out: calls that read JSON stay where they are written.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Wrapped<C> {
    pub(super) inner: Arc<ScalarUDF>,
    pub(super) call: C,
}

impl<C: FunctionCall> ScalarUDFImpl for Wrapped<C> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.call.column_name(arguments).map_or_else(|| self.inner.schema_name(arguments), Ok)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.call.check(&arguments)?;
        match self.call.field(&self.inner, &arguments) {
            Some(field) => Ok(field),
            None => self.inner.return_field_from_args(arguments),
        }
    }

    fn preimage(&self, arguments: &[Expr], literal: &Expr, context: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(arguments, literal, context)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.call.call(&self.inner, arguments)
    }
}
