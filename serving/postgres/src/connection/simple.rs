//! The simple protocol: a text of statements, each answered as it comes.

use std::sync::Arc;

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::EmptyQueryResponse;

use super::cursors::FetchedBy;
use super::{Answered, Connection, MessageFailure, RunningStatement};
use crate::columns::row_description;
use crate::rows::TEXT;
use crate::statement::{Command, Statement, statements};

impl Connection {
    /// A text of the simple protocol. Several statements are one transaction, as in PostgreSQL.
    pub(super) async fn query(&mut self, text: &str) -> Answered {
        self.portals.remove("");
        let outcome = match statements(text) {
            Ok(statements) if statements.is_empty() => {
                self.socket.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?;
                Ok(())
            }
            Ok(statements) => self.statements_in_turn(text, &statements).await,
            Err(problem) => Err(problem.into()),
        };
        match outcome {
            Ok(()) => {}
            Err(MessageFailure::Gone) => return Err(MessageFailure::Gone),
            Err(MessageFailure::Problem(problem)) => {
                metrics::counter!("basestream_serving_postgres_errors_total", "state" => problem.state).increment(1);
                self.session.fail();
                self.socket.put(problem.message())?;
            }
        }
        self.ready().await
    }

    async fn statements_in_turn(&mut self, text: &str, statements: &[Statement]) -> Answered {
        let mut implicit = statements.len() > 1 && self.session.begin_transaction();
        for statement in statements {
            let running = RunningStatement { statement, text, search_path: self.session.search_path() };
            if implicit && statement.command == Command::Begin {
                implicit = false;
                self.complete("BEGIN")?;
                continue;
            }
            if let Err(failure) = self.run_simple(&running).await {
                if implicit {
                    self.end_implicit(false);
                }
                return Err(failure);
            }
            implicit &= self.session.in_transaction();
        }
        if implicit {
            self.end_implicit(true);
        }
        Ok(())
    }

    /// Ends the transaction of a text with several statements, and its cursors.
    fn end_implicit(&mut self, commit: bool) {
        self.portals.clear();
        self.session.end_transaction(commit);
    }

    async fn run_simple(&mut self, running: &RunningStatement<'_>) -> Answered {
        self.refuse_if_failed(&running.statement.command)?;
        let limits = self.limits();
        match &running.statement.command {
            Command::Rows => {
                let answer = self.begin(running, Vec::new(), &limits).await?;
                let formats = vec![TEXT; answer.types.len()];
                self.socket.put(PgWireBackendMessage::RowDescription(row_description(&answer.schema, &answer.types, &formats)))?;
                self.send_all(running, answer, formats, &limits).await
            }
            Command::Copy => self.copy_out(running, &limits).await,
            Command::Show { .. } | Command::ShowAll => {
                let answer = self.shown(&running.statement.command)?;
                let formats = vec![TEXT; answer.types.len()];
                self.socket.put(PgWireBackendMessage::RowDescription(row_description(&answer.schema, &answer.types, &formats)))?;
                self.send_all(running, answer, formats, &limits).await
            }
            Command::Declare(declare) => self.declare(declare, running.text, Arc::default(), Vec::new()).await,
            Command::Fetch(fetch) => self.fetch(fetch, FetchedBy::Text).await.map(|_| ()),
            Command::Move(step) => self.move_cursor(step).await,
            command => self.change(command),
        }
    }
}
