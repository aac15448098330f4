//! The DataFusion sessions of this workspace: one dialect, one set of functions, everywhere.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::error::Result;
use crate::functions::Functions;
use crate::plan::doubles::DoublesStay;

/// Settings that decide what SQL means here: decimal literals are decimals, text is Utf8, nothing is collected by chance.
pub fn session_config() -> SessionConfig {
    let mut config = SessionConfig::new().with_information_schema(false).with_target_partitions(2);
    let options = config.options_mut();
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.collect_spans = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.parquet.schema_force_view_types = false;
    options.execution.parquet.pushdown_filters = true;
    options.execution.time_zone = Some("UTC".into());
    config
}

/// All sessions begin so. Settings that differ are put over [`session_config`].
pub fn session_builder() -> SessionStateBuilder {
    let own: Arc<dyn AnalyzerRule + Send + Sync> = Arc::new(DoublesStay);
    let rules = std::iter::once(own).chain(Analyzer::new().rules).collect();
    SessionStateBuilder::new_with_default_features().with_config(session_config()).with_analyzer_rules(rules)
}

/// A session for planning: no table but what is registered, the given functions, no memory limit.
pub fn planning_session(functions: &Functions) -> Result<SessionContext> {
    let state = session_builder().with_runtime_env(Arc::new(RuntimeEnv::default())).build();
    let context = SessionContext::new_with_state(state);
    functions.register(&context)?;
    Ok(context)
}
