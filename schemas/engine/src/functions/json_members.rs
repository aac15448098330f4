//! Members of JSON. Both functions are those of datafusion-functions-json, under PostgreSQL's names too.

use datafusion::logical_expr::ScalarUDF;
use datafusion_functions_json::udfs::{json_as_text_udf, json_get_json_udf};

/// The name of the function that returns JSON.
pub(crate) const JSON_MEMBER: &str = "json_get_json";

/// Returns the function that takes JSON and the steps of a path, and returns the JSON there.
pub(crate) fn json_member() -> ScalarUDF {
    ScalarUDF::clone(&json_get_json_udf()).with_aliases(["json_extract_path", "jsonb_extract_path"])
}

/// Returns the function that takes the same and returns a text: that of a string without its quotes.
pub(crate) fn json_member_as_text() -> ScalarUDF {
    ScalarUDF::clone(&json_as_text_udf()).with_aliases(["json_extract_path_text", "jsonb_extract_path_text"])
}
