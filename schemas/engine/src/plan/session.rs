//! The DataFusion sessions of this workspace, all with the same dialect and functions.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::functions::Functions;
use crate::plan::as_written::ComparisonsStayAsWritten;
use crate::plan::casts::CastsOfPostgresql;
use crate::plan::decimal_texts::TextsKeepTheirPlaces;
use crate::plan::decimals::QuotientsKeepDigits;
use crate::plan::distinct_sums::SumsKeepTheirTypes;
use crate::plan::doubles::DoublesStay;
use crate::plan::doubles_of_sets::DoublesOfSetsStay;
use crate::plan::elements::ElementsOfArrays;
use crate::plan::exponents::ExponentsAreWrittenOut;
use crate::plan::extract::PartsAreExtracted;
use crate::plan::intervals::IntervalsHaveLengths;
use crate::plan::json_operators::JsonOperators;
use crate::plan::number_arrays::NumbersOfArraysAreCompared;
use crate::plan::one_input::OneInputSpills;
use crate::plan::ordered_distinct::OrderedDistinctHasNoLimit;
use crate::plan::skipped_rows::physical_rules;
use types::Result;

/// Returns the settings that decide what SQL means here: decimal literals are decimals, text is Utf8, times are UTC.
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

type Rule = Arc<dyn AnalyzerRule + Send + Sync>;

/// Returns the base of all sessions. Settings that differ are applied on top of [`session_config`].
pub fn session_builder() -> SessionStateBuilder {
    let rules = analyzer_rules([]);
    let default = SessionStateBuilder::new_with_default_features();
    let default = default.with_config(session_config()).with_analyzer_rules(rules);
    let mut builder = default.with_physical_optimizer_rules(physical_rules()).with_physical_optimizer_rule(Arc::new(OneInputSpills));
    builder.expr_planners().get_or_insert_default().splice(0..0, planners());
    builder
}

/// Our planners of expressions.
fn planners() -> [Arc<dyn ExprPlanner>; 3] {
    [Arc::new(ElementsOfArrays), Arc::new(JsonOperators), Arc::new(PartsAreExtracted)]
}

/// Returns the base of sessions that run arbitrary queries. It omits the rule that eliminates common subexpressions:
/// the rule declares `x IS NOT TRUE` nullable, which it is not, so that two aggregates with that FILTER cannot be
/// planned (DataFusion 55).
pub fn asking_session_builder() -> SessionStateBuilder {
    let sums: Arc<dyn OptimizerRule + Send + Sync> = Arc::new(SumsKeepTheirTypes::default());
    let rules = Optimizer::new().rules.into_iter().filter(|rule| rule.name() != COMMON_EXPRESSIONS);
    let rules = rules.map(|rule| if rule.name() == sums.name() { sums.clone() } else { rule }).collect();
    session_builder().with_optimizer_rules(rules).with_physical_optimizer_rule(Arc::new(OrderedDistinctHasNoLimit))
}

/// Returns the base of the sessions that answer queries. There a UNION may have doubles and decimals in one column,
/// which definitions refuse, a text beside a decimal keeps its digits, on which states of definitions may depend, and
/// comparisons are not simplified to others.
pub fn query_session_builder() -> SessionStateBuilder {
    let of_queries: [Rule; 4] = [
        Arc::new(DoublesOfSetsStay),
        Arc::new(TextsKeepTheirPlaces),
        Arc::new(NumbersOfArraysAreCompared),
        Arc::new(ComparisonsStayAsWritten),
    ];
    asking_session_builder().with_analyzer_rules(analyzer_rules(of_queries))
}

/// Our rules, those of queries among them, then DataFusion's. Casts come last: they depend on the types of what is
/// cast.
fn analyzer_rules<const N: usize>(of_queries: [Rule; N]) -> Vec<Rule> {
    let own: [Rule; 4] =
        [Arc::new(ExponentsAreWrittenOut), Arc::new(DoublesStay), Arc::new(QuotientsKeepDigits), Arc::new(IntervalsHaveLengths)];
    let casts: Rule = Arc::new(CastsOfPostgresql);
    own.into_iter().chain(of_queries).chain([casts]).chain(Analyzer::new().rules).collect()
}

const COMMON_EXPRESSIONS: &str = "common_sub_expression_eliminate";

/// Returns a session for planning: it has the given functions, no tables except those registered later, and no memory
/// limit.
pub fn planning_session(functions: &Functions) -> Result<SessionContext> {
    let state = session_builder().with_runtime_env(Arc::new(RuntimeEnv::default())).build();
    let context = SessionContext::new_with_state(state);
    functions.register(&context)?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_aggregates_of_what_is_not_true_are_answered() {
        let session = SessionContext::new_with_state(asking_session_builder().build());
        let events = "(VALUES (1, true), (2, false), (4, CAST(NULL AS BOOLEAN))) AS events(a, f)";
        let sql = format!("SELECT sum(a) FILTER (WHERE f IS NOT TRUE), avg(a) FILTER (WHERE f IS NOT TRUE) FROM {events}");
        let rows = session.sql(&sql).await.unwrap().collect().await.unwrap();
        assert_eq!(arrow::util::pretty::pretty_format_batches(&rows).unwrap().to_string().lines().nth(3).unwrap().matches('6').count(), 1);
        assert!(session.state().optimizers().iter().all(|rule| rule.name() != COMMON_EXPRESSIONS));
        assert!(SessionContext::new().state().optimizers().iter().any(|rule| rule.name() == COMMON_EXPRESSIONS), "it has another name now");
    }
}
