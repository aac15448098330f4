//! The plainest questions are read and planned here: columns of one view, where its keys have these values.
//!
//! ```text
//! SELECT { * | column, .. } FROM view WHERE key = { 'text' | 1 | $1 } [AND ..] [;]
//! ```
//!
//! A column may have the view's name in front. Each key is named once, with a value of its own type.
//!
//! Applications ask little else, thousands of times a second, and DataFusion takes far longer to plan such a question
//! than the node to answer it. A question in any other form, or with a mistake, is left to DataFusion, which gives the
//! same answers and says what is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::Principal;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer, Word};
use engine::keys::parse_key;
use engine::plan::{ColumnKind, UuidColumns, ViewPlan};
use serde_json::Value as Json;
use types::Result;

use super::rights::may_read;
use super::view::ViewTable;
use super::{Params, QueryText, Ready};
use crate::meta::{AskedView, Meta};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::ReadView;

/// In a longer text it is not looked for.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Words that name nothing unless they are quoted, or that mean something else at the beginning of a SELECT.
const NO_NAMES: [Keyword; 18] = [
    Keyword::ALL,
    Keyword::DISTINCT,
    Keyword::FROM,
    Keyword::INTERVAL,
    Keyword::TOP,
    Keyword::TRUE,
    Keyword::FALSE,
    Keyword::NULL,
    Keyword::USER,
    Keyword::CURRENT_USER,
    Keyword::SESSION_USER,
    Keyword::CURRENT_CATALOG,
    Keyword::CURRENT_SCHEMA,
    Keyword::CURRENT_DATE,
    Keyword::CURRENT_TIME,
    Keyword::CURRENT_TIMESTAMP,
    Keyword::LOCALTIME,
    Keyword::LOCALTIMESTAMP,
];

/// Plans a question of this form; `None` for any other.
pub(super) fn ready(
    runtime: &QueryRuntime,
    principal: &Principal,
    read_view: &ReadView,
    text: QueryText<'_>,
    params: &Params,
) -> Result<Option<Ready>> {
    let Some(lookup) = PlainLookup::read(text.sql) else { return Ok(None) };
    let Ok(loaded) = read_view.view(&lookup.view) else { return Ok(None) };
    let live = &loaded.live;
    let is_at_hand = loaded.copying().is_none() && live.plan.links().is_none();
    if !is_at_hand || !may_read(principal, &read_view.loaded.registry, &lookup.view) {
        return Ok(None);
    }
    let view_schema = live.plan.output_schema();
    let (Some(columns), Some(key)) = (lookup.columns(&view_schema), lookup.key(&live.plan, params)) else { return Ok(None) };
    let context = QueryContext::new(read_view.clone(), text.as_of, &[&*live.name])?.on_value_error(text.on_value_error);
    let loaded = context.read_view.view(&live.name)?;
    if context.needs_archive(loaded) {
        return Ok(None);
    }
    let meta = Meta::new(&context, &[AskedView { view: loaded, columns: Some(&columns) }], &[]);
    let schema = Arc::new(view_schema.project(&columns)?);
    let mut uuids = UuidColumns::default();
    uuids.add_view(&live.name, &live.plan);
    let uuids = uuids.in_table(&live.name, &schema);
    let table = ViewTable { runtime: runtime.clone(), context: context.clone(), live: live.clone() };
    let physical = table.lookup(vec![key], columns, schema);
    Ok(Some(Ready { context, physical, task: runtime.task_context(), meta, uuids }))
}

/// What a text of this form asks.
#[derive(Debug)]
struct PlainLookup {
    view: String,
    /// `None`: all.
    columns: Option<Vec<String>>,
    keys: Vec<(String, Asked)>,
}

/// What a key is compared with.
#[derive(Debug)]
enum Asked {
    Text(String),
    Number(String),
    /// By its number, from 1 on.
    Parameter(usize),
}

impl PlainLookup {
    fn read(sql: &str) -> Option<PlainLookup> {
        if sql.len() > MAX_TEXT_BYTES {
            return None;
        }
        let mut tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize().ok()?;
        tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
        let mut rest = Rest(&tokens);
        rest.keyword(Keyword::SELECT)?;
        let columns = match rest.symbol(&Token::Mul) {
            Some(()) => Vec::new(),
            None => rest.columns()?,
        };
        rest.keyword(Keyword::FROM)?;
        let view = rest.name()?;
        rest.keyword(Keyword::WHERE)?;
        let mut keys = Vec::new();
        loop {
            let column = rest.column()?;
            rest.symbol(&Token::Eq)?;
            keys.push((column, rest.value()?));
            if rest.keyword(Keyword::AND).is_none() {
                break;
            }
        }
        rest.symbol(&Token::SemiColon);
        let are_of_the_view = columns.iter().chain(keys.iter().map(|(column, _)| column)).all(|column| column.is_of(&view));
        if !rest.0.is_empty() || !are_of_the_view {
            return None;
        }
        let names: Vec<String> = columns.into_iter().map(|column| column.name).collect();
        let keys = keys.into_iter().map(|(column, value)| (column.name, value)).collect();
        Some(PlainLookup { view, columns: (!names.is_empty()).then_some(names), keys })
    }

    /// The places of the columns, unless one is not there or is named twice.
    fn columns(&self, schema: &Schema) -> Option<Vec<usize>> {
        let Some(names) = &self.columns else { return Some((0..schema.fields().len()).collect()) };
        let columns = names.iter().map(|name| schema.index_of(name).ok()).collect::<Option<Vec<usize>>>()?;
        let is_repeated = (1..columns.len()).any(|at| columns[..at].contains(&columns[at]));
        (!is_repeated).then_some(columns)
    }

    /// The values of the view's keys, if it names all of them and nothing else.
    fn key(&self, plan: &ViewPlan, params: &Params) -> Option<Vec<ScalarValue>> {
        let keys = plan.answer_keys();
        if self.keys.len() != keys.len() || !self.names_all(params) {
            return None;
        }
        let value = |(index, field): (usize, &FieldRef)| {
            let column = plan.columns.iter().find(|column| matches!(column.kind, ColumnKind::Key(key) if key == index))?;
            let (_, asked) = self.keys.iter().find(|(name, _)| name == column.field.name())?;
            asked.value(field.data_type(), plan.is_uuid(index), params)
        };
        keys.iter().enumerate().map(value).collect()
    }

    /// Whether it names these parameters and no others.
    fn names_all(&self, params: &Params) -> bool {
        let count = match params {
            Params::Json(values) => values.len(),
            Params::Typed(values) => values.len(),
        };
        let number = |asked: &Asked| match asked {
            Asked::Parameter(number) => Some(*number),
            _ => None,
        };
        let named: BTreeSet<usize> = self.keys.iter().filter_map(|(_, asked)| number(asked)).collect();
        named.into_iter().eq(1..=count)
    }
}

impl Asked {
    /// The value of a key of this type. What a NULL or a float equals is not decided here.
    fn value(&self, data_type: &DataType, is_uuid: bool, params: &Params) -> Option<ScalarValue> {
        let value = match (self, params) {
            (Asked::Text(text), _) => ScalarValue::Utf8(Some(text.clone())),
            (Asked::Number(digits), _) => ScalarValue::Int64(Some(digits.parse().ok()?)),
            (Asked::Parameter(number), Params::Typed(values)) => values.get(number.checked_sub(1)?)?.clone(),
            (Asked::Parameter(number), Params::Json(values)) => match values.get(number.checked_sub(1)?)? {
                Json::String(text) => ScalarValue::Utf8(Some(text.clone())),
                Json::Number(number) => ScalarValue::Int64(Some(number.as_i64()?)),
                _ => return None,
            },
        };
        let value = match value.data_type().is_integer() && data_type.is_integer() {
            true => value.cast_to(data_type).ok()?,
            false => value,
        };
        if value.is_null() || value.data_type() != *data_type || data_type.is_floating() {
            return None;
        }
        match value {
            ScalarValue::Utf8(Some(text)) if is_uuid => parse_key(&text, data_type, true),
            value => Some(value),
        }
    }
}

/// `column` or `view.column`.
struct Column {
    view: Option<String>,
    name: String,
}

impl Column {
    fn is_of(&self, view: &str) -> bool {
        self.view.as_ref().is_none_or(|of| of == view)
    }
}

/// The tokens that are not read yet. What is read is `None` where something else comes.
struct Rest<'t>(&'t [Token]);

impl<'t> Rest<'t> {
    fn token(&mut self) -> Option<&'t Token> {
        let (token, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(token)
    }

    fn token_if(&mut self, is_it: impl Fn(&Token) -> bool) -> Option<()> {
        let (_, rest) = self.0.split_first().filter(|(token, _)| is_it(token))?;
        self.0 = rest;
        Some(())
    }

    fn symbol(&mut self, symbol: &Token) -> Option<()> {
        self.token_if(|token| token == symbol)
    }

    fn keyword(&mut self, keyword: Keyword) -> Option<()> {
        self.token_if(|token| matches!(token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none()))
    }

    fn name(&mut self) -> Option<String> {
        match self.token()? {
            Token::Word(Word { value, quote_style: None, keyword }) if !NO_NAMES.contains(keyword) => Some(value.to_ascii_lowercase()),
            Token::Word(Word { value, quote_style: Some('"'), .. }) => Some(value.clone()),
            _ => None,
        }
    }

    fn column(&mut self) -> Option<Column> {
        let name = self.name()?;
        match self.symbol(&Token::Period) {
            Some(()) => Some(Column { view: Some(name), name: self.name()? }),
            None => Some(Column { view: None, name }),
        }
    }

    fn columns(&mut self) -> Option<Vec<Column>> {
        let mut columns = vec![self.column()?];
        while self.symbol(&Token::Comma).is_some() {
            columns.push(self.column()?);
        }
        Some(columns)
    }

    fn value(&mut self) -> Option<Asked> {
        match self.token()? {
            Token::SingleQuotedString(text) => Some(Asked::Text(text.clone())),
            Token::Number(digits, false) => Some(Asked::Number(digits.clone())),
            Token::Placeholder(name) => name.strip_prefix('$')?.parse().ok().map(Asked::Parameter),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
