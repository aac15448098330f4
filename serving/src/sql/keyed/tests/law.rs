//! Generated statements.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// How constants of a key are written.
#[derive(Debug, Clone, Copy)]
enum KeyConstants {
    Texts,
    Integers,
    Dates,
    Times,
}

type KeyedView = (&'static str, &'static [(&'static str, KeyConstants)]);

const VIEWS: &[KeyedView] = &[
    ("velocity", &[("device", KeyConstants::Texts)]),
    ("pairs", &[("device", KeyConstants::Texts), ("status", KeyConstants::Texts)]),
    ("by_day", &[("day", KeyConstants::Dates)]),
    ("by_time", &[("ts", KeyConstants::Times)]),
    ("by_units", &[("units", KeyConstants::Integers)]),
    ("alike", &[("device", KeyConstants::Texts)]),
];
const TABLE_ALIASES: &[&str] = &["", "", "w", "\"W\""];
const COLUMN_ALIASES: &[&str] = &["", "", " AS n", " x", " AS \"Y\"", " AS \"Int64(3)\""];
const CASTS: &[&str] = &["", "", "", "::text", "::bigint", "::date", "::timestamptz"];
const ARRAY_CASTS: &[&str] = &["", "", "::text[]", "::int[]", "::bigint[]"];

impl KeyConstants {
    fn literals(self) -> &'static [&'static str] {
        match self {
            KeyConstants::Texts => &["'a'", "'c<&'", "'ok'", "'nobody'", "'a'::text", "CAST('ok' AS VARCHAR)", "'A'", "7", "NULL"],
            KeyConstants::Integers => &["10", "7", "-1", "'7'", "'10'::bigint", "7::int", "'x'::bigint", "1.5", "NULL"],
            KeyConstants::Dates => {
                &["'2026-03-01'", "DATE '2026-03-02'", "'2026-03-01'::date", "'2026-03-01T10:00:00Z'", "'2026-03-02'::timestamptz", "NULL"]
            }
            KeyConstants::Times => &[
                "'2026-03-01T10:00:00Z'",
                "'2026-03-01 11:00:00+01:00'",
                "'2026-03-02 11:30:00'",
                "TIMESTAMPTZ '2026-03-02T11:30:00Z'",
                "'2026-03-02T11:45:00Z'::timestamptz",
                "'2026-03-01T10:00:00.0000001Z'",
                "'2026-03-01'::date",
                "NULL",
            ],
        }
    }

    /// Values of parameters, by their types.
    fn parameters(self) -> Vec<Vec<ScalarValue>> {
        let texts = |texts: &[&str]| texts.iter().map(|text| ScalarValue::from(*text)).chain([ScalarValue::Utf8(None)]).collect::<Vec<_>>();
        let time = |text: &str| ScalarValue::from(text).cast_to(&types::sql_types::timestamp_type()).unwrap();
        match self {
            KeyConstants::Texts => vec![texts(&["a", "ok", "c<&", "nobody"]), [7, 8].map(|value| ScalarValue::Int64(Some(value))).to_vec()],
            KeyConstants::Integers => vec![
                [10, 7, 5_000_000_000].map(|value| ScalarValue::Int64(Some(value))).to_vec(),
                [10, -7].map(|value| ScalarValue::Int16(Some(value))).to_vec(),
                texts(&["7"]),
            ],
            KeyConstants::Dates => vec![[20_513, 20_514].map(|days| ScalarValue::Date32(Some(days))).to_vec(), texts(&["2026-03-01"])],
            KeyConstants::Times => {
                vec![["2026-03-01T10:00:00Z", "2026-03-02T11:30:00Z"].map(time).to_vec(), texts(&["2026-03-01T10:00:00Z"])]
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Written {
    Literal(&'static str),
    Parameter(ScalarValue, &'static str),
}

#[derive(Debug, Clone)]
enum Condition {
    Equals(Written),
    In(Vec<Written>),
    Any(Vec<ScalarValue>, &'static str),
}

#[derive(Debug, Clone)]
struct Generated {
    view: &'static str,
    /// Their places, and their names in the answer; none are all.
    columns: Vec<(usize, &'static str)>,
    known_as: &'static str,
    conditions: Vec<(&'static str, Condition)>,
    is_qualified: bool,
    is_upper_case: bool,
}

fn any_condition(constants: KeyConstants) -> impl Strategy<Value = Condition> {
    let parameter = (select(constants.parameters().concat()), select(CASTS)).prop_map(|(value, cast)| Written::Parameter(value, cast));
    let written = prop_oneof![3 => select(constants.literals()).prop_map(Written::Literal), 2 => parameter].boxed();
    let items = select(constants.parameters()).prop_flat_map(|alike| vec(select(alike), 1..4));
    prop_oneof![
        written.clone().prop_map(Condition::Equals),
        vec(written, 1..5).prop_map(Condition::In),
        (items, select(ARRAY_CASTS)).prop_map(|(items, cast)| Condition::Any(items, cast)),
    ]
}

fn any_statement() -> impl Strategy<Value = Generated> {
    select(VIEWS).prop_flat_map(|(view, keys)| {
        let conditions: Vec<_> = keys.iter().map(|(key, constants)| (Just(*key), any_condition(*constants))).collect();
        let columns = vec((0usize..8, select(COLUMN_ALIASES)), 0..4);
        let statement = (columns, select(TABLE_ALIASES), conditions, any::<bool>(), any::<bool>());
        statement.prop_map(move |(columns, known_as, conditions, is_qualified, is_upper_case)| Generated {
            view,
            columns,
            known_as,
            conditions,
            is_qualified,
            is_upper_case,
        })
    })
}

impl Generated {
    /// The statement up to WHERE, its condition, and the values of its parameters.
    fn sql(&self, all_columns: &Fields) -> (String, String, Vec<ScalarValue>) {
        let cased = |name: &str| if self.is_upper_case { name.to_uppercase() } else { name.to_owned() };
        let prefix = match (self.is_qualified, self.known_as) {
            (false, _) => String::new(),
            (true, "") => format!("{}.", self.view),
            (true, alias) => format!("{alias}."),
        };
        let column = |(place, alias): &(usize, &str)| {
            let name = all_columns[place % all_columns.len()].name();
            format!("{prefix}{}{alias}", cased(name))
        };
        let columns: Vec<String> = self.columns.iter().map(column).collect();
        let columns = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
        let mut params = Vec::new();
        let conditions: Vec<String> = self
            .conditions
            .iter()
            .map(|(key, condition)| match condition {
                Condition::Equals(value) => format!("{prefix}{} = {}", cased(key), written(value, &mut params)),
                Condition::In(values) => {
                    let values: Vec<String> = values.iter().map(|value| written(value, &mut params)).collect();
                    format!("{prefix}{} IN ({})", cased(key), values.join(", "))
                }
                Condition::Any(items, cast) => {
                    let list = ScalarValue::new_list_nullable(items, &items[0].data_type());
                    let array = written(&Written::Parameter(ScalarValue::List(list), cast), &mut params);
                    format!("{prefix}{} = ANY ({array})", cased(key))
                }
            })
            .collect();
        (format!("SELECT {columns} FROM {} {}", cased(self.view), self.known_as), conditions.join(" AND "), params)
    }
}

fn written(value: &Written, params: &mut Vec<ScalarValue>) -> String {
    match value {
        Written::Literal(text) => (*text).to_owned(),
        Written::Parameter(value, cast) => {
            params.push(value.clone());
            format!("${}{cast}", params.len())
        }
    }
}

/// A statement that is planned here is one that DataFusion answers, with the same columns, meta and rows.
#[test]
fn what_is_planned_here_is_answered_by_datafusion_too_and_alike() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let harness = runtime.block_on(harness());
    let [equals, is_in, any] = [const { AtomicUsize::new(0) }; 3];
    let config = Config { cases: 600, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&any_statement(), |statement| {
        let schema = harness.node.read_view().unwrap().live(statement.view).unwrap().plan.output_schema();
        let (head, condition, params) = statement.sql(schema.fields());
        let (plain, planned, params) = (format!("{head} WHERE {condition}"), format!("{head} WHERE ({condition})"), Params::Typed(params));
        if !is_planned_here(&harness, &Principal::anonymous(), &plain, &params) {
            return Ok(());
        }
        for (_, condition) in &statement.conditions {
            let count = match condition {
                Condition::Equals(_) => &equals,
                Condition::In(_) => &is_in,
                Condition::Any(..) => &any,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        let (here, there) =
            runtime.block_on(async { (answer(&harness, &plain, &params).await, answer(&harness, &planned, &params).await) });
        let failed = |error: types::Error| TestCaseError::fail(format!("{plain}: {error}"));
        prop_assert_eq!(here.map_err(failed)?, there.map_err(failed)?, "{}", plain);
        Ok(())
    });
    outcome.unwrap();
    let counts = [equals, is_in, any].map(AtomicUsize::into_inner);
    assert!(counts.iter().all(|count| *count >= 5), "too few of a form: {counts:?}");
}
