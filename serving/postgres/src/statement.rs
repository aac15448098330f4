//! Splits a text into statements and classifies each of them. Statements that are not supported are refused here.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::names;
use crate::problem::{NOT_SUPPORTED, READ_ONLY, SYNTAX_ERROR, SqlProblem};
use crate::query::may_name_the_catalog;
use crate::session::SEARCH_PATH;

mod cursors;

use cursors::Declaration;
pub(crate) use cursors::{CursorStep, Declare, Fetch, only_forward};

/// What a statement asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Rows: SELECT, VALUES, EXPLAIN and the like.
    Rows,
    Set {
        name: String,
        value: Option<String>,
        is_local: bool,
    },
    Reset {
        name: String,
    },
    ResetAll,
    Show {
        name: String,
    },
    ShowAll,
    Discard {
        what: String,
    },
    Begin,
    Commit,
    Rollback,
    /// What changes nothing here: the tag that is answered.
    Nothing {
        tag: &'static str,
    },
    Savepoint {
        name: String,
    },
    Release {
        savepoint: String,
    },
    RollbackTo {
        savepoint: String,
    },
    Deallocate {
        name: Option<String>,
    },
    Copy,
    Declare(Declare),
    Fetch(Fetch),
    Move(Fetch),
    /// All cursors without a name.
    CloseCursor {
        cursor: Option<String>,
    },
}

/// A statement of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    /// The byte of the whole text at which it begins.
    pub(crate) start: usize,
    pub(crate) command: Command,
    /// Of [`Command::Rows`]: what [`may_name_the_catalog`] says of its text. A prepared statement is not searched
    /// again.
    pub(crate) may_name_the_catalog: bool,
}

impl Statement {
    pub(crate) fn with_rows(sql: String, start: usize) -> Statement {
        Statement { may_name_the_catalog: may_name_the_catalog(&sql), sql, start, command: Command::Rows }
    }
}

/// Cuts a text at its semicolons. A part without a word is left out.
pub(crate) fn statements(text: &str) -> Result<Vec<Statement>, SqlProblem> {
    definitions::depth::check_length(text)?;
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location() else {
        // Planning says what is wrong with it, and where.
        return Ok(vec![Statement::with_rows(text.to_owned(), 0)]);
    };
    let mut finder = ByteFinder::new(text);
    let mut found = Vec::new();
    let mut of_statement: Vec<&TokenWithSpan> = Vec::new();
    for token in &tokens {
        match &token.token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::SemiColon => found.extend(statement(text, &mut finder, &std::mem::take(&mut of_statement))?),
            _ => of_statement.push(token),
        }
    }
    found.extend(statement(text, &mut finder, &of_statement)?);
    Ok(found)
}

fn statement(text: &str, finder: &mut ByteFinder, tokens: &[&TokenWithSpan]) -> Result<Option<Statement>, SqlProblem> {
    let [first, ..] = tokens else { return Ok(None) };
    let last = tokens[tokens.len() - 1];
    let words: Vec<Word> = tokens.iter().map(|token| Word::from_token(&token.token)).collect();
    let declaration = if words[0].is("declare") { Some(cursors::declaration(&words)?) } else { None };
    let start = finder.byte(first.span.start.line, first.span.start.column);
    let query = declaration.as_ref().map_or(first, |declaration| &tokens[declaration.query]).span.start;
    let query_start = finder.byte(query.line, query.column);
    let end = finder.byte(last.span.end.line, last.span.end.column).clamp(start, text.len());
    let sql_from = |start: usize| text.get(start..end).unwrap_or(text).to_owned();
    let sql = sql_from(start);
    let command = match declaration {
        Some(Declaration { cursor, is_binary, .. }) => {
            let query = Statement::with_rows(sql_from(query_start), query_start);
            Command::Declare(Declare { cursor, is_binary, query: query.into() })
        }
        None => command(&words, &sql)?,
    };
    Ok(Some(match command {
        Command::Rows => Statement::with_rows(sql, start),
        command => Statement { sql, start, command, may_name_the_catalog: false },
    }))
}

/// Finds the bytes of lines and columns, from one to the next in a text.
pub(crate) struct ByteFinder<'a> {
    text: &'a str,
    /// Counted from 1, columns in characters.
    line: u64,
    column: u64,
    byte: usize,
}

impl<'a> ByteFinder<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, line: 1, column: 1, byte: 0 }
    }

    /// The byte at a line and a column that are not before the last ones.
    pub(crate) fn byte(&mut self, line: u64, column: u64) -> usize {
        while (self.line, self.column) < (line, column) {
            let Some(next) = self.text[self.byte..].chars().next() else { break };
            self.byte += next.len_utf8();
            (self.line, self.column) = if next == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.byte
    }
}

/// A token, as settings and commands read it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    /// In lower case if it is not quoted.
    text: String,
    is_quoted: bool,
}

impl Word {
    fn from_token(token: &Token) -> Word {
        let (text, is_quoted) = match token {
            Token::Word(word) if word.quote_style.is_none() => (word.value.to_lowercase(), false),
            Token::Word(word) => (word.value.clone(), true),
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => (text.clone(), true),
            other => (other.to_string(), false),
        };
        Word { text, is_quoted }
    }

    fn is(&self, keyword: &str) -> bool {
        !self.is_quoted && self.text == keyword
    }
}

/// Statements that change something.
const WRITES: [&str; 32] = [
    "insert",
    "update",
    "delete",
    "merge",
    "truncate",
    "create",
    "alter",
    "drop",
    "grant",
    "revoke",
    "vacuum",
    "analyze",
    "cluster",
    "reindex",
    "refresh",
    "comment",
    "lock",
    "call",
    "do",
    "import",
    "reassign",
    "security",
    "notify",
    "load",
    "checkpoint",
    "attach",
    "detach",
    "use",
    "replace",
    "install",
    "unload",
    "msck",
];

fn command(words: &[Word], sql: &str) -> Result<Command, SqlProblem> {
    let keyword = |at: usize| words.get(at).filter(|word| !word.is_quoted).map_or("", |word| word.text.as_str());
    let last = || words.last().map(|word| word.text.clone()).unwrap_or_default();
    match keyword(0) {
        "set" => set(&words[1..], sql),
        "reset" => Ok(match setting_name(&words[1..]).0.as_str() {
            "all" => Command::ResetAll,
            name => Command::Reset { name: name.to_owned() },
        }),
        "show" => match keyword(1) {
            "tables" | "columns" | "functions" => Ok(Command::Rows),
            "all" => Ok(Command::ShowAll),
            _ => Ok(Command::Show { name: setting_name(&words[1..]).0 }),
        },
        "discard" => Ok(Command::Discard { what: keyword(1).to_owned() }),
        "begin" => Ok(Command::Begin),
        "start" if keyword(1) == "transaction" => Ok(Command::Begin),
        "commit" | "end" if keyword(1) != "prepared" => Ok(Command::Commit),
        "rollback" | "abort" if words.iter().any(|word| word.is("to")) => Ok(Command::RollbackTo { savepoint: last() }),
        "rollback" | "abort" if keyword(1) != "prepared" => Ok(Command::Rollback),
        "savepoint" => Ok(Command::Savepoint { name: last() }),
        "release" => Ok(Command::Release { savepoint: last() }),
        "fetch" => cursors::fetch("FETCH", &words[1..]).map(Command::Fetch),
        "move" => cursors::fetch("MOVE", &words[1..]).map(Command::Move),
        "close" => cursors::close(&words[1..]),
        "unlisten" => Ok(Command::Nothing { tag: "UNLISTEN" }),
        "deallocate" => {
            let name = words[1..].iter().find(|word| !word.is("prepare"));
            Ok(Command::Deallocate { name: name.filter(|name| !name.is("all")).map(|name| name.text.clone()) })
        }
        "copy" if words.iter().any(|word| word.is("from")) && !words.iter().any(|word| word.is("stdout")) => {
            Err(write_refused("COPY FROM"))
        }
        "copy" => Ok(Command::Copy),
        "prepare" | "execute" | "listen" | "commit" | "rollback" => {
            let found = keyword(0).to_uppercase();
            Err(SqlProblem::new(NOT_SUPPORTED, format!("{found} is not supported: expected SELECT, EXPLAIN, COPY .. TO STDOUT or SET"))
                .with_hint("statements are prepared, and read in parts, by the driver: by the protocol's own messages"))
        }
        "analyse" => Err(write_refused("ANALYZE")),
        found if WRITES.contains(&found) => Err(write_refused(&found.to_uppercase())),
        _ => Ok(Command::Rows),
    }
}

fn write_refused(what: &str) -> SqlProblem {
    SqlProblem::new(READ_ONLY, format!("cannot execute {what} in a read-only transaction"))
        .with_hint("events go in through the log (`basestream ingest`, POST /v1/streams/..), definitions through `basestream apply`")
}

/// `SET [SESSION | LOCAL] name { = | TO } value ..`, and the older spellings of some.
fn set(words: &[Word], sql: &str) -> Result<Command, SqlProblem> {
    let wrong = || SqlProblem::new(SYNTAX_ERROR, format!("\"{sql}\" is not understood: expected SET name = 'value'"));
    let is_local = words.first().is_some_and(|word| word.is("local"));
    let scope = words.first().is_some_and(|word| word.is("local") || word.is("session"));
    let words = if scope && words.len() > 1 { &words[1..] } else { words };
    let first = words.first().ok_or_else(wrong)?;
    if first.is("transaction") || first.is("characteristics") {
        return Ok(Command::Nothing { tag: "SET" });
    }
    if first.is("names") {
        return Ok(Command::Set { name: "client_encoding".into(), value: words.get(1).map(|word| word.text.clone()), is_local });
    }
    if let [keyword, schema] = words
        && keyword.is("schema")
        && schema.is_quoted
    {
        return Ok(Command::Set { name: SEARCH_PATH.into(), value: Some(names::quoted(&schema.text)), is_local });
    }
    let (name, rest) = setting_name(words);
    if let [keyword, interval, unit @ ..] = rest
        && name == "timezone"
        && keyword.is("interval")
        && interval.is_quoted
    {
        let unit: String = unit.iter().map(|word| format!(" {}", word.text)).collect();
        return Ok(Command::Set { name, value: Some(format!("INTERVAL '{}'{unit}", interval.text)), is_local });
    }
    let value = match rest {
        [first, value @ ..] if (first.is("=") || first.is("to")) && !value.is_empty() => value,
        value if name == "timezone" && !value.is_empty() => value,
        _ => return Err(wrong()),
    };
    if let [only] = value
        && (only.is("default") || (name == "timezone" && only.is("local")))
    {
        return Ok(Command::Set { name, value: None, is_local });
    }
    // A list of names keeps their quotes; those of other values only delimit them.
    let written = |word: &Word| if name == SEARCH_PATH { names::quoted(&word.text) } else { word.text.clone() };
    let mut text = String::new();
    for (index, word) in value.iter().enumerate() {
        let is_sign = word.is("-") || word.is("+");
        match word.text.as_str() {
            "," if !word.is_quoted => text.push_str(", "),
            _ => {
                if index > 0 && !text.ends_with([' ', '-', '+']) && !is_sign {
                    return Err(wrong());
                }
                text.push_str(&written(word));
            }
        }
    }
    Ok(Command::Set { name, value: Some(text), is_local })
}

/// The name that begins here, in the spelling of the list of settings, and what follows it.
fn setting_name(words: &[Word]) -> (String, &[Word]) {
    let is = |at: usize, keyword: &str| words.get(at).is_some_and(|word| word.is(keyword));
    if is(0, "time") && is(1, "zone") {
        return ("timezone".into(), &words[2..]);
    }
    if is(0, "transaction") && is(1, "isolation") && is(2, "level") {
        return ("transaction_isolation".into(), &words[3..]);
    }
    if is(0, "session") && is(1, "authorization") {
        return ("session_authorization".into(), &words[2..]);
    }
    let mut name = String::new();
    let mut taken = 0;
    for pair in words.chunks(2) {
        name.push_str(&pair[0].text.to_lowercase());
        taken += 1;
        match pair.get(1) {
            Some(dot) if dot.is(".") => {
                name.push('.');
                taken += 1;
            }
            _ => break,
        }
    }
    (name, &words[taken..])
}

#[cfg(test)]
mod tests;
