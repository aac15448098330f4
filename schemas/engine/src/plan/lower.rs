//! Lowers a SELECT to the physical aggregates that compute and merge states, and the expressions over the merged
//! values.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, SortExpr, when};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::aggregate::{LoweredAggregate, LoweredAggregateBuilder};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::prelude::{SessionContext, col, lit};

use crate::functions::{DirectMerge, IN_ORDER, grouped, limited, state_stamp, sums, truncation};
use crate::plan::columns::{SelectOutput, SelectParts, StateCall, events_column, key_column, use_column};
use crate::plan::covers::LastCovers;
use crate::plan::hidden::{HIDDEN, carry, column_named, names_event_time};
use crate::plan::tile_function::tile_of;
use crate::plan::{
    Answering, ColumnKind, ColumnRangeIndex, MergedValues, OutputColumn, RangeIndex, StateExpr, UseIndex, ValueColumn, ViewPlan, casts,
    decimals, intervals, uuids,
};
use definitions::{MAX_STATE_BYTES, StreamDefinition, ViewDefinition};
use types::columns::EVENT_TIME;
use types::columns::{AS_OF, EVENTS, LEVEL, TILE};
use types::sql_types::{sql_name, timestamp_type};
use types::tiles::{Level, TimeRange};
use types::{Error, Result};

/// Lowers a SELECT with GROUP BY.
pub(super) fn lower(
    view: &ViewDefinition,
    session: &SessionContext,
    aggregate: &Aggregate,
    columns: SelectParts,
    streams: Vec<Arc<StreamDefinition>>,
    all_streams: &[Arc<StreamDefinition>],
) -> Result<ViewPlan> {
    let limit_bytes = view.max_state_bytes.unwrap_or(MAX_STATE_BYTES);
    let table = state_table(session, aggregate, &columns, all_streams, limit_bytes)?;
    let value_types: Vec<DataType> = columns.uses.iter().map(|usage| table.states[usage.state.0].value_type()).collect();
    let schema = value_schema(&table.keys, columns.ranges.len(), &value_types);
    let outputs = lower_outputs(&columns.outputs, &table.keys, &schema, session)?;
    let uuid_keys = uuids::of_keys(aggregate, all_streams);
    Ok(table.into_plan(view, streams, outputs, uuid_keys, Answering::Grouped(MergedValues { uses: columns.uses, schema })))
}

/// The keys and states that are kept for a view, whether or not it is linked.
pub(super) struct StateTable {
    pub(super) keys: Vec<FieldRef>,
    pub(super) states: Vec<StateExpr>,
    ranges: Vec<TimeRange>,
    existence: RangeIndex,
    levels: Vec<Level>,
    prepare: LogicalPlan,
    schema: SchemaRef,
    stamp: String,
    stamp_before: Option<String>,
}

impl StateTable {
    pub(super) fn into_plan(
        self,
        view: &ViewDefinition,
        streams: Vec<Arc<StreamDefinition>>,
        columns: Vec<OutputColumn>,
        uuid_keys: Vec<bool>,
        answering: Answering,
    ) -> ViewPlan {
        ViewPlan {
            view: view.name.clone(),
            streams,
            stamp: self.stamp,
            stamp_before: self.stamp_before,
            keys: self.keys,
            states: self.states,
            ranges: self.ranges,
            existence: self.existence,
            columns,
            answering,
            levels: self.levels,
            on_error: view.on_error,
            prepare: self.prepare,
            uuid_keys,
            state_schema: self.schema,
            output_schema: OnceLock::new(),
            need_of_all: OnceLock::new(),
            last_covers: LastCovers::default(),
        }
    }
}

/// Lowers the keys and aggregates of a SELECT to the states that are kept for them.
pub(super) fn state_table(
    session: &SessionContext,
    aggregate: &Aggregate,
    columns: &SelectParts,
    all_streams: &[Arc<StreamDefinition>],
    limit_bytes: u64,
) -> Result<StateTable> {
    let levels = levels_of(&columns.ranges);
    let carried = carry(&aggregate.input, all_streams)?;
    let complete = |state: &StateCall| complete_order(&place_hidden(&state.call, &carried)?, &carried);
    let calls = columns.states.iter().map(complete).collect::<Result<Vec<_>>>()?;
    let prepared = prepare(carried, aggregate, &calls, levels[0])?;
    let keys = key_fields(&columns.keys, &prepared.plan)?;
    let is_of_event_time = |call: &Expr| match call {
        Expr::AggregateFunction(function) => {
            function.params.args.first().is_some_and(|arg| names_event_time(arg, &aggregate.input, all_streams))
        }
        _ => false,
    };
    let lowering = StateLowering { prepared: &prepared, session, limit_bytes };
    let state = |(state, call): (&StateCall, &Expr)| lowering.state(state, call, is_of_event_time(&state.call));
    let states = columns.states.iter().zip(&calls).map(state).collect::<Result<Vec<_>>>()?;
    let schema = state_schema(&keys, &states);
    refuse_repeated_fields(&schema)?;
    let meanings = stamp_of_meanings(&prepared.plan, &calls)?;
    let stamp = format!("{}{meanings}", stamp(&states));
    let stamp_before = stamp_before(&states).map(|stamp| format!("{stamp}{meanings}"));
    let (ranges, existence) = (columns.ranges.clone(), columns.existence);
    Ok(StateTable { keys, states, ranges, existence, levels, prepare: prepared.plan, schema, stamp, stamp_before })
}

/// Identifies the format of a view's states.
fn stamp(states: &[StateExpr]) -> String {
    let types = |state: &StateExpr| state.fields.iter().map(|field| field.data_type().clone()).collect();
    let formats: Vec<(&str, Vec<DataType>)> = states.iter().map(|state| (state.function.as_str(), types(state))).collect();
    match states.iter().find_map(|state| state.limit_bytes) {
        Some(limit) => format!("{}; states up to {limit} bytes", state_stamp(&formats)),
        None => state_stamp(&formats),
    }
}

/// The stamp of the previous format, if it was different. Rows of that format are read too.
fn stamp_before(states: &[StateExpr]) -> Option<String> {
    let types = |state: &StateExpr| {
        let of_fields = || state.fields.iter().map(|field| field.data_type().clone()).collect();
        state.types_before.clone().unwrap_or_else(of_fields)
    };
    let formats: Vec<(&str, Vec<DataType>)> = states.iter().map(|state| (state.function.as_str(), types(state))).collect();
    states.iter().any(|state| state.types_before.is_some()).then(|| state_stamp(&formats))
}

type IsSuch = fn(&Expr) -> bool;

/// Expressions whose values were others in earlier releases, and what a stamp adds for states that depend on them.
const CHANGED_MEANINGS: [(IsSuch, &str); 5] = [
    (decimals::divides, decimals::STAMP),
    (intervals::compares, intervals::STAMP),
    (intervals::takes_seconds, intervals::SECONDS_STAMP),
    (truncation::truncates_constant, truncation::STAMP),
    (casts::has_postgresql_values, casts::STAMP),
];

/// The part of a stamp that says what the values are from which states are computed.
fn stamp_of_meanings(prepared: &LogicalPlan, calls: &[Expr]) -> Result<String> {
    let mut meanings = String::new();
    for (has_changed, stamp) in CHANGED_MEANINGS {
        if states_depend(prepared, calls, has_changed)? {
            meanings.push_str(stamp);
        }
    }
    Ok(meanings)
}

/// Whether the kept states depend on such an expression: in a key, a condition, or an argument of an aggregate.
fn states_depend(prepared: &LogicalPlan, calls: &[Expr], is_such: IsSuch) -> Result<bool> {
    let in_plan = prepared.exists(|node| Ok(node.expressions().iter().any(is_such)))?;
    Ok(in_plan || calls.iter().any(is_such))
}

/// Returns the levels of a view's tiles: from its finest hop up to the longest tile that fits its longest window.
fn levels_of(ranges: &[TimeRange]) -> Vec<Level> {
    let finest = ranges.iter().map(|range| range.hop).min().unwrap_or(Level::All);
    let all_time = ranges.contains(&TimeRange::ALL);
    let endless = ranges.iter().any(|range| range.window.is_none() && range.until.is_some());
    let longest = ranges.iter().filter_map(|range| range.window).max().unwrap_or_default().as_micros();
    Level::LEVELS
        .into_iter()
        .filter(|level| match level.length_us() {
            Some(length) => *level >= finest && (*level == finest || endless || length as u128 <= longest),
            None => all_time,
        })
        .collect()
}

struct Prepared {
    plan: LogicalPlan,
    /// The inputs of the aggregates, and their columns in the prepared events.
    names: Vec<(Expr, String)>,
}

/// Projects the Aggregate's input to keys, tile, the event's position, and the inputs of its aggregates. Nothing that
/// can fail on an event is left for the aggregation.
fn prepare(input: LogicalPlan, aggregate: &Aggregate, calls: &[Expr], finest: Level) -> Result<Prepared> {
    let mut exprs: Vec<Expr> = aggregate.group_expr.iter().enumerate().map(|(i, key)| strip(key).alias(key_column(i))).collect();
    let event_time = Expr::Column(column_named(&input, EVENT_TIME)?);
    exprs.push(tile_of(finest).call(vec![event_time]).alias(TILE));
    let mut names = Vec::new();
    for name in HIDDEN {
        let column = Expr::Column(column_named(&input, name)?);
        exprs.push(column.clone().alias(name));
        names.push((column, name.to_owned()));
    }
    for input in calls.iter().map(inputs_of).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        if !names.iter().any(|(known, _)| *known == input) {
            let name = format!("a{}", names.len() - HIDDEN.len());
            exprs.push(input.clone().alias(&name));
            names.push((input, name));
        }
    }
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?);
    Ok(Prepared { plan, names })
}

/// The inputs of an aggregate, in the order of its text: arguments, FILTER, ORDER BY. Constants are left out, because
/// an aggregate reads them when it is planned.
fn inputs_of(call: &Expr) -> Result<Vec<Expr>> {
    let mut inputs = Vec::new();
    place_inputs(call, |input| {
        inputs.push(input.clone());
        Ok(input)
    })?;
    Ok(inputs)
}

/// Replaces each input of an aggregate except its constants. An argument is not evaluated where FILTER does not hold.
fn place_inputs(call: &Expr, mut placed: impl FnMut(Expr) -> Result<Expr>) -> Result<Expr> {
    let Expr::AggregateFunction(function) = call else { return Ok(call.clone()) };
    let mut function = function.clone();
    let params = &mut function.params;
    let filter = params.filter.clone();
    let mut place = |input: &mut Expr, filter: Option<&Expr>| -> Result<()> {
        let input_alone = strip(input);
        if input_alone.column_refs().is_empty() {
            return Ok(());
        }
        *input = match (&input_alone, filter) {
            (Expr::Column(_), _) | (_, None) => placed(input_alone)?,
            (_, Some(filter)) => placed(when(strip(filter), input_alone).end()?)?,
        };
        Ok(())
    };
    for argument in &mut params.args {
        place(argument, filter.as_deref())?;
    }
    if let Some(filter) = params.filter.as_deref_mut() {
        place(filter, None)?;
    }
    for sort in &mut params.order_by {
        place(&mut sort.expr, filter.as_deref())?;
    }
    Ok(Expr::AggregateFunction(function))
}

fn strip(expr: &Expr) -> Expr {
    match expr {
        Expr::Alias(alias) => strip(&alias.expr),
        other => other.clone(),
    }
}

/// Renames the hidden columns that a call reads to those of the carried input. (An edge's liveness is the greatest
/// event time.)
fn place_hidden(call: &Expr, input: &LogicalPlan) -> Result<Expr> {
    let placed = call.clone().transform_down(|node| match &node {
        Expr::Column(column) if column.relation.is_none() && HIDDEN.contains(&column.name.as_str()) => {
            Ok(Transformed::yes(Expr::Column(column_named(input, &column.name).map_err(datafusion::error::DataFusionError::from)?)))
        }
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(placed.data)
}

/// Appends the event's position to the ORDER BY of an aggregate that reads its input in order, so that ties are broken
/// the same way everywhere.
fn complete_order(call: &Expr, input: &LogicalPlan) -> Result<Expr> {
    let Expr::AggregateFunction(function) = call else { return Ok(call.clone()) };
    let params = &function.params;
    let in_order =
        IN_ORDER.contains(&function.func.name()) || (!params.order_by.is_empty() && !function.func.supports_within_group_clause());
    if !in_order || params.distinct {
        return Ok(call.clone());
    }
    let insensitive = function.func.order_sensitivity() == AggregateOrderSensitivity::Insensitive;
    if insensitive && !["string_agg", "array_agg"].contains(&function.func.name()) {
        return Ok(call.clone());
    }
    let mut function = function.clone();
    for name in HIDDEN {
        function.params.order_by.push(SortExpr::new(Expr::Column(column_named(input, name)?), true, false));
    }
    Ok(Expr::AggregateFunction(function))
}

fn key_fields(names: &[String], prepared: &LogicalPlan) -> Result<Vec<FieldRef>> {
    names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let field = prepared.schema().field(i);
            if field.data_type().is_nested() {
                let data_type = sql_name(field.data_type());
                return Err(Error::input(format!("the key \"{name}\" is of type {data_type}: expected a plain value")));
            }
            Ok(Arc::new(Field::new(name, field.data_type().clone(), true)))
        })
        .collect()
}

/// The context in which states are lowered.
struct StateLowering<'a> {
    prepared: &'a Prepared,
    session: &'a SessionContext,
    limit_bytes: u64,
}

impl StateLowering<'_> {
    /// Lowers a state. `call` is its aggregate over the events before they are prepared.
    fn state(&self, state: &StateCall, call: &Expr, is_of_event_time: bool) -> Result<StateExpr> {
        let call = grouped(simplify_inputs(rename(call, &self.prepared.names)?, self.prepared.plan.schema(), self.session)?);
        let (mut lowered, mut fields) = self.aggregate(&call, &state.sql)?;
        let mut types_before = sums::types_before(&state.function, &fields, lowered.aggregate.field().data_type());
        let is_limited = limited::collects(&state.function, lowered.aggregate.is_distinct(), &fields);
        let judged_sum = sums::judged_sum(&call, &fields);
        let is_judged = is_limited || judged_sum.is_some();
        if is_limited {
            // States of the format before had no marks, except those of sequences.
            let had_none = !limited::keeps_events(&state.function);
            types_before = had_none.then(|| fields.iter().map(|field| field.data_type().clone()).collect());
            (lowered, fields) = self.aggregate(&limited::limited(judged_sum.unwrap_or(call), self.limit_bytes), &state.sql)?;
        } else if let Some(judged_sum) = judged_sum {
            (lowered, fields) = self.aggregate(&judged_sum, &state.sql)?;
        }
        let nothing = lowered.aggregate.create_accumulator()?.evaluate()?.to_array()?;
        Ok(StateExpr {
            is_of_event_time,
            limit_bytes: is_limited.then_some(self.limit_bytes),
            is_judged,
            types_before,
            nothing: arrow::compute::cast(&nothing, lowered.aggregate.field().data_type())?,
            sql: state.shown.clone(),
            function: state.function.clone(),
            has_groups: lowered.aggregate.groups_accumulator_supported(),
            direct: DirectMerge::for_aggregate(&lowered.aggregate, &fields),
            aggregate: lowered.aggregate,
            filter: lowered.filter,
            fields: fields.iter().enumerate().map(|(i, field)| state_field(field, i, &state.sql)).collect(),
            approximate: state.approximate,
        })
    }

    /// Lowers an aggregate; returns it with the fields of its state.
    fn aggregate(&self, call: &Expr, sql: &str) -> Result<(LoweredAggregate, Vec<FieldRef>)> {
        let schema = self.prepared.plan.schema();
        let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        let lowered = LoweredAggregateBuilder::new(call, schema, schema.as_arrow(), &props, &context).with_name(sql).build()?;
        let fields = lowered.aggregate.state_fields().map_err(|error| not_mergeable(sql, &error))?;
        Ok((lowered, fields))
    }
}

fn not_mergeable(sql: &str, error: &datafusion::error::DataFusionError) -> Error {
    Error::input(format!("{sql} has no state that can be merged: {}", error.strip_backtrace()))
}

/// Returns a state's field with a stable name: `sum(amount)[sum]`, as DataFusion names most. A field that DataFusion
/// names after its input's columns is named by its position.
fn state_field(field: &Field, place: usize, sql: &str) -> FieldRef {
    let own_name = field.name().strip_prefix(sql).is_some_and(|rest| rest.starts_with('['));
    let name = match own_name {
        _ if sql == EVENTS => EVENTS.to_owned(),
        true => field.name().clone(),
        false => format!("{sql}[{place}]"),
    };
    Arc::new(Field::new(name, field.data_type().clone(), sql != EVENTS))
}

/// Replaces the inputs of a call by their columns in the prepared events.
fn rename(call: &Expr, names: &[(Expr, String)]) -> Result<Expr> {
    place_inputs(call, |input| match names.iter().find(|(known, _)| *known == input) {
        Some((_, name)) => Ok(Expr::Column(Column::from_name(name))),
        None => Err(Error::internal(format!("the prepared events lack {input}"))),
    })
}

fn refuse_repeated_fields(schema: &Schema) -> Result<()> {
    for (i, field) in schema.fields().iter().enumerate() {
        if schema.fields()[..i].iter().any(|earlier| earlier.name() == field.name()) {
            return Err(Error::input(format!("two states or keys are named \"{}\": expected distinct names", field.name())));
        }
    }
    Ok(())
}

/// The schema of a state row.
fn state_schema(keys: &[FieldRef], states: &[StateExpr]) -> SchemaRef {
    let hidden = [Arc::new(Field::new(LEVEL, DataType::UInt8, false)), Arc::new(Field::new(TILE, timestamp_type(), false))];
    let states = states.iter().flat_map(|state| state.fields.iter().cloned());
    Arc::new(Schema::new(keys.iter().cloned().chain(hidden).chain(states).collect::<Vec<_>>()))
}

/// Returns the schema of keys, time, the events per range, and each of `values`.
pub(super) fn value_schema(keys: &[FieldRef], ranges: usize, values: &[DataType]) -> SchemaRef {
    let mut fields: Vec<Field> = keys.iter().enumerate().map(|(i, key)| Field::new(key_column(i), key.data_type().clone(), true)).collect();
    fields.push(Field::new(AS_OF, timestamp_type(), false));
    fields.extend((0..ranges).map(|range| Field::new(events_column(ColumnRangeIndex(range)), DataType::Int64, false)));
    fields.extend(values.iter().enumerate().map(|(i, value)| Field::new(use_column(UseIndex(i)), value.clone(), true)));
    Arc::new(Schema::new(fields))
}

pub(super) fn lower_outputs(
    outputs: &[SelectOutput],
    keys: &[FieldRef],
    value_schema: &SchemaRef,
    session: &SessionContext,
) -> Result<Vec<OutputColumn>> {
    let logical: DFSchemaRef = Arc::new(DFSchema::try_from(value_schema.clone())?);
    outputs
        .iter()
        .map(|output| match output {
            SelectOutput::Key { group } => Ok(OutputColumn { field: keys[*group].clone(), kind: ColumnKind::Key(*group) }),
            SelectOutput::Value { name, expr, uses, ranges, bare, sql, window, approximate } => {
                let guarded = if *bare { expr.clone() } else { guard(expr, ranges)? };
                let expr = physical(&guarded, &logical, session)?;
                let field = Arc::new(Field::new(name, expr.data_type(value_schema)?, true));
                let value = ValueColumn {
                    reads_time: collect_columns(&expr).iter().any(|column| column.name() == AS_OF),
                    expr,
                    uses: uses.clone(),
                    ranges: ranges.clone(),
                    sql: sql.clone(),
                    window: window.clone(),
                    approximate: *approximate,
                };
                Ok(OutputColumn { field, kind: ColumnKind::Value(value) })
            }
        })
        .collect()
}

/// Evaluates `expr` only where one of its ranges has events; elsewhere the column is NULL. An aggregate alone needs no
/// guard: it cannot fail, and over no events it has its own value (0 for a count, else NULL).
fn guard(expr: &Expr, ranges: &[ColumnRangeIndex]) -> Result<Expr> {
    let any = ranges.iter().map(|range| col(events_column(*range)).gt(lit(0i64))).reduce(Expr::or);
    match any {
        Some(any) => Ok(when(any, expr.clone()).end()?),
        None => Ok(expr.clone()),
    }
}

fn physical(expr: &Expr, schema: &DFSchemaRef, session: &SessionContext) -> Result<Arc<dyn PhysicalExpr>> {
    let expr = simplified(expr.clone(), schema, session)?;
    Ok(create_physical_expr(&expr, schema, session.state().execution_props(), &PhysicalPlanningContext::default())?)
}

/// Simplifies an expression. Some functions (coalesce, nvl) exist only for the simplifier, which rewrites them to CASE.
fn simplified(expr: Expr, schema: &DFSchemaRef, session: &SessionContext) -> Result<Expr> {
    let options = session.state().config_options().clone();
    let context = SimplifyContext::builder().with_schema(schema.clone()).with_config_options(options).build();
    Ok(ExprSimplifier::new(context).simplify(expr)?)
}

/// Simplifies the inputs of an aggregate, but not the aggregate itself, which would become a different state.
pub(super) fn simplify_inputs(call: Expr, schema: &DFSchemaRef, session: &SessionContext) -> Result<Expr> {
    let Expr::AggregateFunction(mut function) = call else { return Ok(call) };
    let params = &mut function.params;
    for input in params.args.iter_mut().chain(params.filter.as_deref_mut()).chain(params.order_by.iter_mut().map(|sort| &mut sort.expr)) {
        *input = simplified(std::mem::take(input), schema, session)?;
    }
    Ok(Expr::AggregateFunction(function))
}
