//! Parameters: values that stand for `param('name')` in the SELECT of a sink or an alert.
//!
//! A value replaces the call in the syntax tree before anything is planned, as if it had been written there. When a
//! parameter is set, each process plans the SELECTs that use it again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::Span;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, Spanned, Value, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
use definitions::syntax::SyntaxNode;
use definitions::{ParameterDefinition, ParameterType};
use types::sql_dialect::SqlDialect;
use types::suggest::expected;
use types::{Error, Result};

/// The function that a parameter's value stands for.
pub(crate) const FUNCTION: &str = "param";

const NO_PARAMETER: &str = "there is no parameter \"";

/// Returns the name if the message says that no parameter has it.
pub fn unknown_parameter(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(NO_PARAMETER)?;
    Some(rest.split_once('"')?.0)
}

/// A parameter's value, with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: Arc<str>,
    pub version: u32,
    pub value_type: ParameterType,
    /// As [`ParameterType::value`] writes it.
    pub value: String,
}

/// The values of all parameters, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters(BTreeMap<Arc<str>, Parameter>);

/// The parameters that a SELECT uses, with the version of each one's value.
pub type UsedParameters = BTreeMap<Arc<str>, u32>;

impl Parameters {
    /// The initial values of a project's files. They have no version yet.
    pub fn initial(definitions: &[ParameterDefinition]) -> Parameters {
        let value =
            |of: &ParameterDefinition| Parameter { name: of.name.clone(), version: 0, value_type: of.value_type, value: of.value.clone() };
        definitions.iter().map(value).collect()
    }

    /// Errors: `NotFound`, which suggests the nearest name.
    pub fn get(&self, name: &str) -> Result<&Parameter> {
        self.0.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(|known| &**known).collect();
            let none = format!("no parameter is defined yet; CREATE PARAMETER {name} = 20 makes one");
            Error::not_found(format!("{NO_PARAMETER}{name}\": {}", expected(name, &known, &none)))
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.0.values()
    }

    /// Gives a parameter another value. Errors: `NotFound`, and `Input` for a value of another type.
    pub fn set(&mut self, name: &str, value: &str, version: u32) -> Result<()> {
        let known = self.get(name)?;
        let value = known.checked(value)?;
        self.0.insert(known.name.clone(), Parameter { version, value, ..known.clone() });
        Ok(())
    }
}

impl FromIterator<Parameter> for Parameters {
    fn from_iter<I: IntoIterator<Item = Parameter>>(parameters: I) -> Self {
        Parameters(parameters.into_iter().map(|parameter| (parameter.name.clone(), parameter)).collect())
    }
}

impl Parameter {
    /// Returns another value in the spelling in which it is stored. Errors: `Input` for one of another type.
    pub fn checked(&self, value: &str) -> Result<String> {
        self.value_type.value(value).map_err(|problem| Error::input(format!("the parameter \"{}\": {problem}", self.name)))
    }

    /// The value as it is written in SQL.
    fn expr(&self) -> Result<Expr> {
        let quoted = || self.value.replace('\'', "''");
        let sql = match self.value_type {
            ParameterType::Text => return Ok(Expr::Value(Value::SingleQuotedString(self.value.clone()).with_empty_span())),
            ParameterType::BigInt | ParameterType::Boolean => self.value.clone(),
            // By the text: a literal with a point is a decimal whose digits are those that it has.
            ParameterType::Double | ParameterType::Decimal { .. } => format!("CAST('{}' AS {})", quoted(), self.value_type),
            ParameterType::Interval => format!("INTERVAL '{}'", quoted()),
        };
        let parsed = Parser::new(&SqlDialect).try_with_sql(&sql).and_then(|mut parser| parser.parse_expr());
        parsed.map_err(|error| Error::internal(format!("the value of the parameter \"{}\" is no SQL: {error}", self.name)))
    }
}

/// Writes `max_hourly@3,min_amount@1`: the parameters that a SELECT uses, each with the version of its value.
pub fn used_text(used: &UsedParameters) -> String {
    used.iter().map(|(name, version)| format!("{name}@{version}")).collect::<Vec<_>>().join(",")
}

/// Replaces all `param('name')` of a query with their values. Returns which were used.
///
/// Errors: `Input` for an unknown name or another argument, with the place.
pub(crate) fn put_in(query: &mut ast::Query, parameters: &Parameters) -> Result<UsedParameters, (Error, Option<Span>)> {
    let mut values = ParameterVisitor { parameters, used: UsedParameters::new(), refused: None };
    let _ = query.visit_mut(&mut values);
    match values.refused {
        Some(refused) => Err(refused),
        None => Ok(values.used),
    }
}

struct ParameterVisitor<'a> {
    parameters: &'a Parameters,
    used: UsedParameters,
    /// Why the visit ended early, with the place.
    refused: Option<(Error, Option<Span>)>,
}

impl VisitorMut for ParameterVisitor<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(function) = &*expr else { return ControlFlow::Continue(()) };
        if !is_parameter(function) {
            return ControlFlow::Continue(());
        }
        let value = name_of(function).and_then(|name| {
            let parameter = self.parameters.get(name).map_err(|error| Error::input(error.message()))?;
            self.used.insert(parameter.name.clone(), parameter.version);
            parameter.expr()
        });
        match value {
            Ok(value) => {
                *expr = value;
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.refused = Some((error, Span::try_from_sqlparser_span(expr.span())));
                ControlFlow::Break(())
            }
        }
    }
}

/// Whether this is a call of `param`.
pub(crate) fn is_parameter(function: &Function) -> bool {
    matches!(function.name.0.as_slice(), [ObjectNamePart::Identifier(name)] if name.value.eq_ignore_ascii_case(FUNCTION))
}

fn name_of(function: &Function) -> Result<&str> {
    if let FunctionArguments::List(list) = &function.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] = list.args.as_slice()
        && let Value::SingleQuotedString(name) = &value.value
        && function.over.is_none()
        && function.filter.is_none()
    {
        return Ok(name);
    }
    Err(Error::input(format!("found {function}: expected the name of a parameter in quotes, {FUNCTION}('max_hourly')")))
}

/// Returns the names of the parameters that a SELECT uses; none if it does not parse.
pub fn names_in(select: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for statement in Parser::parse_sql(&SqlDialect, select).unwrap_or_default() {
        let _ = statement.visit_expressions(|expr| {
            if let Expr::Function(function) = expr
                && is_parameter(function)
            {
                names.extend(name_of(function).ok().map(str::to_owned));
            }
            ControlFlow::Continue(())
        });
    }
    names
}

#[cfg(test)]
mod tests;
