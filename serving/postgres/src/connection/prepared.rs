//! Prepared statements and portals.

use std::sync::Arc;

use bytes::Bytes;
use catalog::Revision;
use datafusion::common::{HashMap, ScalarValue};
use serving::SearchPath;

use crate::columns::{WireType, text_schema, wire_types};
use crate::params;
use crate::problem::{PROTOCOL_VIOLATION, SqlProblem};
use crate::query::{Description, StatementRows};
use crate::rows::{BINARY, TEXT, Zone};
use crate::statement::{Command, Statement};

pub(super) type Named<T> = HashMap<String, T>;

/// This many descriptions are kept.
const MAX_DESCRIPTIONS: usize = 256;
/// What they are kept by may have this many bytes. A longer text is kept alone.
const MAX_DESCRIBED_BYTES: usize = 1 << 20;

/// A statement's text and what the client said of its parameters. Cheap to clone: each portal has one.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    pub(super) sql: Arc<str>,
    /// `None` for a text without a statement.
    pub(super) statement: Option<Arc<Statement>>,
    /// OIDs; 0 where the client says none.
    pub(super) types: Arc<[u32]>,
    /// Where its tables are looked for: a portal keeps what its session had when it was made.
    pub(super) search_path: SearchPath,
    /// What was described to the client. An execution with other columns is refused.
    pub(super) shown: Option<Arc<Description>>,
}

impl Prepared {
    pub(super) fn new(sql: String, statement: Option<Statement>, types: Vec<u32>) -> Self {
        let (statement, search_path) = (statement.map(Arc::new), SearchPath::default());
        Self { sql: sql.into(), statement, types: types.into(), search_path, shown: None }
    }

    pub(super) fn command(&self) -> Option<&Command> {
        self.statement.as_ref().map(|statement| &statement.command)
    }

    /// Whether the client said the types of all of its parameters.
    pub(super) fn types_are_known(&self, params: usize) -> bool {
        self.types.len() == params && !self.types.contains(&0)
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.sql.len() + size_of_val(&*self.types)
    }
}

/// A statement with its parameters, and how far its rows are sent.
pub(super) struct Portal {
    /// How many the connection had made before.
    pub(super) number: u64,
    pub(super) prepared: Prepared,
    pub(super) params: Vec<ScalarValue>,
    /// As they were asked for.
    pub(super) formats: Vec<i16>,
    pub(super) progress: PortalProgress,
}

impl Portal {
    pub(super) fn is_query(&self) -> bool {
        self.prepared.command() == Some(&Command::Rows)
    }

    /// With its text, which may be the last of a statement that was closed or replaced.
    pub(super) fn kept_bytes(&self) -> usize {
        self.prepared.kept_bytes() + self.params.iter().map(|param| param.size()).sum::<usize>()
    }
}

pub(super) enum PortalProgress {
    NotBegun,
    Begun(Box<StatementRows>),
    /// A FETCH that is sent in parts. `taken` counts the rows of its cursor up to the last one that was sent.
    Fetching {
        taken: usize,
    },
    /// All rows were sent. `taken` is their number, for a FETCH that of its last part.
    Ended {
        taken: usize,
    },
}

impl PortalProgress {
    pub(super) fn begin(&mut self, answer: StatementRows) -> &mut Box<StatementRows> {
        *self = PortalProgress::Begun(Box::new(answer));
        match self {
            PortalProgress::Begun(answer) => answer,
            _ => unreachable!("it was just begun"),
        }
    }

    /// Whether it keeps what its query reads: some rows were asked for, and not all were sent.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self, PortalProgress::Begun(_))
    }
}

/// What queries are, by their text, the types that the client says of their parameters, and what the description is
/// for.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    by_text: HashMap<String, ByTypes>,
    /// Of the texts and the types.
    bytes: usize,
}

type ByTypes = HashMap<Vec<u32>, (DescribedFor, Arc<Description>)>;

/// A revision of the catalog, and where tables are looked for.
type DescribedFor = (Revision, SearchPath);

impl Descriptions {
    pub(super) fn get(&self, sql: &str, types: &[u32], asked_for: DescribedFor) -> Option<Arc<Description>> {
        let (of, described) = self.by_text.get(sql)?.get(types)?;
        (*of == asked_for).then(|| described.clone())
    }

    /// Keeps one. Where there are too many, or their texts are too long together, all others are dropped.
    pub(super) fn keep(&mut self, sql: &str, types: &[u32], described_for: DescribedFor, described: Arc<Description>) {
        let is_known = self.by_text.get(sql).is_some_and(|by_types| by_types.contains_key(types));
        if !is_known {
            let bytes = sql.len() + size_of_val(types);
            let count = self.by_text.values().map(HashMap::len).sum::<usize>();
            if count >= MAX_DESCRIPTIONS || self.bytes + bytes > MAX_DESCRIBED_BYTES {
                *self = Descriptions::default();
            }
            self.bytes += bytes;
        }
        self.by_text.entry(sql.to_owned()).or_default().insert(types.to_vec(), (described_for, described));
    }
}

/// The values of a Bind in a session of this zone. `formats` is that of each, or of all, or none for text.
pub(super) fn values(types: &[u32], formats: &[i16], values: &[Option<Bytes>], zone: Zone) -> Result<Vec<ScalarValue>, SqlProblem> {
    if types.len() != values.len() {
        let message = format!("bind message supplies {} parameters, but prepared statement requires {}", values.len(), types.len());
        return Err(SqlProblem::new(PROTOCOL_VIOLATION, message));
    }
    let formats = expanded(formats, values.len(), "parameter")?;
    let value = |(index, value): (usize, &Option<Bytes>)| params::value(index + 1, types[index], formats[index], value.as_ref(), zone);
    values.iter().enumerate().map(value).collect()
}

/// The format of each column.
pub(super) fn result_formats(formats: &[i16], columns: usize) -> Result<Vec<i16>, SqlProblem> {
    expanded(formats, columns, "result column")
}

fn expanded(formats: &[i16], count: usize, what: &str) -> Result<Vec<i16>, SqlProblem> {
    if let Some(format) = formats.iter().find(|format| ![TEXT, BINARY].contains(format)) {
        return Err(SqlProblem::new("22023", format!("unsupported format code: {format}")));
    }
    match formats {
        [] => Ok(vec![TEXT; count]),
        [all] => Ok(vec![*all; count]),
        each if each.len() == count => Ok(each.to_vec()),
        each => Err(SqlProblem::new(PROTOCOL_VIOLATION, format!("bind message has {} {what} formats but {count} values", each.len()))),
    }
}

/// Whether a client can read rows of the second columns if the first were described to it. The digits of a decimal may
/// differ.
pub(super) fn are_alike(shown: &[WireType], found: &[WireType]) -> bool {
    shown.len() == found.len() && shown.iter().zip(found).all(|(a, b)| (a.kind, a.is_list) == (b.kind, b.is_list))
}

/// A statement without columns and parameters.
pub(super) fn nothing() -> Description {
    texts(&[])
}

/// One with these columns of texts.
pub(super) fn texts(names: &[&str]) -> Description {
    let schema = text_schema(names);
    Description { types: wire_types(&schema, &[]), schema, params: Vec::new() }
}

#[cfg(test)]
mod tests;
