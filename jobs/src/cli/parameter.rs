//! `set` and `parameters`.

use access::local_user;
use clap::{Args, value_parser};
use committed::parameters::{ParameterChange, Setting, set};
use serde_json::json;
use types::Result;

use super::{AuditedChange, Context, Done};
use crate::installation::now;
use crate::output::table;
use crate::parameters::{ShownParameter, ShownValue, list};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream set max_hourly 30\n  basestream set silence '45 minutes'\n\n\
    Every process that runs sinks and alerts uses it within a second. What is put out already stays as it is.")]
pub(super) struct SetArgs {
    /// A parameter in the catalog
    parameter: String,
    /// A value of the parameter's type, without quotes of SQL: 30, 0.5, true, '30 minutes'
    #[arg(allow_hyphen_values = true)]
    value: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream parameters\n  basestream parameters max_hourly --history")]
pub(super) struct ParametersArgs {
    /// One parameter; without it, all
    parameter: Option<String>,
    /// List the values before too, with when and by whom each was set
    #[arg(long)]
    history: bool,
    /// List at most this many values of each parameter
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..), requires = "history")]
    limit: u32,
}

impl SetArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        AuditedChange::new("set", "parameter", &self.parameter)
    }
}

pub(super) async fn set_parameter(context: &Context, args: SetArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let setting = Setting { parameter: &args.parameter, value: &args.value, set_by: local_user(), now: now() };
    let ParameterChange { before, after } = set(&installation.catalog, &context.functions, setting).await?;
    let shown = json!({
        "parameter": after.parameter, "type": after.value_type, "value_before": before.value, "value": after.value, "version": after.version,
        "changed": before != after,
    });
    context.output.print(&shown, || match before == after {
        true => format!("{} is {} already (version {})", after.parameter, after.value, after.version),
        false => format!("{} was {} and is {} (version {})", after.parameter, before.value, after.value, after.version),
    })?;
    Ok(Done::Success)
}

pub(super) async fn parameters(context: &Context, args: ParametersArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let history = if args.history { args.limit } else { 0 };
    let shown = list(&installation.catalog, &context.functions, args.parameter.as_deref(), history).await?;
    context.output.print(&json!({ "parameters": shown }), || match shown.is_empty() {
        true => "no parameter is defined yet".to_owned(),
        false if args.history => history_text(&shown),
        false => list_text(&shown),
    })?;
    Ok(Done::Success)
}

fn list_text(shown: &[ShownParameter]) -> String {
    let cells = shown.iter().map(|shown| {
        let ShownValue { version, value_type, value, since, set_by } = shown.in_effect.clone();
        let used_by = shown.used_by.iter().map(|name| &**name).collect::<Vec<_>>().join(", ");
        vec![shown.parameter.to_string(), value_type, value, version.to_string(), since, set_by, used_by]
    });
    table(&["parameter", "type", "value", "version", "since", "set by", "used by"], cells)
}

fn history_text(shown: &[ShownParameter]) -> String {
    let values = shown
        .iter()
        .flat_map(|shown| std::iter::once(&shown.in_effect).chain(shown.history.iter().flatten()).map(move |value| (shown, value)));
    let cells = values.map(|(shown, value)| {
        let ShownValue { version, value_type, value, since, set_by } = value.clone();
        vec![shown.parameter.to_string(), version.to_string(), value_type, value, since, set_by]
    });
    table(&["parameter", "version", "type", "value", "since", "set by"], cells)
}
