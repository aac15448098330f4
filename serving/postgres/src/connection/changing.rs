//! Statements without rows: settings, transactions, what is kept. And settings as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};

use super::extended::no_statement;
use super::prepared::Descriptions;
use super::{Answered, Connection};
use crate::columns::text_schema;
use crate::problem::{SqlProblem, warning};
use crate::query::StatementRows;
use crate::statement::Command;

impl Connection {
    /// A statement without rows.
    pub(super) fn change(&mut self, command: &Command) -> Answered {
        let tag = match command {
            Command::Set { name, value, is_local } => {
                self.session.set(name, value.as_deref(), *is_local)?;
                "SET"
            }
            Command::Reset { name } => {
                self.session.set(name, None, false)?;
                "RESET"
            }
            Command::ResetAll => {
                self.session.reset_all();
                "RESET"
            }
            Command::Discard { what } => return self.discard(what),
            Command::Begin => self.begin_transaction()?,
            Command::Commit => self.end_transaction(true)?,
            Command::Rollback => self.end_transaction(false)?,
            Command::Savepoint { .. } | Command::Release { .. } if !self.session.in_transaction() => {
                let statement = if matches!(command, Command::Release { .. }) { "RELEASE SAVEPOINT" } else { "SAVEPOINT" };
                return Err(SqlProblem::new("25P01", format!("{statement} can only be used in transaction blocks")).into());
            }
            Command::Savepoint { name } => {
                self.session.set_savepoint(name, self.portals_made);
                "SAVEPOINT"
            }
            Command::Release { savepoint } => {
                self.session.release_savepoint(savepoint)?;
                "RELEASE"
            }
            Command::RollbackTo { savepoint } => self.roll_back_to(savepoint)?,
            Command::Deallocate { name } => self.deallocate(name.as_deref())?,
            Command::CloseCursor { cursor } => self.close_cursor(cursor.as_deref())?,
            Command::Nothing { tag } => tag,
            Command::Rows
            | Command::Copy
            | Command::Show { .. }
            | Command::ShowAll
            | Command::Declare(_)
            | Command::Fetch(_)
            | Command::Move(_) => "SELECT 0",
        };
        self.complete(tag)
    }

    fn begin_transaction(&mut self) -> Answered<&'static str> {
        if !self.session.begin_transaction() {
            self.socket.put(warning("25001", "there is already a transaction in progress"))?;
        }
        Ok("BEGIN")
    }

    /// COMMIT, or ROLLBACK: a transaction that failed is rolled back by either.
    fn end_transaction(&mut self, commit: bool) -> Answered<&'static str> {
        self.portals.clear();
        let committed = self.session.end_transaction(commit);
        if committed.is_none() {
            self.socket.put(warning("25P01", "there is no transaction in progress"))?;
        }
        Ok(if commit && committed != Some(false) { "COMMIT" } else { "ROLLBACK" })
    }

    /// Portals and cursors that were made since the savepoint end.
    fn roll_back_to(&mut self, savepoint: &str) -> Answered<&'static str> {
        let Some(made_before) = self.session.go_on_from_savepoint(savepoint)? else {
            return Err(SqlProblem::new("25P01", "ROLLBACK TO SAVEPOINT can only be used in transaction blocks").into());
        };
        self.portals.retain(|_, portal| portal.number < made_before);
        Ok("ROLLBACK")
    }

    /// Forgets one prepared statement, or all without a name.
    fn deallocate(&mut self, name: Option<&str>) -> Answered<&'static str> {
        let Some(name) = name else {
            self.statements.clear();
            return Ok("DEALLOCATE ALL");
        };
        match self.statements.remove(name) {
            Some(_) => Ok("DEALLOCATE"),
            None => Err(no_statement(name).into()),
        }
    }

    fn discard(&mut self, what: &str) -> Answered {
        match what {
            "all" if self.session.in_transaction() => {
                return Err(SqlProblem::new("25001", "DISCARD ALL cannot run inside a transaction block").into());
            }
            "all" => {
                self.session.reset_all();
                self.statements.clear();
                self.portals.clear();
                self.descriptions = Descriptions::default();
            }
            "plans" | "sequences" | "temp" | "temporary" => {}
            other => return Err(SqlProblem::new("42601", format!("DISCARD {other}: expected ALL, PLANS, SEQUENCES or TEMP")).into()),
        }
        self.complete(&format!("DISCARD {}", what.to_uppercase()))
    }

    pub(super) fn shown(&self, command: &Command) -> Answered<StatementRows> {
        let (names, columns): (Vec<&str>, Vec<Vec<String>>) = match command {
            Command::Show { name } => (vec![name.as_str()], vec![vec![self.session.get(name)?]]),
            _ => {
                let (names, values) = self.session.all().into_iter().map(|(name, value)| (name.to_owned(), value)).unzip();
                (vec!["name", "setting"], vec![names, values])
            }
        };
        let schema = text_schema(&names);
        let columns = columns.into_iter().map(|column| Arc::new(StringArray::from(column)) as ArrayRef).collect();
        let batch = RecordBatch::try_new(schema.clone(), columns).map_err(types::Error::from)?;
        Ok(StatementRows::from_texts(schema, Some(batch)))
    }
}
