//! Statements that have rows: begun, and sent.

use std::sync::LazyLock;

use datafusion::common::ScalarValue;
use metrics::Counter;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyDone, CopyOutResponse};
use pgwire::messages::response::CommandComplete;

use super::answering::{self, RowOutput, Sent, StatementLimits};
use super::{Answered, Connection, RunningStatement};
use crate::copy::{CopyFormat, copy};
use crate::problem::{IN_FAILED_TRANSACTION, SqlProblem};
use crate::query::{AskedText, ReadFrom, StatementRows};
use crate::rows::RowFormat;
use crate::statement::{Command, Statement};

static QUERIES: LazyLock<Counter> = LazyLock::new(|| metrics::counter!("basestream_serving_postgres_queries_total"));

impl Connection {
    /// In a failed transaction, only its end is answered.
    pub(super) fn refuse_if_failed(&self, command: &Command) -> Answered {
        if !self.session.has_failed() || matches!(command, Command::Commit | Command::Rollback | Command::RollbackTo { .. }) {
            return Ok(());
        }
        Err(SqlProblem::new(IN_FAILED_TRANSACTION, "current transaction is aborted, commands ignored until end of transaction block")
            .into())
    }

    pub(super) fn limits(&self) -> StatementLimits {
        StatementLimits::new(
            self.caller.clone(),
            self.cancel.begin(),
            self.query_engine.node.query_timeout(),
            self.session.statement_timeout(),
        )
    }

    /// Plans a statement and begins it.
    pub(super) async fn begin(
        &mut self,
        running: &RunningStatement<'_>,
        params: Vec<ScalarValue>,
        limits: &StatementLimits,
    ) -> Answered<StatementRows> {
        let node = self.query_engine.node.clone();
        let read_view = match self.session.in_transaction() {
            true => Some(self.session.read_view(|| node.read_view())?),
            false => None,
        };
        let from = ReadFrom { read_view, session: &self.session, search_path: running.search_path };
        QUERIES.increment(1);
        let Statement { sql, may_name_the_catalog, .. } = running.statement;
        let asking = self.query_engine.ask(AskedText { sql, may_name_the_catalog: *may_name_the_catalog }, params, from);
        match limits.first(asking, &mut self.socket).await? {
            Ok(answer) => Ok(answer),
            Err(error) => Err(SqlProblem::from(error).within(running.text, running.statement.start).into()),
        }
    }

    /// Sends rows, at most `max_rows` of them (0: all), and takes over what they have set.
    pub(super) async fn send_rows(
        &mut self,
        answer: &mut StatementRows,
        output: &mut RowOutput<'_>,
        max_rows: usize,
        limits: &StatementLimits,
    ) -> Answered<Sent> {
        let sent = answering::send(&mut self.socket, answer, output, max_rows, limits).await?;
        if let Some(asked) = answer.asked_settings() {
            self.session.set_asked(asked)?;
        }
        Ok(sent)
    }

    pub(super) async fn send_all(
        &mut self,
        running: &RunningStatement<'_>,
        mut answer: StatementRows,
        formats: Vec<i16>,
        limits: &StatementLimits,
    ) -> Answered {
        let format = RowFormat { types: answer.types.clone(), formats, zone: self.session.zone() };
        let Sent { rows, .. } = self.send_rows(&mut answer, &mut RowOutput::Rows(&format), 0, limits).await?;
        self.complete(&tag(running.statement, rows))
    }

    pub(super) async fn copy_out(&mut self, running: &RunningStatement<'_>, limits: &StatementLimits) -> Answered {
        let copy = copy(&running.statement.sql).map_err(|problem| problem.within(running.text, running.statement.start))?;
        // If the SELECT is not part of the text, its errors have no place there.
        let (start, text) = match copy.start {
            Some(at) => (running.statement.start + at, running.text),
            None => (0, ""),
        };
        let select = Statement::with_rows(copy.sql, start);
        let selecting = RunningStatement { statement: &select, text, search_path: running.search_path };
        let mut answer = self.begin(&selecting, Vec::new(), limits).await?;
        let value_format = copy.format.value_format();
        let formats = vec![value_format; answer.types.len()];
        let overall = i8::from(copy.format == CopyFormat::Binary);
        let response = CopyOutResponse::new(overall, answer.types.len() as i16, formats.clone());
        self.socket.put(PgWireBackendMessage::CopyOutResponse(response))?;
        let mut begin = copy.format.begin(&answer.schema);
        // Clients expect a line of names by itself, and what is binary together with the first row.
        if copy.format != CopyFormat::Binary {
            self.socket.put_copy(begin.take());
        }
        let values = RowFormat { types: answer.types.clone(), formats, zone: self.session.zone() };
        let mut output = RowOutput::Copy { format: &copy.format, values: &values, begin };
        let Sent { rows, .. } = self.send_rows(&mut answer, &mut output, 0, limits).await?;
        if let RowOutput::Copy { begin, .. } = output {
            self.socket.put_copy(begin);
        }
        self.socket.put_copy(copy.format.end());
        self.socket.put(PgWireBackendMessage::CopyDone(CopyDone::new()))?;
        self.complete(&format!("COPY {rows}"))
    }

    pub(super) fn complete(&mut self, tag: &str) -> Answered {
        Ok(self.socket.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag.to_owned())))?)
    }
}

pub(super) fn tag(statement: &Statement, rows: u64) -> String {
    let is = |keyword: &str| statement.sql.get(..keyword.len()).is_some_and(|start| start.eq_ignore_ascii_case(keyword));
    match statement.command {
        Command::Show { .. } | Command::ShowAll => "SHOW".to_owned(),
        _ if is("explain") => "EXPLAIN".to_owned(),
        _ => format!("SELECT {rows}"),
    }
}
