//! Recognises the plainest queries by their text: columns of one view where its keys have certain values. Applications
//! send little else, thousands of times a second.
//!
//! ```text
//! SELECT { * | column [[AS] name], .. } FROM view [[AS] name]
//! WHERE key { = constant | IN (constant, ..) | = ANY ($1) } [AND ..] [;]
//! ```
//!
//! A constant is a text, an integer, NULL or a parameter, or one of them cast to a text, an integer, a date or a time
//! with a zone. The parameter of ANY may be cast to an array of these.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, BinaryOperator, CastKind, Expr, GroupByExpr, Ident, ObjectNamePart, Select, SelectFlavor, SelectItem,
    TableFactor, TableWithJoins, TimezoneInfo, TypedString, UnaryOperator, Value, WildcardAdditionalOptions,
};

mod answer_columns;
mod known_texts;

pub(crate) use known_texts::{KnownLookup, PlainLookups};

/// What a text of this form asks. Names are as DataFusion reads them.
#[derive(Debug, PartialEq)]
pub(crate) struct PlainLookup {
    pub(crate) view: String,
    /// `None`: all.
    pub(crate) columns: Option<Vec<AskedColumn>>,
    /// The column and the values of each condition.
    pub(crate) keys: Vec<(String, AskedValues)>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct AskedColumn {
    pub(crate) name: String,
    /// Its name in the answer.
    pub(crate) shown_as: String,
}

/// What a key is compared with.
#[derive(Debug, PartialEq)]
pub(crate) enum AskedValues {
    /// It is one of these.
    OneOf(Vec<Constant>),
    /// It is an item of a parameter, which is an array. The items may be cast.
    ItemOf { parameter: usize, cast: Option<DataType> },
}

#[derive(Debug, PartialEq)]
pub(crate) struct Constant {
    pub(crate) value: ConstantValue,
    pub(crate) cast: Option<DataType>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ConstantValue {
    Null,
    Text(String),
    Integer(i64),
    /// By its number, from 1 on.
    Parameter(usize),
}

impl PlainLookup {
    /// `None` for a statement of any other form.
    pub(crate) fn from_statement(statement: &Statement) -> Option<PlainLookup> {
        let Statement::Statement(statement) = statement else { return None };
        let ast::Statement::Query(query) = &**statement else { return None };
        let PlainSelect { items, table, condition } = PlainSelect::from_query(query)?;
        let FromView { view, known_as } = FromView::from_table(table)?;
        let columns = match items {
            [] => return None,
            [SelectItem::Wildcard(options)] if *options == WildcardAdditionalOptions::default() => None,
            items => Some(items.iter().map(|item| asked_column(item, &known_as)).collect::<Option<_>>()?),
        };
        let mut keys = Vec::new();
        add_keys(condition, &known_as, &mut keys)?;
        Some(PlainLookup { view, columns, keys })
    }

    /// The numbers of the parameters that it names, as often as it does.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = usize> {
        self.keys.iter().flat_map(|(_, values)| match values {
            AskedValues::OneOf(constants) => constants.iter().filter_map(Constant::parameter).collect::<Vec<usize>>(),
            AskedValues::ItemOf { parameter, .. } => vec![*parameter],
        })
    }
}

impl Constant {
    fn parameter(&self) -> Option<usize> {
        match self.value {
            ConstantValue::Parameter(number) => Some(number),
            _ => None,
        }
    }
}

/// What a query consists of that has nothing else in it, whatever else SQL allows there.
struct PlainSelect<'a> {
    items: &'a [SelectItem],
    table: &'a TableFactor,
    condition: &'a Expr,
}

impl<'a> PlainSelect<'a> {
    /// Each field is named, so that what a later parser adds is not overlooked.
    fn from_query(query: &'a ast::Query) -> Option<Self> {
        let ast::Query {
            with: None,
            body,
            order_by: None,
            limit_clause: None,
            fetch: None,
            locks,
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators,
        } = query
        else {
            return None;
        };
        match &**body {
            ast::SetExpr::Select(select) if locks.is_empty() && pipe_operators.is_empty() => Self::from_select(select),
            _ => None,
        }
    }

    fn from_select(select: &'a Select) -> Option<Self> {
        let Select {
            select_token: _,
            optimizer_hints,
            distinct: None,
            select_modifiers: None,
            top: None,
            top_before_distinct: _,
            projection,
            exclude: None,
            into: None,
            from,
            lateral_views,
            prewhere: None,
            selection: Some(condition),
            connect_by,
            group_by: GroupByExpr::Expressions(group_by, group_by_modifiers),
            cluster_by,
            distribute_by,
            sort_by,
            having: None,
            named_window,
            qualify: None,
            window_before_qualify: _,
            value_table_mode: None,
            flavor: SelectFlavor::Standard,
        } = select
        else {
            return None;
        };
        let [TableWithJoins { relation, joins }] = from.as_slice() else { return None };
        let is_grouped = !group_by.is_empty() || !group_by_modifiers.is_empty() || !cluster_by.is_empty();
        let is_ordered = !distribute_by.is_empty() || !sort_by.is_empty() || !named_window.is_empty() || !connect_by.is_empty();
        let has_more = !joins.is_empty() || !lateral_views.is_empty() || !optimizer_hints.is_empty();
        (!is_grouped && !is_ordered && !has_more).then_some(Self { items: projection, table: relation, condition })
    }
}

/// The one relation in FROM.
struct FromView {
    view: String,
    /// The name that stands in front of its columns.
    known_as: String,
}

impl FromView {
    /// A name without a schema, with an alias or none.
    fn from_table(table: &TableFactor) -> Option<Self> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } = table
        else {
            return None;
        };
        if !with_hints.is_empty() || !partitions.is_empty() || !index_hints.is_empty() {
            return None;
        }
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
        let view = identifier(name)?;
        let known_as = match alias {
            None => view.clone(),
            Some(alias) if alias.columns.is_empty() && alias.at.is_none() => identifier(&alias.name)?,
            Some(_) => return None,
        };
        Some(Self { view, known_as })
    }
}

fn asked_column(item: &SelectItem, known_as: &str) -> Option<AskedColumn> {
    match item {
        SelectItem::UnnamedExpr(expr) => {
            let name = column(expr, known_as)?;
            Some(AskedColumn { shown_as: name.clone(), name })
        }
        SelectItem::ExprWithAlias { expr, alias } => Some(AskedColumn { name: column(expr, known_as)?, shown_as: identifier(alias)? }),
        _ => None,
    }
}

/// The column of `column` or `view.column`.
fn column(expr: &Expr, known_as: &str) -> Option<String> {
    match expr {
        Expr::Identifier(name) => identifier(name),
        Expr::CompoundIdentifier(names) => match names.as_slice() {
            [table, name] if identifier(table)? == known_as => identifier(name),
            _ => None,
        },
        _ => None,
    }
}

/// A name as DataFusion reads it.
fn identifier(name: &Ident) -> Option<String> {
    match name.quote_style {
        None => Some(name.value.to_ascii_lowercase()),
        Some('"') => Some(name.value.clone()),
        Some(_) => None,
    }
}

/// Adds the columns and values of conditions that are joined by AND.
fn add_keys(condition: &Expr, known_as: &str, keys: &mut Vec<(String, AskedValues)>) -> Option<()> {
    let (named, values) = match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            add_keys(left, known_as, keys)?;
            return add_keys(right, known_as, keys);
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => (left, AskedValues::OneOf(vec![constant(right)?])),
        Expr::InList { expr, list, negated: false } => (expr, AskedValues::OneOf(list.iter().map(constant).collect::<Option<_>>()?)),
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, is_some: _ } => (left, array_parameter(right)?),
        _ => return None,
    };
    keys.push((column(named, known_as)?, values));
    Some(())
}

/// A value, cast or not.
fn constant(expr: &Expr) -> Option<Constant> {
    match expr {
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, array: false, format: None } => {
            Some(Constant { value: constant_value(expr)?, cast: Some(cast_type(data_type)?) })
        }
        Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }) => match &value.value {
            Value::SingleQuotedString(text) => {
                Some(Constant { value: ConstantValue::Text(text.clone()), cast: Some(cast_type(data_type)?) })
            }
            _ => None,
        },
        expr => Some(Constant { value: constant_value(expr)?, cast: None }),
    }
}

fn constant_value(expr: &Expr) -> Option<ConstantValue> {
    let (value, sign) = match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => (&**expr, "-"),
        expr => (expr, ""),
    };
    let Expr::Value(value) = value else { return None };
    match &value.value {
        Value::Number(digits, false) => format!("{sign}{digits}").parse().ok().map(ConstantValue::Integer),
        _ if !sign.is_empty() => None,
        Value::Null => Some(ConstantValue::Null),
        Value::SingleQuotedString(text) => Some(ConstantValue::Text(text.clone())),
        Value::Placeholder(name) => name.strip_prefix('$')?.parse().ok().map(ConstantValue::Parameter),
        _ => None,
    }
}

/// The parameter of `ANY ($1)` or `ANY ($1::text[])`.
fn array_parameter(expr: &Expr) -> Option<AskedValues> {
    let (array, cast) = match expr {
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, array: false, format: None } => match data_type {
            ast::DataType::Array(ArrayElemTypeDef::SquareBracket(item, None)) => (&**expr, Some(cast_type(item)?)),
            _ => return None,
        },
        expr => (expr, None),
    };
    match constant_value(array)? {
        ConstantValue::Parameter(parameter) => Some(AskedValues::ItemOf { parameter, cast }),
        _ => None,
    }
}

/// The type that a cast to UUID has here: no value has it.
pub(crate) const CAST_TO_UUID: DataType = DataType::FixedSizeBinary(16);

/// The type that DataFusion makes of an SQL type, in the sessions of queries.
fn cast_type(data_type: &ast::DataType) -> Option<DataType> {
    Some(match data_type {
        ast::DataType::Text | ast::DataType::Varchar(None) => DataType::Utf8,
        ast::DataType::SmallInt(None) | ast::DataType::Int2(None) => DataType::Int16,
        ast::DataType::Int(None) | ast::DataType::Integer(None) | ast::DataType::Int4(None) => DataType::Int32,
        ast::DataType::BigInt(None) | ast::DataType::Int8(None) => DataType::Int64,
        ast::DataType::Date => DataType::Date32,
        ast::DataType::Uuid => CAST_TO_UUID,
        ast::DataType::Timestamp(None, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => {
            DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
