//! A statement that has rows: what its columns and parameters are, and its rows. Views, streams and `system.*` are
//! answered by the node, `pg_catalog` and `information_schema` by the metadata session.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use access::{Action, Object, Principal, may};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer, Word};
use engine::plan::TextType;
use futures::StreamExt;
use serving::{Node, ReadView, SearchPath, SessionSettings, Turn};
use types::{Error, Result};

use crate::columns::{Kind, WireType, types_to_send, wire_types, with_oids};
use crate::metadata::{Metadata, is_catalog_table, oid_columns, oid_params};
use crate::problem::SqlProblem;
use crate::rows::plain;
use crate::session::{AskedSettings, ClientSession};

/// What answers a statement.
#[derive(Clone)]
pub(crate) struct QueryEngine {
    pub(crate) node: Node,
    pub(crate) metadata: Metadata,
}

/// The columns and parameters of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Description {
    pub(crate) schema: SchemaRef,
    pub(crate) types: Vec<WireType>,
    /// The OIDs of `$1`, `$2`, ..
    pub(crate) params: Vec<u32>,
}

/// The rows of a statement, as they are made.
pub(crate) struct StatementRows {
    pub(crate) schema: SchemaRef,
    pub(crate) types: Vec<WireType>,
    batches: SendableRecordBatchStream,
    /// What they set while they are made, if they may.
    asked_settings: Option<AskedSettings>,
    turn: Turn,
    batch: Option<RecordBatch>,
    /// The first row of the batch that was not taken.
    next: usize,
    /// How many rows were taken.
    taken: usize,
    /// Of a cursor: how many of the next rows are those of a FETCH whose client reads them in parts.
    pub(crate) promised: usize,
}

/// The text of a statement that has rows.
#[derive(Clone, Copy)]
pub(crate) struct AskedText<'a> {
    pub(crate) sql: &'a str,
    /// What [`may_name_the_catalog`] says of it.
    pub(crate) may_name_the_catalog: bool,
}

/// What a statement reads from.
pub(crate) struct ReadFrom<'a> {
    /// That of a transaction.
    pub(crate) read_view: Option<ReadView>,
    pub(crate) session: &'a ClientSession,
    pub(crate) search_path: SearchPath,
}

impl QueryEngine {
    /// `given` are the OIDs that a client says of its parameters: 0 where it says nothing.
    pub(crate) async fn describe(
        &self,
        sql: &str,
        given: &[u32],
        read_view: ReadView,
        (session, search_path): (&ClientSession, SearchPath),
    ) -> Result<Description, SqlProblem> {
        let of_client = given.iter().map(|oid| crate::params::data_type(*oid)).collect::<Result<Vec<_>, _>>()?;
        let (described, oids, oid_columns) = match is_metadata(sql, &read_view, self.node.principal()) {
            true => {
                let described = self.metadata.describe(&self.node, sql, &of_client, read_view, session.values()).await?;
                (described, oid_params(sql), oid_columns(sql))
            }
            false => (self.node.describe(read_view, sql, &of_client, search_path).await?, BTreeMap::new(), BTreeSet::new()),
        };
        let oid_of = |(index, data_type): (usize, &DataType)| match (given.get(index), oids.get(&(index + 1))) {
            (Some(given), _) if *given != 0 => *given,
            (_, Some(cast)) => cast.oid(),
            _ => param_type(data_type, described.param_text_types.get(index).copied().unwrap_or_default()),
        };
        let params = described.params.iter().enumerate().map(oid_of).collect();
        let schema = with_oids(described.schema, &oid_columns);
        Ok(Description { types: types_to_send(&schema, &described.text_types)?, schema, params })
    }

    pub(crate) async fn ask(&self, asked: AskedText<'_>, params: Vec<ScalarValue>, from: ReadFrom<'_>) -> Result<StatementRows> {
        let (AskedText { sql, may_name_the_catalog }, ReadFrom { read_view, session, search_path }) = (asked, from);
        if may_name_the_catalog {
            let for_names = match &read_view {
                Some(read_view) => read_view.clone(),
                None => self.node.read_view()?,
            };
            if is_metadata(sql, &for_names, self.node.principal()) {
                let (batches, settings, turn) = self.metadata.ask(&self.node, sql, params, for_names, session.values()).await?;
                let schema = with_oids(batches.schema(), &oid_columns(sql));
                let rows = StatementRows::new(schema, Vec::new(), batches, turn)?;
                return Ok(StatementRows { asked_settings: Some(settings), ..rows });
            }
        }
        let time_zone = session.zone().other_than_utc();
        let settings = SessionSettings { as_of: session.as_of(), time_zone: time_zone.as_deref(), search_path };
        let response = self.node.query_typed(read_view, sql, params, settings).await?;
        StatementRows::new(response.schema, response.text_types, response.batches, response.turn)
    }
}

impl StatementRows {
    fn new(schema: SchemaRef, text_types: Vec<TextType>, batches: SendableRecordBatchStream, turn: Turn) -> Result<Self> {
        let types = types_to_send(&schema, &text_types)?;
        Ok(Self { schema, types, batches, asked_settings: None, turn, batch: None, next: 0, taken: 0, promised: 0 })
    }

    /// One row of texts, or none.
    pub(crate) fn from_texts(schema: SchemaRef, rows: Option<RecordBatch>) -> Self {
        let types = wire_types(&schema, &[]);
        let batches = Box::pin(datafusion::physical_plan::EmptyRecordBatchStream::new(schema.clone()));
        Self { schema, types, batches, asked_settings: None, turn: Turn::default(), batch: rows, next: 0, taken: 0, promised: 0 }
    }

    /// The rows of these batches.
    #[cfg(test)]
    pub(crate) fn from_batches(batches: SendableRecordBatchStream) -> Self {
        Self::new(batches.schema(), Vec::new(), batches, Turn::default()).unwrap()
    }

    /// Its place among the queries that run.
    pub(crate) fn turn(&self) -> &Turn {
        &self.turn
    }

    /// What the rows so far have set.
    pub(crate) fn asked_settings(&self) -> Option<&AskedSettings> {
        self.asked_settings.as_ref()
    }

    /// Waits until there is a row. Returns false after the last one.
    pub(crate) async fn fill(&mut self) -> Result<bool, SqlProblem> {
        while !self.has_row() {
            // The batch before is dropped first: memory holds one.
            (self.batch, self.next) = (None, 0);
            match self.batches.next().await {
                Some(batch) => self.batch = Some(plain(batch.map_err(Error::from)?)?),
                None => return Ok(false),
            }
            self.asked_settings.as_ref().map_or(Ok(()), AskedSettings::check)?;
        }
        Ok(true)
    }

    /// The rows that need no waiting: the batch they are in, and their places there.
    pub(crate) fn rows_at_hand(&self) -> Option<(&RecordBatch, Range<usize>)> {
        self.batch.as_ref().map(|batch| (batch, self.next..batch.num_rows()))
    }

    /// Takes the first of them.
    pub(crate) fn take(&mut self, rows: usize) {
        self.next += rows;
        self.taken += rows;
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// True if the next row needs no waiting.
    pub(crate) fn has_row(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| self.next < batch.num_rows())
    }
}

/// The OID of a parameter of this Arrow type.
fn param_type(data_type: &DataType, text_type: TextType) -> u32 {
    let of_kind = |kind: Kind| WireType { kind, is_list: matches!(data_type, DataType::List(_)), modifier: -1 };
    let wire_type = match text_type {
        TextType::Uuid => of_kind(Kind::Uuid),
        TextType::Json => of_kind(Kind::Json),
        TextType::Any => WireType::from_field(&Field::new("", data_type.clone(), true), TextType::Any),
    };
    wire_type.pg_type().oid()
}

/// Functions that say something of the server itself.
const FUNCTIONS: [&str; 15] = [
    "version",
    "current_database",
    "current_schema",
    "current_schemas",
    "current_setting",
    "set_config",
    "format_type",
    "obj_description",
    "col_description",
    "shobj_description",
    "has_table_privilege",
    "has_schema_privilege",
    "has_database_privilege",
    "has_any_column_privilege",
    "inet_server_port",
];
/// The same without parentheses.
const KEYWORDS: [&str; 5] = ["current_user", "session_user", "current_catalog", "current_role", "current_schema"];
/// Another one, where a statement reads no table: in those, it may be the name of a column.
const USER: &str = "user";
/// A function of queries, though its name begins as those of the catalog do.
const TYPE_OF_VALUE: &str = "pg_typeof";

/// Types of what the catalog has, whose values are its OIDs.
const TYPES: [&str; 5] = ["oid", "regclass", "regtype", "regproc", "regnamespace"];

/// Whether a statement names what PostgreSQL's catalog has: no table of ours, and no column of one that it names. A
/// table that the principal may not read is as one that is not there.
pub(crate) fn is_metadata(sql: &str, read_view: &ReadView, principal: &Principal) -> bool {
    let registry = &read_view.loaded.registry;
    let view = |name: &str| registry.served(name).filter(|_| may(principal, Action::Read, Object::View(name)));
    let stream = |name: &str| registry.streams.get(name).filter(|_| may(principal, Action::Read, Object::Stream(name)));
    let is_ours = |name: &str| view(name).is_some() || stream(name).is_some();
    let has_column = |table: &str, name: &str| {
        let of_view = || view(table).is_some_and(|view| view.plan.columns.iter().any(|column| column.field.name() == name));
        let of_stream = || stream(table).is_some_and(|stream| stream.definition.columns.iter().any(|column| column.name == name));
        of_view() || of_stream()
    };
    names_the_catalog(sql, is_ours, has_column)
}

/// False for a text that has none of the catalog's names, however it is cut into words: most texts of applications.
pub(crate) fn may_name_the_catalog(sql: &str) -> bool {
    let sql = sql.to_lowercase();
    let is_user = || sql.contains(USER) && !sql.contains("from");
    ["pg_", "information_schema"].iter().chain(&FUNCTIONS).chain(&KEYWORDS).chain(&TYPES).any(|name| sql.contains(name)) || is_user()
}

/// Whether the tokens after `CAST(` end with `AS` and a type of the catalog, or an array of it.
fn is_cast_of_catalog(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let ends = |token: &Token| {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth < 0
    };
    let inside = &tokens[..tokens.iter().position(ends).unwrap_or(tokens.len())];
    let inside = inside.strip_suffix(&[Token::LBracket, Token::RBracket]).unwrap_or(inside);
    match inside {
        [.., Token::Word(of), Token::Word(name)] => {
            of.value.eq_ignore_ascii_case("as") && TYPES.contains(&name.value.to_lowercase().as_str())
        }
        _ => false,
    }
}

fn names_the_catalog(sql: &str, is_ours: impl Fn(&str) -> bool, has_column: impl Fn(&str, &str) -> bool) -> bool {
    let Ok(mut tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else { return false };
    tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
    let names = tokens.iter().filter_map(|token| if let Token::Word(word) = token { Some(identifier(word)) } else { None });
    let tables: Vec<String> = names.filter(|name| is_ours(name)).collect();
    let is_column = |name: &str| tables.iter().any(|table| has_column(table, name));
    let aliases = aliases(&tokens, &is_ours);
    let is_keyword = |token: &Token, keyword: &str| matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case(keyword));
    let reads_tables = tokens.iter().any(|token| is_keyword(token, "from"));
    let is_user = |index: usize, name: &str| name == USER && !reads_tables && index > 0 && !is_keyword(&tokens[index - 1], "as");
    tokens.iter().enumerate().any(|(index, token)| {
        let Token::Word(word) = token else { return false };
        let name = word.value.to_lowercase();
        let is_of_catalog = match tokens.get(index + 1) {
            Some(Token::LParen) if FUNCTIONS.contains(&name.as_str()) => true,
            Some(Token::LParen) if name == TYPE_OF_VALUE => false,
            Some(Token::Period) if name == "information_schema" => true,
            Some(Token::LParen) if name == "cast" => is_cast_of_catalog(&tokens[index + 2..]),
            _ if index > 0 && tokens[index - 1] == Token::DoubleColon && TYPES.contains(&name.as_str()) => true,
            // Beside a table of ours, another such word is the name of a column.
            next if name.starts_with("pg_") => tables.is_empty() || next == Some(&Token::LParen) || is_catalog_name(&name),
            _ => word.quote_style.is_none() && (KEYWORDS.contains(&name.as_str()) || is_user(index, &name)),
        };
        let identifier = identifier(word);
        is_of_catalog && !is_ours(&identifier) && !is_column(&identifier) && !aliases.contains(&identifier)
    })
}

/// The words after the names of our tables, with AS between them or without.
fn aliases(tokens: &[Token], is_ours: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let is_as = |token: &Token| matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case("as"));
    let alias = |at: usize| match (&tokens[at], &tokens[at + 1..]) {
        (Token::Word(table), [as_word, Token::Word(alias), ..]) if is_as(as_word) && is_ours(&identifier(table)) => Some(identifier(alias)),
        (Token::Word(table), [Token::Word(alias), ..]) if is_ours(&identifier(table)) => Some(identifier(alias)),
        _ => None,
    };
    (0..tokens.len()).filter_map(alias).collect()
}

/// Whether PostgreSQL's catalog, or a table of it, has this name.
fn is_catalog_name(name: &str) -> bool {
    name == "pg_catalog" || is_catalog_table(name)
}

/// The name that a word is: without quotes, in lower case.
fn identifier(word: &Word) -> String {
    if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use datafusion::physical_plan::EmptyRecordBatchStream;

    use super::*;

    #[test]
    fn an_answer_has_no_more_columns_than_a_message_counts() {
        let answer = |columns: usize| {
            let fields = (0..columns).map(|number| Field::new(number.to_string(), DataType::Int64, true));
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let batches = Box::pin(EmptyRecordBatchStream::new(schema.clone()));
            StatementRows::new(schema, Vec::new(), batches, Turn::default()).map(|rows| rows.types.len())
        };
        assert_eq!(answer(32_767).unwrap(), 32_767);
        assert_eq!(SqlProblem::from(answer(32_768).unwrap_err()).state, "54011");
    }

    #[test]
    fn what_asks_the_catalog_is_told_from_what_asks_the_node() {
        let is_ours = |name: &str| ["pg_bench", "payments"].contains(&name);
        let has_column = |table: &str, name: &str| (table, name) == ("payments", "pg_fee");
        for sql in [
            "SELECT * FROM pg_catalog.pg_class",
            "select relname from PG_CLASS",
            "SELECT table_name FROM information_schema.tables",
            "SELECT version()",
            "SELECT current_user, current_schema ()",
            "SELECT 1, User",
            "SELECT CAST('x' AS pg_catalog.text)",
            "SELECT 'per_device' :: regclass",
            "SELECT $1::oid, '{23}'::oid[]",
            "SELECT CAST($1 AS oid)",
            "SELECT cast(abs(a) AS OID[]) FROM v",
            "SELECT pg_fee FROM pg_class",
            "SELECT pg_fees(a) FROM payments",
            "SELECT a FROM payments, pg_roles",
            "SELECT a FROM payments, pg_catalog.unknown",
        ] {
            assert!(names_the_catalog(sql, is_ours, has_column) && may_name_the_catalog(sql), "{sql}");
        }
        for sql in [
            "SELECT view, version FROM system.views",
            "SELECT 'pg_class' AS information_schema",
            "SELECT n FROM pg_bench -- pg_class",
            "SELECT n FROM PG_Bench",
            "SELECT sum(p.pg_fee) FROM payments p WHERE PG_FEE > 0",
            "SELECT pg_fee, p.pg_fees AS pg_all FROM payments p",
            "SELECT \"current_user\" FROM v",
            "SELECT pg_class.a, pg_type.a FROM payments AS pg_class JOIN payments pg_type USING (a)",
            "SELECT user FROM system.tokens",
            "SELECT 1 AS user, \"user\"",
            "SELECT pg_typeof(1), PG_TYPEOF (a) FROM v",
            "SELECT regclass, oid FROM v",
            "SELECT CAST(a AS INT), (SELECT a AS oid) FROM v",
            "SELECT 1",
        ] {
            assert!(!names_the_catalog(sql, is_ours, has_column), "{sql}");
        }
        assert!(!may_name_the_catalog("SELECT orders, amount FROM orders_by_customer WHERE customer_id = $1"));
    }
}
